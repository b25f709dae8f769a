#include "core/units.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <cstdio>
#include <span>
#include <vector>

namespace motley {
namespace {

// Products of a number and its unit are formed exactly, then compared with what fits.
__extension__ typedef unsigned __int128 Wide;

struct UnitName {
  std::string_view name;
  int64_t factor;
};

constexpr int64_t kKilo = 1000;
constexpr int64_t kKibi = 1024;

constexpr UnitName kByteUnits[] = {
    {"B", 1},
    {"kB", kKilo},
    {"KB", kKilo},
    {"MB", kKilo* kKilo},
    {"GB", kKilo* kKilo* kKilo},
    {"TB", kKilo* kKilo* kKilo* kKilo},
    {"PB", kKilo* kKilo* kKilo* kKilo* kKilo},
    {"KiB", kKibi},
    {"MiB", kKibi* kKibi},
    {"GiB", kKibi* kKibi* kKibi},
    {"TiB", kKibi* kKibi* kKibi* kKibi},
    {"PiB", kKibi* kKibi* kKibi* kKibi* kKibi},
};

constexpr UnitName kTimeUnits[] = {
    {"ns", 1},
    {"us", kKilo},
    {"ms", kKilo* kKilo},
    {"s", kKilo* kKilo* kKilo},
    {"m", 60 * kKilo* kKilo* kKilo},
    {"h", 3600 * kKilo* kKilo* kKilo},
    {"d", 86400 * kKilo* kKilo* kKilo},
};

constexpr UnitName kCountUnits[] = {
    {"", 1},
    {"k", kKilo},
    {"M", kKilo* kKilo},
    {"B", kKilo* kKilo* kKilo},
    {"T", kKilo* kKilo* kKilo* kKilo},
};

// In bits, so that both families are whole.
constexpr UnitName kBandwidthUnits[] = {
    {"B/s", 8},
    {"kB/s", 8 * kKilo},
    {"KB/s", 8 * kKilo},
    {"MB/s", 8 * kKilo* kKilo},
    {"GB/s", 8 * kKilo* kKilo* kKilo},
    {"TB/s", 8 * kKilo* kKilo* kKilo* kKilo},
    {"KiB/s", 8 * kKibi},
    {"MiB/s", 8 * kKibi* kKibi},
    {"GiB/s", 8 * kKibi* kKibi* kKibi},
    {"bit/s", 1},
    {"kbit/s", kKilo},
    {"Mbit/s", kKilo* kKilo},
    {"Gbit/s", kKilo* kKilo* kKilo},
    {"Tbit/s", kKilo* kKilo* kKilo* kKilo},
};

struct Family {
  const char* what;     ///< "a size"
  const char* example;  ///< "20GB"
  std::span<const UnitName> units;
  bool exact = false;  ///< nothing is rounded: half a sample is a slip
};

constexpr Family kSize{"a size", "20GB or 16GiB", kByteUnits};
constexpr Family kDuration{"a duration", "10m or 1.5s", kTimeUnits};
constexpr Family kCount{"a count", "300k or 10B", kCountUnits, true};
constexpr Family kBandwidth{"a bandwidth", "1.2GB/s or 10Gbit/s", kBandwidthUnits};

/// mantissa / 10^decimals times factor.
struct Measure {
  int64_t mantissa = 0;
  int64_t divisor = 1;
  int64_t factor = 1;
};

bool is_digit(char c) { return c >= '0' && c <= '9'; }

std::string quoted(std::string_view text) { return "'" + std::string(text) + "'"; }

tl::unexpected<Error> refuse(const Family& family, std::string_view text) {
  return fail(ErrorCode::kInvalidSpec,
              quoted(text) + " is not " + family.what + " (write it like " + family.example + ")");
}

tl::unexpected<Error> refuse_unit(const Family& family, std::string_view text,
                                  std::string_view unit) {
  if (unit.empty())
    return fail(ErrorCode::kInvalidSpec, quoted(text) + " has no unit (write " + family.what +
                                             " like " + family.example + ")");
  std::vector<std::string_view> names;
  for (const UnitName& known : family.units) names.push_back(known.name);
  const std::string near = did_you_mean(unit, names.data(), names.size());
  std::string hint = near.empty() ? "write " + std::string(family.what) + " like " + family.example
                                  : "did you mean '" + near + "'?";
  return fail(ErrorCode::kInvalidSpec,
              "unknown unit " + quoted(unit) + " in " + quoted(text) + " (" + hint + ")");
}

constexpr int kMostDigits = 18;  // of a number, so that arithmetic on it is exact

/// Reads digits with at most one point from the front of `text`; returns how many there were, zeros
/// in front not counted, or more than kMostDigits.
int take_number(std::string_view* text, Measure* measure) {
  int digits = 0;
  bool point = false;
  size_t i = 0;
  for (; i < text->size(); ++i) {
    const char c = (*text)[i];
    if (c == '.' && !point && digits > 0 && i + 1 < text->size() && is_digit((*text)[i + 1])) {
      point = true;
      continue;
    }
    if (!is_digit(c)) break;
    if (measure->mantissa != 0 || c != '0') ++digits;
    if (digits == 0) digits = 1;
    if (digits > kMostDigits || measure->divisor > INT64_MAX / 10) return kMostDigits + 1;
    measure->mantissa = measure->mantissa * 10 + (c - '0');
    if (point) measure->divisor *= 10;
  }
  text->remove_prefix(i);
  return digits;
}

Result<Measure> parse_measure(std::string_view text, const Family& family) {
  Measure measure;
  std::string_view rest = text;
  const int digits = take_number(&rest, &measure);
  if (digits == 0) return refuse(family, text);
  if (digits > kMostDigits) return fail(ErrorCode::kInvalidSpec, quoted(text) + " is too long");
  while (!rest.empty() && rest.front() == ' ') rest.remove_prefix(1);
  for (const UnitName& unit : family.units) {
    if (unit.name != rest) continue;
    measure.factor = unit.factor;
    return measure;
  }
  return refuse_unit(family, text, rest);
}

Result<int64_t> whole_of(const Measure& measure, std::string_view text, const Family& family) {
  const Wide product = static_cast<Wide>(measure.mantissa) * static_cast<Wide>(measure.factor);
  const Wide divisor = static_cast<Wide>(measure.divisor);
  if (family.exact && product % divisor != 0)
    return fail(ErrorCode::kInvalidSpec, quoted(text) + " is not a whole number");
  const Wide rounded = (product + divisor / 2) / divisor;
  if (rounded > static_cast<Wide>(INT64_MAX))
    return fail(ErrorCode::kInvalidSpec, quoted(text) + " is too large");
  return static_cast<int64_t>(rounded);
}

Result<int64_t> parse_whole(std::string_view text, const Family& family) {
  MOTLEY_TRY(const Measure measure, parse_measure(text, family));
  return whole_of(measure, text, family);
}

/// "1h" of "1h30m": up to the next digit behind a unit.
std::string_view first_part(std::string_view text) {
  const size_t unit = text.find_first_not_of("0123456789. ");
  if (unit == 0) return text;
  return text.substr(0, text.find_first_of("0123456789", std::min(unit, text.size())));
}

struct Ends {
  std::string_view low, high;
  bool range = false;
};

Ends split_range(std::string_view text) {
  const size_t dots = text.find("..");
  if (dots == std::string_view::npos) return {text, text, false};
  return {text.substr(0, dots), text.substr(dots + 2), true};
}

Result<int> parse_small_count(std::string_view text) {
  int64_t value = 0;
  for (const char c : text) {
    if (!is_digit(c)) value = INT64_MAX;
    if (value > INT32_MAX) break;
    value = value * 10 + (c - '0');
  }
  if (text.empty() || value > INT32_MAX)
    return fail(ErrorCode::kInvalidSpec,
                quoted(text) + " is not a count (write it like 4 or 2..8)");
  return static_cast<int>(value);
}

/// Three significant digits without trailing zeros; whole above 100.
std::string three_digits(double value) {
  char text[32];
  const int decimals = value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
  std::snprintf(text, sizeof text, "%.*f", decimals, value);
  std::string trimmed = text;
  if (decimals > 0) {
    trimmed.erase(trimmed.find_last_not_of('0') + 1);
    if (trimmed.back() == '.') trimmed.pop_back();
  }
  return trimmed;
}

std::string two_parts(int64_t total, int64_t unit, const char* large, const char* small) {
  char text[48];
  std::snprintf(text, sizeof text, "%lld%s%02lld%s", static_cast<long long>(total / unit), large,
                static_cast<long long>(total % unit), small);
  return text;
}

char lower(char c) { return static_cast<char>(std::tolower(static_cast<unsigned char>(c))); }

/// Insertions, deletions, replacements and swaps of neighbours that turn one word into the other.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<size_t>> cost(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) cost[i][0] = i;
  for (size_t j = 0; j <= b.size(); ++j) cost[0][j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    for (size_t j = 1; j <= b.size(); ++j) {
      const bool same = lower(a[i - 1]) == lower(b[j - 1]);
      cost[i][j] =
          std::min({cost[i - 1][j] + 1, cost[i][j - 1] + 1, cost[i - 1][j - 1] + (same ? 0u : 1u)});
      if (i > 1 && j > 1 && lower(a[i - 1]) == lower(b[j - 2]) &&
          lower(a[i - 2]) == lower(b[j - 1]))
        cost[i][j] = std::min(cost[i][j], cost[i - 2][j - 2] + 1);
    }
  }
  return cost[a.size()][b.size()];
}

}  // namespace

