#include "scheduler/runner/rank_session.h"

#include <boost/asio/buffer.hpp>
#include <boost/asio/write.hpp>

namespace motley {

namespace asio = boost::asio;

void RankSession::read() {
  socket_.async_read_some(
      asio::buffer(buffer_),
      [self = shared_from_this()](boost::system::error_code error, size_t bytes) {
        if (error || !self->take(bytes)) return self->close();
        self->read();
      });
}

bool RankSession::take(size_t bytes) {
  const bool whole = reader_.feed({buffer_.data(), bytes}).has_value();
  while (auto message = reader_.next())
    if (!on_message_(*this, *message)) return false;
  return whole && !closed_;
}

void RankSession::send(const Message& message) {
  outbox_.push_back(encode(message));
  if (outbox_.size() == 1) write();
}

void RankSession::write() {
  asio::async_write(socket_, asio::buffer(outbox_.front()),
                    [self = shared_from_this()](boost::system::error_code error, size_t) {
                      if (error) return self->close();
                      self->outbox_.pop_front();
                      if (!self->outbox_.empty()) self->write();
                    });
}

void RankSession::close() {
  if (closed_) return;
  closed_ = true;
  boost::system::error_code ignored;
  socket_.close(ignored);
  on_closed_(*this);
}

}  // namespace motley
