#include "planner/pinned/pinned_search.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <utility>

#include "core/units.h"
#include "planner/costs/cost_model.h"
#include "planner/pinned/pinned_bound.h"
#include "planner/pinned/pinned_replica.h"
#include "planner/pinned/plan_parts.h"
#include "planner/plain/candidates.h"
#include "planner/plain/deal.h"
#include "planner/search_forms.h"

namespace motley {
namespace {

/// Parts into which a step is cut to be dealt: of a step with more grains a part is several.
constexpr int kMostParts = 2048;
/// Numbers of parts of the rest that are all tried.
constexpr int kFewParts = 32;
/// Plans that are counted before it is given up.
constexpr int kMostPlansCounted = 24;

/// Who takes the step's short grain: a pinned replica by number, or
constexpr int kNobody = -1;  ///< there is none,
constexpr int kRest = -2;    ///< the rest.

class PinnedSearch {
 public:
  PinnedSearch(const PlanRequest& request, const MemoryCounter& counter)
      : request_(request), counter_(counter), rest_headroom_(request.memory_headroom) {
    grain_ = grain_with_pins(request.job);
    part_ = (grains() + kMostParts - 1) / kMostParts;
  }

  Result<Plan> run() {
    for (size_t i = 0; i < request_.job.pin.replicas.size(); ++i) {
      MOTLEY_TRY(PricedPin pin, PricedPin::make(request_, i, grain_));
      pins_.push_back(std::move(pin));
    }
    find_rest();
    MOTLEY_TRY_VOID(check_counts());
    for (int round = 0; round < kMostPlansCounted; ++round) {
      MOTLEY_TRY(Tried best, quickest());
      MOTLEY_TRY(const bool fits, count_memory(&best));
      if (!fits) continue;
      MOTLEY_TRY_VOID(record(&best));
      MOTLEY_TRY_VOID(validate(best.plan, request_.job.model));
      return std::move(best.plan);
    }
    return fail(ErrorCode::kNoPlan, "no plan with the replicas the job pins fits into memory");
  }

 private:
  /// A whole plan: the pinned replicas, then those of the rest.
  struct Tried {
    Plan plan;
    std::string rest_space;  ///< what was searched of the rest; empty: it has no part
    double seconds() const { return plan.prediction.step_seconds; }
  };
  /// Grains of each pinned replica that is not fixed, and who of all has the short one.
  struct PinnedDeal {
    double seconds = kNever;  ///< of the slowest
    std::vector<int> grains;  ///< of all, fixed ones included
  };

  int batch() const { return request_.job.train.global_batch; }
  int grains() const { return (batch() + grain_ - 1) / grain_; }
  int missing() const { return grains() * grain_ - batch(); }
  int pinned_ranks() const {
    return std::accumulate(pins_.begin(), pins_.end(), 0, [](int sum, const PricedPin& pin) {
      return sum + static_cast<int>(pin.ranks().size());
    });
  }
  bool is_pinned(const std::string& device) const {
    return std::any_of(pins_.begin(), pins_.end(), [&](const PricedPin& pin) {
      return std::any_of(pin.ranks().begin(), pin.ranks().end(),
                         [&](const RankPlacement& rank) { return rank.device == device; });
    });
  }

  /// What is admitted and not pinned, of the pinned types where the job forbids a mix.
  void find_rest() {
    rest_ = fitting(request_.fleet, request_.job);
    std::erase_if(rest_.devices, [&](const DeviceSpec& device) {
      const bool mixes = !request_.job.devices.mix && !pins_.empty() &&
                         device.type != pins_.front().ranks().front().type;
      return is_pinned(device.id) || mixes;
    });
    rest_job_ = request_.job;
    rest_job_.pin = {};
    // Both are of a whole plan; pinned replicas keep all state on all their devices.
    rest_job_.parallel.shard_optimizer = ShardOptimizer::kOff;
    rest_job_.parallel.host_optimizer = false;
    rest_job_.train.grain = grain_;
    const auto pinned = static_cast<int>(pins_.size());
    if (rest_job_.parallel.data) *rest_job_.parallel.data -= pinned;
    if (auto& count = rest_job_.devices.count)
      count = CountRange{std::max(0, count->low - pinned_ranks()), count->high - pinned_ranks()};
    rest_job_.devices.types.clear();
    rest_job_.devices.memory = {};
    rest_job_.devices.limits.clear();
    rest_job_.devices.mix = true;
    const std::optional<int>& data = rest_job_.parallel.data;
    const auto& count = rest_job_.devices.count;
    may_have_rest_ = !rest_.devices.empty() && (!data || *data > 0) && (!count || count->high > 0);
    needs_rest_ = (data && *data > 0) || (count && count->low > 0);
  }

