#include "scheduler/simulate/csv.h"

#include <utility>

namespace motley {
namespace {

class CsvReader {
 public:
  CsvReader(std::string_view text, char separator) : text_(text), separator_(separator) {}

  bool at_end() const { return at_ == text_.size(); }
  int line_number() const { return line_; }
  bool within_quotation() const { return quoted_; }

  CsvLine line() {
    CsvLine line{line_, {}};
    do line.cells.push_back(cell());
    while (!at_end() && text_[at_ - 1] == separator_);
    return line;
  }

 private:
  /// Up to and with what ends it.
  std::string cell() {
    std::string cell;
    if (!at_end() && text_[at_] == '"') {
      quoted_ = true;
      ++at_;
    }
    while (!at_end()) {
      const char next = text_[at_++];
      if (next == '\n') ++line_;
      if (quoted_) {
        if (next != '"') {
          cell += next;
        } else if (!at_end() && text_[at_] == '"') {
          cell += text_[at_++];
        } else {
          quoted_ = false;
        }
      } else if (next == separator_ || next == '\n') {
        break;
      } else if (next != '\r') {
        cell += next;
      }
    }
    return cell;
  }

  std::string_view text_;
  const char separator_;
  size_t at_ = 0;
  int line_ = 1;
  bool quoted_ = false;
};

}  // namespace

Result<std::vector<CsvLine>> csv_lines(std::string_view text, char separator,
                                       const std::string& path) {
  std::vector<CsvLine> lines;
  CsvReader reader(text, separator);
  while (!reader.at_end()) {
    CsvLine line = reader.line();
    if (reader.within_quotation())
      return fail(ErrorCode::kInvalidSpec, "a quotation does not end", {path, line.number, 0});
    if (line.cells.size() > 1 || !line.cells[0].empty()) lines.push_back(std::move(line));
  }
  return lines;
}

}  // namespace motley
