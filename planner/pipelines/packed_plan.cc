#include "planner/pipelines/packed_plan.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "core/pipeline.h"
#include "planner/costs/cost_model.h"
#include "planner/costs/links.h"
#include "planner/pipelines/pipeline_cut.h"
#include "planner/pipelines/placement.h"
#include "planner/pipelines/recompute_less.h"

namespace motley {
namespace {

constexpr int kCountsToExclude = 24;
/// Sets that are tried as a single replica.
constexpr size_t kMostSingles = 24;
/// Of a step: what exchanging gradients takes.
constexpr double kWorthPlacing = 0.02;
/// Of more replicas no order of a single one helps much.
constexpr size_t kFewReplicas = 4;

std::vector<const Pipeline*> pointers_to(const std::vector<Pipeline>& pipelines) {
  std::vector<const Pipeline*> pointers;
  for (const Pipeline& pipeline : pipelines) pointers.push_back(&pipeline);
  return pointers;
}

bool is_worth_placing(const PackedPlan& packed) {
  const Prediction& known = packed.plan.prediction;
  return known.communication_seconds >= kWorthPlacing * known.step_seconds;
}

/// Bytes a second between two stages' hosts; infinite within one, and where nobody measured it.
double speed_between(const LinkIndex& links, const PlacedStages& placed, size_t a, size_t b) {
  const std::string &from = placed[a].front()->host, &to = placed[b].front()->host;
  const LinkProfile* const link =
      from == to ? nullptr : links.between(links.number(from), links.number(to));
  return link == nullptr ? std::numeric_limits<double>::infinity() : link->bytes_per_second;
}

/// Orders of a replica's stages, by number, in which no two of them were better linked than its
/// ends are, of rows of groups each once; none where that is so already.
std::vector<std::vector<size_t>> orders_that_link_ends(const LinkIndex& links,
                                                       const Pipeline& pipeline,
                                                       const PlacedStages& placed) {
  const size_t stages = placed.size();
  double best = speed_between(links, placed, 0, stages - 1);
  std::vector<std::vector<size_t>> orders;
  std::set<std::vector<int>> known;
  for (size_t first = 0; first < stages; ++first)
    for (size_t last = 0; last < stages; ++last) {
      const double speed = speed_between(links, placed, first, last);
      if (first == last || speed < best || (speed == best && orders.empty())) continue;
      if (speed > best) orders.clear(), known.clear();
      best = speed;
      std::vector<size_t> order(stages);
      std::iota(order.begin(), order.end(), size_t{0});
      std::swap(order.front(), *std::find(order.begin(), order.end(), first));
      std::swap(order.back(), *std::find(order.begin(), order.end(), last));
      std::vector<int> row;
      for (const size_t stage : order) row.push_back(pipeline.stages[stage].group);
      if (known.insert(std::move(row)).second) orders.push_back(std::move(order));
    }
  return orders;
}

int micro_batches_of(const Plan& plan, const ReplicaPlan& replica) {
  return (replica.grains * plan.grain + replica.micro_batch - 1) / replica.micro_batch;
}

/// Blocks.
int again_of(const StagePlan& stage) {
  return static_cast<int>(std::count_if(stage.recompute.begin(), stage.recompute.end(),
                                        [](Recompute part) { return part != Recompute::kNone; }));
}

/// It may have been cut anew for its hosts, and memory be better known since.
bool still_fits(const PipelineCosts& costs, const PackedPlan& packed) {
  for (size_t i = 0; i < packed.pipelines.size(); ++i) {
    const ReplicaPlan& replica = packed.plan.replicas[i];
    const auto stages = static_cast<int>(replica.stages.size());
    const int count = micro_batches_of(packed.plan, replica);
    for (int s = 0; s < stages; ++s) {
      const auto number = static_cast<size_t>(s);
      const auto again =
          costs.computed_again(packed.pipelines[i].stages[number], replica.micro_batch,
                               most_in_flight(stages, s, count));
      if (!again || *again > again_of(replica.stages[number])) return false;
    }
  }
  return true;
}

}  // namespace

void keep_hosts_together(Plan* plan) {
  std::map<std::string, size_t> hosts;  // in order of first appearance
  for (const RankPlacement& rank : plan->ranks) hosts.emplace(rank.host, hosts.size());
  std::vector<size_t> order(plan->ranks.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return hosts.at(plan->ranks[a].host) < hosts.at(plan->ranks[b].host);
  });
  std::vector<RankPlacement> ranks;
  std::vector<Rank> renamed(order.size());
  for (size_t i = 0; i < order.size(); ++i) {
    renamed[order[i]] = Rank(static_cast<int>(i));
    ranks.push_back(plan->ranks[order[i]]);
  }
  plan->ranks = std::move(ranks);
  for (ReplicaPlan& replica : plan->replicas)
    for (StagePlan& stage : replica.stages)
      for (Rank& rank : stage.ranks) rank = renamed[static_cast<size_t>(rank.value())];
}

