#include "core/foreign_profile.h"

#include <gtest/gtest.h>

#include <fstream>
#include <random>

#include "tests/support/new_seeds.h"
#include "tests/support/temporary_directory.h"

namespace motley {
namespace {

constexpr const char* kProfile = R"({"version": 1, "name": "two layers", "source": "someone",
 "model": {"optimizer_bytes_per_parameter": 24, "layers": [
   {"parameters": {"1": 100, "2": 60}, "activation_bytes_per_sample": 8, "output_bytes_per_sample": 4},
   {"parameters": 50, "activation_bytes_per_sample": {"1": 8}, "output_bytes_per_sample": 2, "_kind": "head"}]},
 "devices": {"A": {"memory_bytes": 1000, "price_per_hour": 1.5, "profiles": [
   {"micro_batch": 2, "tensor": 2, "forward_seconds": [1, 2], "backward_seconds": [3, 4], "update_seconds": [5, 6]},
   {"micro_batch": 1, "forward_seconds": [1, 2], "backward_seconds": [3, 4], "update_seconds": [5, 6]}]},
   "B": {"memory_bytes": 2000, "profiles": []}},
 "links": [
   {"from": "A", "to": "B", "from_devices": 2, "latency_seconds": 0.5, "bytes_per_second": 100},
   {"from": "A", "to": "A", "bandwidth_GBps": [0.5, 20], "notes": "a guess"},
   {"from": "B", "to": "B", "seconds_by_bytes": [[100, 1], [300, 2]]}]})";

Result<ForeignProfile> read(const std::string& text) {
  const testing::TemporaryDirectory directory;
  const std::string path = directory.path() + "/p.json";
  std::ofstream(path) << text;
  return read_foreign_profile(real_file_system(), path);
}

std::string with(std::string text, const std::string& from, const std::string& to) {
  text.replace(text.find(from), from.size(), to);
  return text;
}

TEST(ForeignProfile, IsReadWithItsDefaults) {
  const Result<ForeignProfile> profile = read(kProfile);
  ASSERT_TRUE(profile) << profile.error().to_string();
  EXPECT_EQ(profile->global_batch, 0);
  EXPECT_EQ(profile->gradient_bytes_per_parameter, 4);
  EXPECT_EQ(profile->layers[0].parameters.at(2), 60);
  EXPECT_EQ(profile->layers[1].parameters.at(1), 50);
  const ForeignDevice& device = profile->devices.at("A");
  EXPECT_EQ(device.price_per_hour, 1.5);
  EXPECT_EQ(device.find(1, 1)->update_seconds[1], 6);
  EXPECT_EQ(device.find(2, 1), nullptr);
}

TEST(ForeignProfile, LinksAreLinesPolynomialsAndTables) {
  const Result<ForeignProfile> profile = read(kProfile);
  ASSERT_TRUE(profile);
  EXPECT_DOUBLE_EQ(profile->link("A", 2, "B", 1)->seconds(50), 1.0);
  EXPECT_EQ(profile->link("B", 1, "A", 2), profile->link("A", 2, "B", 1)) << "the other way";
  EXPECT_EQ(profile->link("A", 1, "B", 1), nullptr);
  // 4 MB: 0.5 · log2(4) + 20 = 21 GB/s
  EXPECT_DOUBLE_EQ(profile->link("A", 1, "A", 1)->seconds(4e6), 4e6 / 21e9);
  const ForeignLink& table = *profile->link("B", 1, "B", 1);
  EXPECT_DOUBLE_EQ(table.seconds(10), 1);
  EXPECT_DOUBLE_EQ(table.seconds(200), 1.5);
  EXPECT_DOUBLE_EQ(table.seconds(600), 4);
}

TEST(ForeignProfile, FaultsAreNamedWithTheirPlace) {
  const auto said = [](const std::string& from, const std::string& to) {
    const Result<ForeignProfile> profile = read(with(kProfile, from, to));
    return profile ? "" : profile.error().to_string();
  };
  const auto has = [](const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
  };
  EXPECT_PRED2(has, said(R"("1": 100, )", ""), "p.json:3:19: /model/layers/0/parameters: the size");
  EXPECT_PRED2(has, said(R"("2": 60)", R"("two": 60)"), "'two' is no tensor degree");
  EXPECT_PRED2(has, said("[1, 2]", "[1]"), "one number for each of 2 layers, and has 1");
  EXPECT_PRED2(has, said("[1, 2]", "[1, -2]"), "seconds must be 0 at least");
  EXPECT_PRED2(has, said(R"("to": "B")", R"("to": "C")"), "no device of this type");
  EXPECT_PRED2(has, said("[0.5, 20]", "[]"), "has no coefficients");
  EXPECT_PRED2(has, said("[100, 1]", "[100]"), "expected pairs of bytes and seconds");
  EXPECT_PRED2(has, said(R"("memory_bytes": 1000)", R"("memory": 1000)"), "memory_bytes");
}

