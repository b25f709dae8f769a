#pragma once
// Who holds the others up: one judgement for progress, reports and `motley top`.

#include <optional>
#include <span>
#include <string>

namespace motley {

/// What a typical step is to one rank; seconds of the same clock for all.
struct RankTime {
  double busy_seconds = 0;  ///< it reads, computes or updates
  double wait_seconds = 0;  ///< for others, and for what travels
};

/// Nothing where one of the first three is not known; input that nobody told of is none.
std::optional<RankTime> rank_time(std::optional<double> compute_seconds,
                                  std::optional<double> update_seconds,
                                  std::optional<double> wait_seconds,
                                  std::optional<double> input_seconds);

/// Of its time, 0 to 1; 0 where there was none.
double waiting_share(const RankTime& time);

struct Straggler {
  size_t rank = 0;               ///< its place among those asked about
  double others_wait_share = 0;  ///< mean of the other ranks' waiting_share()
};

/// The rank that the others wait for, where that is clear: it is busy for longer than any other, by
/// more than a twentieth, and the others wait for more than a tenth of their time beyond what it
/// waits itself (that much is the way between them). Nothing for fewer than two ranks.
std::optional<Straggler> find_straggler(std::span<const RankTime> ranks);

/// "rank 3 (slow-card on a2) holds the others up: they wait 24 % of the time"
std::string straggler_text(const Straggler& straggler, const std::string& type,
                           const std::string& host);

}  // namespace motley
