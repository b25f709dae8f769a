#pragma once
// When a switch with links of exact rate and delay hands over each packet: the arithmetic alone,
// without devices or a clock, so that it can be tested to the nanosecond.
//
// A host has an uplink and a downlink, full duplex and independent. A packet of L bytes waits for
// its sender's uplink, takes L / up on it, and reaches its receiver when it has also passed the
// downlink, L / down, and the delay of the pair. The downlink passes it on while it still comes in,
// as a switch does that sees frames of 1500 bytes where we see segments of up to 64 KiB: on idle
// links of equal rates both together take L / rate, not twice that. A downlink on which several
// send is shared in the order in which packets have left their uplinks.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "core/ids.h"

namespace motley::testing {

struct LinkPacket {
  int from = 0;  ///< hosts count from 0
  int to = 0;
  int64_t bytes = 0;  ///< what the rate counts
  std::unique_ptr<std::byte[]> data;
};

/// Bytes per second.
struct LinkRate {
  double up = 0;
  double down = 0;
};

struct LinkTraffic {
  int64_t up_bytes = 0;    ///< have left this host's uplink
  int64_t down_bytes = 0;  ///< have reached this host
  int64_t lost = 0;        ///< packets of this host that reached nobody
};

/// One thread. Times are of one clock and never go back.
class LinkModel {
 public:
  /// Beyond it the sender's uplink drops; linked_hosts.py sees to it that hosts keep theirs short.
  static constexpr int64_t kUplinkQueueBytes = 16 << 20;
  /// What the switch keeps for one downlink; beyond it, it drops.
  static constexpr int64_t kDownlinkQueueBytes = 4 << 20;

  /// A host that reaches all others without delay; returns its number. Rates are positive.
  int add_host(LinkRate rate);

  /// Holds for what is not yet on the link; what the switch already queues keeps its time.
  void set_rate(int host, LinkRate rate);

  /// One way, the same in both directions. After a shorter one, packets may overtake.
  void set_delay(int a, int b, Nanos delay);

  /// While cut, nothing leaves the host or reaches it; what is under way is lost.
  void set_cut(int host, bool cut);

  /// A packet that its sender has handed over.
  void arrive(LinkPacket packet, Nanos now);

  /// The packets that have reached their receivers, in the order of their times.
  std::vector<LinkPacket> advance(Nanos now);

  /// When advance() has something to do again; nothing: only after the next packet.
  std::optional<Nanos> next_event() const;

  const LinkTraffic& traffic(int host) const { return hosts_[static_cast<size_t>(host)].traffic; }

 private:
  struct Host {
    LinkRate rate;
    bool cut = false;
    std::deque<LinkPacket> uplink;  ///< the first one is on the link from start to end
    int64_t uplink_bytes = 0;
    Nanos start{0};
    Nanos end{0};
    Nanos downlink_free{0};
    LinkTraffic traffic;
  };
  struct Flight {
    Nanos at;
    int64_t number;  ///< of two at the same time the earlier goes first
    LinkPacket packet;
  };

  Host& host(int number) { return hosts_[static_cast<size_t>(number)]; }
  Nanos& delay(int from, int to) {
    return delays_[static_cast<size_t>(from)][static_cast<size_t>(to)];
  }
  bool is_cut(const LinkPacket& packet) { return host(packet.from).cut || host(packet.to).cut; }
  static void start_first(Host& host, Nanos at);
  static bool later(const Flight& a, const Flight& b);
  int first_to_end() const;
  void leave_uplink(int number);
  void enter_downlink(LinkPacket packet, Nanos start, Nanos end);

  std::deque<Host> hosts_;  // which, unlike a vector's, never move
  std::vector<std::vector<Nanos>> delays_;
  std::vector<Flight> flights_;  ///< a heap, the next to arrive first
  int64_t flown_ = 0;
};

}  // namespace motley::testing
