#include "scheduler/service/http_server.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/basic_stream.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>
#include <optional>
#include <set>
#include <utility>  // before Asio of Boost 1.74

namespace motley {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using asio::local::stream_protocol;
using boost::system::error_code;
using Text = http::string_body;

constexpr size_t kFirstRead = 4096;
constexpr size_t kLongestSocketPath = 107;
constexpr auto kPollEvents = std::chrono::milliseconds(20);
constexpr auto kAcceptPause = std::chrono::milliseconds(100);
constexpr int kPollsBetweenSigns = 500;  // of life: who is gone is noticed at a write

std::string field(const http::request<Text>& request, beast::string_view name) {
  const auto found = request.find(name);
  return found == request.end() ? "" : std::string(found->value().data(), found->value().size());
}

/// What the request line and header came to; nothing where they are fine.
std::optional<HttpResponse> refusal_of(error_code error) {
  if (error == http::error::header_limit)
    return error_response(431, {ErrorCode::kUsage, "the header is too long", {}});
  if (error == http::error::body_limit)
    return error_response(413, {ErrorCode::kUsage, "the body is too long (1 MiB at most)", {}});
  if (error.category() == http::make_error_code(http::error::bad_target).category() &&
      error != http::error::end_of_stream && error != http::error::partial_message)
    return error_response(400, {ErrorCode::kUsage, "not HTTP: " + error.message(), {}});
  return std::nullopt;
}

struct ServerState {
  HttpHandler handler;
  HttpLimits limits;
  int connections = 0;
  int64_t requests = 0;
  bool stopping = false;
};

/// One connection, kept alive by its own pending operations.
class HttpSession : public std::enable_shared_from_this<HttpSession> {
 public:
  HttpSession(stream_protocol::socket socket, std::shared_ptr<ServerState> state)
      : stream_(std::move(socket)), timer_(stream_.get_executor()), state_(std::move(state)) {
    ++state_->connections;
  }
  ~HttpSession() { --state_->connections; }

  void start() {
    if (state_->connections > state_->limits.connections)
      return answer_and_close(
          error_response(503, {ErrorCode::kNotPermitted, "too many connections: try again", {}}));
    if (!is_ours())
      return answer_and_close(
          error_response(403, {ErrorCode::kNotPermitted, "the socket is another user's", {}}));
    wait_for_request();
  }
  /// Closes it, unless an answer is due.
  void stop() {
    if (!answering_) close();
  }

 private:
  using Self = std::shared_ptr<HttpSession>;

  bool is_ours() {
    ucred peer{};
    socklen_t size = sizeof peer;
    const int fd = stream_.socket().native_handle();
    return ::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == ::geteuid();
  }

  void wait_for_request() {
    parser_.emplace();
    parser_->header_limit(state_->limits.header_bytes);
    parser_->body_limit(state_->limits.body_bytes);
    if (buffer_.size() > 0) return read_header();
    stream_.expires_after(state_->limits.idle_time);
    stream_.async_read_some(buffer_.prepare(kFirstRead),
                            [self = shared_from_this()](error_code error, size_t bytes) {
                              if (error) return self->close();
                              self->buffer_.commit(bytes);
                              self->read_header();
                            });
  }

  void read_header() {
    stream_.expires_after(state_->limits.header_time);
    http::async_read_header(stream_, buffer_, *parser_,
                            [self = shared_from_this()](error_code error, size_t) {
                              if (error) return self->refuse(error);
                              self->read_body();
                            });
  }

  void read_body() {
    stream_.expires_after(state_->limits.body_time);
    if (beast::iequals(field(parser_->get(), "Expect"), "100-continue")) return invite_body();
    http::async_read(stream_, buffer_, *parser_,
                     [self = shared_from_this()](error_code error, size_t) {
                       if (error) return self->refuse(error);
                       self->handle();
                     });
  }

  void invite_body() {
    static const std::string kGoOn = "HTTP/1.1 100 Continue\r\n\r\n";
    parser_->get().erase(http::field::expect);
    asio::async_write(stream_, asio::buffer(kGoOn),
                      [self = shared_from_this()](error_code error, size_t) {
                        if (error) return self->close();
                        self->read_body();
                      });
  }

  void refuse(error_code error) {
    auto refusal = refusal_of(error);
    if (!refusal) return close();
    answer_and_close(std::move(*refusal));
  }

  void handle() {
    stream_.expires_never();
    const http::request<Text>& got = parser_->get();
    keep_alive_ = got.keep_alive() && !state_->stopping;
    HttpRequest request;
    request.method = std::string(got.method_string());
    request.accept = field(got, "Accept");
    request.idempotency_key = field(got, "Idempotency-Key");
    request.last_event_id = field(got, "Last-Event-ID");
    request.body = std::move(parser_->get().body());
    const beast::string_view target = got.target();
    if (const auto read = read_target({target.data(), target.size()}, &request); !read)
      return answer(error_response(400, read.error()));
    answering_ = true;
    state_->handler(std::move(request), [self = shared_from_this()](HttpResponse response) {
      ++self->state_->requests;
      self->answer(std::move(response));
    });
  }

  void answer_and_close(HttpResponse response) {
    keep_alive_ = false;
    answer(std::move(response));
  }

