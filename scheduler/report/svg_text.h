#pragma once
// Text within SVG documents that are written by hand: no script, no external font or style.

#include <string>

namespace motley {

/// With markup's own characters replaced and what cannot be shown left out.
std::string svg_escaped(const std::string& text);
/// A coordinate.
std::string svg_number(double value);
/// The opening tag with the fonts of all our pictures, on white.
std::string svg_begin(double width, double height);

}  // namespace motley
