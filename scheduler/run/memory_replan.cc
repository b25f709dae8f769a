#include "scheduler/run/memory_replan.h"

#include <algorithm>

#include "core/holdings.h"
#include "planner/plain/search.h"
#include "scheduler/run/given_plan.h"

namespace motley {
namespace {

/// The largest of a step's micro-batches on a rank.
int largest_micro_batch_of(const Plan& plan, int replica) {
  int largest = 0;
  for (const SampleRange& range : micro_batches_of(plan, replica))
    largest = std::max(largest, range.count);
  return largest;
}

/// Of a plan by hand, of one with pinned replicas, and of one that is cut or whose state lies
/// elsewhere only the micro-batch changes: memory tables of whole models, which a search would look
/// at, say nothing of these.
bool keeps_its_cut(const JobSpec& job, const Plan& plan) {
  return is_given(plan) || !job.pin.replicas.empty() || plan.shard_optimizer ||
         std::any_of(plan.ranks.begin(), plan.ranks.end(),
                     [](const RankPlacement& rank) { return rank.host_optimizer; }) ||
         std::any_of(plan.replicas.begin(), plan.replicas.end(),
                     [](const ReplicaPlan& one) { return one.stages.size() > 1; });
}

bool pins_micro_batch(const JobSpec& job, const std::string& device) {
  return std::any_of(
      job.pin.replicas.begin(), job.pin.replicas.end(), [&](const PinnedReplica& replica) {
        return replica.micro_batch &&
               std::any_of(replica.stages.begin(), replica.stages.end(),
                           [&](const PinnedStage& stage) {
                             return std::find(stage.devices.begin(), stage.devices.end(), device) !=
                                    stage.devices.end();
                           });
      });
}

/// Fewer samples than this no plan for the job can give a device at a time.
int smallest_micro_batch(const JobSpec& job, const Plan& plan) {
  return keeps_its_cut(job, plan) ? plan.grain : job.train.grain.value_or(1);
}

std::string remedy(const JobSpec& job, int smallest) {
  if (smallest > 1 && job.train.numerics == Numerics::kExact)
    return "numerics: exact computes whole grains of " + std::to_string(smallest) +
           ": give a new run a smaller train.grain";
  if (smallest > 1)
    return "the grain of " + std::to_string(smallest) + " samples is cut no further: a smaller one";
  return "no smaller one is left: leave the device out (resources.devices), end what else uses its "
         "memory, or shorten model.context";
}

/// The whole-model memory table ends before what does not fit.
void forget_above(int most, const std::string& device, Profile* profile) {
  for (DeviceProfile& each : profile->devices)
    if (each.device == device)
      std::erase_if(each.memory,
                    [&](const MemoryPoint& point) { return point.micro_batch > most; });
}

/// As it was but for the micro-batch of a replica.
Result<Plan> given_with(Plan plan, int replica, int micro_batch, const PlanRequest& request,
                        const CountPlan& count) {
  plan.replicas[static_cast<size_t>(replica)].micro_batch = micro_batch;
  plan.prediction = {};
  GivenPlan given;
  given.path = "the given plan";
  MOTLEY_TRY(given.counted, count(plan));
  given.plan = std::move(plan);
  return price(given, request.job, request.fleet, request.profile);
}

int micro_batch_on(const Plan& plan, const std::string& device) {
  for (size_t rank = 0; rank < plan.ranks.size(); ++rank)
    if (plan.ranks[rank].device == device)
      return largest_micro_batch_of(plan, role_of(plan, Rank(static_cast<int>(rank))).replica);
  return 0;
}

}  // namespace

Result<MemoryReplan> plan_for_less_memory(const PlanRequest& request, const Plan& plan, Rank rank,
                                          const CountPlan& count) {
  const RankPlacement& place = plan.ranks[static_cast<size_t>(rank.value())];
  const int replica = role_of(plan, rank).replica;
  const int smallest = smallest_micro_batch(request.job, plan);
  MemoryReplan next;
  next.what = {.device = place.device,
               .type = place.type,
               .micro_batch = largest_micro_batch_of(plan, replica)};
  const int half = next.what.micro_batch / 2 / smallest * smallest;
  const int most = std::max(half, smallest);
  if (most >= next.what.micro_batch)
    return fail(ErrorCode::kNoPlan, place.device + " cannot hold micro-batch " +
                                        std::to_string(next.what.micro_batch) + ": " +
                                        remedy(request.job, smallest));
  if (pins_micro_batch(request.job, place.device))
    return fail(ErrorCode::kNoPlan, place.device + " cannot hold micro-batch " +
                                        std::to_string(next.what.micro_batch) +
                                        ", to which pin.replicas pins it: pin a smaller one, or "
                                        "leave it open");
  next.profile = request.profile;
  forget_above(most, place.device, &next.profile);
  PlanRequest smaller{request.job, request.fleet, next.profile};
  if (keeps_its_cut(request.job, plan)) {
    MOTLEY_TRY(next.plan, given_with(plan, replica, most, smaller, count));
  } else {
    MOTLEY_TRY(next.plan, plan_search(smaller));
  }
  next.what.then = micro_batch_on(next.plan, place.device);
  return next;
}

}  // namespace motley
