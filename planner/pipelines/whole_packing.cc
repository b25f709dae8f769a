#include "planner/pipelines/whole_packing.h"

#include <cmath>
#include <cstddef>
#include <utility>

#include "planner/pipelines/packing_bound.h"

namespace motley {
namespace {

/// Numbers of copies that are no nearer to a whole one are parts.
constexpr double kWholeCopy = 1e-6;
/// Of what packings in parts are worth.
constexpr double kRoundedOff = 1e-9;

using Needs = std::vector<std::vector<int>>;

class WholePacking {
 public:
  WholePacking(const Needs& needs, const std::vector<int>& worth, int64_t enough, int most_tries)
      : needs_(needs), worth_(worth), enough_(enough), tries_left_(most_tries) {
    for (size_t set = 0; set < worth.size(); ++set)
      if (worth[set] > 0) useful_.push_back(set);
  }

  std::vector<int> run(const std::vector<int>& there) {
    Part all{.left = there, .copies = std::vector<int>(worth_.size(), 0), .most = {}};
    all.most.assign(worth_.size(), kAny);
    return search(all) ? std::move(found_) : std::vector<int>();
  }

 private:
  static constexpr int kAny = -1;

  /// Packings with these copies, and of each set no more than so many besides.
  struct Part {
    std::vector<int> left;  ///< devices
    std::vector<int> copies;
    std::vector<int> most;
    int64_t worth = 0;
  };

  /// Whether one is found.
  bool search(const Part& part) {
    if (tries_left_-- <= 0) return false;
    const std::vector<double> fractions = in_fractions(part);
    if (fractions.empty()) return false;
    const size_t cut = round_down(part, fractions);
    if (!found_.empty()) return true;
    if (cut == worth_.size()) return false;
    const int copies = static_cast<int>(fractions[cut]);
    Part more = part, fewer = part;
    fewer.most[cut] = copies;
    return (take(cut, copies + 1, &more) && search(more)) || search(fewer);
  }

  /// Copies of each set in the best packing of parts; none where that is not worth enough.
  std::vector<double> in_fractions(const Part& part) const {
    std::vector<int> worth, there = part.left;
    Needs needs;
    for (const size_t set : useful_) {
      worth.push_back(worth_[set]);
      needs.push_back(needs_[set]);
    }
    for (size_t i = 0; i < useful_.size(); ++i) {
      if (part.most[useful_[i]] == kAny) continue;
      there.push_back(part.most[useful_[i]]);
      for (size_t other = 0; other < needs.size(); ++other)
        needs[other].push_back(other == i ? 1 : 0);
    }
    const FractionalPacking packing = pack_fractions(needs, worth, there);
    const auto enough = static_cast<double>(enough_ - part.worth);
    if (packing.worth < enough - kWholeCopy - kRoundedOff * enough) return {};
    std::vector<double> fractions(worth_.size(), 0.0);
    for (size_t i = 0; i < useful_.size(); ++i)
      fractions[useful_[i]] = packing.copies[i] + kWholeCopy;
    return fractions;
  }

  /// The whole copies among them, filled up with what is worth most, may be enough. The set that is
  /// cut into the largest part; none where none is.
  size_t round_down(const Part& part, const std::vector<double>& fractions) {
    Part whole = part;
    size_t cut = worth_.size();
    double largest = 2 * kWholeCopy;
    for (const size_t set : useful_) {
      const double copies = std::floor(fractions[set]);
      if (fractions[set] - copies > largest) {
        largest = fractions[set] - copies;
        cut = set;
      }
      take(set, static_cast<int>(copies), &whole);
    }
    for (bool fits = true; fits && whole.worth < enough_;) {
      size_t best = worth_.size();
      for (const size_t set : useful_)
        if ((best == worth_.size() || worth_[set] > worth_[best]) && has_room(set, 1, whole))
          best = set;
      fits = best < worth_.size() && take(best, 1, &whole);
    }
    if (whole.worth >= enough_) found_ = std::move(whole.copies);
    return cut;
  }

  bool has_room(size_t set, int copies, const Part& part) const {
    if (part.most[set] != kAny && copies > part.most[set]) return false;
    for (size_t group = 0; group < part.left.size(); ++group)
      if (needs_[set][group] * copies > part.left[group]) return false;
    return true;
  }

  bool take(size_t set, int copies, Part* part) const {
    if (!has_room(set, copies, *part)) return false;
    for (size_t group = 0; group < part->left.size(); ++group)
      part->left[group] -= needs_[set][group] * copies;
    part->copies[set] += copies;
    if (part->most[set] != kAny) part->most[set] -= copies;
    part->worth += int64_t{worth_[set]} * copies;
    return true;
  }

  const Needs& needs_;
  const std::vector<int>& worth_;
  const int64_t enough_;
  int tries_left_;
  std::vector<size_t> useful_;
  std::vector<int> found_;
};

}  // namespace

std::vector<int> pack_whole(const std::vector<std::vector<int>>& needs,
                            const std::vector<int>& worth, const std::vector<int>& there,
                            int64_t enough, int most_tries) {
  return WholePacking(needs, worth, enough, most_tries).run(there);
}

}  // namespace motley
