#pragma once
// One connection of the HTTP server, over any stream of Asio's: the same limits and the same
// answers on the Unix socket and behind TLS.

#include <array>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/basic_stream.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http.hpp>
#include <boost/beast/ssl/ssl_stream.hpp>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "scheduler/service/crowd.h"
#include "scheduler/service/http_exchange.h"
#include "scheduler/service/http_server.h"

namespace motley {

using UnixStream = boost::beast::basic_stream<boost::asio::local::stream_protocol>;
using TlsStream = boost::beast::ssl_stream<boost::beast::tcp_stream>;

/// What the connections of a server have in common.
struct ServerState {
  ServerState(HttpHandler its_handler, HttpGate its_gate, const HttpLimits& its_limits)
      : handler(std::move(its_handler)),
        gate(std::move(its_gate)),
        limits(its_limits),
        strangers(limits.strangers_of_peer, limits.strangers),
        known(limits.known, limits.known),
        followers(limits.followers_of_peer, limits.followers) {}

  const HttpHandler handler;
  const HttpGate gate;
  const HttpLimits limits;
  Crowd strangers, known, followers;  ///< each connection is in one of them
  int64_t requests = 0;
  bool stopping = false;
  std::vector<std::string> names;  ///< of the server, behind TLS
};

class Session {
 public:
  virtual ~Session() = default;
  /// Closes it, unless an answer is due.
  virtual void stop() = 0;
  /// Of one that follows: looks for news now.
  virtual void wake() = 0;
};

/// Kept alive by its own pending operations.
template <class Stream>
class HttpSession final : public Session, public std::enable_shared_from_this<HttpSession<Stream>> {
 public:
  /// Begins in `crowd`, of `state`; `peer` names who is counted; `stream` makes the stream.
  template <class... Parts>
  HttpSession(std::shared_ptr<ServerState> state, Crowd& crowd, std::string peer, Parts&&... stream)
      : stream_(std::forward<Parts>(stream)...),
        timer_(stream_.get_executor()),
        state_(std::move(state)),
        crowd_(&crowd),
        peer_(std::move(peer)) {
    crowd_->enter(peer_);
  }
  ~HttpSession() override { crowd_->leave(peer_); }

  void start() {
    if constexpr (kTls)
      shake_hands();
    else
      wait_for_request();
  }
  /// Instead: nothing is asked of this one.
  void refuse(HttpResponse response) {
    unwanted_ = true;
    answer_and_close(std::move(response));
  }

  void stop() override {
    if (!answering_) close();
  }
  void wake() override {
    if (events_) timer_.cancel();
  }

 private:
  static constexpr bool kTls = std::is_same_v<Stream, TlsStream>;
  static constexpr size_t kFirstRead = 4096;
  static constexpr size_t kMostUnread = 128 << 10;  // what is never whole, a chunk's head say, ends
  static constexpr auto kFarewell = std::chrono::milliseconds(2000);
  static constexpr auto kLongestQuiet = std::chrono::seconds(10);  // who is gone shows at a write
  using Code = boost::system::error_code;

  auto self() { return this->shared_from_this(); }
  auto& lowest() { return boost::beast::get_lowest_layer(stream_); }

  void shake_hands() {
    lowest().expires_after(state_->limits.handshake_time);
    stream_.async_handshake(boost::asio::ssl::stream_base::server, [self = self()](Code error) {
      if (error) return self->close();
      self->wait_for_request();
    });
  }

  void wait_for_request() {
    parser_.emplace();
    parser_->header_limit(state_->limits.header_bytes);
    parser_->body_limit(state_->limits.body_bytes);
    if (buffer_.size() > 0) return read_header();
    lowest().expires_after(state_->limits.idle_time);
    stream_.async_read_some(buffer_.prepare(kFirstRead), [self = self()](Code error, size_t bytes) {
      if (error) return self->close();
      self->buffer_.commit(bytes);
      self->read_header();
    });
  }