  Result<Unit> check_counts() const {
    if (!needs_rest_ || may_have_rest_) return Unit{};
    const bool by_data = rest_job_.parallel.data && *rest_job_.parallel.data > 0;
    return fail(ErrorCode::kNoPlan, std::string("besides the pinned replicas there are no devices "
                                                "for what ") +
                                        (by_data ? "parallel.data" : "resources.devices.count") +
                                        " asks for");
  }

  bool is_fixed(size_t pin) const { return pins_[pin].pin().grains.has_value(); }
  bool all_fixed() const {
    for (size_t i = 0; i < pins_.size(); ++i)
      if (!is_fixed(i)) return false;
    return true;
  }
  int fixed_grains() const {
    int sum = 0;
    for (const PricedPin& pin : pins_) sum += pin.pin().grains.value_or(0);
    return sum;
  }
  int free_pins() const {
    return static_cast<int>(std::count_if(pins_.begin(), pins_.end(), [](const PricedPin& pin) {
      return !pin.pin().grains.has_value();
    }));
  }
  int samples_of_grains(int count, bool has_short) const {
    return count * grain_ - (has_short ? missing() : 0);
  }

  Result<Tried> quickest() {
    std::vector<int> takers{kNobody};
    if (missing() > 0) {
      takers = {kRest};
      for (size_t i = 0; i < pins_.size(); ++i) takers.push_back(static_cast<int>(i));
    }
    std::optional<Tried> best;
    for (const int taker : takers) MOTLEY_TRY_VOID(try_numbers(taker, &best));
    if (!best) return fail(none());
    return std::move(*best);
  }

  Error none() const {
    if (rest_error_) {
      Error error = *rest_error_;
      error.message = "besides the pinned replicas: " + error.message;
      return error;
    }
    return {ErrorCode::kNoPlan,
            "the replicas the job pins cannot compute the " + std::to_string(grains()) +
                " grains of a step among them",
            place_of(request_.job, "pin.replicas")};
  }

  /// Every number of grains that may fall to the rest, or those around where it takes as long as
  /// the pinned replicas.
  Result<Unit> try_numbers(int taker, std::optional<Tried>* best) {
    const int dealt = grains() - fixed_grains();
    const int most = dealt - free_pins();  // each has at least one
    if (most < 0) return Unit{};
    const int least = needs_rest_ || taker == kRest ? 1 : 0;
    std::vector<int> numbers;  // rising; the free pins take what the rest does not
    for (int number = all_fixed() ? most : least; number <= most; ++number)
      if (number == most || (most - number) % part_ == 0) numbers.push_back(number);
    std::erase_if(numbers,
                  [&](int number) { return number < least || (number > 0 && !may_have_rest_); });
    if (numbers.size() <= kFewParts) {
      for (const int number : numbers) MOTLEY_TRY_VOID(try_number(number, taker, best));
      return Unit{};
    }
    size_t low = 0, high = numbers.size() - 1;  // at low the rest is not the slower
    while (high - low > 1) {
      const size_t middle = low + (high - low) / 2;
      MOTLEY_TRY(const double rest, rest_seconds(numbers[middle], taker));
      (rest <= deal_to_pins(numbers[middle], taker).seconds ? low : high) = middle;
    }
    for (const size_t near : {low, high, size_t{0}})
      MOTLEY_TRY_VOID(try_number(numbers[near], taker, best));
    return Unit{};
  }

