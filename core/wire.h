#pragma once
// Frames between ranks and their runner (core/FORMATS.md, "wire"). Bytes in, messages out; no
// socket here.
//
//   magic "MTLY" | u16 version = 1 | u16 type | u32 epoch | u32 payload bytes (<= 1 MiB) | payload:
//   JSON all integers little-endian
//
// Payloads are the structs of core/reports.h.
//
// A frame of another epoch is refused by the receiver; a malformed one ends the connection.

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/ids.h"
#include "core/result.h"

namespace motley {

enum class MessageType : uint16_t {
  kHello = 1,  ///< rank -> runner: {rank, host, pid, key}; the first frame of every connection
  kPhase =
      2,  ///< rank -> runner: {rank, phase}: loading | training | evaluating | saving | finishing
  kStep = 3,         ///< rank -> runner: StepReport
  kHeartbeat = 4,    ///< rank -> runner, every 200 ms: {rank, progress, waiting}
  kSaved = 5,        ///< rank 0 -> runner: {step, directory, bytes, seconds}
  kEvaluated = 6,    ///< rank 0 -> runner: {step, loss}
  kDone = 7,         ///< rank -> runner: DoneReport; the last frame of a rank
  kProfile = 8,      ///< rank 0 -> runner: a Profile as JSON, the result of a ProfileRequest
  kSkipped = 9,      ///< rank 0 -> runner: SkippedReport
  kStop = 16,        ///< runner -> rank: save at the next step boundary and exit 75
  kCheckpoint = 17,  ///< runner -> rank: save at the next step boundary
};

struct Message {
  MessageType type = MessageType::kHeartbeat;
  Epoch epoch;
  std::string payload;  ///< JSON text
};

inline constexpr size_t kFrameHeaderBytes = 16;
inline constexpr size_t kMaxPayloadBytes = 1 << 20;

std::string encode(const Message& message);

/// Cuts a byte stream into messages. One per connection; not thread-safe.
class FrameReader {
 public:
  /// Adds received bytes. kCorrupt on a wrong magic, version, epoch or length: close the
  /// connection; from then on nothing more is taken. Messages before the fault stay ready. Holds at
  /// most one incomplete frame besides them.
  Result<Unit> feed(std::span<const char> bytes);
  /// The next complete message, if there is one. Types of a later program are handed over too:
  /// ignore what you do not know.
  std::optional<Message> next();

 private:
  /// Makes the frame at the front of `data` ready and returns its bytes; 0 when it is incomplete.
  Result<size_t> take_frame(std::string_view data);

  std::string buffer_;
  std::deque<Message> ready_;
  bool broken_ = false;
};

/// One rank's account of one step; rank 0's also carries the job's figures.
struct StepReport {
  int rank = 0;
  int64_t step = 0;  ///< steps done, counting this one
  double step_seconds =
      0;  ///< between two boundaries, on the rank's clock (paced virtual: logical)
  double compute_seconds = 0;
  double wait_seconds = 0;  ///< in communication
  double update_seconds = 0;
  double input_seconds = 0;  ///< until its samples were there
  Bytes memory{0};           ///< most of its device's so far; 0: not told
  int samples = 0;           ///< computed by this rank
  int64_t overruns = 0;      ///< paced sections whose real work took longer than the emulated
  int64_t sections = 0;
  bool special = false;      ///< an evaluation or a save fell into it; not counted in medians
  double loss = 0;           ///< mean over the global batch's tokens; rank 0
  uint64_t loss_bits = 0;    ///< of the double; rank 0
  double gradient_norm = 0;  ///< rank 0
  double learning_rate = 0;  ///< rank 0
};
std::string to_json_text(const StepReport& report);
Result<StepReport> step_report_from_text(const std::string& text);

}  // namespace motley
