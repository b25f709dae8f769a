// Frames between ranks and their runner, in pieces of any size, and what they carry.

#include <algorithm>

#include "core/check.h"
#include "core/reports.h"
#include "core/wire.h"
#include "tests/fuzz/fuzz_target.h"

namespace motley::testing {
namespace {

void read_payload(const Message& message) {
  switch (message.type) {
    case MessageType::kHello:
      return (void)hello_from_text(message.payload);
    case MessageType::kPhase:
      return (void)phase_report_from_text(message.payload);
    case MessageType::kStep:
      return (void)step_report_from_text(message.payload);
    case MessageType::kHeartbeat:
      return (void)heartbeat_from_text(message.payload);
    case MessageType::kSaved:
      return (void)saved_report_from_text(message.payload);
    case MessageType::kEvaluated:
      return (void)evaluated_report_from_text(message.payload);
    case MessageType::kDone:
      return (void)done_report_from_text(message.payload);
    case MessageType::kSkipped:
      return (void)skipped_report_from_text(message.payload);
    default:
      return;
  }
}

}  // namespace

void fuzz_one(std::string_view input) {
  const size_t piece = 1 + static_cast<unsigned char>(take_choice(&input));
  FrameReader reader;
  std::string taken;
  bool whole = true;
  for (; !input.empty() && whole; input.remove_prefix(std::min(piece, input.size()))) {
    whole = reader.feed(input.substr(0, piece)).has_value();
    while (const auto message = reader.next()) {
      MOTLEY_CHECK(message->payload.size() <= kMaxPayloadBytes, "a frame that is too long");
      read_payload(*message);
      taken = encode(*message);
      FrameReader again;
      MOTLEY_CHECK(again.feed(taken).has_value(), "a frame of ours is refused");
      const auto taken_again = again.next();
      MOTLEY_CHECK(taken_again && taken_again->payload == message->payload, "it is another one");
    }
  }
}

std::vector<std::string> fuzz_seeds() {
  StepReport step;
  step.step = 7;
  step.loss = 2.5;
  const std::string hello = to_json_text(Hello{}), beat = to_json_text(Heartbeat{});
  const std::pair<MessageType, std::string> messages[] = {
      {MessageType::kHello, hello},
      {MessageType::kPhase, to_json_text(PhaseReport{})},
      {MessageType::kStep, to_json_text(step)},
      {MessageType::kHeartbeat, beat},
      {MessageType::kSaved, to_json_text(SavedReport{})},
      {MessageType::kEvaluated, to_json_text(EvaluatedReport{})},
      {MessageType::kDone, to_json_text(DoneReport{})},
      {MessageType::kSkipped, to_json_text(SkippedReport{})},
      {MessageType::kStop, "{}"}};
  std::vector<std::string> seeds;
  std::string all;
  for (const auto& [type, payload] : messages) {
    seeds.push_back("\x10" + encode({type, Epoch(3), payload}));
    all += encode({type, Epoch(3), payload});
  }
  seeds.push_back("\xff" + all);
  return seeds;
}

}  // namespace motley::testing