  void read_header() {
    lowest().expires_after(state_->limits.header_time);
    boost::beast::http::async_read_header(stream_, buffer_, *parser_,
                                          [self = self()](Code error, size_t) {
                                            if (error) return self->refuse(error);
                                            self->look_at_head();
                                          });
  }

  /// Of the request as far as it is read.
  Result<HttpRequest> asked() {
    MOTLEY_TRY(HttpRequest request, request_of(parser_->get()));
    request.local = !kTls;
    request.peer = peer_;
    return request;
  }

  /// Who asks for what they will not get need not send the rest, which then is not read as the next
  /// request either.
  void look_at_head() {
    auto& head = parser_->get();
    const bool whole = parser_->is_done();
    keep_alive_ = whole && head.keep_alive() && !state_->stopping;
    if (kTls && !is_addressed(header_of(head, "Host"), state_->names))
      return answer(error_response(
          421,
          {ErrorCode::kNotPermitted, "the header 'Host' is none of this service's names", {}}));
    auto request = asked();
    if (!request) return answer(error_response(400, request.error()));
    if (whole) return handle(std::move(*request));
    if (auto refusal = state_->gate ? state_->gate(*request) : std::nullopt)
      return reply(std::move(*refusal));
    const std::string expected = head.version() < 11 ? "" : header_of(head, "Expect");
    head.erase(boost::beast::http::field::expect);
    if (expected.empty()) return read_body();
    if (!boost::beast::iequals(expected, "100-continue"))
      return answer(error_response(
          417, {ErrorCode::kUsage, "the header 'Expect' may be 100-continue, no more", {}}));
    invite_body();
  }

  void invite_body() {
    static const std::string kGoOn = "HTTP/1.1 100 Continue\r\n\r\n";
    lowest().expires_after(state_->limits.body_time);
    boost::asio::async_write(stream_, boost::asio::buffer(kGoOn),
                             [self = self()](Code error, size_t) {
                               if (error) return self->close();
                               self->read_body();
                             });
  }

  void read_body() {
    lowest().expires_after(state_->limits.body_time);
    boost::beast::http::async_read(stream_, buffer_, *parser_, [self = self()](Code error, size_t) {
      if (error) return self->refuse(error);
      self->keep_alive_ = self->parser_->get().keep_alive() && !self->state_->stopping;
      auto request = self->asked();
      if (!request) return self->answer(error_response(400, request.error()));
      self->handle(std::move(*request));
    });
  }

  void refuse(Code error) {
    auto refusal = refusal_of(error);
    if (!refusal) return close();
    answer_and_close(std::move(*refusal));
  }

  void handle(HttpRequest request) {
    lowest().expires_never();
    answering_ = true;
    state_->handler(std::move(request),
                    [self = self()](HttpResponse response) { self->reply(std::move(response)); });
  }

  void reply(HttpResponse response) {
    ++state_->requests;
    settle(&response);
    if (response.pause > Nanos(0)) return answer_later(std::move(response));
    answer(std::move(response));
  }

  /// Only now is it known what the connection counts as. Where there is no room among those that
  /// are known it stays among the strangers: what was asked has been done.
  void settle(HttpResponse* response) {
    if (response->standing == Standing::kKnown) (void)move_to(state_->known);
    if (response->standing == Standing::kFollower && !move_to(state_->followers))
      *response = busy_response("too many follow logs and events");
  }

  bool move_to(Crowd& crowd) {
    if (crowd_ == &crowd) return true;
    if (!crowd.has_room(peer_)) return false;
    crowd_->leave(peer_);
    crowd_ = &crowd;
    crowd_->enter(peer_);
    return true;
  }

  void answer_and_close(HttpResponse response) {
    keep_alive_ = false;
    answer(std::move(response));
  }

  void answer_later(HttpResponse response) {
    lowest().expires_never();
    answering_ = true;
    timer_.expires_after(std::chrono::nanoseconds(response.pause.value()));
    timer_.async_wait([self = self(), response = std::move(response)](Code) mutable {
      self->answer(std::move(response));
    });
  }

