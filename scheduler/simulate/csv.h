#pragma once
// Cells of text files: RFC 4180, with a separator of one's choice.

#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace motley {

struct CsvLine {
  int number = 0;  ///< in the file, from 1
  std::vector<std::string> cells;
};

/// Without empty lines. kInvalidSpec, with `path` and the line, where a quotation does not end.
Result<std::vector<CsvLine>> csv_lines(std::string_view text, char separator,
                                       const std::string& path);

}  // namespace motley