/// Seconds within which sets compute all grains, not much more.
double PlanMaker::enough_seconds(const Packing& packing, std::vector<ReplicaDesigns>* sets) const {
  constexpr double kMore = 1.3;
  double seconds = 0;
  for (const size_t set : packing) seconds = std::max(seconds, (*sets)[set].seconds(space_.grain));
  for (int64_t grains = 0; seconds < kNever; seconds *= kMore, grains = 0) {
    for (const size_t set : packing)
      grains += (*sets)[set].grains_within(seconds, space_.grain, 0, space_.grains());
    if (grains >= space_.grains()) break;
  }
  return seconds * kMore;
}

/// Of no more grains than are computed within these seconds.
GrainTable PlanMaker::table_of(ReplicaDesigns* set, double seconds) const {
  std::vector<double> full{kNever}, shorted{kNever};
  const int grains = space_.grains(), missing = space_.missing();
  const int most = set->grains_within(seconds, space_.grain, missing, grains);
  for (int grain = 1; grain <= grains; ++grain) {
    const int samples = grain * space_.grain;
    full.push_back(grain > most ? kNever : set->seconds(samples));
    if (missing > 0) shorted.push_back(grain > most ? kNever : set->seconds(samples - missing));
  }
  return {GrainCurve(std::move(full)), missing > 0 ? GrainCurve(std::move(shorted)) : GrainCurve()};
}

Deal PlanMaker::deal_over(const Packing& packing, std::vector<ReplicaDesigns>* sets) {
  std::map<size_t, GrainTable> tables;  // of each set
  const double enough = enough_seconds(packing, sets);
  DealProblem problem;
  for (const size_t set : packing) {
    if (!tables.contains(set)) tables.emplace(set, table_of(&(*sets)[set], enough));
    problem.devices.push_back(&tables.at(set));
  }
  problem.grains = space_.grains();
  problem.has_short = space_.missing() > 0;
  problem.reduction.assign(packing.size() + 1, 0);
  problem.least_devices = problem.most_devices = static_cast<int>(packing.size());
  const std::vector<double> times = section_times(problem.devices);
  problem.section_times = &times;
  DealResult dealt = best_deal(problem);
  nodes_ += dealt.nodes;
  return std::move(dealt.deal);
}

Result<PackedPlan> PlanMaker::make(const Packing& packing, const PipelineCosts& costs,
                                   std::vector<ReplicaDesigns>* sets) {
  const Deal deal = deal_over(packing, sets);
  if (deal.grains.empty())
    return fail(ErrorCode::kInternal, "a packing whose grains cannot be dealt");
  std::vector<size_t> order;  // the replica with the short grain comes last
  for (size_t i = 0; i < packing.size(); ++i)
    if (static_cast<int>(i) != deal.short_device) order.push_back(i);
  if (deal.short_device >= 0) order.push_back(static_cast<size_t>(deal.short_device));
  const auto samples_of = [&](size_t i) {
    const bool is_short = static_cast<int>(i) == deal.short_device;
    return deal.grains[i] * space_.grain - (is_short ? space_.missing() : 0);
  };
  std::vector<const Pipeline*> pipelines;
  std::vector<std::pair<Pipeline, int>> key;
  for (size_t i = 0; i < packing.size(); ++i) {
    pipelines.push_back(&(*sets)[packing[i]].quickest(samples_of(i)));
    key.emplace_back(*pipelines.back(), samples_of(i));
  }
  const auto known =
      std::find_if(made_.begin(), made_.end(), [&](const auto& made) { return made.first == key; });
  if (known != made_.end() && still_fits(costs, known->second)) return known->second;
  if (known != made_.end()) made_.erase(known);
  PackedPlan packed;
  std::vector<int> grains;
  for (const size_t i : order) {
    packed.shares.emplace_back(packing[i], samples_of(i));
    packed.pipelines.push_back(*pipelines[i]);
    grains.push_back(deal.grains[i]);
  }
  MOTLEY_TRY_VOID(place(costs, grains, &packed));
  made_.emplace_back(std::move(key), packed);
  return packed;
}

