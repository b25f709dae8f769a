#include "planner/pipelines/tensor_sets.h"

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "planner/pipelines/least_sums.h"

namespace motley {
namespace {

/// Where there is a plan, devices that share have to reach so much of their summed speeds, and of
/// each number of them so many sets are looked at.
constexpr double kWorthSharing = 0.75;
constexpr size_t kMostSetsKept = 4;

/// Heads by member.
using Heads = std::vector<int>;

int size_of_set(const GroupCounts& devices) {
  return std::accumulate(devices.begin(), devices.end(), 0);
}

/// How many of each group a host has that may share, by precision; hosts alike once.
std::set<GroupCounts> islands_of(const PipelineSpace& space, const PipelineCosts& costs) {
  std::map<std::pair<std::string, Precision>, GroupCounts> islands;
  for (size_t group = 0; group < space.groups.size(); ++group) {
    if (!costs.may_share(static_cast<int>(group))) continue;
    for (const DeviceSpec* device : space.groups[group].devices) {
      GroupCounts& counts = islands[{device->host, space.groups[group].precision}];
      counts.resize(space.groups.size());
      ++counts[group];
    }
  }
  std::set<GroupCounts> unlike;
  for (const auto& [place, counts] : islands) unlike.insert(counts);
  return unlike;
}

class TensorSetFinder {
 public:
  TensorSetFinder(const PipelineSpace& space, const PipelineCosts& costs)
      : space_(space), costs_(costs) {}

  TensorSets run(double quickest, size_t most) {
    TensorSets found;
    found.least = find_members_with_sums(quickest);
    for (const GroupCounts& members : members_)
      if (found.sets.size() <= most) add_all(members, most, &found.sets);
    if (found.sets.size() > most) {
      found.sets.clear();
      found.all = false;
      if (quickest < kNever) keep_the_best();
      for (const GroupCounts& members : members_) add_balanced(members, &found.sets);
    }
    found.all = found.all && all_members_;
    std::stable_sort(found.sets.begin(), found.sets.end(),
                     [](const TensorSet& a, const TensorSet& b) { return a.size() > b.size(); });
    return found;
  }

  /// Knowing what sums of gradients take at least.
  double find_members_with_sums(double quickest) {
    sums_.emplace(space_.request, space_.groups, space_.longest, false);
    for (int replicas = 1; replicas <= space_.most_replicas(); replicas *= 2)
      sharing_sums_.push_back(sums_->seconds_sharing(replicas));
    return find_members(quickest);
  }

  SharingDevices members(double quickest) {
    find_members_with_sums(quickest);
    return {std::move(members_), all_members_};
  }

  /// Those of which a plan may take less; seconds that none of these does.
  double find_members(double quickest) {
    SharingDevices sharing = sharing_devices(space_, costs_);
    all_members_ = sharing.all;
    double least = kNever;
    if (!sharing.all) sharing.of_groups.emplace_back(space_.groups.size(), 0);
    for (GroupCounts& members : sharing.of_groups) {
      const double seconds = least_step(members);
      if (seconds >= quickest) continue;
      least = std::min(least, seconds);
      if (size_of_set(members) > 0) members_.push_back(std::move(members));
    }
    return least;
  }

 private:
  const ModelSpec& model() const { return space_.request.job.model; }

  /// By numbers of replicas, those of up to twice as many at a time.
  double least_step(const GroupCounts& members) const {
    if (!sums_) return costs_.least_seconds_sharing(members, space_.there, space_.batch());
    double least = kNever;
    for (size_t i = 0; i < sharing_sums_.size(); ++i) {
      const int most_replicas = (2 << i) - 1;
      least = std::min(least, sums_->step_seconds(costs_.least_seconds_sharing(
                                                      members, space_.there, space_.batch(),
                                                      space_.longest * most_replicas),
                                                  sharing_sums_[i]));
    }
    return least;
  }

  /// Of each number of devices those that lose least of what they compute together.
  void keep_the_best() {
    std::map<int, std::vector<std::pair<double, GroupCounts>>> kept;  // by number
    for (GroupCounts& members : members_) {
      const double speed =
          costs_.least_seconds(members, 1) / costs_.least_seconds_sharing(members, members, 1);
      if (speed >= kWorthSharing)
        kept[size_of_set(members)].emplace_back(speed, std::move(members));
    }
    members_.clear();
    for (auto& [size, sets] : kept) {
      std::stable_sort(sets.begin(), sets.end(),
                       [](const auto& a, const auto& b) { return a.first > b.first; });
      sets.resize(std::min(sets.size(), kMostSetsKept));
      for (auto& [speed, members] : sets) members_.push_back(std::move(members));
    }
  }