  void answer(HttpResponse response) {
    if (response.events) return follow(std::move(response));
    auto message = std::make_shared<boost::beast::http::response<HttpText>>(
        message_of(std::move(response), keep_alive_));
    if (parser_ && parser_->get().method() == boost::beast::http::verb::head)
      message->body().clear();
    lowest().expires_after(state_->limits.idle_time);
    boost::beast::http::async_write(stream_, *message,
                                    [self = self(), message](Code error, size_t) {
                                      self->answering_ = false;
                                      if (error) return self->close();
                                      if (!self->keep_alive_ || self->state_->stopping)
                                        return self->part();
                                      self->wait_for_request();
                                    });
  }

  // --- server-sent events: to the end of the connection ---

  void follow(HttpResponse response) {
    answering_ = false;
    events_ = std::move(response.events);
    out_ =
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-store\r\n"
        "Connection: close\r\n\r\n";
    lowest().expires_never();  // for the reading, as long as it goes on
    watch_for_leaving();
    write_events();
  }

  /// Nothing more is asked here, but by reading it shows at once who has closed the connection.
  void watch_for_leaving() {
    buffer_.clear();
    stream_.async_read_some(buffer_.prepare(kFirstRead), [self = self()](Code error, size_t) {
      if (self->told_all_) return self->part();
      if (error) return self->close();
      self->watch_for_leaving();
    });
  }

  /// The parting reads itself: it begins when the watching has ended.
  void end_following() {
    told_all_ = true;
    lowest().cancel();
  }

  void write_events() {
    lowest().expires_after(state_->limits.idle_time);
    boost::asio::async_write(stream_, boost::asio::buffer(out_),
                             [self = self()](Code error, size_t) {
                               if (error) return self->close();
                               self->written_ = std::chrono::steady_clock::now();
                               self->look_for_events();
                             });
  }

  /// Now, and whenever it is woken or has waited long enough.
  void look_for_events() {
    if (state_->stopping) return close();
    if (events_->over()) return end_following();
    out_ = events_->next();
    if (out_.empty() && events_->over()) return end_following();
    const bool quiet = std::chrono::steady_clock::now() - written_ >= kLongestQuiet;
    if (out_.empty() && quiet) out_ = ": still here\n\n";
    if (!out_.empty()) return write_events();
    lowest().expires_never();
    timer_.expires_after(events_->patience());
    timer_.async_wait([self = self()](Code) {
      if (self->lowest().socket().is_open()) self->look_for_events();
    });
  }

  // --- its end ---

  /// With a word, so that the other side knows that this was all of it.
  void part() {
    if (unwanted_) return close();
    lowest().expires_after(kFarewell);
    if constexpr (kTls)
      stream_.async_shutdown([self = self()](Code) { self->finish_sending(); });
    else
      finish_sending();
  }

  /// A socket that is closed with something unread in it takes back what it has sent.
  void finish_sending() {
    Code error;
    lowest().socket().shutdown(boost::asio::socket_base::shutdown_send, error);
    if (error) return close();
    read_rest();
  }

  void read_rest() {
    buffer_.clear();
    lowest().async_read_some(buffer_.prepare(kFirstRead), [self = self()](Code error, size_t) {
      if (error) return self->close();
      self->read_rest();
    });
  }

  void close() {
    Code ignored;
    lowest().socket().shutdown(boost::asio::socket_base::shutdown_both, ignored);
    lowest().socket().close(ignored);
    timer_.cancel();
  }

  Stream stream_;
  boost::asio::steady_timer timer_;
  std::shared_ptr<ServerState> state_;
  Crowd* crowd_;  ///< of state_
  const std::string peer_;
  boost::beast::flat_buffer buffer_{kMostUnread};
  std::optional<boost::beast::http::request_parser<HttpText>> parser_;
  bool keep_alive_ = false;
  bool answering_ = false;
  bool unwanted_ = false;  ///< one too many: it is not waited for
  std::shared_ptr<EventSource> events_;
  bool told_all_ = false;
  std::string out_;
  std::chrono::steady_clock::time_point written_;
};

}  // namespace motley
