// A switch in user space: joins hosts (network namespaces) by links of exact rate and delay. Needs
// root. tests/support/linked_hosts.py starts it.
//
// It reads commands, one a line, and answers each with a line "ok …" or "error …"; it ends when
// its input does. NAME is any word, rates are bytes per second, delays seconds for one way:
//
//   host NAME NETNS ADDRESS UP DOWN   makes the device `eth0` in the namespace (a path); ADDRESS is
//                                     what packets to this host carry (IPv4)
//   rate NAME UP DOWN | delay A B SECONDS | cut NAME | heal NAME
//   traffic NAME                      "ok UP_BYTES DOWN_BYTES LOST_PACKETS"
//
// A rate counts IP packets: headers of TCP and IP, once for a segment of up to 64 KiB, and no
// frames of an Ethernet; 125e6 is "1 Gbit/s". The devices are TUN with segmentation and checksums
// left to them, so a segment crosses whole: a full link costs some 2000 packets a second.
// link_model.h says when each is handed over.

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <malloc.h>
#include <net/if.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <iostream>
#include <map>
#include <sstream>
#include <string>

#include "core/clock.h"
#include "core/result.h"
#include "tests/support/link_model.h"

namespace motley::testing {
namespace {

constexpr size_t kOffloadHeader = 10;  // virtio_net_hdr, whose own header C++ cannot read
constexpr size_t kLargestPacket = kOffloadHeader + 65536;
constexpr int kPacketsAtOnce = 32;  // of one host, before the others and the clock are looked at

Error last_error(const std::string& what) {
  return {ErrorCode::kIo, what + ": " + std::strerror(errno), {}};
}

Result<Unit> enter_network(const std::string& path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return fail(last_error(path));
  const int entered = setns(file, CLONE_NEWNET);
  close(file);
  if (entered != 0) return fail(last_error(path));
  return Unit{};
}

/// The file of a new TUN device of the network we are in.
Result<int> open_device(const char* name) {
  const int file = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
  if (file < 0) return fail(last_error("/dev/net/tun"));
  ifreq request{};
  request.ifr_flags = IFF_TUN | IFF_NO_PI | IFF_VNET_HDR;
  std::strncpy(request.ifr_name, name, IFNAMSIZ - 1);
  const unsigned offload = TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6 | TUN_F_TSO_ECN;
  if (ioctl(file, TUNSETIFF, &request) != 0 || ioctl(file, TUNSETOFFLOAD, offload) != 0) {
    const Error error = last_error(name);
    close(file);
    return fail(error);
  }
  return file;
}

class LinkSwitch {
 public:
  LinkSwitch() : events_(epoll_create1(EPOLL_CLOEXEC)) {
    fcntl(STDIN_FILENO, F_SETFL, fcntl(STDIN_FILENO, F_GETFL) | O_NONBLOCK);
    watch(STDIN_FILENO);
  }

  void run() {
    while (!ended_) {
      for (const LinkPacket& packet : model_.advance(clock_.now())) hand_over(packet);
      wait();
    }
  }

 private:
  struct Host {
    std::string name;
    int device;
  };

  void watch(int file) {
    epoll_event event{.events = EPOLLIN, .data = {.fd = file}};
    epoll_ctl(events_, EPOLL_CTL_ADD, file, &event);
  }

  /// Until there is a packet, a command, or the model's next event.
  void wait() {
    timespec left{};
    const std::optional<Nanos> next = model_.next_event();
    if (next) {
      const int64_t nanos = std::max<int64_t>(0, (*next - clock_.now()).value());
      left = {.tv_sec = nanos / 1'000'000'000, .tv_nsec = nanos % 1'000'000'000};
    }
    epoll_event ready[16];
    const int count = epoll_pwait2(events_, ready, 16, next ? &left : nullptr, nullptr);
    for (int i = 0; i < count; ++i) {
      if (ready[i].data.fd == STDIN_FILENO)
        read_commands();
      else
        read_packets(ready[i].data.fd);
    }
  }

  void read_packets(int device) {
    for (int i = 0; i < kPacketsAtOnce; ++i) {
      auto data = std::make_unique_for_overwrite<std::byte[]>(kLargestPacket);
      const ssize_t size = read(device, data.get(), kLargestPacket);
      if (size < 0 && errno != EAGAIN)  // its network has gone: do not be woken for ever
        epoll_ctl(events_, EPOLL_CTL_DEL, device, nullptr);
      if (size <= 0) return;
      take(device, std::move(data), static_cast<size_t>(size));
    }
  }

