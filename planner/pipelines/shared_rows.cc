#include "planner/pipelines/shared_rows.h"

#include <algorithm>
#include <map>
#include <utility>

namespace motley {
namespace {

bool has_wanted_length(const StageRow& row, const RowsWanted& wanted, int layers) {
  const auto stages = static_cast<int>(row.size());
  return stages <= layers && wanted.stages.value_or(stages) == stages;
}

class RowFinder {
 public:
  RowFinder(const PipelineCosts& costs, const std::vector<int>& devices, const RowsWanted& wanted)
      : costs_(costs), left_(devices), wanted_(wanted) {
    for (int set = 0; set < static_cast<int>(costs.tensor_sets().size()); ++set)
      if (take(set)) {
        put_back(set);
        sets_.push_back(set);
      }
  }

  SharedRows run(size_t most) {
    extend_with_sets(0, most);
    if (found_.rows.size() <= most) return std::move(found_);
    found_ = {.rows = {}, .all = false};
    add_some_with_each(most);
    add_each_division(most);
    return std::move(found_);
  }

 private:
  bool take(int set) {
    bool there = true;
    for (const TensorSet::Member& member : members(set))
      if (--left_[static_cast<size_t>(member.group)] < 0) there = false;
    if (!there) put_back(set);
    return there;
  }
  void put_back(int set) {
    for (const TensorSet::Member& member : members(set)) ++left_[static_cast<size_t>(member.group)];
  }
  const std::vector<TensorSet::Member>& members(int set) const {
    return costs_.tensor_sets()[static_cast<size_t>(set)].members;
  }

  void add_some_with_each(size_t most) {
    const size_t of_each = std::max<size_t>(1, most / sets_.size());
    const size_t stride = (sets_.size() + most - 1) / most;
    for (size_t first = 0; first < sets_.size(); first += stride) {
      take(sets_[first]);
      row_.push_back(costs_.groups() + sets_[first]);
      extend_with_sets(first, found_.rows.size() + of_each - 1);
      row_.pop_back();
      put_back(sets_[first]);
    }
  }

  /// Every way to divide the devices into stages, once, with shares by memory; of more than `most`
  /// as many, evenly.
  void add_each_division(size_t most) {
    constexpr size_t kMostDivisions = 1000;
    SharedRows some = std::move(found_);
    found_ = {.rows = {}, .all = false};
    one_order_ = true;
    sets_ = with_shares_by_memory();
    extend_with_sets(0, kMostDivisions);
    const size_t count = found_.rows.size(), taken = std::min(most, count);
    for (size_t i = 0; i < taken; ++i)
      some.rows.push_back(std::move(found_.rows[i * count / taken]));
    found_ = std::move(some);
  }

  /// Of those of the same devices the one that needs least of any device's memory.
  std::vector<int> with_shares_by_memory() const {
    std::map<std::vector<int>, std::pair<double, int>> best;  // by groups
    for (const int set : sets_) {
      std::vector<int> groups;
      double fullest = 0;
      for (const TensorSet::Member& member : members(set)) {
        groups.push_back(member.group);
        fullest = std::max(fullest,
                           member.heads / static_cast<double>(costs_.usable(member.group).value()));
      }
      const auto [known, is_new] = best.try_emplace(std::move(groups), fullest, set);
      if (!is_new && fullest < known->second.first) known->second = {fullest, set};
    }
    std::vector<int> sets;
    for (const auto& [groups, chosen] : best) sets.push_back(chosen.second);
    std::sort(sets.begin(), sets.end());
    return sets;
  }

  /// More sets in the order that they are in, then the devices that are left.
  void extend_with_sets(size_t from, size_t most) {
    if (found_.rows.size() > most) return;
    if (!row_.empty()) complete(most);
    for (size_t i = from; i < sets_.size() && found_.rows.size() <= most; ++i) {
      if (!take(sets_[i])) continue;
      row_.push_back(costs_.groups() + sets_[i]);
      extend_with_sets(i, most);
      row_.pop_back();
      put_back(sets_[i]);
    }
  }

  void complete(size_t most) {
    StageRow row = row_;
    for (size_t group = 0; group < left_.size(); ++group)
      row.insert(row.end(), static_cast<size_t>(left_[group]), static_cast<int>(group));
    if (!has_wanted_length(row, wanted_, costs_.layers())) return;
    if (wanted_.only_shared && row.size() > row_.size()) return;
    std::sort(row.begin(), row.end());
    do {
      found_.rows.push_back(row);
    } while (!one_order_ && found_.rows.size() <= most &&
             std::next_permutation(row.begin(), row.end()));
  }

  const PipelineCosts& costs_;
  std::vector<int> left_;
  const RowsWanted& wanted_;
  std::vector<int> sets_;   ///< that the devices have
  bool one_order_ = false;  ///< of each row
  StageRow row_;
  SharedRows found_;
};

}  // namespace

SharedRows shared_rows(const PipelineCosts& costs, const std::vector<int>& devices,
                       const RowsWanted& wanted, size_t most) {
  return RowFinder(costs, devices, wanted).run(most);
}

std::vector<StageRow> rows_sharing_more(const PipelineCosts& costs, const StageRow& row,
                                        const RowsWanted& wanted) {
  std::vector<StageRow> rows;
  const auto& sets = costs.tensor_sets();
  for (size_t i = 0; i < sets.size(); ++i) {
    StageRow other = row;
    size_t place = row.size();
    bool there = true;
    for (const TensorSet::Member& member : sets[i].members) {
      const auto found = std::find(other.begin(), other.end(), member.group);
      there = there && found != other.end();
      if (!there) break;
      place = std::min(place, static_cast<size_t>(found - other.begin()));
      *found = -1;
    }
    if (!there) continue;
    other[place] = costs.groups() + static_cast<int>(i);
    std::erase(other, -1);
    if (has_wanted_length(other, wanted, costs.layers())) rows.push_back(std::move(other));
  }
  return rows;
}

std::vector<StageRow> rows_sharing_unlike(const PipelineCosts& costs, const StageRow& row,
                                          const RowsWanted& wanted) {
  std::vector<StageRow> rows = rows_sharing_more(costs, row, wanted);
  const auto& sets = costs.tensor_sets();
  const auto same_devices = [](const TensorSet& a, const TensorSet& b) {
    return std::equal(a.members.begin(), a.members.end(), b.members.begin(), b.members.end(),
                      [](const auto& x, const auto& y) { return x.group == y.group; });
  };
  for (size_t stage = 0; stage < row.size(); ++stage) {
    const TensorSet* const own = costs.tensor_set(row[stage]);
    if (own == nullptr) continue;
    for (size_t i = 0; i < sets.size(); ++i) {
      if (&sets[i] == own || !same_devices(sets[i], *own)) continue;
      rows.push_back(row);
      rows.back()[stage] = costs.groups() + static_cast<int>(i);
    }
  }
  return rows;
}

}  // namespace motley