TEST(ForeignProfile, UnknownMembersAreNamedWithWhatTheyMayMean) {
  const std::pair<std::string, std::string> misspelt[] = {
      {R"("links")", R"("link")"},
      {R"("layers")", R"("layer")"},
      {R"("parameters": 50)", R"("parameters": 50, "paramters": 60)"},
      {R"("price_per_hour")", R"("price_per_hours")"},
      {R"("tensor")", R"("tensr")"},
      {R"("from_devices")", R"("from_device")"}};
  for (const auto& [from, to] : misspelt) {
    const Result<ForeignProfile> profile = read(with(kProfile, from, to));
    ASSERT_FALSE(profile) << to;
    const std::string said = profile.error().to_string();
    EXPECT_NE(said.find("p.json:"), std::string::npos) << said;
    EXPECT_NE(said.find("unknown key '"), std::string::npos) << said;
    EXPECT_NE(said.find("(did you mean '"), std::string::npos) << said;
  }
  EXPECT_FALSE(read(with(kProfile, R"("source")", R"("colour")")));
  const Result<ForeignProfile> escaped = read(with(kProfile, R"("source")", R"("a\nb")"));
  ASSERT_FALSE(escaped);
  EXPECT_EQ(escaped.error().to_string().find('\n'), std::string::npos);
}

TEST(ForeignProfile, WhatContradictsItselfIsRefused) {
  const auto refused = [](const std::string& from, const std::string& to, const std::string& said) {
    const Result<ForeignProfile> profile = read(with(kProfile, from, to));
    ASSERT_FALSE(profile) << to;
    EXPECT_NE(profile.error().to_string().find(said), std::string::npos)
        << profile.error().to_string();
  };
  refused(R"("micro_batch": 2, "tensor": 2)", R"("micro_batch": 1)",
          "/devices/A/profiles/1: micro-batch 1 at tensor 1 is there twice");
  const std::string again = R"("links": [{"from": "A", "to": "A", "bandwidth_GBps": )";
  refused(R"("links": [)", again + "[2]},",
          "p.json:11:4: /links/2: is of the same devices as "
          "/links/0, and has another speed");
  EXPECT_TRUE(read(with(kProfile, R"("links": [)", again + "[0.5, 20]},"))) << "twice the same";
  refused("[100, 1]", "[300, 1]", "seconds_by_bytes: 300 bytes have two times");
  refused(R"("bandwidth_GBps")", R"("bytes_per_second": 5, "bandwidth_GBps")", "two speeds");
  refused(R"("bandwidth_GBps")", R"("bandwidth")", "gives no speed");
  refused("[0.5, 20]", "[0.5, 2]",
          "/links/1/bandwidth_GBps: is not above 0 for messages of 4.0 bytes");
  EXPECT_TRUE(read(with(with(kProfile, "[0.5, 20]", "[0.5, 2]"), R"("output_bytes_per_sample": 4)",
                        R"("output_bytes_per_sample": 4e6)")));
}

/// Whatever is cut out of it or written over it: read, or refused in one line.
TEST(ForeignProfile, DamagedOnesAreRefusedOrRead) {
  std::mt19937 random(seed_of_this_run());
  for (int round = 0; round < 500; ++round) {
    std::string text = kProfile;
    const size_t at = random() % text.size();
    if (round % 2 == 0)
      text.erase(at, 1 + random() % 40);
    else
      text[at] = "0\"[]{},:-9e"[random() % 11];
    const Result<ForeignProfile> profile = read(text);
    if (profile) continue;
    EXPECT_EQ(profile.error().to_string().find('\n'), std::string::npos);
    EXPECT_EQ(profile.error().code, ErrorCode::kInvalidSpec) << profile.error().to_string();
  }
}

}  // namespace
}  // namespace motley