  /// IPv4 to a host we know goes on its way, all else (multicast, IPv6) nowhere.
  void take(int device, std::unique_ptr<std::byte[]> data, size_t size) {
    constexpr size_t kDestination = kOffloadHeader + 16;
    if (size < kOffloadHeader + 20 || std::to_integer<int>(data[kOffloadHeader]) >> 4 != 4) return;
    in_addr_t address;
    std::memcpy(&address, data.get() + kDestination, sizeof address);
    const auto to = by_address_.find(address);
    if (to == by_address_.end()) return;
    model_.arrive({.from = by_device_.at(device),
                   .to = to->second,
                   .bytes = static_cast<int64_t>(size - kOffloadHeader),
                   .data = std::move(data)},
                  clock_.now());
  }

  void hand_over(const LinkPacket& packet) {
    const int device = hosts_[static_cast<size_t>(packet.to)].device;
    const size_t size = static_cast<size_t>(packet.bytes) + kOffloadHeader;
    // A device that is down loses the packet, as a cable without a machine would.
    [[maybe_unused]] const ssize_t written = write(device, packet.data.get(), size);
  }

  void read_commands() {
    char text[4096];
    ssize_t size;
    while ((size = read(STDIN_FILENO, text, sizeof text)) > 0)
      commands_.append(text, static_cast<size_t>(size));
    ended_ = size == 0;
    for (size_t end; (end = commands_.find('\n')) != std::string::npos;) {
      const Result<std::string> answer = obey(commands_.substr(0, end));
      std::cout << (answer ? "ok " + *answer : "error " + answer.error().message) << std::endl;
      commands_.erase(0, end + 1);
    }
  }

  Result<std::string> obey(const std::string& line) {
    std::istringstream words(line);
    std::string command, name, other;
    words >> command >> name;
    if (command == "host") return add_host(name, words);
    MOTLEY_TRY(const int host, number_of(name));
    LinkRate rate;
    double seconds = 0;
    if (command == "rate" && words >> rate.up >> rate.down && rate.up > 0 && rate.down > 0) {
      model_.set_rate(host, rate);
    } else if (command == "delay" && words >> other >> seconds && seconds >= 0) {
      MOTLEY_TRY(const int second, number_of(other));
      model_.set_delay(host, second, nanos_of_seconds(seconds));
    } else if (command == "cut" || command == "heal") {
      model_.set_cut(host, command == "cut");
    } else if (command == "traffic") {
      const LinkTraffic& all = model_.traffic(host);
      return std::to_string(all.up_bytes) + " " + std::to_string(all.down_bytes) + " " +
             std::to_string(all.lost);
    } else {
      return fail(ErrorCode::kUsage, "not a command: " + line);
    }
    return "";
  }

  Result<int> number_of(const std::string& name) const {
    for (size_t i = 0; i < hosts_.size(); ++i)
      if (hosts_[i].name == name) return static_cast<int>(i);
    return fail(ErrorCode::kNotFound, "no host '" + name + "'");
  }

  Result<std::string> add_host(const std::string& name, std::istream& words) {
    std::string network, address;
    LinkRate rate;
    in_addr binary;
    if (!(words >> network >> address >> rate.up >> rate.down) || rate.up <= 0 || rate.down <= 0 ||
        inet_pton(AF_INET, address.c_str(), &binary) != 1)
      return fail(ErrorCode::kUsage, "host NAME NETNS ADDRESS UP DOWN");
    MOTLEY_TRY_VOID(enter_network(network));
    MOTLEY_TRY(const int device, open_device("eth0"));
    const int number = model_.add_host(rate);
    hosts_.push_back({name, device});
    by_device_[device] = number;
    by_address_[binary.s_addr] = number;
    watch(device);
    return "";
  }

  Clock& clock_ = steady_clock();
  const int events_;
  bool ended_ = false;
  std::string commands_;  ///< read, not yet obeyed
  LinkModel model_;
  std::vector<Host> hosts_;
  std::map<int, int> by_device_;
  std::map<in_addr_t, int> by_address_;
};

/// On time also while every core is busy; it needs little of one.
void be_punctual() {
  const sched_param first{.sched_priority = 1};
  if (sched_setscheduler(0, SCHED_RR, &first) != 0) std::cerr << "no real-time priority\n";
  prctl(PR_SET_TIMERSLACK, 1UL);
  mallopt(M_TRIM_THRESHOLD, 1 << 28);  // packets come and go: keep their memory
}

}  // namespace
}  // namespace motley::testing

int main() {
  motley::testing::be_punctual();
  motley::testing::LinkSwitch().run();
}
