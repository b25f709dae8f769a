#include "scheduler/report/svg_text.h"

#include "scheduler/report/table.h"

namespace motley {

std::string svg_escaped(const std::string& text) {
  std::string safe;
  for (const char c : text) {
    switch (c) {
      case '&':
        safe += "&amp;";
        break;
      case '<':
        safe += "&lt;";
        break;
      case '>':
        safe += "&gt;";
        break;
      default:
        if (static_cast<unsigned char>(c) >= ' ') safe += c;
    }
  }
  return safe;
}

std::string svg_number(double value) { return format_fixed(value, 1); }

std::string svg_begin(double width, double height) {
  const std::string w = format_fixed(width, 0), h = format_fixed(height, 0);
  return "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 " + w + " " + h + "\" width=\"" +
         w + "\" height=\"" + h +
         "\" font-family=\"system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif\" "
         "font-size=\"13\" fill=\"#333\">\n"
         "<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n";
}

}  // namespace motley
