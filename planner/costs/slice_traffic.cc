#include "planner/costs/slice_traffic.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "core/holdings.h"
#include "core/ownership.h"

namespace motley {
namespace {

/// Who holds which slice of a tensor.
struct Holder {
  size_t rank = 0;
  const HeldPart* part = nullptr;
};

/// What ranks hold; those whose stages have the same layers and shares hold the same.
class Held {
 public:
  Held(const Plan& plan, const ModelSpec& model)
      : tensors_(logical_tensors(model)), holders_(tensors_.size()) {
    for (size_t i = 0; i < tensors_.size(); ++i) numbers_.emplace(tensors_[i].name, i);
    for (const ReplicaPlan& replica : plan.replicas)
      for (const StagePlan& stage : replica.stages)
        for (size_t member = 0; member < stage.ranks.size(); ++member)
          add(stage, static_cast<int>(member), model);
    for (const auto& [shape, alike] : known_)
      for (const auto& [tensor, part] : alike.parts)
        for (const size_t rank : alike.ranks) holders_[tensor].push_back({rank, &part});
  }

  size_t tensors() const { return tensors_.size(); }
  size_t number(std::string_view tensor) const { return numbers_.at(tensor); }
  const std::vector<Holder>& holders(size_t tensor) const { return holders_[tensor]; }
  /// Whether all that hold something of the tensor hold the same.
  static bool alike(const std::vector<Holder>& holders) {
    const Slice& first = holders.front().part->slice;
    return std::all_of(holders.begin(), holders.end(), [&](const Holder& holder) {
      return &holder.part->slice == &first || holder.part->slice == first;
    });
  }

 private:
  using Shape = std::tuple<LayerIndex, LayerIndex, std::vector<double>, int>;
  struct Alike {
    std::vector<std::pair<size_t, HeldPart>> parts;  ///< of tensors
    std::vector<size_t> ranks;
  };

  void add(const StagePlan& stage, int member, const ModelSpec& model) {
    const auto [found, is_new] =
        known_.try_emplace({stage.first_layer, stage.last_layer, stage.shares, member});
    Alike& alike = found->second;
    alike.ranks.push_back(static_cast<size_t>(stage.ranks[static_cast<size_t>(member)].value()));
    if (!is_new) return;
    const MemberShape shape = member_shape(model, stage.shares, member);
    for (size_t tensor = 0; tensor < tensors_.size(); ++tensor)
      if (std::optional<HeldPart> part = part_of(tensors_[tensor], stage, shape))
        alike.parts.emplace_back(tensor, *std::move(part));
  }

  const std::vector<LogicalTensor> tensors_;
  std::unordered_map<std::string_view, size_t> numbers_;
  std::map<Shape, Alike> known_;
  std::vector<std::vector<Holder>> holders_;  ///< by tensor
};

/// Which ranks exchange something with which, itself included: as bits, since the same meet over
/// and over.
class Meetings {
 public:
  explicit Meetings(size_t ranks) : words_((ranks + 63) / 64), bits_(ranks * words_) {
    for (size_t rank = 0; rank < ranks; ++rank) add(rank, rank);
  }

  void add(size_t rank, size_t peer) {
    bits_[rank * words_ + peer / 64] |= uint64_t{1} << (peer % 64);
  }
  /// Each of some with all of others.
  void add(const std::vector<size_t>& ranks, const std::vector<size_t>& peers) {
    std::vector<uint64_t> met(words_, 0);
    for (const size_t peer : peers) met[peer / 64] |= uint64_t{1} << (peer % 64);
    for (const size_t rank : ranks)
      for (size_t word = 0; word < words_; ++word) bits_[rank * words_ + word] |= met[word];
  }

  std::vector<Rank> peers(size_t rank) const { return peers(std::vector<size_t>{rank}); }
  std::vector<Rank> peers(const std::vector<size_t>& of_any) const {
    std::vector<Rank> peers;
    for (size_t word = 0; word < words_; ++word) {
      uint64_t left = 0;
      for (const size_t rank : of_any) left |= bits_[rank * words_ + word];
      for (; left != 0; left &= left - 1)
        peers.emplace_back(static_cast<int>(64 * word) + std::countr_zero(left));
    }
    return peers;
  }

