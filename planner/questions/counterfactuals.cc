#include "planner/questions/counterfactuals.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "core/spec/pin_fault.h"
#include "core/units.h"
#include "planner/costs/cost_model.h"
#include "planner/costs/layer_times.h"

namespace motley {
namespace {

constexpr size_t kMostLinksTried = 4;

/// What predictions count besides a device's memory table: the most of any rank.
Bytes beyond_tables(const PlanRequest& request, const Plan& plan) {
  Bytes most{0};
  for (int i = 0; i < static_cast<int>(plan.replicas.size()); ++i) {
    const ReplicaPlan& replica = plan.replicas[static_cast<size_t>(i)];
    const int most_at_once = std::min(replica.micro_batch, samples_of(plan, i).count);
    if (replica.stages.size() != 1 || replica.stages[0].ranks.size() != 1) continue;
    const auto rank = static_cast<size_t>(replica.stages[0].ranks[0].value());
    if (rank >= plan.prediction.ranks.size()) continue;
    const DeviceProfile* device = request.profile.find(plan.ranks[rank].device);
    if (device == nullptr) continue;
    for (const MemoryPoint& point : device->memory)
      if (point.micro_batch == most_at_once && plan.prediction.ranks[rank].memory > point.total())
        most = std::max(most, plan.prediction.ranks[rank].memory - point.total());
  }
  return most;
}

/// The least limit at which one micro-batch more of its table fits than now; empty when all do that
/// the job has use for.
std::optional<Bytes> limit_for_more(const PlanRequest& request, const DeviceProfile& device,
                                    Bytes besides) {
  const MicroBatchRule rule = micro_batch_rule(request);
  const Bytes usable = usable_memory(device, rule.headroom);
  for (const MemoryPoint& point : device.memory) {
    const Bytes needed = point.total() + besides;
    if (micro_batch_of(point.micro_batch, rule) == 0 || needed <= usable) continue;
    return Bytes(static_cast<int64_t>(
               std::ceil(static_cast<double>(needed.value()) / (1 - rule.headroom)))) +
           Bytes(1);
  }
  return std::nullopt;
}

/// The sizes to try on a device, rising: the next that is sold and, if the plan's form is short of
/// memory, lets it compute a larger micro-batch; and twice as much, as sums over more ranks may
/// need more, too. None where there is room for anything.
std::vector<Bytes> sizes_to_try(const PlanRequest& request, const DeviceProfile& device,
                                Bytes besides) {
  constexpr int64_t kRoomForAnything = 3;  // engine, sums and snapshots
  constexpr double kLeastStep = 1.2;       // less is the same card, its driver's part told apart
  const Bytes usable = usable_memory(device, request.memory_headroom);
  if (device.memory.empty() || usable >= device.memory.back().total() * kRoomForAnything) return {};
  const auto more = [&](double times) {
    return Bytes(std::llround(static_cast<double>(device.memory_limit.value()) * times));
  };
  const Bytes needed = limit_for_more(request, device, besides).value_or(Bytes(0));
  const Bytes next = memory_size_from(std::max(needed, more(kLeastStep)));
  const Bytes twice = memory_size_from(more(2));
  return twice > next ? std::vector{next, twice} : std::vector{next};
}

/// "24 GB", "1.5 GB", "96 MB": a size of memory_size_from().
std::string size_text(Bytes size) {
  double value = static_cast<double>(size.value());
  const char* unit = " B";
  for (const char* larger : {" kB", " MB", " GB", " TB"}) {
    if (value < 1000) break;
    value /= 1000;
    unit = larger;
  }
  const std::string number = std::to_string(std::llround(value * 10));
  const bool whole = number.back() == '0';
  return number.substr(0, number.size() - 1) +
         (whole ? "" : "." + number.substr(number.size() - 1)) + unit;
}

using Devices = std::vector<const DeviceSpec*>;
/// What devices, by id, would have.
using Limits = std::map<std::string, Bytes>;

/// Devices that are told apart by nothing but their names, as far as memory goes.
struct MoreMemory {
  Devices devices;
  std::vector<Bytes> sizes;  ///< to try, rising
};

Limits limits_of(const Devices& devices, Bytes limit) {
  Limits limits;
  for (const DeviceSpec* device : devices) limits.emplace(device->id, limit);
  return limits;
}

/// As far as search goes, more of something never makes a plan slower: where all of it does not
/// help, parts are not tried.
class Trials {
 public:
  Trials(const PlanRequest& request, const Plan& plan, const FleetSpec& fleet,
         const SearchPlan& search)
      : request_(request),
        plan_(plan),
        fleet_(fleet),
        search_(search),
        below_(plan.prediction.step_seconds * (1 - kLeastChange)) {
    // Some lost because they were hardly quicker. Those without pins are no plans of this job.
    for (const RejectedPlan& other : plan.search.rejected)
      if (other.step_seconds > 0 && request.job.pin.replicas.empty())
        below_ = std::min(below_, other.step_seconds);
  }

