#include "scheduler/report/table.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "core/check.h"
#include "core/units.h"

namespace motley {
namespace {

void append_line(const std::vector<std::string>& cells, const std::vector<size_t>& widths,
                 const std::vector<Align>& aligns, std::string* text) {
  std::string line;
  for (size_t i = 0; i < cells.size(); ++i) {
    const std::string padding(widths[i] - display_width(cells[i]), ' ');
    if (i > 0) line += "  ";
    line += aligns[i] == Align::kLeft ? cells[i] + padding : padding + cells[i];
  }
  line.erase(line.find_last_not_of(' ') + 1);
  *text += line + "\n";
}

}  // namespace

size_t display_width(const std::string& text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

std::string cut_to_width(const std::string& text, size_t columns) {
  size_t shown = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool begins = (text[i] & 0xC0) != 0x80;
    if (begins && shown++ == columns) return text.substr(0, i);
  }
  return text;
}

std::string format_fixed(double value, int decimals) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", decimals, value);
  return text;
}

std::string format_duration(double seconds) {
  return format_seconds(std::abs(seconds) < 5e-7 ? 0 : seconds);
}

std::string format_percent(double share) { return format_fixed(share * 100, 1) + " %"; }

void TextTable::add_row(std::vector<std::string> cells) {
  MOTLEY_CHECK_EQ(cells.size(), columns_.size());
  rows_.push_back(std::move(cells));
}

std::string TextTable::to_string() const {
  std::vector<std::string> titles;
  std::vector<size_t> widths;
  std::vector<Align> aligns;
  for (size_t i = 0; i < columns_.size(); ++i) {
    titles.push_back(columns_[i].title);
    aligns.push_back(columns_[i].align);
    widths.push_back(display_width(titles[i]));
    for (const auto& row : rows_) widths[i] = std::max(widths[i], display_width(row[i]));
  }
  std::string text;
  append_line(titles, widths, aligns, &text);
  for (const auto& row : rows_) append_line(row, widths, aligns, &text);
  return text;
}

}  // namespace motley
