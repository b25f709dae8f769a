#pragma once
// Tables for people: plain text, columns aligned, no colour.

#include <string>
#include <vector>

namespace motley {

enum class Align { kLeft, kRight };

class TextTable {
 public:
  struct Column {
    std::string title;
    Align align = Align::kRight;
  };
  explicit TextTable(std::vector<Column> columns) : columns_(std::move(columns)) {}

  /// As many cells as there are columns.
  void add_row(std::vector<std::string> cells);
  /// A title line, then the rows; two spaces between columns, none at the ends of lines.
  std::string to_string() const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

/// Columns a terminal shows of a UTF-8 text: its code points.
size_t display_width(const std::string& text);

/// As much of a UTF-8 text as fits `columns`.
std::string cut_to_width(const std::string& text, size_t columns);

std::string format_fixed(double value, int decimals);  ///< "12.34"
/// As format_seconds of core, but what rounding leaves of nothing is "0 s".
std::string format_duration(double seconds);
std::string format_percent(double share);  ///< 0.934 as "93.4 %"

}  // namespace motley