Result<Unit> PlanMaker::try_singles(const PackingProblem& problem, const PipelineCosts& costs,
                                    std::vector<ReplicaDesigns>* sets, PackedPlan* best) {
  const auto& count = space_.request.job.devices.count;
  std::vector<std::tuple<double, size_t, Pipeline>> soonest;
  for (size_t set = 0; set < sets->size(); ++set) {
    const GroupCounts& devices = (*sets)[set].devices();
    const int number = number_of(devices);
    if (number > problem.most_devices || number < (count ? count->low : 1)) continue;
    for (auto& [seconds, pipeline] : (*sets)[set].quickest_by_length(space_.batch()))
      soonest.emplace_back(seconds, set, std::move(pipeline));
  }
  std::stable_sort(soonest.begin(), soonest.end(), [](const auto& a, const auto& b) {
    return std::get<double>(a) < std::get<double>(b);
  });
  soonest.resize(std::min(soonest.size(), kMostSingles));
  for (const auto& [seconds, set, pipeline] : soonest) {
    if (seconds >= best->seconds()) break;
    PackedPlan packed{.plan = {}, .shares = {{set, space_.batch()}}, .pipelines = {pipeline}};
    const Result<Unit> placed = place(costs, {space_.grains()}, &packed);
    if (!placed && placed.error().code != ErrorCode::kNoPlan) return fail(placed.error());
    if (placed && packed.seconds() < best->seconds()) *best = std::move(packed);
  }
  return Unit{};
}

/// Where gradients take some of the step, over more and more hosts together, in a line and in a
/// ring.
Result<Unit> PlanMaker::place(const PipelineCosts& costs, const std::vector<int>& grains,
                              PackedPlan* packed) const {
  std::vector<PlacedStages> placed =
      place_on_hosts(space_.groups, costs, pointers_to(packed->pipelines));
  if (placed.empty()) return fail(space_.none_fits());
  MOTLEY_TRY_VOID(price(costs, grains, placed, kNever, packed));
  size_t most = 0;  // stages
  for (const Pipeline& pipeline : packed->pipelines) most = std::max(most, pipeline.stages.size());
  most = std::min(most, devices_of_hosts(space_.groups).size());
  const auto try_over = [&](size_t hosts, HostOrder order) -> Result<bool> {
    if (!is_worth_placing(*packed)) return false;
    std::vector<PlacedStages> others;
    std::optional<PackedPlan> other = over_hosts(hosts, order, costs, *packed, &others);
    if (!other) return false;
    MOTLEY_TRY_VOID(price(costs, grains, others, packed->seconds(), &*other));
    if (other->seconds() >= packed->seconds()) return false;
    *packed = std::move(*other);
    placed = std::move(others);
    return true;
  };
  const bool few = packed->pipelines.size() <= kFewReplicas;
  size_t best = 1;
  for (size_t together = 1; together < most;) {
    together = std::min(2 * together, most);
    MOTLEY_TRY(const bool is_better, try_over(together, HostOrder::kLine));
    if (is_better) best = together;
    if (few) MOTLEY_TRY_VOID(try_over(together, HostOrder::kRing));
  }
  if (!few && best > 1) MOTLEY_TRY_VOID(try_over(best, HostOrder::kRing));
  if (!few || !is_worth_placing(*packed)) return Unit{};
  return bring_ends_together(costs, grains, std::move(placed), packed);
}