Result<Bytes> parse_bytes(std::string_view text) {
  MOTLEY_TRY(const int64_t value, parse_whole(text, kSize));
  return Bytes(value);
}

Result<Nanos> parse_duration(std::string_view text) {
  int64_t sum = 0;
  int64_t unit_before = INT64_MAX;
  std::string_view rest = text;
  do {
    const std::string_view part = first_part(rest);
    rest.remove_prefix(part.size());
    const Result<Measure> measure = parse_measure(part, kDuration);
    if (!measure && part == text) return fail(measure.error());
    if (!measure || measure->factor >= unit_before) return refuse(kDuration, text);
    unit_before = measure->factor;
    MOTLEY_TRY(const int64_t value, whole_of(*measure, part, kDuration));
    if (value > INT64_MAX - sum)
      return fail(ErrorCode::kInvalidSpec, quoted(text) + " is too large");
    sum += value;
  } while (!rest.empty());
  return Nanos(sum);
}

Result<int64_t> parse_count(std::string_view text) { return parse_whole(text, kCount); }

Result<double> parse_bandwidth(std::string_view text) {
  MOTLEY_TRY(const Measure measure, parse_measure(text, kBandwidth));
  return static_cast<double>(measure.mantissa) / static_cast<double>(measure.divisor) *
         static_cast<double>(measure.factor) / 8;
}

