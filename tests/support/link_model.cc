#include "tests/support/link_model.h"

#include <algorithm>
#include <utility>

#include "core/check.h"

namespace motley::testing {
namespace {

Nanos link_time(int64_t bytes, double rate) {
  return nanos_of_seconds(static_cast<double>(bytes) / rate);
}

}  // namespace

int LinkModel::add_host(LinkRate rate) {
  MOTLEY_CHECK(rate.up > 0 && rate.down > 0, "a rate must be positive");
  hosts_.emplace_back().rate = rate;
  for (std::vector<Nanos>& row : delays_) row.emplace_back(0);
  delays_.emplace_back(hosts_.size(), Nanos(0));
  return static_cast<int>(hosts_.size()) - 1;
}

void LinkModel::set_rate(int number, LinkRate rate) {
  MOTLEY_CHECK(rate.up > 0 && rate.down > 0, "a rate must be positive");
  host(number).rate = rate;
}

void LinkModel::set_delay(int a, int b, Nanos one_way) {
  delay(a, b) = one_way;
  delay(b, a) = one_way;
}

void LinkModel::set_cut(int number, bool cut) { host(number).cut = cut; }

void LinkModel::start_first(Host& host, Nanos at) {
  host.start = at;
  host.end = at + link_time(host.uplink.front().bytes, host.rate.up);
}

void LinkModel::arrive(LinkPacket packet, Nanos now) {
  Host& sender = host(packet.from);
  if (is_cut(packet) || sender.uplink_bytes + packet.bytes > kUplinkQueueBytes) {
    ++sender.traffic.lost;
    return;
  }
  sender.uplink_bytes += packet.bytes;
  sender.uplink.push_back(std::move(packet));
  if (sender.uplink.size() == 1) start_first(sender, std::max(now, sender.end));
}

/// The host whose uplink is the next to have passed a packet; -1: all are idle.
int LinkModel::first_to_end() const {
  int first = -1;
  for (size_t i = 0; i < hosts_.size(); ++i)
    if (!hosts_[i].uplink.empty() &&
        (first < 0 || hosts_[i].end < hosts_[static_cast<size_t>(first)].end))
      first = static_cast<int>(i);
  return first;
}

void LinkModel::leave_uplink(int number) {
  Host& sender = host(number);
  LinkPacket packet = std::move(sender.uplink.front());
  sender.uplink.pop_front();
  sender.uplink_bytes -= packet.bytes;
  const Nanos start = sender.start, end = sender.end;
  if (!sender.uplink.empty()) start_first(sender, end);
  if (is_cut(packet)) {
    ++sender.traffic.lost;
    return;
  }
  sender.traffic.up_bytes += packet.bytes;
  enter_downlink(std::move(packet), start, end);
}

/// The packet was on the uplink from `start` to `end`: it passes the downlink from `start` at the
/// earliest, and has passed it at `end` at the earliest.
void LinkModel::enter_downlink(LinkPacket packet, Nanos start, Nanos end) {
  Host& receiver = host(packet.to);
  const double waiting =
      seconds_of(std::max(Nanos(0), receiver.downlink_free - end)) * receiver.rate.down;
  if (waiting + static_cast<double>(packet.bytes) > kDownlinkQueueBytes) {
    ++host(packet.from).traffic.lost;
    return;
  }
  const Nanos passed =
      std::max(start, receiver.downlink_free) + link_time(packet.bytes, receiver.rate.down);
  receiver.downlink_free = std::max(end, passed);
  const Nanos at = receiver.downlink_free + delay(packet.from, packet.to);
  flights_.push_back({at, flown_++, std::move(packet)});
  std::push_heap(flights_.begin(), flights_.end(), later);
}

bool LinkModel::later(const Flight& a, const Flight& b) {
  return std::pair(a.at, a.number) > std::pair(b.at, b.number);
}

std::vector<LinkPacket> LinkModel::advance(Nanos now) {
  for (int next = first_to_end(); next >= 0 && host(next).end <= now; next = first_to_end())
    leave_uplink(next);
  std::vector<LinkPacket> arrived;
  while (!flights_.empty() && flights_.front().at <= now) {
    std::pop_heap(flights_.begin(), flights_.end(), later);
    LinkPacket packet = std::move(flights_.back().packet);
    flights_.pop_back();
    if (is_cut(packet)) {
      ++host(packet.from).traffic.lost;
      continue;
    }
    host(packet.to).traffic.down_bytes += packet.bytes;
    arrived.push_back(std::move(packet));
  }
  return arrived;
}

std::optional<Nanos> LinkModel::next_event() const {
  std::optional<Nanos> next;
  if (!flights_.empty()) next = flights_.front().at;
  const int first = first_to_end();
  if (first < 0) return next;
  const Nanos end = hosts_[static_cast<size_t>(first)].end;
  return next ? std::min(*next, end) : end;
}

}  // namespace motley::testing