 private:
  size_t words_;
  std::vector<uint64_t> bits_;
};

/// Adds up what crosses the links of hosts, slice by slice.
class HostLinks {
 public:
  explicit HostLinks(const Plan& plan) : shard_(plan.shard_optimizer) {
    std::map<std::string, size_t> numbers;
    for (size_t rank = 0; rank < plan.ranks.size(); ++rank) {
      const auto [found, is_new] = numbers.emplace(plan.ranks[rank].host, ranks_.size());
      if (is_new) ranks_.emplace_back();
      ranks_[found->second].push_back(rank);
      host_of_.push_back(found->second);
    }
    links_.resize(ranks_.size());
    holds_.resize(ranks_.size());
  }

  /// Of the slice that is summed next: so many elements of it, or all.
  void add(size_t rank, int64_t elements, bool counted) {
    Part& part = holds_[host_of_[rank]];
    if (part.elements == 0) holders_.push_back(host_of_[rank]);
    part.elements = std::max(part.elements, elements);
    part.counted = part.counted || counted;
  }

  /// Who owns how much of it, and the number of its holders.
  void sum_up(const std::vector<std::pair<size_t, int64_t>>& owned, size_t holders) {
    for (const auto& [rank, elements] : owned) holds_[host_of_[rank]].owned += elements;
    for (const size_t host : holders_) {
      const Part& own = holds_[host];
      if (!shard_) {
        Link& link = links_[host][holders];
        link.shared += own.elements;
        link.hosts = holders_.size();
        continue;
      }
      if (own.owned == 0) continue;
      for (const size_t other : holders_) {
        if (other == host) continue;
        const int64_t elements = std::min(holds_[other].elements, own.owned);
        if (holds_[other].counted) pass(other, host, holders, elements);  // a gradient
        pass(host, other, holders, elements);                             // weights
      }
    }
    for (const size_t host : holders_) holds_[host] = {};
    holders_.clear();
  }

  std::vector<HostTraffic> traffic(const Meetings& meetings) const {
    std::vector<HostTraffic> traffic;
    for (size_t host = 0; host < links_.size(); ++host) {
      HostTraffic& own = traffic.emplace_back(HostTraffic{meetings.peers(ranks_[host]), {}});
      for (const auto& [holders, link] : links_[host])
        own.held_alike.push_back({holders, link.elements()});
    }
    return traffic;
  }

 private:
  struct Part {
    int64_t elements = 0;
    int64_t owned = 0;
    bool counted = false;
  };

  /// In whole elements, so that the order of ranks changes nothing.
  struct Link {
    int64_t sent = 0, received = 0;
    int64_t shared = 0;  ///< that nobody owns
    size_t hosts = 1;    ///< that have it, each of which adds up a share

    double elements() const {
      return static_cast<double>(std::max(sent, received)) + 2.0 * static_cast<double>(hosts - 1) /
                                                                 static_cast<double>(hosts) *
                                                                 static_cast<double>(shared);
    }
  };

  void pass(size_t from, size_t to, size_t holders, int64_t elements) {
    links_[from][holders].sent += elements;
    links_[to][holders].received += elements;
  }

  const bool shard_;
  std::vector<std::vector<size_t>> ranks_;  ///< by host
  std::vector<size_t> host_of_;
  std::vector<std::map<size_t, Link>> links_;  ///< by holders
  std::vector<Part> holds_;                    ///< of the slice, by host
  std::vector<size_t> holders_;                ///< hosts
};

class TrafficCount {
 public:
  explicit TrafficCount(const Plan& plan)
      : traffic_(plan.ranks.size()),
        passed_(plan.ranks.size()),
        meetings_(plan.ranks.size()),
        links_(plan) {}

