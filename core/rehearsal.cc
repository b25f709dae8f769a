#include "core/rehearsal.h"

#include <cstdio>

namespace motley {

std::string untrustworthy_text(const SectionCount& count) {
  char share[32];
  std::snprintf(share, sizeof share, "%.1f %%",
                100.0 * static_cast<double>(count.overruns) / static_cast<double>(count.sections));
  return "rehearsal not trustworthy: in " + std::to_string(count.overruns) + " of " +
         std::to_string(count.sections) + " sections (" + share +
         ") the real work took longer than the device it stands for; lower pace.flops in the "
         "fleet and start anew";
}

}  // namespace motley