  void try_memory();
  void try_without_types();
  void try_links();
  /// The first error that does not say that there is no plan, if there was one.
  Result<std::vector<Counterfactual>> take() {
    if (error_) return fail(*error_);
    return std::move(found_);
  }

 private:
  std::vector<MoreMemory> memory_to_try() const;
  /// Whether that makes the plan quicker.
  bool with_memory(const Devices& devices, Bytes limit);
  bool with_links(const std::vector<size_t>& links, const std::string& what);
  bool is_pinned(const std::string& type) const;
  double step_of(const PlanRequest& request) {
    if (error_) return 0;
    const Result<Plan> plan = search_(unproved(request));
    if (!plan && !means_no_plan(plan.error())) error_ = plan.error();
    return plan ? plan->prediction.step_seconds : 0;
  }
  double step_with(const Limits& limits);
  /// With a better profile the plan that there is stays possible and as quick, whatever is found.
  double step_with(const Profile& better) {
    PlanRequest asked{request_.job, fleet_, better, request_.memory_headroom,
                      request_.tables_of_ranks};
    asked.below = below_;
    const double step = step_of(asked);
    return step > 0 && step < below_ ? step : plan_.prediction.step_seconds;
  }
  bool helps(double step) const { return step < below_; }
  void add(std::string what, double step_seconds) {
    found_.push_back({std::move(what), step_seconds});
  }