/// What is tied is exchanged by the ends of each replica: over slow links its devices are put in
/// other orders, of which both ends are on one host or linked best, and cut anew, as long as that
/// helps.
Result<Unit> PlanMaker::bring_ends_together(const PipelineCosts& costs,
                                            const std::vector<int>& grains,
                                            std::vector<PlacedStages> placed,
                                            PackedPlan* packed) const {
  const LinkIndex links(space_.request.profile.links);
  for (size_t i = 0; i < packed->pipelines.size(); ++i) {
    const std::vector<Pipeline> pipelines = packed->pipelines;
    const std::vector<PlacedStages> before = placed;
    for (const std::vector<size_t>& order : orders_that_link_ends(links, pipelines[i], before[i])) {
      PackedPlan other{.plan = {}, .shares = packed->shares, .pipelines = pipelines};
      std::vector<PlacedStages> turned = before;
      std::vector<int> row;
      for (size_t s = 0; s < order.size(); ++s) {
        row.push_back(pipelines[i].stages[order[s]].group);
        turned[i][s] = before[i][order[s]];
      }
      other.pipelines[i] = quickest_cut(costs, row, space_.micro_batches, pipelines[i].micro_batch,
                                        packed->shares[i].second, kNodesToImprove);
      if (other.pipelines[i].stages.empty()) continue;
      MOTLEY_TRY_VOID(price(costs, grains, turned, packed->seconds(), &other));
      if (other.seconds() >= packed->seconds()) continue;
      *packed = std::move(other);
      placed = std::move(turned);
    }
  }
  return Unit{};
}

/// The same replicas, each in the order that its devices have there; nothing where that does not
/// fit.
std::optional<PackedPlan> PlanMaker::over_hosts(size_t hosts, HostOrder order,
                                                const PipelineCosts& costs,
                                                const PackedPlan& packed,
                                                std::vector<PlacedStages>* placed) const {
  const std::vector<PlacedRow> rows =
      place_over_hosts(space_.groups, costs, pointers_to(packed.pipelines), hosts, order);
  if (rows.empty()) return std::nullopt;
  PackedPlan other{.plan = {}, .shares = packed.shares, .pipelines = {}};
  placed->clear();
  std::map<std::pair<std::vector<int>, int>, Pipeline> known;  // replicas are much alike
  for (size_t i = 0; i < rows.size(); ++i) {
    const int samples = packed.shares[i].second;
    const auto [cut, is_new] = known.try_emplace({rows[i].groups, samples});
    if (is_new)
      cut->second = quickest_cut(costs, rows[i].groups, space_.micro_batches,
                                 packed.pipelines[i].micro_batch, samples, kNodesToImprove);
    if (cut->second.stages.empty()) return std::nullopt;
    other.pipelines.push_back(cut->second);
    placed->push_back(rows[i].stages);
  }
  return other;
}

Result<Unit> PlanMaker::price(const PipelineCosts& costs, const std::vector<int>& grains,
                              const std::vector<PlacedStages>& placed, double enough,
                              PackedPlan* packed) const {
  Plan& plan = packed->plan;
  plan.job_key = space_.request.profile.job_key;
  plan.numerics = space_.request.job.train.numerics;
  plan.global_batch = space_.batch();
  plan.grain = space_.grain;
  for (size_t i = 0; i < grains.size(); ++i)
    add_replica(packed->pipelines[i], costs, placed[i], grains[i], &plan);
  keep_hosts_together(&plan);
  leave_out_others(&plan);
  return predict_step(space_.request, &plan, enough);
}

void PlanMaker::leave_out_others(Plan* plan) const {
  std::set<std::string> used;
  for (const RankPlacement& rank : plan->ranks) used.insert(rank.device);
  const PlanRequest& request = space_.request;
  const FleetSpec fit = fitting(request.fleet, request.job);
  for (const DeviceSpec& device : request.fleet.devices)
    if (fit.find(device.id) == nullptr)
      plan->left_out.push_back({device.id, why_not_admitted(device, request.job)});
  for (const DeviceGroup& group : space_.groups)
    for (const DeviceSpec* device : group.devices)
      if (!used.contains(device->id)) plan->left_out.push_back({device->id, kNoneQuickerWith});
}

