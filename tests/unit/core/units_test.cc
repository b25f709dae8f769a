#include "core/units.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <limits>
#include <string>

namespace motley {
namespace {

template <class T>
std::string error_of(const Result<T>& result) {
  return result ? "no error" : result.error().message;
}

TEST(Units, ReadsSizes) {
  const std::pair<const char*, int64_t> cases[] = {
      {"0B", 0},
      {"100B", 100},
      {"1kB", 1000},
      {"1KB", 1000},
      {"20GB", 20'000'000'000},
      {"16GiB", int64_t{16} << 30},
      {"512KiB", 512 << 10},
      {"1.5GB", 1'500'000'000},
      {"1.5 GB", 1'500'000'000},
      {"0.5B", 1},  // to the nearest byte
      {"000000000000000000000000000001kB", 1000},
      {"8191PiB", int64_t{8191} << 50},
  };
  for (const auto& [text, bytes] : cases) {
    const Result<Bytes> parsed = parse_bytes(text);
    ASSERT_TRUE(parsed) << text << ": " << error_of(parsed);
    EXPECT_EQ(parsed->value(), bytes) << text;
  }
}

TEST(Units, RefusesWhatIsNoSize) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "'' is not a size (write it like 20GB or 16GiB)"},
      {"64", "'64' has no unit (write a size like 20GB or 16GiB)"},
      {"0", "'0' has no unit (write a size like 20GB or 16GiB)"},
      {"GB", "'GB' is not a size (write it like 20GB or 16GiB)"},
      {"-1GB", "'-1GB' is not a size (write it like 20GB or 16GiB)"},
      {".5GB", "'.5GB' is not a size (write it like 20GB or 16GiB)"},
      {"20gb", "unknown unit 'gb' in '20gb' (did you mean 'GB'?)"},
      {"20GiBs", "unknown unit 'GiBs' in '20GiBs' (did you mean 'GiB'?)"},
      {"1.GB", "unknown unit '.GB' in '1.GB' (did you mean 'GB'?)"},
      {"1e3", "unknown unit 'e3' in '1e3' (write a size like 20GB or 16GiB)"},
      {"0x10", "unknown unit 'x10' in '0x10' (write a size like 20GB or 16GiB)"},
      {"8192PiB", "'8192PiB' is too large"},
      {"9999999999999999999", "'9999999999999999999' is too long"},
      {"1.0000000000000000000", "'1.0000000000000000000' is too long"},
      {"9223372036854775808", "'9223372036854775808' is too long"},
      {"999999999999999999kB", "'999999999999999999kB' is too large"},
  };
  for (const auto& [text, message] : cases) EXPECT_EQ(error_of(parse_bytes(text)), message);
}

TEST(Units, ReadsDurationsOnlyWithAUnit) {
  EXPECT_EQ(parse_duration("10m"), Nanos(600'000'000'000));
  EXPECT_EQ(parse_duration("200us"), Nanos(200'000));
  EXPECT_EQ(parse_duration("1.5s"), Nanos(1'500'000'000));
  EXPECT_EQ(parse_duration("6h"), Nanos(int64_t{6} * 3600 * 1'000'000'000));
  EXPECT_EQ(parse_duration("2d"), Nanos(int64_t{2} * 86400 * 1'000'000'000));
  EXPECT_EQ(parse_duration("0s"), Nanos(0));
  EXPECT_EQ(parse_duration("7ns"), Nanos(7));
  EXPECT_EQ(error_of(parse_duration("10")), "'10' has no unit (write a duration like 10m or 1.5s)");
  EXPECT_EQ(error_of(parse_duration("10min")),
            "unknown unit 'min' in '10min' (write a duration like 10m or 1.5s)");
  EXPECT_EQ(error_of(parse_duration("200000d")), "'200000d' is too large");
}

TEST(Units, ReadsDurationsOfSeveralUnits) {
  const auto seconds = [](int64_t count) { return Nanos(count * 1'000'000'000); };
  EXPECT_EQ(parse_duration("1h2m"), seconds(3720));
  EXPECT_EQ(parse_duration("1m30s"), seconds(90));
  EXPECT_EQ(parse_duration("1d2h3m4.5s"), Nanos(93'784'500'000'000));
  for (const int64_t count : {60, 125, 4200, 18'600, 86'400, 90'000})
    EXPECT_EQ(parse_duration(format_seconds(static_cast<double>(count))), seconds(count)) << count;
  EXPECT_EQ(error_of(parse_duration("30m1h")),
            "'30m1h' is not a duration (write it like 10m or 1.5s)");
  EXPECT_EQ(error_of(parse_duration("1m1m")),
            "'1m1m' is not a duration (write it like 10m or 1.5s)");
  EXPECT_EQ(error_of(parse_duration("1h30")),
            "'1h30' is not a duration (write it like 10m or 1.5s)");
  EXPECT_EQ(error_of(parse_duration("-1h30m")),
            "'-1h30m' is not a duration (write it like 10m or 1.5s)");
  EXPECT_EQ(error_of(parse_duration("106751d24h")), "'106751d24h' is too large");
}

TEST(Units, ReadsCountsExactly) {
  EXPECT_EQ(parse_count("10B"), int64_t{10'000'000'000});
  EXPECT_EQ(parse_count("1.5M"), 1'500'000);
  EXPECT_EQ(parse_count("300k"), 300'000);
  EXPECT_EQ(parse_count("2T"), int64_t{2'000'000'000'000});
  EXPECT_EQ(parse_count("17"), 17);
  EXPECT_EQ(error_of(parse_count("10.5")), "'10.5' is not a whole number");
  EXPECT_EQ(error_of(parse_count("1.0001k")), "'1.0001k' is not a whole number");
  EXPECT_EQ(error_of(parse_count("9999999999T")), "'9999999999T' is too large");
}

TEST(Units, ReadsBandwidths) {
  EXPECT_DOUBLE_EQ(*parse_bandwidth("1.2GB/s"), 1.2e9);
  EXPECT_DOUBLE_EQ(*parse_bandwidth("125MB/s"), 125e6);
  EXPECT_DOUBLE_EQ(*parse_bandwidth("10Gbit/s"), 1.25e9);
  EXPECT_DOUBLE_EQ(*parse_bandwidth("1GiB/s"), 1073741824.0);
  EXPECT_EQ(error_of(parse_bandwidth("10Gb/s")),
            "unknown unit 'Gb/s' in '10Gb/s' (did you mean 'GB/s'?)");
  EXPECT_FALSE(parse_bandwidth("10"));
}

TEST(Units, ReadsRanges) {
  EXPECT_EQ(parse_bytes_range("20GB.."), (BytesRange{Bytes(20'000'000'000), Bytes(INT64_MAX)}));
  EXPECT_EQ(parse_bytes_range("..24GB"), (BytesRange{Bytes(0), Bytes(24'000'000'000)}));
  EXPECT_EQ(parse_bytes_range("1GB..1.5GB"),
            (BytesRange{Bytes(1'000'000'000), Bytes(1'500'000'000)}));
  EXPECT_EQ(parse_bytes_range("16GB"), (BytesRange{Bytes(16'000'000'000), Bytes(16'000'000'000)}));
  EXPECT_EQ(parse_count_range("2..8"), (CountRange{2, 8}));
  EXPECT_EQ(parse_count_range("2.."), (CountRange{2, INT32_MAX}));
  EXPECT_EQ(parse_count_range("..3"), (CountRange{0, 3}));
  EXPECT_EQ(parse_count_range("4"), (CountRange{4, 4}));
  EXPECT_EQ(error_of(parse_count_range("8..2")), "'8..2' ends below its beginning");
  EXPECT_EQ(error_of(parse_bytes_range("8GB..2GB")), "'8GB..2GB' ends below its beginning");
  for (const char* bad : {"", "..", "2...8", "a..b", "-1..2", "2..99999999999", "1.5"})
    EXPECT_FALSE(parse_count_range(bad)) << bad;
  for (const char* bad : {"", "..", "1GB...2GB", "..x"})
    EXPECT_FALSE(parse_bytes_range(bad)) << bad;
}

TEST(Units, FormatsBytesWithThreeDigits) {
  const std::pair<int64_t, const char*> cases[] = {
      {0, "0 B"},
      {1023, "1023 B"},
      {1024, "1 KiB"},
      {1536 << 20, "1.5 GiB"},
      {(1 << 20) - 1, "1 MiB"},
      {int64_t{123} << 30, "123 GiB"},
      {int64_t{12345} << 20, "12.1 GiB"},
      {-2048, "-2 KiB"},
      {INT64_MAX, "8 EiB"},
  };
  for (const auto& [bytes, text] : cases) EXPECT_EQ(format_bytes(Bytes(bytes)), text);
}

TEST(Units, FormatsSecondsForPeople) {
  const std::pair<double, const char*> cases[] = {
      {0, "0 s"},         {0.412, "412 ms"}, {3.1, "3.1 s"},   {125, "2m05s"},
      {4200, "1h10m"},    {60, "1m00s"},     {59.96, "1m00s"}, {0.9999, "1 s"},
      {1.5e-6, "1.5 us"}, {2e-9, "2 ns"},    {86400, "1d00h"}, {90000, "1d01h"},
      {-0.25, "-250 ms"}, {3599.7, "1h00m"}, {7199, "2h00m"},  {0.00123, "1.23 ms"},
  };
  for (const auto& [seconds, text] : cases) EXPECT_EQ(format_seconds(seconds), text) << seconds;
  EXPECT_EQ(format_seconds(std::numeric_limits<double>::infinity()), "unknown");
  EXPECT_FALSE(format_seconds(1e300).empty());
}

TEST(Units, SuggestsOnlyNearWords) {
  const std::string_view words[] = {"global_batch", "grain", "steps", "lr"};
  const auto near = [&](std::string_view word) { return did_you_mean(word, words, 4); };
  EXPECT_EQ(near("globl_batch"), "global_batch");
  EXPECT_EQ(near("GLOBAL_BATCH"), "global_batch");
  EXPECT_EQ(near("setps"), "steps");  // a swap counts once
  EXPECT_EQ(near("lR"), "lr");
  EXPECT_EQ(near("l"), "lr");
  EXPECT_EQ(near("optimizer"), "");
  EXPECT_EQ(near(""), "");
  EXPECT_EQ(near(std::string(100'000, 'g')), "");
}

RC_GTEST_PROP(Units, WholeSizesComeBack, (const uint32_t count)) {
  RC_ASSERT(parse_bytes(std::to_string(count) + "B") == Bytes(count));
  RC_ASSERT(parse_bytes(std::to_string(count) + "MiB") == Bytes(int64_t{count} << 20));
  RC_ASSERT(parse_duration(std::to_string(count) + "us") == Nanos(int64_t{count} * 1000));
}

RC_GTEST_PROP(Units, AnyTextIsReadOrRefused, (const std::string& text)) {
  parse_bytes(text);
  parse_duration(text);
  parse_bandwidth(text);
  parse_count(text);
  parse_bytes_range(text);
  parse_count_range(text);
}

}  // namespace
}  // namespace motley
