#pragma once
// Invariants that only a bug can break. Always on; prints both values and aborts (exit by SIGABRT).

#include <sstream>
#include <string>

namespace motley::detail {

[[noreturn]] void check_failed(const char* file, int line, const char* what,
                               const std::string& values);

template <class A, class B>
std::string both(const A& a, const B& b) {
  std::ostringstream text;
  text << a << " against " << b;
  return text.str();
}

}  // namespace motley::detail

#define MOTLEY_CHECK(condition, message)                                                       \
  do {                                                                                         \
    if (!(condition)) ::motley::detail::check_failed(__FILE__, __LINE__, #condition, message); \
  } while (false)

#define MOTLEY_CHECK_OP(a, b, op)                                               \
  do {                                                                          \
    const auto& check_a = (a);                                                  \
    const auto& check_b = (b);                                                  \
    if (!(check_a op check_b))                                                  \
      ::motley::detail::check_failed(__FILE__, __LINE__, #a " " #op " " #b,     \
                                     ::motley::detail::both(check_a, check_b)); \
  } while (false)

#define MOTLEY_CHECK_EQ(a, b) MOTLEY_CHECK_OP(a, b, ==)
#define MOTLEY_CHECK_LE(a, b) MOTLEY_CHECK_OP(a, b, <=)
#define MOTLEY_CHECK_LT(a, b) MOTLEY_CHECK_OP(a, b, <)
