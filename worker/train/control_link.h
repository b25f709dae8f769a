#pragma once
// A rank's connection to its runner: reports out, wishes in. Losing it ends the process at once, so
// that no rank outlives its attempt (core/wire.h, DESIGN.md §3).

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "core/ids.h"
#include "core/reports.h"
#include "core/result.h"
#include "core/wire.h"

namespace motley {

/// What somebody outside wishes: set by the runner's frames or by signals, read at step boundaries.
struct ControlWishes {
  std::atomic<bool> stop = false;        ///< save and end with exit 75
  std::atomic<bool> checkpoint = false;  ///< save and go on; the reader clears it
};

/// All methods are thread-safe.
class ControlLink {
 public:
  /// Connects to `control` ("unix:/path" or "tcp:host:port"), says hello and starts the heartbeat
  /// (every 200 ms, from a thread). kPeerLost when nobody listens there. `wishes` must outlive the
  /// link.
  static Result<std::unique_ptr<ControlLink>> connect(const std::string& control, Epoch epoch,
                                                      const Hello& hello, ControlWishes* wishes);
  /// Stops the heartbeat; frames already sent still arrive.
  ~ControlLink();

  void send(MessageType type, const std::string& payload);
  /// Work went on: the heartbeat's progress counter rises.
  void progress() { progress_.fetch_add(1, std::memory_order_relaxed); }
  /// What the heartbeat says of waiting: set by whoever waits for other ranks (comm/watched.h).
  std::atomic<bool>& waiting() { return waiting_; }
  /// The rank's last frame. From here on the runner may close the connection.
  void send_done(const DoneReport& report);

 private:
  ControlLink(int socket, Epoch epoch, int rank, ControlWishes* wishes);
  void listen();
  void receive();
  [[noreturn]] void runner_is_gone();

  int socket_;
  int wake_;  ///< eventfd: tells the thread to end
  Epoch epoch_;
  int rank_;
  ControlWishes* wishes_;
  FrameReader reader_;
  std::mutex sending_;
  std::atomic<int64_t> progress_ = 0;
  std::atomic<bool> waiting_ = false;
  std::atomic<bool> done_ = false;
  std::thread thread_;
};

}  // namespace motley