Result<BytesRange> parse_bytes_range(std::string_view text) {
  const Ends ends = split_range(text);
  BytesRange range;
  if (ends.range && ends.low.empty() && ends.high.empty()) return refuse(kSize, text);
  if (!ends.low.empty() || !ends.range) {
    MOTLEY_TRY(range.low, parse_bytes(ends.low));
  }
  if (!ends.high.empty() || !ends.range) {
    MOTLEY_TRY(range.high, parse_bytes(ends.high));
  }
  if (range.low > range.high)
    return fail(ErrorCode::kInvalidSpec, quoted(text) + " ends below its beginning");
  return range;
}

Result<CountRange> parse_count_range(std::string_view text) {
  const Ends ends = split_range(text);
  CountRange range;
  if (ends.range && ends.low.empty() && ends.high.empty())
    return parse_small_count("").map([](int) { return CountRange{}; });
  if (!ends.low.empty() || !ends.range) {
    MOTLEY_TRY(range.low, parse_small_count(ends.low));
  }
  if (!ends.high.empty() || !ends.range) {
    MOTLEY_TRY(range.high, parse_small_count(ends.high));
  }
  if (range.low > range.high)
    return fail(ErrorCode::kInvalidSpec, quoted(text) + " ends below its beginning");
  return range;
}

std::string format_bytes(Bytes bytes) {
  constexpr std::array kNames = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double value = std::fabs(static_cast<double>(bytes.value()));
  size_t unit = 0;
  while (value >= 1023.5 && unit + 1 < kNames.size()) {
    value /= 1024;
    ++unit;
  }
  return (bytes.value() < 0 ? "-" : "") + three_digits(value) + " " + kNames[unit];
}

std::string format_seconds(double seconds) {
  if (!std::isfinite(seconds)) return "unknown";
  if (seconds < 0) return "-" + format_seconds(-seconds);
  if (seconds == 0) return "0 s";
  if (seconds < 0.9995e-6) return three_digits(seconds * 1e9) + " ns";
  if (seconds < 0.9995e-3) return three_digits(seconds * 1e6) + " us";
  if (seconds < 0.9995) return three_digits(seconds * 1e3) + " ms";
  if (seconds < 59.95) return three_digits(seconds) + " s";
  constexpr double kLongest = 1e15;  // what follows counts in integers
  const int64_t whole = std::llround(std::min(seconds, kLongest));
  if (whole < 3600) return two_parts(whole, 60, "m", "s");
  const int64_t minutes = (whole + 30) / 60;
  if (minutes < 24 * 60) return two_parts(minutes, 60, "h", "m");
  return two_parts((minutes + 30) / 60, 24, "d", "h");
}

std::string did_you_mean(std::string_view word, const std::string_view* choices, size_t count) {
  constexpr size_t kLongestWord = 64;  // nobody slips in longer ones, and the search is quadratic
  if (word.empty() || word.size() > kLongestWord) return {};
  std::string_view best;
  size_t best_distance = std::max<size_t>(1, word.size() / 3) + 1;
  for (size_t i = 0; i < count; ++i) {
    const size_t distance = edit_distance(word, choices[i]);
    if (distance < best_distance && distance < choices[i].size()) {
      best = choices[i];
      best_distance = distance;
    }
  }
  return std::string(best);
}

}  // namespace motley
