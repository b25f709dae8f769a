#include "worker/train/control_link.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "core/log.h"

namespace motley {
namespace {

constexpr int kHeartbeatMs = 200;
/// A runner that takes nothing for this long is as good as gone.
constexpr timeval kSendTimeout{.tv_sec = 5, .tv_usec = 0};

tl::unexpected<Error> no_runner(const std::string& control, const char* why) {
  return fail(ErrorCode::kPeerLost, "no runner at " + control + ": " + why);
}

Result<int> connect_unix(const std::string& control, const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) return no_runner(control, "path too long");
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd >= 0 && ::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0)
    return fd;
  const int error = errno;
  if (fd >= 0) close(fd);
  return no_runner(control, std::strerror(error));
}

Result<int> connect_tcp(const std::string& control, const std::string& host_port) {
  const size_t colon = host_port.rfind(':');
  if (colon == std::string::npos) return no_runner(control, "expected tcp:host:port");
  std::string host = host_port.substr(0, colon);
  if (host.size() > 2 && host.front() == '[') host = host.substr(1, host.size() - 2);
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int status = getaddrinfo(host.c_str(), host_port.c_str() + colon + 1, &hints, &found);
  if (status != 0) return no_runner(control, gai_strerror(status));
  int error = ECONNREFUSED;
  int connected = -1;
  for (const addrinfo* each = found; each != nullptr && connected < 0; each = each->ai_next) {
    const int fd = socket(each->ai_family, each->ai_socktype | SOCK_CLOEXEC, each->ai_protocol);
    if (fd >= 0 && ::connect(fd, each->ai_addr, each->ai_addrlen) == 0) {
      connected = fd;
    } else {
      error = errno;
      if (fd >= 0) close(fd);
    }
  }
  freeaddrinfo(found);
  if (connected < 0) return no_runner(control, std::strerror(error));
  // A host that vanishes sends no reset: probe after 1 s of silence, give up after 2 s.
  const int on = 1, idle = 1, interval = 1, probes = 2;
  setsockopt(connected, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
  setsockopt(connected, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle));
  setsockopt(connected, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof(interval));
  setsockopt(connected, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof(probes));
  setsockopt(connected, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  return connected;
}

Result<int> connect_socket(const std::string& control) {
  if (control.starts_with("unix:")) return connect_unix(control, control.substr(5));
  if (control.starts_with("tcp:")) return connect_tcp(control, control.substr(4));
  return no_runner(control, "expected unix:PATH or tcp:HOST:PORT");
}

}  // namespace

Result<std::unique_ptr<ControlLink>> ControlLink::connect(const std::string& control, Epoch epoch,
                                                          const Hello& hello,
                                                          ControlWishes* wishes) {
  MOTLEY_TRY(const int socket, connect_socket(control));
  setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &kSendTimeout, sizeof(kSendTimeout));
  std::unique_ptr<ControlLink> link(new ControlLink(socket, epoch, hello.rank, wishes));
  link->send(MessageType::kHello, to_json_text(hello));
  link->thread_ = std::thread([raw = link.get()] { raw->listen(); });
  return link;
}

ControlLink::ControlLink(int socket, Epoch epoch, int rank, ControlWishes* wishes)
    : socket_(socket),
      wake_(eventfd(0, EFD_CLOEXEC)),
      epoch_(epoch),
      rank_(rank),
      wishes_(wishes) {}

ControlLink::~ControlLink() {
  done_ = true;
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(wake_, &one, sizeof(one));
  if (thread_.joinable()) thread_.join();
  close(socket_);
  close(wake_);
}

void ControlLink::send(MessageType type, const std::string& payload) {
  const std::string frame = encode(Message{.type = type, .epoch = epoch_, .payload = payload});
  const std::lock_guard lock(sending_);
  size_t sent = 0;
  while (sent < frame.size()) {
    const ssize_t n = ::send(socket_, frame.data() + sent, frame.size() - sent, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      if (done_) return;
      runner_is_gone();
    }
    sent += static_cast<size_t>(n);
  }
}

void ControlLink::send_done(const DoneReport& report) {
  done_ = true;
  send(MessageType::kDone, to_json_text(report));
}

void ControlLink::listen() {
  while (true) {
    std::array<pollfd, 2> polled = {pollfd{.fd = socket_, .events = POLLIN, .revents = 0},
                                    pollfd{.fd = wake_, .events = POLLIN, .revents = 0}};
    const int ready = poll(polled.data(), polled.size(), kHeartbeatMs);
    if (polled[1].revents != 0) return;
    if (ready > 0 && polled[0].revents != 0) receive();
    if (done_) return;
    send(MessageType::kHeartbeat,
         to_json_text(
             Heartbeat{.rank = rank_, .progress = progress_.load(), .waiting = waiting_.load()}));
  }
}

void ControlLink::receive() {
  std::array<char, 4096> bytes;
  const ssize_t n = recv(socket_, bytes.data(), bytes.size(), MSG_DONTWAIT);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (n <= 0 || !reader_.feed(std::span(bytes).first(static_cast<size_t>(n)))) {
    if (!done_) runner_is_gone();
    return;
  }
  while (const auto message = reader_.next()) {
    if (message->epoch != epoch_) continue;
    if (message->type == MessageType::kStop) wishes_->stop = true;
    if (message->type == MessageType::kCheckpoint) wishes_->checkpoint = true;
  }
}

void ControlLink::runner_is_gone() {
  log_error("the runner is gone: this rank ends");
  // No destructors: MPI_Finalize would wait for ranks that are ending too.
  _exit(exit_code(ErrorCode::kPeerLost));
}

}  // namespace motley
