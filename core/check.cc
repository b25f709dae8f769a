#include "core/check.h"

#include <cstdio>
#include <cstdlib>

namespace motley::detail {

void check_failed(const char* file, int line, const char* what, const std::string& values) {
  std::fprintf(stderr, "motley: internal error at %s:%d: %s (%s)\n", file, line, what,
               values.c_str());
  std::abort();
}

}  // namespace motley::detail