  void answer(HttpResponse response) {
    if (response.events) return follow(std::move(response));
    auto message =
        std::make_shared<http::response<Text>>(static_cast<http::status>(response.status), 11);
    message->set(http::field::content_type, response.type);
    message->set(http::field::cache_control, "no-store");
    if (!response.allow.empty()) message->set(http::field::allow, response.allow);
    message->keep_alive(keep_alive_);
    message->body() = std::move(response.body);
    message->prepare_payload();
    stream_.expires_after(state_->limits.idle_time);
    http::async_write(stream_, *message,
                      [self = shared_from_this(), message](error_code error, size_t) {
                        self->answering_ = false;
                        if (error || !self->keep_alive_ || self->state_->stopping)
                          return self->close();
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
    write_events();
  }

  void write_events() {
    stream_.expires_after(state_->limits.idle_time);
    asio::async_write(stream_, asio::buffer(out_),
                      [self = shared_from_this()](error_code error, size_t) {
                        if (error) return self->close();
                        self->quiet_polls_ = 0;
                        self->poll_events();
                      });
  }

  void poll_events() {
    if (events_->over()) return close();
    out_ = events_->next();
    if (out_.empty() && events_->over()) return close();
    if (out_.empty() && ++quiet_polls_ >= kPollsBetweenSigns) out_ = ": still here\n\n";
    if (!out_.empty()) return write_events();
    stream_.expires_never();
    timer_.expires_after(kPollEvents);
    timer_.async_wait([self = shared_from_this()](error_code error) {
      if (error || self->state_->stopping) return self->close();
      self->poll_events();
    });
  }

  void close() {
    error_code ignored;
    stream_.socket().shutdown(stream_protocol::socket::shutdown_both, ignored);
    stream_.socket().close(ignored);
  }

  beast::basic_stream<stream_protocol> stream_;
  asio::steady_timer timer_;
  std::shared_ptr<ServerState> state_;
  beast::flat_buffer buffer_;
  std::optional<http::request_parser<Text>> parser_;
  bool keep_alive_ = false;
  bool answering_ = false;
  std::shared_ptr<EventSource> events_;
  std::string out_;
  int quiet_polls_ = 0;
};

class UnixServer final : public HttpServer {
 public:
  UnixServer(asio::io_context& context, HttpHandler handler, HttpLimits limits)
      : context_(context),
        acceptor_(context),
        pause_(context),
        state_(std::make_shared<ServerState>()) {
    state_->handler = std::move(handler);
    state_->limits = limits;
  }

  Result<Unit> listen(const std::string& path) override {
    if (path.size() > kLongestSocketPath)
      return fail(ErrorCode::kUsage, "the path of the socket is too long (" +
                                         std::to_string(kLongestSocketPath) +
                                         " bytes at most): " + path + "; --socket PATH moves it");
    if (somebody_listens(path))
      return fail(ErrorCode::kNotPermitted, "another coordinator listens on " + path);
    MOTLEY_TRY_VOID(remove_dead_socket(path));
    error_code error;
    acceptor_.open(stream_protocol(), error);
    const mode_t before = ::umask(0177);
    if (!error) acceptor_.bind(stream_protocol::endpoint(path), error);
    ::umask(before);
    if (!error) acceptor_.listen(asio::socket_base::max_listen_connections, error);
    if (error) return fail(ErrorCode::kIo, "cannot listen on " + path + ": " + error.message());
    accept();
    return Unit{};
  }

  void stop() override {
    state_->stopping = true;
    error_code ignored;
    acceptor_.close(ignored);
    pause_.cancel();
    for (const auto& weak : sessions_)
      if (const auto session = weak.lock()) session->stop();
  }

  int64_t requests() const override { return state_->requests; }

 private:
  /// Whoever names another file by mistake keeps it.
  static Result<Unit> remove_dead_socket(const std::string& path) {
    struct stat status {};
    if (::lstat(path.c_str(), &status) != 0) return Unit{};
    if (!S_ISSOCK(status.st_mode))
      return fail(ErrorCode::kUsage, path + " is there and is no socket; --socket PATH moves it");
    ::unlink(path.c_str());
    return Unit{};
  }

  bool somebody_listens(const std::string& path) {
    stream_protocol::socket probe(context_);
    error_code error;
    probe.connect(stream_protocol::endpoint(path), error);
    return !error;
  }

  void accept() {
    acceptor_.async_accept([this](error_code error, stream_protocol::socket socket) {
      if (error == asio::error::operation_aborted) return;
      if (error) return accept_later();
      const auto session = std::make_shared<HttpSession>(std::move(socket), state_);
      std::erase_if(sessions_, [](const auto& weak) { return weak.expired(); });
      sessions_.insert(session);
      session->start();
      accept();
    });
  }

  /// Out of descriptors, for one: that passes, and asking at once would only burn time.
  void accept_later() {
    pause_.expires_after(kAcceptPause);
    pause_.async_wait([this](error_code error) {
      if (!error) accept();
    });
  }

  asio::io_context& context_;
  stream_protocol::acceptor acceptor_;
  asio::steady_timer pause_;
  std::shared_ptr<ServerState> state_;
  std::set<std::weak_ptr<HttpSession>, std::owner_less<std::weak_ptr<HttpSession>>> sessions_;
};

}  // namespace

std::unique_ptr<HttpServer> make_http_server(asio::io_context& context, HttpHandler handler,
                                             HttpLimits limits) {
  return std::make_unique<UnixServer>(context, std::move(handler), limits);
}

}  // namespace motley