  /// Of a plan whose stages have a rank each: of what the same ranks hold all at once.
  void add_even(const Plan& plan, const ModelSpec& model) {
    for (const OwnedAlike& alike : even_elements(plan, model)) {
      std::vector<Copy> copies;
      std::map<size_t, int64_t> owned;  // by rank
      for (size_t i = 0; i < alike.owned.size(); ++i) {
        const auto rank = static_cast<size_t>(alike.held.holders[i].value());
        copies.push_back({rank, true});
        traffic_[rank].held += alike.held.elements;
        if (alike.owned[i] > 0) owned[rank] = alike.owned[i];
      }
      add_alike(copies, owned, alike.held.elements);
    }
  }

  void add_owners(const Plan& plan, const ModelSpec& model) {
    const Held held(plan, model);
    std::vector<std::vector<const Ownership*>> owned(held.tensors());
    for (const Ownership& one : plan.owners) owned[held.number(one.tensor)].push_back(&one);
    for (size_t tensor = 0; tensor < owned.size(); ++tensor) {
      const std::vector<const Ownership*>& parts = owned[tensor];
      const std::vector<Holder>& holders = held.holders(tensor);
      for (const auto& [rank, part] : holders) traffic_[rank].held += part->slice.elements();
      if (parts.empty()) continue;
      if (Held::alike(holders)) {
        add_alike(holders, parts);
        continue;
      }
      for (const Ownership* part : parts) add(*part, holders);
    }
  }

  PlanTraffic take() {
    for (size_t rank = 0; rank < traffic_.size(); ++rank) {
      traffic_[rank].peers = meetings_.peers(rank);
      for (const auto& [holders, passed] : passed_[rank])
        traffic_[rank].held_alike.push_back(
            {holders, static_cast<double>(std::max(passed.sent, passed.received))});
    }
    std::vector<std::vector<Rank>> holders(numbers_.size());
    for (const auto& [ranks, number] : numbers_)
      for (const size_t rank : ranks) holders[number].emplace_back(static_cast<int>(rank));
    return {std::move(traffic_), links_.traffic(meetings_), std::move(holders)};
  }

 private:
  /// Of all of a tensor.
  struct Copy {
    size_t rank = 0;
    bool counted = true;
  };

  static size_t owner_of(const Ownership& owned) {
    return static_cast<size_t>(owned.owner.value());
  }

  void add(const Ownership& owned, const std::vector<Holder>& holders) {
    const size_t owner = owner_of(owned);
    const int64_t all = owned.slice.elements();
    traffic_[owner].owned += all;
    links_.add(owner, all, true);
    std::vector<size_t> ranks{owner};
    Slice common;
    for (const auto& [holder, copy] : holders)
      if (holder != owner && intersect(copy->slice, owned.slice, &common)) ranks.push_back(holder);
    const size_t number = number_of(std::move(ranks));
    for (const auto& [holder, copy] : holders) {
      if (holder == owner || !intersect(copy->slice, owned.slice, &common)) continue;
      const int64_t elements = common.elements();
      meetings_.add(owner, holder);
      meetings_.add(holder, owner);
      pass(owner, holder, number, elements);  // the result
      links_.add(holder, elements, copy->counted);
      if (copy->counted) pass(holder, owner, number, elements);  // a gradient
    }
    links_.sum_up({{owner, all}}, number);
  }

  /// The same of all parts of a tensor at once, that all holders hold.
  void add_alike(const std::vector<Holder>& holders, const std::vector<const Ownership*>& parts) {
    std::map<size_t, int64_t> owned;  // by rank
    int64_t all = 0;
    for (const Ownership* part : parts) {
      const int64_t elements = part->slice.elements();
      owned[owner_of(*part)] += elements;
      all += elements;
    }
    std::vector<Copy> copies;
    for (const auto& [rank, copy] : holders) copies.push_back({rank, copy->counted});
    add_alike(copies, owned, all);
  }

