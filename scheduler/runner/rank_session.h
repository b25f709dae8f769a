#pragma once
// One connection of a rank. Heavy (Asio): for the .cc files of scheduler/runner only.

#include <array>
#include <boost/asio/generic/stream_protocol.hpp>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>  // before Asio of Boost 1.74

#include "core/wire.h"

namespace motley {

/// Kept alive by its own pending operations, as Asio sessions are.
class RankSession : public std::enable_shared_from_this<RankSession> {
 public:
  using Socket = boost::asio::generic::stream_protocol::socket;
  /// Returns false to end the connection.
  using OnMessage = std::function<bool(RankSession&, const Message&)>;
  using OnClosed = std::function<void(RankSession&)>;

  RankSession(Socket socket, OnMessage on_message, OnClosed on_closed)
      : socket_(std::move(socket)),
        on_message_(std::move(on_message)),
        on_closed_(std::move(on_closed)) {}

  void start() { read(); }
  void send(const Message& message);
  void close();

  int rank() const { return rank_; }  ///< -1 until its hello was accepted
  void set_rank(int rank) { rank_ = rank; }

 private:
  void read();
  void write();
  bool take(size_t bytes);

  Socket socket_;
  OnMessage on_message_;
  OnClosed on_closed_;
  FrameReader reader_;
  std::array<char, 16384> buffer_{};
  std::deque<std::string> outbox_;
  int rank_ = -1;
  bool closed_ = false;
};

}  // namespace motley
