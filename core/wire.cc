#include "core/wire.h"

#include <bit>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "core/check.h"
#include "core/json_fields.h"

namespace motley {
namespace {

constexpr std::string_view kMagic = "MTLY";
constexpr uint64_t kVersion = 1;

void put(std::string* out, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) out->push_back(static_cast<char>(value >> (8 * i) & 0xff));
}

uint64_t take(std::string_view data, size_t offset, int bytes) {
  uint64_t value = 0;
  for (int i = 0; i < bytes; ++i)
    value |= uint64_t{static_cast<unsigned char>(data[offset + static_cast<size_t>(i)])} << (8 * i);
  return value;
}

std::string hex_of(uint64_t bits) {
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(bits));
  return text;
}

bool bits_of(const std::string& hex, uint64_t* bits) {
  const char* end = hex.data() + hex.size();
  const auto parsed = std::from_chars(hex.data(), end, *bits, 16);
  return hex.size() == 16 && parsed.ec == std::errc() && parsed.ptr == end;
}

}  // namespace

std::string encode(const Message& message) {
  MOTLEY_CHECK_LE(message.payload.size(), kMaxPayloadBytes);
  MOTLEY_CHECK_LE(0, message.epoch.value());
  std::string frame(kMagic);
  frame.reserve(kFrameHeaderBytes + message.payload.size());
  put(&frame, kVersion, 2);
  put(&frame, static_cast<uint16_t>(message.type), 2);
  put(&frame, static_cast<uint32_t>(message.epoch.value()), 4);
  put(&frame, message.payload.size(), 4);
  return frame + message.payload;
}

Result<Unit> FrameReader::feed(std::span<const char> bytes) {
  if (broken_) return fail(ErrorCode::kCorrupt, "connection already gave a malformed frame");
  buffer_.append(bytes.data(), bytes.size());
  size_t used = 0;
  Result<Unit> outcome = Unit{};
  while (outcome) {
    Result<size_t> frame = take_frame(std::string_view(buffer_).substr(used));
    if (!frame) outcome = fail(std::move(frame).error());
    if (!frame || *frame == 0) break;
    used += *frame;
  }
  buffer_.erase(0, used);
  if (!outcome) {
    broken_ = true;
    buffer_.clear();
  }
  return outcome;
}

Result<size_t> FrameReader::take_frame(std::string_view data) {
  // Judged byte by byte: a stranger is sent away at its first wrong one, not after sixteen.
  const std::string_view magic = data.substr(0, kMagic.size());
  if (magic != kMagic.substr(0, magic.size()))
    return fail(ErrorCode::kCorrupt, "not a Motley connection (wrong magic)");
  if (data.size() < kFrameHeaderBytes) return 0;
  const uint64_t version = take(data, 4, 2);
  const uint64_t epoch = take(data, 8, 4);
  const uint64_t length = take(data, 12, 4);
  if (version != kVersion)
    return fail(ErrorCode::kCorrupt,
                "peer speaks wire version " + std::to_string(version) + ", this one 1");
  if (epoch > INT32_MAX) return fail(ErrorCode::kCorrupt, "frame with an impossible epoch");
  if (length > kMaxPayloadBytes)
    return fail(ErrorCode::kCorrupt, "frame of " + std::to_string(length) + " bytes, more than " +
                                         std::to_string(kMaxPayloadBytes));
  if (data.size() < kFrameHeaderBytes + length) return 0;
  ready_.push_back({.type = static_cast<MessageType>(take(data, 6, 2)),
                    .epoch = Epoch(static_cast<int>(epoch)),
                    .payload = std::string(data.substr(kFrameHeaderBytes, length))});
  return kFrameHeaderBytes + length;
}

std::optional<Message> FrameReader::next() {
  if (ready_.empty()) return std::nullopt;
  Message message = std::move(ready_.front());
  ready_.pop_front();
  return message;
}

std::string to_json_text(const StepReport& report) {
  return nlohmann::json{{"rank", report.rank},
                        {"step", report.step},
                        {"step_seconds", report.step_seconds},
                        {"compute_seconds", report.compute_seconds},
                        {"wait_seconds", report.wait_seconds},
                        {"update_seconds", report.update_seconds},
                        {"input_seconds", report.input_seconds},
                        {"memory_bytes", report.memory.value()},
                        {"samples", report.samples},
                        {"overruns", report.overruns},
                        {"sections", report.sections},
                        {"special", report.special},
                        {"loss", report.loss},
                        {"loss_bits", hex_of(report.loss_bits)},
                        {"gradient_norm", report.gradient_norm},
                        {"learning_rate", report.learning_rate}}
      .dump();
}

constexpr int64_t kMostCounted = int64_t{1} << 48;  // sums of them do not overflow

Result<StepReport> step_report_from_text(const std::string& text) {
  MOTLEY_TRY(const nlohmann::json json, parse_json(text));
  StepReport report;
  std::string loss_bits;
  JsonFields fields(json);
  fields.leave_others()
      .read("rank", report.rank)
      .read_between("step", report.step, 0, kMostCounted)
      .read("step_seconds", report.step_seconds)
      .read("compute_seconds", report.compute_seconds)
      .read("wait_seconds", report.wait_seconds)
      .read("update_seconds", report.update_seconds)
      .read("input_seconds", report.input_seconds)
      .read("memory_bytes", report.memory)
      .read_between("samples", report.samples, 0, INT32_MAX)
      .read_between("overruns", report.overruns, 0, kMostCounted)
      .read_between("sections", report.sections, 0, kMostCounted)
      .read("special", report.special)
      .read_maybe_nan("loss", report.loss)
      .read("loss_bits", loss_bits)
      .read_maybe_nan("gradient_norm", report.gradient_norm)
      .read("learning_rate", report.learning_rate);
  MOTLEY_TRY_VOID(fields.done());
  if (!bits_of(loss_bits, &report.loss_bits))
    return fail(ErrorCode::kInvalidSpec, "/loss_bits: expected 16 hexadecimal digits");
  // Infinities have no JSON; rank 0's bits still know them.
  if (std::isnan(report.loss) && report.loss_bits != 0)
    report.loss = std::bit_cast<double>(report.loss_bits);
  return report;
}

}  // namespace motley
