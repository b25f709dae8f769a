#include "planner/pipelines/tensor_sets.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <utility>

#include "planner/pipelines/pipeline_space.h"
#include "planner/plain/grain_table.h"

namespace motley {
namespace {

/// Where there is a plan, devices that share have to reach so much of their summed speeds, and so
/// many sets of them are looked at.
constexpr double kWorthSharing = 0.75;
constexpr size_t kMostKept = 8;

/// Heads by member.
using Heads = std::vector<int>;

class TensorSetFinder {
 public:
  TensorSetFinder(const PlanRequest& request, const std::vector<DeviceGroup>& groups,
                  const PipelineCosts& costs, const std::vector<int>& micro_batches)
      : request_(request), groups_(groups), costs_(costs), micro_batches_(micro_batches) {
    for (const DeviceGroup& group : groups) there_.push_back(group.count());
  }

  TensorSets run(double quickest, size_t most) {
    find_members(quickest);
    TensorSets found;
    for (const GroupCounts& members : members_)
      if (found.sets.size() <= most) add_all(members, most, &found.sets);
    if (found.sets.size() > most) {
      found = {.sets = {}, .all = false};
      if (quickest < kNever) keep_the_best();
      for (const GroupCounts& members : members_) add_balanced(members, &found.sets);
    }
    std::stable_sort(found.sets.begin(), found.sets.end(),
                     [](const TensorSet& a, const TensorSet& b) { return a.size() > b.size(); });
    return found;
  }

 private:
  const ModelSpec& model() const { return request_.job.model; }

  void find_members(double quickest) {
    const auto wanted = request_.job.parallel.tensor;
    std::set<GroupCounts> seen;
    for (const GroupCounts& island : islands())
      for (GroupCounts& members : sets_of(island, std::min(kMostSharing, model().heads))) {
        const int size = std::accumulate(members.begin(), members.end(), 0);
        if (size < 2 || (wanted && size != *wanted) || !seen.insert(members).second) continue;
        if (costs_.least_seconds_sharing(members, there_, request_.job.train.global_batch) <
            quickest)
          members_.push_back(std::move(members));
      }
  }

  /// How many of each group a host has that may share, by precision; hosts alike once.
  std::set<GroupCounts> islands() const {
    std::map<std::pair<std::string, Precision>, GroupCounts> islands;
    for (size_t group = 0; group < groups_.size(); ++group) {
      if (!costs_.may_share(static_cast<int>(group))) continue;
      for (const DeviceSpec* device : groups_[group].devices) {
        GroupCounts& counts = islands[{device->host, groups_[group].precision}];
        counts.resize(groups_.size());
        ++counts[group];
      }
    }
    std::set<GroupCounts> unlike;
    for (const auto& [place, counts] : islands) unlike.insert(counts);
    return unlike;
  }

  /// Those that lose least of what they compute together.
  void keep_the_best() {
    std::vector<std::pair<double, GroupCounts>> kept;
    for (GroupCounts& members : members_) {
      const double speed =
          costs_.least_seconds(members, 1) / costs_.least_seconds_sharing(members, members, 1);
      if (speed >= kWorthSharing) kept.emplace_back(speed, std::move(members));
    }
    std::stable_sort(kept.begin(), kept.end(),
                     [](const auto& a, const auto& b) { return a.first > b.first; });
    kept.resize(std::min(kept.size(), kMostKept));
    members_.clear();
    for (auto& [speed, members] : kept) members_.push_back(std::move(members));
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
      for (const int samples : {micro_batches_.front(), micro_batches_.back()})
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

  const PlanRequest& request_;
  const std::vector<DeviceGroup>& groups_;
  const PipelineCosts& costs_;
  const std::vector<int>& micro_batches_;
  GroupCounts there_;
  std::vector<GroupCounts> members_;
};

}  // namespace

TensorSets tensor_sets(const PlanRequest& request, const std::vector<DeviceGroup>& groups,
                       const PipelineCosts& costs, const std::vector<int>& micro_batches,
                       double quickest, size_t most) {
  return TensorSetFinder(request, groups, costs, micro_batches).run(quickest, most);
}

}  // namespace motley
