#pragma once
// Whether paced devices (DESIGN.md §4) were rehearsed well enough to learn anything from it.

#include <cstdint>
#include <string>

namespace motley {

/// Sections of paced work, and those whose real work took longer than the time it stands for.
struct SectionCount {
  int64_t sections = 0;
  int64_t overruns = 0;

  /// At most 1 % overran; true also of none, as on devices that are not paced.
  bool trustworthy() const { return overruns * 100 <= sections; }
};

/// "rehearsal not trustworthy: …", one line with the remedy, for a count that is not.
std::string untrustworthy_text(const SectionCount& count);

}  // namespace motley