  const PlanRequest& request_;
  const Plan& plan_;
  const FleetSpec& fleet_;
  const SearchPlan& search_;
  double below_;                    ///< seconds of a step that are told, and need something else
  std::map<Limits, double> known_;  ///< steps
  std::vector<Counterfactual> found_;
  std::optional<Error> error_;
};

/// With a curve as a whole, if need be by its layers; empty where that was not measured, either.
std::optional<DeviceProfile> known_as_whole(const PlanRequest& request, DeviceProfile device) {
  if (device.curve("model") != nullptr) return device;
  auto whole = as_whole(device, request.job.model, micro_batch_rule(request));
  if (!whole) return std::nullopt;
  device.curves.push_back(std::move(whole->curves.front()));
  return device;
}

std::vector<MoreMemory> Trials::memory_to_try() const {
  std::map<std::pair<std::string, Bytes>, Devices> alike;
  for (const DeviceSpec& device : fleet_.devices)
    if (const DeviceProfile* measured = request_.profile.find(device.id))
      alike[{device.type, measured->memory_limit}].push_back(&device);
  const Bytes besides = beyond_tables(request_, plan_);
  std::vector<MoreMemory> all;
  for (auto& [key, devices] : alike) {
    const DeviceProfile& measured = *request_.profile.find(devices.front()->id);
    auto sizes = sizes_to_try(request_, measured, besides);
    if (!sizes.empty() && known_as_whole(request_, measured))
      all.push_back({std::move(devices), std::move(sizes)});
  }
  return all;
}

double Trials::step_with(const Limits& limits) {
  const auto [known, is_new] = known_.try_emplace(limits, 0);
  if (!is_new) return known->second;
  Profile profile = request_.profile;
  for (DeviceProfile& device : profile.devices) {
    const auto limit = limits.find(device.device);
    if (limit == limits.end()) continue;
    if (auto whole = known_as_whole(request_, device)) device = *std::move(whole);
    device.memory_limit = limit->second;
  }
  return known->second = step_with(profile);
}

void Trials::try_memory() {
  const std::vector<MoreMemory> groups = memory_to_try();
  Limits most;
  for (const MoreMemory& group : groups) most.merge(limits_of(group.devices, group.sizes.back()));
  if (most.empty() || !helps(step_with(most))) return;
  for (const auto& [devices, sizes] : groups)
    if (helps(step_with(limits_of(devices, sizes.back()))))
      for (const Bytes limit : sizes)
        if (with_memory(devices, limit)) break;
}

bool Trials::with_memory(const Devices& devices, Bytes limit) {
  const double all = step_with(limits_of(devices, limit));
  if (!helps(all)) return false;
  const std::string what = "with " + size_text(limit) + " on ";
  const double one = step_with(limits_of({devices.front()}, limit));
  if (helps(one)) add(what + devices.front()->id, one);
  if (all < one * (1 - kLeastChange))  // else one is enough
    add(what + "each of " + std::to_string(devices.size()) + " " + devices.front()->type, all);
  return true;
}

/// Whether the job says what devices of the type do.
bool Trials::is_pinned(const std::string& type) const {
  std::set<std::string> pinned;
  for (const auto& [key, device] : pinned_devices(request_.job.pin)) pinned.insert(device);
  return std::any_of(fleet_.devices.begin(), fleet_.devices.end(), [&](const DeviceSpec& device) {
    return device.type == type && pinned.contains(device.id);
  });
}

void Trials::try_without_types() {
  const std::vector<std::string> types = types_of(fleet_);
  if (types.size() < 2) return;
  for (const std::string& type : types) {
    if (std::none_of(plan_.ranks.begin(), plan_.ranks.end(),
                     [&](const RankPlacement& rank) { return rank.type == type; }) ||
        is_pinned(type))
      continue;
    const FleetSpec rest =
        part_of(fleet_, [&](const DeviceSpec& device) { return device.type != type; });
    add("leaving out the " + type, step_of(asked_of(request_, rest)));
  }
}

/// Several of these hosts, or both ends of a sum within the only one.
bool joins(const LinkProfile& link, const std::vector<std::string>& hosts) {
  const auto has = [&](const std::string& host) {
    return std::find(hosts.begin(), hosts.end(), host) != hosts.end();
  };
  const bool is_within = link.between[0] == link.between[1];
  return is_within == (hosts.size() == 1) && has(link.between[0]) && has(link.between[1]);
}

/// Of the fleet's links on which bytes take time those that `is_wanted` says, the slowest first.
template <class IsWanted>
std::vector<size_t> slow_links(const Profile& profile, IsWanted is_wanted) {
  std::vector<size_t> links;
  for (size_t i = 0; i < profile.links.size(); ++i)
    if (is_wanted(profile.links[i]) && profile.links[i].bytes_per_second < LinkProfile::kFree)
      links.push_back(i);
  std::stable_sort(links.begin(), links.end(), [&](size_t a, size_t b) {
    return profile.links[a].bytes_per_second < profile.links[b].bytes_per_second;
  });
  return links;
}

/// Between hosts.
std::vector<size_t> links_between(const Profile& profile, const FleetSpec& fleet) {
  const std::vector<std::string> hosts = fleet.hosts();
  return slow_links(
      profile, [&](const LinkProfile& link) { return hosts.size() > 1 && joins(link, hosts); });
}

/// Within hosts of which the plan uses several devices.
std::vector<size_t> links_within(const Profile& profile, const Plan& plan) {
  std::map<std::string, int> devices;
  for (const RankPlacement& rank : plan.ranks) ++devices[rank.host];
  return slow_links(profile, [&](const LinkProfile& link) {
    const auto found = devices.find(link.between[0]);
    return found != devices.end() && found->second > 1 && joins(link, {link.between[0]});
  });
}

/// What the links say of the reduction at `point`, as ReductionModel calibrates by it.
double formula_of(const Profile& links_only, const ReductionPoint& point, Bytes bytes) {
  const ReductionModel model(links_only, bytes);
  double slowest = 0;
  for (const LinkProfile& link : links_only.links)
    if (joins(link, point.hosts))
      slowest =
          std::max(slowest, model.pair_seconds(point.ranks, link.between[0], link.between[1]));
  return slowest;
}

/// What would have been measured if these links had twice their bandwidth: reductions take as much
/// less as the links' formula says.
Profile with_faster_links(const Profile& profile, const std::vector<size_t>& links, Bytes bytes) {
  Profile faster = profile;
  for (const size_t link : links) faster.links[link].bytes_per_second *= 2;
  Profile slow_links, fast_links;
  slow_links.links = profile.links;
  fast_links.links = faster.links;
  for (ReductionPoint& point : faster.reductions) {
    const double before = formula_of(slow_links, point, bytes);
    if (before > 0) point.seconds *= formula_of(fast_links, point, bytes) / before;
  }
  return faster;
}

bool Trials::with_links(const std::vector<size_t>& links, const std::string& what) {
  const double step =
      step_with(with_faster_links(request_.profile, links, gradient_bytes(request_.job)));
  if (helps(step)) add(what, step);
  return helps(step);
}

void Trials::try_links() {
  const std::vector<size_t> links = links_between(request_.profile, fleet_);
  const bool any =
      links.size() == 1 ||
      (links.size() > 1 && with_links(links, "with all links between hosts twice as fast"));
  for (size_t i = 0; any && i < std::min(links.size(), kMostLinksTried); ++i) {
    const LinkProfile& link = request_.profile.links[links[i]];
    with_links({links[i]},
               "with a link twice as fast between " + link.between[0] + " and " + link.between[1]);
  }
  const std::vector<size_t> within = links_within(request_.profile, plan_);
  if (within.size() == 1)
    with_links(within, "with a link twice as fast within " +
                           request_.profile.links[within.front()].between[0]);
  if (within.size() > 1) with_links(within, "with all links within hosts twice as fast");
}

/// By how much of itself the step changes; infinite where there is no plan then.
double effect_of(const Counterfactual& what, double step) {
  if (what.step_seconds <= 0) return std::numeric_limits<double>::infinity();
  return std::abs(what.step_seconds / step - 1);
}

}  // namespace

Bytes memory_size_from(Bytes needed) {
  // 10, 11, 20, 40, 80, 141: what GPUs have besides powers of two and halves between them.
  constexpr double kSizes[] = {1,  1.5, 2,  3,  4,  6,  8,   10,  11,  12,  16,  20,  24,
                               32, 40,  48, 64, 80, 96, 128, 141, 192, 256, 384, 512, 768};
  for (double unit = 1;; unit *= 1000)
    for (const double size : kSizes)
      if (const auto bytes = static_cast<int64_t>(size * unit); bytes >= needed.value())
        return Bytes(bytes);
}

Result<std::vector<Counterfactual>> counterfactuals(const PlanRequest& request, const Plan& plan,
                                                    const SearchPlan& search) {
  MOTLEY_TRY(const FleetSpec fleet, admitted(request.fleet, request.job));
  const double step = plan.prediction.step_seconds;
  Trials trials(request, plan, fleet, search);
  trials.try_memory();
  trials.try_without_types();
  trials.try_links();
  MOTLEY_TRY(std::vector<Counterfactual> found, trials.take());
  std::erase_if(found,
                [&](const Counterfactual& what) { return effect_of(what, step) < kLeastChange; });
  std::stable_sort(found.begin(), found.end(), [&](const auto& a, const auto& b) {
    return effect_of(a, step) > effect_of(b, step);
  });
  if (found.size() > kMostCounterfactuals) found.resize(kMostCounterfactuals);
  return found;
}

std::string counterfactual_text(const Plan& plan, const std::vector<Counterfactual>& list) {
  const double step = plan.prediction.step_seconds;
  std::string text = list.empty() ? "no other memory, types or links would change it by 1 %\n"
                                  : "what would change it:\n";
  for (const Counterfactual& what : list) {
    text += "  " + what.what + ": ";
    if (what.step_seconds <= 0) {
      text += "no plan fits\n";
      continue;
    }
    text += speed_text(what.step_seconds, step) + " (" + format_seconds(step) + " to " +
            format_seconds(what.step_seconds) + "/step)\n";
  }
  return text;
}

}  // namespace motley