void PlanMaker::add_replica(const Pipeline& pipeline, const PipelineCosts& costs,
                            const std::vector<std::vector<const DeviceSpec*>>& devices, int grains,
                            Plan* plan) const {
  const ModelSpec& model = space_.request.job.model;
  ReplicaPlan& replica = plan->replicas.emplace_back();
  replica.micro_batch = pipeline.micro_batch;
  replica.grains = grains;
  const auto stages = static_cast<int>(pipeline.stages.size());
  for (int number = 0; number < stages; ++number) {
    const auto s = static_cast<size_t>(number);
    const PipelineStage& from = pipeline.stages[s];
    const TensorSet* const set = costs.tensor_set(from.group);
    const int first = set == nullptr ? from.group : set->members.front().group;
    StagePlan stage;
    stage.first_layer = from.first;
    stage.last_layer = from.last;
    stage.shares = set == nullptr ? std::vector{1.0} : set->shares(model.heads);
    stage.precision = space_.groups[static_cast<size_t>(first)].precision;
    const int samples = grains * plan->grain, size = pipeline.micro_batch;
    const int in_flight = most_in_flight(stages, number, (samples + size - 1) / size);
    int again = costs.blocks_again(from, number, stages, size, samples);
    for (const DeviceSpec* device : devices[s]) {
      const auto member = static_cast<int>(stage.ranks.size());
      stage.ranks.emplace_back(plan->world_size());
      plan->ranks.push_back({device->id, device->host, device->type});
      plan->ranks.back().host_optimizer =
          costs.keeps_state_in_host(from, member, size, in_flight, again);
    }
    for (LayerIndex layer = from.first; again > 0 && layer <= from.last; ++layer)
      if (is_block(layer, model)) {
        stage.recompute.resize(static_cast<size_t>(stage.layers()));
        stage.recompute[static_cast<size_t>(layer - from.first)] = costs.recompute();
        --again;
      }
    replica.stages.push_back(std::move(stage));
  }
}

Plan PlanMaker::uncounted(PackedPlan packed) const {
  Plan& plan = packed.plan;
  plan.owners = even_ownership(plan, space_.request.job.model);
  for (RankPrediction& rank : plan.prediction.ranks) rank.memory = rank.host_memory = Bytes(0);
  return std::move(plan);
}

Result<bool> PlanMaker::count_memory(int round, PipelineCosts* costs, PackedPlan* packed) const {
  Plan* const plan = &packed->plan;
  plan->owners = even_ownership(*plan, space_.request.job.model);
  plan->prediction = {};  // may say by tables that it does not fit
  MOTLEY_TRY(const std::vector<RankMemory> counted, count_(*plan));
  bool fits = true;
  for (size_t r = 0; r < plan->replicas.size(); ++r) {
    const ReplicaPlan& replica = plan->replicas[r];
    const auto stages = static_cast<int>(replica.stages.size());
    const int count = micro_batches_of(*plan, replica);
    for (int s = 0; s < stages; ++s) {
      const StagePlan& own = replica.stages[static_cast<size_t>(s)];
      const std::vector<Rank>& ranks = own.ranks;
      for (size_t member = 0; member < ranks.size(); ++member) {
        const auto rank = static_cast<size_t>(ranks[member].value());
        if (has_room(space_.request, plan->ranks[rank], counted[rank])) continue;
        fits = false;
        const PipelineCosts::Counted learnt{
            .stage = packed->pipelines[r].stages[static_cast<size_t>(s)],
            .member = static_cast<int>(member),
            .micro_batch = replica.micro_batch,
            .in_flight = most_in_flight(stages, s, count),
            .again = again_of(own),
            .needs = counted[rank].total};
        if (round < kCountsToExclude)
          costs->exclude(learnt);
        else
          costs->correct(learnt);
      }
    }
  }
  if (fits) MOTLEY_TRY_VOID(predict(space_.request, plan, counted));
  return fits;
}

}  // namespace motley