  void add_alike(const std::vector<Copy>& copies, const std::map<size_t, int64_t>& owned,
                 int64_t all) {
    std::vector<size_t> ranks, owners;
    int64_t counted = 0;
    for (const Copy& copy : copies) {
      ranks.push_back(copy.rank);
      if (copy.counted) ++counted;
      links_.add(copy.rank, all, copy.counted);
    }
    const size_t number = number_of(ranks);
    for (const Copy& copy : copies) {
      const auto found = owned.find(copy.rank);
      const int64_t own = found == owned.end() ? 0 : found->second;
      const int64_t others = std::ssize(copies) - 1;
      send(copy.rank, number, own * others + (copy.counted ? all - own : 0));
      receive(copy.rank, number, (all - own) + own * (counted - (copy.counted ? 1 : 0)));
    }
    for (const auto& [rank, elements] : owned) {
      traffic_[rank].owned += elements;
      owners.push_back(rank);
    }
    meetings_.add(owners, ranks);
    meetings_.add(ranks, owners);
    links_.sum_up({owned.begin(), owned.end()}, number);
  }

  void pass(size_t from, size_t to, size_t holders, int64_t elements) {
    send(from, holders, elements);
    receive(to, holders, elements);
  }
  void send(size_t rank, size_t holders, int64_t elements) {
    traffic_[rank].sent += elements;
    passed_[rank][holders].sent += elements;
  }
  void receive(size_t rank, size_t holders, int64_t elements) {
    traffic_[rank].received += elements;
    passed_[rank][holders].received += elements;
  }

  size_t number_of(std::vector<size_t> ranks) {
    std::sort(ranks.begin(), ranks.end());
    return numbers_.emplace(std::move(ranks), numbers_.size()).first->second;
  }

  struct Passed {
    int64_t sent = 0, received = 0;
  };

  std::vector<SliceTraffic> traffic_;
  std::vector<std::map<size_t, Passed>> passed_;   ///< by rank and holders
  std::map<std::vector<size_t>, size_t> numbers_;  ///< of holders
  Meetings meetings_;
  HostLinks links_;
};

bool shares_stages(const Plan& plan) {
  for (const ReplicaPlan& replica : plan.replicas)
    for (const StagePlan& stage : replica.stages)
      if (stage.ranks.size() > 1) return true;
  return false;
}

}  // namespace

PlanTraffic slice_traffic(const Plan& plan, const ModelSpec& model) {
  TrafficCount count(plan);
  if (!plan.owners.empty()) {
    count.add_owners(plan, model);
  } else if (!shares_stages(plan)) {
    count.add_even(plan, model);
  } else {
    Plan even = plan;
    even.owners = even_ownership(plan, model);
    count.add_owners(even, model);
  }
  return count.take();
}

std::vector<std::string> hosts_of(const Plan& plan, const std::vector<Rank>& ranks) {
  std::set<std::string> hosts;
  for (const Rank rank : ranks) hosts.insert(plan.ranks[static_cast<size_t>(rank.value())].host);
  return {hosts.begin(), hosts.end()};
}

double HostTraffic::elements() const {
  double sum = 0;
  for (const HeldTraffic& held : held_alike) sum += held.elements;
  return sum;
}

double exchange_seconds(const ReductionModel& reduction, const Plan& plan,
                        const std::vector<Rank>& holders, double whole) {
  const auto ranks = static_cast<int>(holders.size());
  if (ranks < 2) return 0;
  return reduction.seconds(ranks, hosts_of(plan, holders)) / (2.0 * (ranks - 1) / ranks * whole);
}

double host_exchange_seconds(const ReductionModel& reduction, const Plan& plan,
                             const std::vector<Rank>& holders, double whole) {
  const std::vector<std::string> hosts = hosts_of(plan, holders);
  if (hosts.size() < 2) return 0;
  const auto count = static_cast<double>(hosts.size());
  return reduction.host_seconds(hosts) / (2 * (count - 1) / count * whole);
}

}  // namespace motley