  Result<Unit> try_number(int rest_grains, int taker, std::optional<Tried>* best) {
    const PinnedDeal deal = deal_to_pins(rest_grains, taker);
    if (deal.seconds == kNever || (*best && deal.seconds >= (*best)->seconds())) return Unit{};
    MOTLEY_TRY(const double rest, rest_seconds(rest_grains, taker));
    if (rest == kNever) return Unit{};
    MOTLEY_TRY(Tried tried, put_together(deal, rest_grains, taker));
    const bool is_better = !*best || tried.seconds() < (*best)->seconds() ||
                           (tried.seconds() == (*best)->seconds() &&
                            tried.plan.world_size() < (*best)->plan.world_size());
    if (is_better) *best = std::move(tried);
    return Unit{};
  }

  /// All grains but those of the rest, so that the slowest is through soonest.
  PinnedDeal deal_to_pins(int rest_grains, int taker) {
    PinnedDeal deal;
    deal.seconds = 0;
    std::vector<size_t> free;
    for (size_t i = 0; i < pins_.size(); ++i) {
      deal.grains.push_back(pins_[i].pin().grains.value_or(0));
      if (!is_fixed(i)) {
        free.push_back(i);
        continue;
      }
      const bool has_short = taker == static_cast<int>(i);
      deal.seconds =
          std::max(deal.seconds, pins_[i].seconds(samples_of_grains(deal.grains[i], has_short)));
    }
    const int left = grains() - fixed_grains() - rest_grains;
    if (free.empty()) {
      if (left != 0) deal.seconds = kNever;
      return deal;
    }
    const std::vector<int> dealt = deal_out(free, left, taker);
    if (dealt.empty()) return {};
    for (size_t k = 0; k < free.size(); ++k) {
      deal.grains[free[k]] = dealt[k];
      const bool has_short = taker == static_cast<int>(free[k]);
      deal.seconds =
          std::max(deal.seconds, pins_[free[k]].seconds(samples_of_grains(dealt[k], has_short)));
    }
    return deal;
  }

  /// `left` grains over these, in parts of several where they are very many; the first has what is
  /// over. Empty where they cannot be dealt.
  std::vector<int> deal_out(const std::vector<size_t>& free, int left, int taker) {
    const auto count = static_cast<int>(free.size());
    if (left < count) return {};
    if (count == 1) return {left};
    const int part = std::min(part_, left / count);
    const int parts = left / part, over = left % part;
    std::vector<GrainTable> tables;
    for (int k = 0; k < count; ++k) {
      const size_t pin = free[static_cast<size_t>(k)];
      std::vector<double> seconds{kNever};
      for (int p = 1; p <= parts - count + 1; ++p)
        seconds.push_back(pins_[pin].seconds(
            samples_of_grains(p * part + (k == 0 ? over : 0), taker == static_cast<int>(pin))));
      tables.push_back({GrainCurve(std::move(seconds)), GrainCurve()});
    }
    DealProblem problem;
    for (const GrainTable& table : tables) problem.devices.push_back(&table);
    problem.grains = parts;
    problem.reduction.assign(free.size() + 1, 0);
    problem.least_devices = problem.most_devices = count;
    const std::vector<double> times = section_times(problem.devices);
    problem.section_times = &times;
    const DealResult result = best_deal(problem);
    nodes_ += result.nodes;
    std::vector<int> dealt = result.deal.grains;
    for (int& share : dealt) share *= part;
    if (!dealt.empty()) dealt.front() += over;
    return dealt;
  }

  /// The rest's own plan for so many grains; none where it has no part, an error where it has no
  /// plan.
  const Result<std::optional<Plan>>& rest_plan(int grains, int taker) {
    const int samples = samples_of_grains(grains, taker == kRest);
    const auto found = rest_plans_.find(samples);
    if (found != rest_plans_.end()) return found->second;
    return rest_plans_.emplace(samples, search_rest(samples)).first->second;
  }

  Result<std::optional<Plan>> search_rest(int samples) {
    if (samples == 0) return std::optional<Plan>();
    JobSpec job = rest_job_;
    job.train.global_batch = samples;
    job.train.grain = std::min(grain_, samples);
    MOTLEY_TRY(Plan plan,
               search_unpinned({job, rest_, request_.profile, rest_headroom_}, counter_));
    nodes_ += plan.search.nodes;
    return std::optional<Plan>(std::move(plan));
  }

