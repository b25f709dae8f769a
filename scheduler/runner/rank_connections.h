#pragma once
// The ranks of an attempt as far as they have come forward: who may speak for which, and what they
// say. Heavy (Asio): for the .cc files of scheduler/runner only.

#include <boost/asio/io_context.hpp>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>  // before Asio of Boost 1.74
#include <vector>

#include "core/ids.h"
#include "core/reports.h"
#include "core/result.h"
#include "scheduler/runner/attempt_key.h"
#include "scheduler/runner/rank_listener.h"
#include "scheduler/runner/rank_session.h"

namespace motley {

/// Whether the payload of a step or a phase makes sense and is of that rank; true of all others.
bool tells_of(int rank, const Message& message);

class RankConnections {
 public:
  struct Events {
    std::function<void(const Hello&)> connected;  ///< the key is left out
    /// Somebody claimed to be this rank and was turned away.
    std::function<void(int rank, const std::string& why)> refused;
    /// Of this attempt and no hello; false ends the connection.
    std::function<bool(int rank, const Message&)> message;
    std::function<void(int rank)> gone;
  };

  /// Works as long as `context` runs; events come from there.
  RankConnections(boost::asio::io_context& context, Epoch epoch, int ranks, Events events)
      : epoch_(epoch), ranks_(ranks), events_(std::move(events)), listener_(context) {}

  /// Makes the key of the attempt, kept in `scratch`/key, and listens there, or where other `hosts`
  /// reach it. `control`: the address as ranks are told it (Attempt::control).
  Result<Unit> listen(const std::string& scratch, const std::vector<std::string>& hosts);
  const std::string& control() const { return control_; }
  const std::string& key_file() const { return key_file_; }
  const std::string& key_text() const { return key_.text(); }

  /// Takes connections from now on.
  void start();
  /// Nothing where the rank is not connected.
  void send(int rank, MessageType type);

 private:
  bool on_message(RankSession& session, const Message& message);
  bool accept_hello(RankSession& session, const Message& message);
  std::string reason_to_refuse(Epoch epoch, const Hello& hello) const;

  const Epoch epoch_;
  const int ranks_;
  const Events events_;
  RankListener listener_;
  AttemptKey key_ = AttemptKey::from_text("");
  std::string control_, key_file_;
  std::map<int, std::weak_ptr<RankSession>> sessions_;  ///< of all that ever connected
};

}  // namespace motley