  static std::vector<int> groups_of(const GroupCounts& members) {
    std::vector<int> groups;
    for (size_t group = 0; group < members.size(); ++group)
      groups.insert(groups.end(), static_cast<size_t>(members[group]), static_cast<int>(group));
    return groups;
  }

  static TensorSet set_of(const std::vector<int>& groups, const Heads& heads) {
    TensorSet set;
    for (size_t i = 0; i < groups.size(); ++i) set.members.push_back({groups[i], heads[i]});
    return set;
  }

  /// Of devices alike none has more heads than the one before.
  void add_all(const GroupCounts& members, size_t most, std::vector<TensorSet>* sets) const {
    const std::vector<int> groups = groups_of(members);
    Heads heads;
    deal(groups, model().heads, most, &heads, sets);
  }

  void deal(const std::vector<int>& groups, int left, size_t most, Heads* heads,
            std::vector<TensorSet>* sets) const {
    if (sets->size() > most) return;
    const size_t member = heads->size();
    const bool alike = member > 0 && groups[member] == groups[member - 1];
    const int limit = alike ? std::min(left, heads->back()) : left;
    const auto others = static_cast<int>(groups.size() - member - 1);
    for (int own = others == 0 ? left : 1; own <= std::min(limit, left - others); ++own) {
      heads->push_back(own);
      if (others == 0)
        sets->push_back(set_of(groups, *heads));
      else
        deal(groups, left - own, most, heads, sets);
      heads->pop_back();
    }
  }

  void add_balanced(const GroupCounts& members, std::vector<TensorSet>* sets) const {
    const std::vector<int> groups = groups_of(members);
    const std::array<int, 3> layers[] = {{0, 1, 0}, {1, model().layers, 1}, {1, 0, 0}, {0, 0, 1}};
    std::vector<Heads> found;
    const auto add = [&](const Heads& heads) {
      if (std::find(found.begin(), found.end(), heads) != found.end()) return;
      found.push_back(heads);
      sets->push_back(set_of(groups, heads));
    };
    for (const auto& kinds : layers)
      for (const int samples : {space_.micro_batches.front(), space_.micro_batches.back()})
        add(balanced(groups, [&](size_t member, int heads) {
          return costs_.part_seconds(groups[member], kinds, 1.0 * heads / model().heads, samples);
        }));
    add(balanced(groups, [&](size_t member, int heads) {
      return heads / static_cast<double>(costs_.usable(groups[member]).value());
    }));
  }

  /// Head by head to whom it makes the least busy; of devices alike those before get more.
  template <class Busy>
  Heads balanced(const std::vector<int>& groups, Busy busy) const {
    Heads heads(groups.size(), 1);
    for (int left = model().heads - static_cast<int>(groups.size()); left > 0; --left) {
      size_t least = 0;
      for (size_t i = 1; i < groups.size(); ++i)
        if (busy(i, heads[i] + 1) < busy(least, heads[least] + 1)) least = i;
      ++heads[least];
    }
    return heads;
  }

  const PipelineSpace& space_;
  const PipelineCosts& costs_;
  std::optional<LeastSums> sums_;     ///< none: they are free
  std::vector<double> sharing_sums_;  ///< of 1, 2, 4 … replicas at least
  std::vector<GroupCounts> members_;
  bool all_members_ = true;
};

}  // namespace

SharingDevices sharing_devices(const PipelineSpace& space, const PipelineCosts& costs) {
  const auto& wanted = space.wanted().tensor;
  const int heads = space.request.job.model.heads;
  SharingDevices sharing;
  std::set<GroupCounts> seen;
  for (const GroupCounts& island : islands_of(space, costs)) {
    const int most = std::min({kMostSharing, heads, size_of_set(island)});
    int largest = 0;
    for (GroupCounts& members : sets_of(island, most)) {
      const int size = size_of_set(members);
      largest = std::max(largest, size);
      if (size < 2 || wanted.value_or(size) != size || !seen.insert(members).second) continue;
      sharing.of_groups.push_back(std::move(members));
    }
    sharing.all = sharing.all && largest == most;
  }
  return sharing;
}

SharingDevices sharing_devices(const PipelineSpace& space, const PipelineCosts& costs,
                               double quickest) {
  return TensorSetFinder(space, costs).members(quickest);
}

double least_seconds_sharing(const PipelineSpace& space, const PipelineCosts& costs) {
  return TensorSetFinder(space, costs).find_members(kNever);
}

TensorSets tensor_sets(const PipelineSpace& space, const PipelineCosts& costs, double quickest,
                       size_t most) {
  return TensorSetFinder(space, costs).run(quickest, most);
}

}  // namespace motley