  /// kNever where it has no plan, for want of which the first error is kept.
  Result<double> rest_seconds(int grains, int taker) {
    const auto& plan = rest_plan(grains, taker);
    if (plan) return *plan ? (*plan)->prediction.step_seconds : 0.0;
    if (plan.error().code != ErrorCode::kNoPlan) return fail(plan.error());
    if (!rest_error_) rest_error_ = plan.error();
    return kNever;
  }

  Result<Tried> put_together(const PinnedDeal& deal, int rest_grains, int taker) {
    Tried tried;
    Plan& plan = tried.plan;
    plan.job_key = request_.profile.job_key;
    plan.numerics = request_.job.train.numerics;
    plan.global_batch = batch();
    plan.grain = grain_;
    for (size_t i = 0; i < pins_.size(); ++i) {
      const bool has_short = taker == static_cast<int>(i);
      const int samples = samples_of_grains(deal.grains[i], has_short);
      ReplicaPlan replica{pins_[i].stages(), pins_[i].micro_batch(samples), deal.grains[i]};
      append_replica(std::move(replica), pins_[i].ranks(), &plan);
    }
    const std::optional<Plan>& rest = *rest_plan(rest_grains, taker);
    if (rest) {
      tried.rest_space = rest->search.space;
      for (ReplicaPlan replica : rest->replicas) {
        replica.micro_batch =
            std::max(replica.micro_batch, grain_);  // it may have the short one only
        append_replica(std::move(replica), rest->ranks, &plan);
      }
    }
    if (taker >= 0) {  // the short grain is the step's last
      const auto last = plan.replicas.begin() + taker;
      std::rotate(last, last + 1, plan.replicas.end());
    }
    leave_out(rest, &plan);
    number_as_in(request_.fleet, &plan);
    plan.owners = even_ownership(plan, request_.job.model);
    MOTLEY_TRY_VOID(predict(request_, &plan));
    return tried;
  }

  void leave_out(const std::optional<Plan>& rest, Plan* plan) const {
    const FleetSpec fit = fitting(request_.fleet, request_.job);
    for (const DeviceSpec& device : request_.fleet.devices) {
      if (is_pinned(device.id)) continue;
      if (fit.find(device.id) == nullptr)
        plan->left_out.push_back({device.id, why_not_admitted(device, request_.job)});
      else if (rest_.find(device.id) == nullptr)
        plan->left_out.push_back({device.id, "not admitted by resources.devices.mix"});
      else if (!rest)
        plan->left_out.push_back(
            {device.id, may_have_rest_ ? "the pinned replicas are quicker without it"
                                       : "the job has room for the pinned replicas only"});
    }
    if (!rest) return;
    for (const LeftOut& left : rest->left_out)  // steps are of the rest's own
      plan->left_out.push_back({left.device, "of the rest by itself: " + left.why});
  }

  /// Whether every rank's bytes fit its device; they go into the prediction. Where they do not, its
  /// pinned replica has to do with a smaller micro-batch, the rest with less of its memory.
  Result<bool> count_memory(Tried* tried) {
    Plan& plan = tried->plan;
    plan.prediction = {};  // may say by tables that it does not fit
    MOTLEY_TRY(const std::vector<RankMemory> counted, counter_.plan(plan));
    MOTLEY_TRY_VOID(predict(request_, &plan, counted));
    bool fits = true;
    for (const ReplicaPlan& replica : plan.replicas)
      for (const StagePlan& stage : replica.stages)
        for (const Rank rank : stage.ranks) {
          const auto number = static_cast<size_t>(rank.value());
          const RankPlacement& place = plan.ranks[number];
          if (has_room(request_, place, counted[number])) continue;
          fits = false;
          const DeviceProfile& device = *request_.profile.find(place.device);
          MOTLEY_TRY_VOID(use_less(place, replica, counted[number].total, device));
        }
    if (!fits) rest_plans_.clear();
    return fits;
  }

