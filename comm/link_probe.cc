#include "comm/link_probe.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "core/check.h"

namespace motley {
namespace {

constexpr size_t kSmallBytes = 8;
constexpr size_t kLargeBytes = 1 << 20;
constexpr int kSmallRounds = 50;
constexpr int kLargeRounds = 8;

struct Pair {
  int first = 0;
  int second = 0;
};

/// Of every pair of hosts the first ranks, of every host its first two.
std::vector<Pair> pairs_to_probe(const std::vector<std::string>& hosts) {
  std::vector<Pair> pairs;
  const int ranks = static_cast<int>(hosts.size());
  const auto host = [&](int rank) { return hosts[static_cast<size_t>(rank)]; };
  const auto seen = [&](int a, int b) {
    return std::any_of(pairs.begin(), pairs.end(), [&](const Pair& pair) {
      return (host(pair.first) == host(a) && host(pair.second) == host(b)) ||
             (host(pair.first) == host(b) && host(pair.second) == host(a));
    });
  };
  for (int a = 0; a < ranks; ++a)
    for (int b = a + 1; b < ranks; ++b)
      if (!seen(a, b)) pairs.push_back({a, b});
  return pairs;
}

/// The fastest of `rounds` round trips, on the pair's first rank.
Result<double> fastest_round_trip(Communicator& comm, Pair pair, std::span<std::byte> buffer,
                                  int rounds, const std::function<double()>& now) {
  double best = std::numeric_limits<double>::max();
  for (int round = 0; round < rounds; ++round) {
    if (comm.rank() == pair.first) {
      const double begin = now();
      MOTLEY_TRY_VOID(comm.send(buffer, pair.second));
      MOTLEY_TRY_VOID(comm.receive(buffer, pair.second));
      best = std::min(best, now() - begin);
    } else {
      MOTLEY_TRY_VOID(comm.receive(buffer, pair.first));
      MOTLEY_TRY_VOID(comm.send(buffer, pair.first));
    }
  }
  return best;
}

struct RoundTrips {
  double small = 0;
  double large = 0;
};

LinkProfile profile_of(const RoundTrips& trips) {
  LinkProfile figures;
  figures.latency_seconds = trips.small / 2;
  const double transfer = trips.large / 2 - figures.latency_seconds;
  figures.bytes_per_second = LinkProfile::kFree;
  if (transfer > 0)
    figures.bytes_per_second =
        std::min(LinkProfile::kFree, static_cast<double>(kLargeBytes) / transfer);
  return figures;
}

}  // namespace

Result<std::vector<LinkProfile>> probe_links(Communicator& comm,
                                             const std::vector<std::string>& hosts,
                                             const std::function<double()>& now) {
  MOTLEY_CHECK_EQ(hosts.size(), static_cast<size_t>(comm.size()));
  std::vector<std::byte> buffer(kLargeBytes);
  std::vector<LinkProfile> links;
  for (const Pair& pair : pairs_to_probe(hosts)) {
    RoundTrips trips;
    if (comm.rank() == pair.first || comm.rank() == pair.second) {
      MOTLEY_TRY(trips.small, fastest_round_trip(comm, pair, std::span(buffer).first(kSmallBytes),
                                                 kSmallRounds, now));
      MOTLEY_TRY(trips.large, fastest_round_trip(comm, pair, buffer, kLargeRounds, now));
    }
    std::string measured(sizeof trips, '\0');
    std::memcpy(measured.data(), &trips, sizeof trips);
    MOTLEY_TRY_VOID(comm.broadcast(measured, pair.first));
    std::memcpy(&trips, measured.data(), sizeof trips);
    links.push_back(profile_of(trips));
    links.back().between[0] = hosts[static_cast<size_t>(pair.first)];
    links.back().between[1] = hosts[static_cast<size_t>(pair.second)];
  }
  return links;
}

}  // namespace motley
