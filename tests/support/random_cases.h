#pragma once

namespace motley::testing {

/// How many of `all` random cases to try: all in a build as users have it, a quarter under
/// sanitizers, which take several times as long for each and look at other things than results.
constexpr int random_cases(int all) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return all / 4;
#else
  return all;
#endif
}

}  // namespace motley::testing
