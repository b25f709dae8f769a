#include "scheduler/report/straggler.h"

#include <algorithm>

#include "scheduler/report/table.h"

namespace motley {
namespace {

constexpr double kClearlyBusier = 1.05;
constexpr double kWorthNaming = 0.1;

}  // namespace

std::optional<RankTime> rank_time(std::optional<double> compute_seconds,
                                  std::optional<double> update_seconds,
                                  std::optional<double> wait_seconds,
                                  std::optional<double> input_seconds) {
  if (!compute_seconds || !update_seconds || !wait_seconds) return std::nullopt;
  return RankTime{*compute_seconds + *update_seconds + input_seconds.value_or(0), *wait_seconds};
}

double waiting_share(const RankTime& time) {
  const double whole = time.busy_seconds + time.wait_seconds;
  return whole > 0 ? time.wait_seconds / whole : 0;
}

std::optional<Straggler> find_straggler(std::span<const RankTime> ranks) {
  if (ranks.size() < 2) return std::nullopt;
  Straggler found;
  for (size_t i = 1; i < ranks.size(); ++i)
    if (ranks[i].busy_seconds > ranks[found.rank].busy_seconds) found.rank = i;
  const RankTime& slowest = ranks[found.rank];
  double shares = 0, next = 0;
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (i == found.rank) continue;
    shares += waiting_share(ranks[i]);
    next = std::max(next, ranks[i].busy_seconds);
  }
  found.others_wait_share = shares / static_cast<double>(ranks.size() - 1);
  const bool clear = slowest.busy_seconds > next * kClearlyBusier &&
                     found.others_wait_share - waiting_share(slowest) > kWorthNaming;
  return clear ? std::optional(found) : std::nullopt;
}

std::string straggler_text(const Straggler& straggler, const std::string& type,
                           const std::string& host) {
  return "rank " + std::to_string(straggler.rank) + " (" + type + " on " + host +
         ") holds the others up: they wait " + format_fixed(straggler.others_wait_share * 100, 0) +
         " % of the time";
}

}  // namespace motley
