#include "planner/pipelines/host_packing.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace motley {
namespace {

/// Hosts of more unlike devices than that are not looked at.
constexpr size_t kMostStatesOfAHost = 2'000;

size_t states_of(const std::vector<int>& devices) {
  size_t states = 1;
  for (const int count : devices) states *= static_cast<size_t>(count) + 1;
  return states;
}

}  // namespace

HostPacking::HostPacking(const std::vector<std::vector<int>>& hosts,
                         const std::vector<std::vector<int>>& sets)
    : hosts_(hosts.size()) {
  for (size_t host = 0; host < hosts.size(); ++host) {
    if (states_of(hosts[host]) > kMostStatesOfAHost) continue;
    const auto same = [&](const Shape& shape) { return shape.devices == hosts[host]; };
    auto shape = std::find_if(shapes_.begin(), shapes_.end(), same);
    if (shape == shapes_.end())
      shape = shapes_.insert(shape, {hosts[host], PackingStates(hosts[host], sets), {}});
    shape->hosts.push_back(host);
  }
}

/// One replica more, from the best of one less in each state.
HostPacking::Row HostPacking::one_more(const Shape& shape, const std::vector<int>& worth,
                                       const Row& before) {
  Row row(before.size());
  for (size_t set = 0; set < worth.size(); ++set)
    for (const size_t state : shape.states.room(set)) {
      if (worth[set] == 0 || before[state].worth < 0) continue;
      State& after = row[state + shape.states.step(set)];
      const int64_t own = before[state].worth + worth[set];
      if (own > after.worth) after = {own, set, state};
    }
  return row;
}

/// By the most replicas, 0 on.
std::vector<HostPacking::Best> HostPacking::best_of(const Shape& shape,
                                                    const std::vector<int>& worth, int most) {
  std::vector<Row> rows{Row(shape.states.size())};
  rows[0][0].worth = 0;
  std::vector<Best> best(1);
  const int devices = std::accumulate(shape.devices.begin(), shape.devices.end(), 0);
  for (int replicas = 1; replicas <= std::min(most, devices); ++replicas) {
    rows.push_back(one_more(shape, worth, rows.back()));
    best.push_back(best.back());
    const Row& row = rows.back();
    const auto last = std::max_element(
        row.begin(), row.end(), [](const State& a, const State& b) { return a.worth < b.worth; });
    if (last->worth <= best.back().worth) continue;  // fewer do as well
    best.back() = {last->worth, {}};
    auto state = static_cast<size_t>(last - row.begin());
    for (auto from = rows.rbegin(); from + 1 != rows.rend(); ++from) {
      best.back().sets.push_back((*from)[state].set);
      state = (*from)[state].before;
    }
  }
  return best;
}

std::vector<size_t> HostPacking::pack(const std::vector<int>& worth, int64_t enough,
                                      int most) const {
  struct Host {
    std::vector<Best> best{Best{}};  // of no replica
    size_t replicas = 0;
  };
  std::vector<Host> hosts(hosts_);
  for (const Shape& shape : shapes_) {
    const std::vector<Best> best = best_of(shape, worth, most);
    for (const size_t host : shape.hosts) hosts[host].best = best;
  }
  int64_t sum = 0;
  while (sum < enough) {
    // Of the hosts and numbers of replicas more the one by which each of these gains most.
    Host* next = nullptr;
    size_t more = 0;
    double gain = 0;
    for (Host& host : hosts)
      for (size_t replicas = host.replicas + 1; replicas < host.best.size(); ++replicas) {
        const size_t added = replicas - host.replicas;
        if (static_cast<int>(added) > most) break;
        const double own =
            static_cast<double>(host.best[replicas].worth - host.best[host.replicas].worth) /
            static_cast<double>(added);
        if (own <= gain) continue;
        next = &host;
        more = added;
        gain = own;
      }
    if (next == nullptr) return {};
    sum += next->best[next->replicas + more].worth - next->best[next->replicas].worth;
    next->replicas += more;
    most -= static_cast<int>(more);
  }
  std::vector<size_t> packing;
  for (const Host& host : hosts)
    packing.insert(packing.end(), host.best[host.replicas].sets.begin(),
                   host.best[host.replicas].sets.end());
  return packing;
}

}  // namespace motley