  Result<Unit> use_less(const RankPlacement& place, const ReplicaPlan& replica, Bytes needs,
                        const DeviceProfile& device) {
    for (PricedPin& pin : pins_) {
      if (std::none_of(pin.ranks().begin(), pin.ranks().end(),
                       [&](const RankPlacement& one) { return one.device == place.device; }))
        continue;
      if (pin.use_less_than(replica.micro_batch)) return Unit{};
      return fail(ErrorCode::kNoPlan,
                  "the replica the job pins to " + place.device + " (" + place.type + ") needs " +
                      format_bytes(needs) + " of " + usable_text(device, request_.memory_headroom) +
                      " there at micro-batch " + std::to_string(replica.micro_batch),
                  place_of(request_.job, "pin.replicas"));
    }
    const double limit = static_cast<double>(device.memory_limit.value());
    const Bytes over = needs - usable_memory(device, request_.memory_headroom);
    rest_headroom_ = std::max(rest_headroom_,
                              request_.memory_headroom + static_cast<double>(over.value()) / limit);
    return Unit{};
  }

  /// Whether the pins leave one plan.
  bool is_all_pinned() const {
    return !may_have_rest_ && std::all_of(pins_.begin(), pins_.end(), [&](const PricedPin& priced) {
      const PinnedReplica& pin = priced.pin();
      return pin.micro_batch && (pin.grains || pins_.size() == 1);
    });
  }

  /// No plan with these replicas takes less; 0 where that is not known.
  Result<double> lower_bound(double step) {
    if (is_all_pinned()) return step;
    MOTLEY_TRY(double bound, least_seconds_beside(request_, pins_));
    for (size_t i = 0; i < pins_.size(); ++i)
      if (is_fixed(i)) bound = std::max(bound, least_of_fixed(i));
    return bound;
  }

  /// What a replica whose grains are given takes at least, whoever has the short one.
  double least_of_fixed(size_t pin) {
    const int grains = *pins_[pin].pin().grains;
    double least = pins_[pin].seconds(samples_of_grains(grains, false));
    if (missing() > 0) least = std::min(least, pins_[pin].seconds(samples_of_grains(grains, true)));
    return least == kNever ? 0 : least;
  }

  Result<Unit> record(Tried* tried) {
    SearchRecord& search = tried->plan.search;
    const auto count = pins_.size();
    search.space = std::to_string(count) + (count == 1 ? " replica" : " replicas") +
                   " as pinned, any whole grains of " + std::to_string(grain_) +
                   " and micro-batches where these are open";
    if (!tried->rest_space.empty())
      search.space += "; the rest as if it were alone with its grains: " + tried->rest_space;
    search.step_seconds = tried->seconds();
    MOTLEY_TRY(search.lower_bound_step_seconds, lower_bound(search.step_seconds));
    MOTLEY_TRY_VOID(compare_without_pins(&search));
    search.nodes = nodes_;
    tried->plan.id = plan_id(tried->plan);
    return Unit{};
  }

  /// What the pinned replicas cost.
  Result<Unit> compare_without_pins(SearchRecord* search) {
    JobSpec job = request_.job;
    job.pin.replicas.clear();
    const char* const what = "the plan without pin.replicas";
    const auto plan = search_unpinned(
        unproved({job, request_.fleet, request_.profile, request_.memory_headroom}), counter_);
    if (!plan) {
      if (plan.error().code != ErrorCode::kNoPlan) return fail(plan.error());
      search->rejected.push_back({what, plan.error().message, 0});
      return Unit{};
    }
    nodes_ += plan->search.nodes;
    const double without = plan->prediction.step_seconds;
    const char* const why = without < search->step_seconds ? "quicker, but the job pins replicas"
                            : without > search->step_seconds
                                ? "slower: what is pinned was not found"
                                : "no quicker";
    search->rejected.push_back({what, why, without});
    return Unit{};
  }

  const PlanRequest& request_;
  const MemoryCounter& counter_;
  int grain_ = 1;
  int part_ = 1;  ///< grains that are dealt together
  std::vector<PricedPin> pins_;
  FleetSpec rest_;
  JobSpec rest_job_;
  bool may_have_rest_ = false;
  bool needs_rest_ = false;
  double rest_headroom_;
  std::map<int, Result<std::optional<Plan>>> rest_plans_;  ///< by samples
  std::optional<Error> rest_error_;
  int64_t nodes_ = 0;
};

}  // namespace

Result<Plan> search_pinned(const PlanRequest& request, const MemoryCounter& counter) {
  return PinnedSearch(request, counter).run();
}

}  // namespace motley
