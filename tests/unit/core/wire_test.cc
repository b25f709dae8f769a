#include "core/wire.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "core/reports.h"

namespace motley {
namespace {

Message message(int epoch, std::string payload, MessageType type = MessageType::kStep) {
  return {.type = type, .epoch = Epoch(epoch), .payload = std::move(payload)};
}

/// Everything a reader makes of `bytes` cut at `chunk` bytes, as frames again.
std::string through_reader(const std::string& bytes, size_t chunk) {
  FrameReader reader;
  std::string out;
  for (size_t i = 0; i < bytes.size(); i += chunk) {
    if (!reader.feed(std::span(bytes).subspan(i, std::min(chunk, bytes.size() - i))))
      return "error";
    while (const auto next = reader.next()) out += encode(*next);
  }
  return out;
}

TEST(Wire, FrameHasTheDocumentedBytes) {
  const std::string frame = encode(message(0x01020304, "{}", MessageType::kStop));
  EXPECT_EQ(frame, std::string("MTLY\x01\x00\x10\x00\x04\x03\x02\x01\x02\x00\x00\x00{}", 18));
}

RC_GTEST_PROP(Wire, AnyChunkingGivesTheSameMessages, ()) {
  std::string bytes;
  const auto payloads = *rc::gen::arbitrary<std::vector<std::string>>();
  for (const std::string& payload : payloads)
    bytes += encode(message(*rc::gen::inRange(0, INT32_MAX), payload,
                            static_cast<MessageType>(*rc::gen::inRange(0, 20))));
  const auto chunk = *rc::gen::inRange<size_t>(1, 40);
  RC_ASSERT(through_reader(bytes, chunk) == bytes);
}

RC_GTEST_PROP(Wire, HostileBytesEndTheConnectionAtMost, (const std::string& noise)) {
  std::string bytes = encode(message(1, "{\"rank\": 0}"));
  for (const char c : noise) bytes[*rc::gen::inRange<size_t>(0, bytes.size())] = c;
  FrameReader reader;
  const bool taken = reader.feed(bytes).has_value();
  if (!taken) RC_ASSERT(!reader.feed(encode(message(1, "{}"))).has_value());
  // A length made smaller leaves a whole frame before the fault: nothing but what came is handed
  // over.
  std::string frames;
  while (const auto next = reader.next()) frames += encode(*next);
  RC_ASSERT(bytes.starts_with(frames));
}

TEST(Wire, AShorterLengthIsAFrameAndThenAFault) {
  std::string bytes = encode(message(1, "{\"rank\": 0}"));
  bytes[12] = 2;
  FrameReader reader;
  EXPECT_FALSE(reader.feed(bytes));
  const auto kept = reader.next();
  ASSERT_TRUE(kept);
  EXPECT_EQ(kept->payload, "{\"");
  EXPECT_FALSE(reader.next());
}

TEST(Wire, RefusesAtTheFirstWrongByte) {
  const auto error_of = [](const std::string& bytes) {
    FrameReader reader;
    const Result<Unit> outcome = reader.feed(bytes);
    return outcome ? std::string() : outcome.error().message;
  };
  const std::string frame = encode(message(1, "{}"));
  EXPECT_EQ(error_of("G"), "not a Motley connection (wrong magic)");
  EXPECT_EQ(error_of("MTL"), "");
  std::string version = frame;
  version[4] = 2;
  EXPECT_EQ(error_of(version), "peer speaks wire version 2, this one 1");
  std::string epoch = frame;
  epoch[11] = '\xff';
  EXPECT_EQ(error_of(epoch), "frame with an impossible epoch");
  std::string length = frame;
  length[14] = 0x10;
  EXPECT_EQ(error_of(length), "frame of 1048578 bytes, more than 1048576");
}

TEST(Wire, MessagesBeforeAFaultAreKept) {
  FrameReader reader;
  const Result<Unit> outcome = reader.feed(encode(message(3, "a")) + "garbage");
  EXPECT_FALSE(outcome);
  const auto kept = reader.next();
  ASSERT_TRUE(kept);
  EXPECT_EQ(kept->payload, "a");
  EXPECT_FALSE(reader.next());
  EXPECT_EQ(reader.feed(encode(message(3, "b"))).error().code, ErrorCode::kCorrupt);
  EXPECT_FALSE(reader.next());
}

TEST(Wire, CarriesTheLargestPayload) {
  const std::string bytes = encode(message(1, std::string(kMaxPayloadBytes, 'x')));
  EXPECT_TRUE(through_reader(bytes, 65536) == bytes);
}

StepReport sample_report() {
  return {.rank = 3,
          .step = int64_t{1} << 40,
          .step_seconds = 0.1,
          .compute_seconds = 0.07,
          .wait_seconds = 0.02,
          .update_seconds = 0.01,
          .input_seconds = 0.002,
          .memory = Bytes(7 << 20),
          .samples = 12,
          .overruns = 1,
          .sections = 9,
          .special = true,
          .loss = 5.545177444479562,
          .loss_bits = std::bit_cast<uint64_t>(5.545177444479562),
          .gradient_norm = 1.5,
          .learning_rate = 1e-3};
}

TEST(StepReport, ComesBackBitByBit) {
  const StepReport report = sample_report();
  const Result<StepReport> back = step_report_from_text(to_json_text(report));
  ASSERT_TRUE(back) << back.error().to_string();
  EXPECT_EQ(to_json_text(*back), to_json_text(report));
  EXPECT_EQ(back->step, report.step);
  EXPECT_EQ(back->loss, report.loss);
  EXPECT_EQ(back->loss_bits, report.loss_bits);
  EXPECT_TRUE(back->special);
}

TEST(StepReport, ADivergedLossArrivesAsWhatItWas) {
  StepReport report = sample_report();
  report.loss = std::numeric_limits<double>::infinity();
  report.loss_bits = std::bit_cast<uint64_t>(report.loss);
  report.gradient_norm = std::numeric_limits<double>::quiet_NaN();
  const Result<StepReport> back = step_report_from_text(to_json_text(report));
  ASSERT_TRUE(back) << back.error().to_string();
  EXPECT_TRUE(std::isinf(back->loss));
  EXPECT_TRUE(std::isnan(back->gradient_norm));
}

TEST(SkippedReport, ComesBackAndTellsPeopleWhatBecameOfTheCheckpoint) {
  SkippedReport report;
  report.step = 40;
  report.directory = "step-00000040.e1";
  report.damaged = true;
  report.why = "s0001.safetensors: has\nanother size";
  report.set_aside = ".suspect-step-00000040.e1";
  const Result<SkippedReport> back = skipped_report_from_text(to_json_text(report));
  ASSERT_TRUE(back) << back.error().to_string();
  EXPECT_EQ(to_json_text(*back), to_json_text(report));
  EXPECT_EQ(
      skipped_text(*back),
      "checkpoint of step 40 is damaged (s0001.safetensors: has\\nanother size): set aside as "
      ".suspect-step-00000040.e1");
  report.damaged = false;
  EXPECT_EQ(skipped_text(report).substr(0, 38), "checkpoint of step 40 cannot be read (");
  EXPECT_FALSE(skipped_report_from_text(R"({"step": 40})"));
}

TEST(StepReport, RefusesWhatIsNoReport) {
  for (const char* text : {"", "{", "[]", "{}", "null", "{\"rank\": \"0\"}"})
    EXPECT_FALSE(step_report_from_text(text)) << text;
  std::string report = to_json_text(sample_report());
  report.insert(1, "\"extra\": 1, ");
  EXPECT_TRUE(step_report_from_text(report)) << "a later build may say more";
  for (const char* beyond : {R"("step":-1)", R"("step":9223372036854775807)"}) {
    std::string odd = to_json_text(sample_report());
    const size_t at = odd.find("\"step\":");
    odd.replace(at, odd.find(',', at) - at, beyond);
    EXPECT_FALSE(step_report_from_text(odd)) << odd;
  }
}

}  // namespace
}  // namespace motley
