// Lower bounds of the search for pipelines, against plans that a search of another kind finds: from
// the plan that was found and from others, whatever small change makes a plan quicker, or hardly
// slower, priced by predict().

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>
#include <optional>
#include <random>

#include "core/model.h"
#include "planner/costs/cost_model.h"
#include "planner/pipelines/pipeline_search.h"
#include "planner/pipelines/pipeline_space.h"
#include "planner/pipelines/recompute_less.h"
#include "planner/pipelines/step_bound.h"
#include "planner/plain/device_index.h"
#include "tests/support/cut_fleets.h"
#include "tests/support/layered_case.h"
#include "tests/support/random_cases.h"

namespace motley {
namespace {

using testing::PlanningCase;

constexpr double kNothing = 1e9;  ///< seconds of what cannot be

/// A plan as moves change it.
struct Stage {
  std::vector<int> devices;
  std::vector<int> heads;  ///< of each; of a device by itself all
  int layers = 0;
};
struct Replica {
  std::vector<Stage> stages;
  int micro_batch = 1;
  int grains = 0;
};
using Sketch = std::vector<Replica>;

class Wanderer {
 public:
  /// All blocks are computed as `recompute` says.
  Wanderer(const PlanningCase& problem, Recompute recompute, unsigned seed)
      : problem_(problem),
        recompute_(recompute),
        request_(problem_.request()),
        counter_(testing::layer_bytes_counter(problem)),
        index_(problem.fleet, problem.profile),
        random_(seed) {}

  /// Seconds of the quickest plan on a way of so many steps.
  double wander(Sketch sketch, int steps) {
    double now = seconds(sketch), best = now;
    for (int step = 0; step < steps; ++step) {
      Sketch other = sketch;
      if (!move(&other)) continue;
      const double then = seconds(other);
      const double warmth = 0.05 * (1 - 1.0 * step / steps);
      if (then >= kNothing || then > now * (1 + warmth * below(1000) / 1000.0)) continue;
      sketch = std::move(other);
      now = then;
      best = std::min(best, now);
    }
    return best;
  }

  Sketch sketch_of(const Plan& plan) const {
    Sketch sketch;
    for (const ReplicaPlan& from : plan.replicas) {
      Replica& replica = sketch.emplace_back();
      replica.micro_batch = from.micro_batch;
      replica.grains = from.grains;
      for (const StagePlan& stage : from.stages) {
        Stage& own = replica.stages.emplace_back();
        own.layers = stage.layers();
        for (size_t i = 0; i < stage.ranks.size(); ++i) {
          own.devices.push_back(number_of(plan.ranks[index(stage.ranks[i].value())].device));
          own.heads.push_back(static_cast<int>(std::lround(stage.shares[i] * heads())));
        }
      }
    }
    return sketch;
  }

  /// Everything on one replica, a device a stage, in the order of the fleet.
  Sketch row() const {
    Replica replica{.stages = {}, .micro_batch = 1, .grains = problem_.job.train.global_batch};
    const int count = std::min(devices(), layers());
    for (int device = 0; device < count; ++device)
      replica.stages.push_back({{device}, {heads()}, layers() / count});
    replica.stages.back().layers += layers() % count;
    return {replica};
  }

  /// Of so many hosts at a time as many replicas as each has devices, over all of them.
  Sketch lines(int hosts) const {
    std::vector<std::vector<int>> devices_of;
    for (int device = 0; device < devices(); ++device) {
      if (device == 0 || spec(device).host != spec(device - 1).host) devices_of.emplace_back();
      devices_of.back().push_back(device);
    }
    Sketch sketch;
    const int count = std::min(hosts, layers());
    for (size_t first = 0; first + index(count) <= devices_of.size(); first += index(count))
      for (size_t i = 0; i < devices_of.front().size(); ++i) {
        Replica& replica = sketch.emplace_back();
        for (int stage = 0; stage < count; ++stage)
          replica.stages.push_back(
              {{devices_of[first + index(stage)][i]}, {heads()}, layers() / count});
        replica.stages.back().layers += layers() % count;
      }
    const int grains = problem_.job.train.global_batch, replicas = static_cast<int>(sketch.size());
    for (int i = 0; i < replicas; ++i)
      sketch[index(i)].grains = grains / replicas + (i < grains % replicas ? 1 : 0);
    if (grains < replicas) sketch.resize(index(grains));
    return sketch;
  }

 private:
  static size_t index(int number) { return static_cast<size_t>(number); }
  int devices() const { return static_cast<int>(problem_.fleet.devices.size()); }
  int layers() const { return layer_count(problem_.job.model); }
  int heads() const { return problem_.job.model.heads; }
  int below(size_t count) { return static_cast<int>(random_() % static_cast<unsigned>(count)); }
  template <class Of>
  auto& any(Of& of) {
    return of[index(below(of.size()))];
  }
  const DeviceSpec& spec(int device) const { return problem_.fleet.devices[index(device)]; }
  int number_of(const std::string& id) const {
    int device = 0;
    while (spec(device).id != id) ++device;
    return device;
  }

  bool move(Sketch* sketch) {
    switch (below(10)) {
      case 0:
        return move_layer(&any(*sketch));
      case 1:
        return swap_devices(sketch);
      case 2:
        return place(take(sketch), sketch);
      case 3:
        return join(take(sketch), sketch);
      case 4:
        return move_grains(sketch);
      case 5:
        any(*sketch).micro_batch = std::vector{1, 2, 3, 4, 6, 8}[index(below(6))];
        return true;
      case 6:
        return move_head(&any(any(*sketch).stages));
      case 7:
        return dissolve(sketch);
      case 8:
        return move_end(sketch);
      default:
        return found(take(sketch), sketch);
    }
  }

  bool move_layer(Replica* replica) {
    Stage &from = any(replica->stages), &to = any(replica->stages);
    if (&from == &to || from.layers < 2) return false;
    --from.layers, ++to.layers;
    return true;
  }

  /// Of a stage, a layer to the next or back, in all replicas of as many stages.
  bool move_end(Sketch* sketch) {
    const size_t stages = any(*sketch).stages.size();
    if (stages < 2) return false;
    size_t from = index(below(stages - 1)), to = from + 1;
    if (below(2) == 0) std::swap(from, to);
    for (Replica& replica : *sketch) {
      if (replica.stages.size() != stages) continue;
      if (replica.stages[from].layers < 2) return false;
      --replica.stages[from].layers, ++replica.stages[to].layers;
    }
    return true;
  }

  bool swap_devices(Sketch* sketch) {
    std::swap(any(any(any(*sketch).stages).devices), any(any(any(*sketch).stages).devices));
    return true;
  }

  std::vector<int> unused(const Sketch& sketch) const {
    std::vector<int> unused(index(devices()));
    std::iota(unused.begin(), unused.end(), 0);
    for (const Replica& replica : sketch)
      for (const Stage& stage : replica.stages)
        for (const int device : stage.devices) std::erase(unused, device);
    return unused;
  }

  /// One that is unused, or from its stage.
  std::optional<int> take(Sketch* sketch) {
    const std::vector<int> free = unused(*sketch);
    if (!free.empty() && below(2) == 0) return free[index(below(free.size()))];
    Replica& replica = any(*sketch);
    const size_t number = index(below(replica.stages.size()));
    Stage& stage = replica.stages[number];
    const int device = stage.devices.back();
    if (stage.devices.size() > 1) {
      stage.heads[0] += stage.heads.back();
      stage.devices.pop_back(), stage.heads.pop_back();
      return device;
    }
    if (replica.stages.size() < 2) return std::nullopt;
    replica.stages[number == 0 ? 1 : number - 1].layers += stage.layers;
    replica.stages.erase(replica.stages.begin() + static_cast<ptrdiff_t>(number));
    return device;
  }

  /// As a stage of its own.
  bool place(std::optional<int> device, Sketch* sketch) {
    if (!device) return false;
    Replica& replica = any(*sketch);
    const size_t number = index(below(replica.stages.size()));
    const int layers = replica.stages[number].layers;
    if (layers < 2) return false;
    const int own = 1 + below(index(layers - 1));
    replica.stages[number].layers -= own;
    replica.stages.insert(replica.stages.begin() + static_cast<ptrdiff_t>(number) + below(2),
                          {{*device}, {heads()}, own});
    return true;
  }

  bool join(std::optional<int> device, Sketch* sketch) {
    if (!device) return false;
    Stage& stage = any(any(*sketch).stages);
    if (stage.heads[0] < 2) return false;
    const int own = 1 + below(index(stage.heads[0] - 1));
    stage.heads[0] -= own;
    stage.devices.push_back(*device), stage.heads.push_back(own);
    return true;
  }

  bool move_head(Stage* stage) {
    int &from = any(stage->heads), &to = any(stage->heads);
    if (&from == &to || from < 2) return false;
    --from, ++to;
    return true;
  }

  bool move_grains(Sketch* sketch) {
    Replica &from = any(*sketch), &to = any(*sketch);
    const int grains = 1 + below(4);
    if (&from == &to || from.grains <= grains) return false;
    from.grains -= grains, to.grains += grains;
    return true;
  }

  bool dissolve(Sketch* sketch) {
    if (sketch->size() < 2) return false;
    const auto gone = sketch->begin() + below(sketch->size());
    const int grains = gone->grains;
    sketch->erase(gone);
    any(*sketch).grains += grains;
    return true;
  }

  /// A replica.
  bool found(std::optional<int> device, Sketch* sketch) {
    Replica& other = any(*sketch);
    if (!device || other.grains < 2) return false;
    const int grains = 1 + below(index(other.grains - 1));
    other.grains -= grains;
    sketch->push_back({{{{*device}, {heads()}, layers()}}, 1, grains});
    return true;
  }

  bool is_possible(const Sketch& sketch) const {
    return std::all_of(sketch.begin(), sketch.end(), [&](const Replica& replica) {
      return std::all_of(replica.stages.begin(), replica.stages.end(), [&](const Stage& stage) {
        return std::all_of(stage.devices.begin(), stage.devices.end(), [&](int device) {
          return spec(device).host == spec(stage.devices[0]).host;
        });
      });
    });
  }

  double seconds(const Sketch& sketch) {
    if (!is_possible(sketch)) return kNothing;
    Plan plan;
    plan.global_batch = problem_.job.train.global_batch;
    plan.grain = 1;
    for (const Replica& from : sketch) {
      ReplicaPlan& replica = plan.replicas.emplace_back();
      replica.micro_batch = from.micro_batch;
      replica.grains = from.grains;
      LayerIndex first = 0;
      for (const Stage& stage : from.stages) {
        StagePlan& own = replica.stages.emplace_back();
        own.first_layer = first;
        own.last_layer = (first += stage.layers) - 1;
        for (LayerIndex layer = own.first_layer; recompute_ != Recompute::kNone && layer < first;
             ++layer)
          own.recompute.push_back(is_block(layer, problem_.job.model) ? recompute_
                                                                      : Recompute::kNone);
        for (size_t i = 0; i < stage.devices.size(); ++i) {
          own.ranks.emplace_back(plan.world_size());
          own.shares.push_back(1.0 * stage.heads[i] / heads());
          const DeviceSpec& device = spec(stage.devices[i]);
          plan.ranks.push_back({device.id, device.host, device.type});
        }
      }
    }
    plan.owners = even_ownership(plan, problem_.job.model);
    if (!fits(plan) || !predict_step(request_, &plan)) return kNothing;
    return plan.prediction.step_seconds;
  }

  bool fits(const Plan& plan) const {
    const auto memory = counter_.plan(plan);
    for (size_t rank = 0; memory && rank < plan.ranks.size(); ++rank)
      if ((*memory)[rank].total >
          usable_memory(*index_.profile(plan.ranks[rank].device), request_.memory_headroom))
        return false;
    return memory.has_value();
  }

  const PlanningCase& problem_;
  const Recompute recompute_;
  const PlanRequest request_;
  const MemoryCounter counter_;
  const DeviceIndex index_;
  std::mt19937 random_;
};

int draw(std::mt19937& random, int low, int high) {
  return low + static_cast<int>(random() % static_cast<unsigned>(high - low + 1));
}

struct Range {
  int low, high;
};

/// Hosts of unlike devices, joined by links of any speed; some devices hold the model.
PlanningCase random_hosts(const Range& hosts_of, const Range& devices_of, std::mt19937& random) {
  PlanningCase problem(draw(random, 8, 40));
  problem.job.model = {"gpt", draw(random, 3, 6), 4, 128, 64, 4000};
  const int hosts = draw(random, hosts_of.low, hosts_of.high);
  const int of_a_host = draw(random, devices_of.low, devices_of.high);
  const double speeds[] = {1, draw(random, 10, 50) / 10.0};
  for (int host = 0; host < hosts; ++host)
    for (int i = 0; i < of_a_host; ++i) {
      const int type = draw(random, 0, 1);
      const double block = 1e-4 * draw(random, 2, 4) * speeds[type];
      add_layered({.host = "host" + std::to_string(host),
                   .type = "card" + std::to_string(type),
                   .per_sample = block,
                   .fixed = 0.2 * block,
                   .overhead = 2e-5,
                   .update = 5 * block,
                   .memory_mib = draw(random, 8, 40),
                   .recomputing = true,
                   .sharing = true},
                  &problem);
    }
  const double across = std::pow(10.0, draw(random, 6, 9)), within = across * draw(random, 1, 20);
  for (int a = 0; a < hosts; ++a)
    for (int b = a; b < hosts; ++b)
      problem.add_link("host" + std::to_string(a), "host" + std::to_string(b), 2e-5,
                       a == b ? within : across);
  return problem;
}

struct Compared {
  int planned = 0;
  double plans = 0;   ///< the best found otherwise over the plan's step, in sum
  double bounds = 0;  ///< bounds over the best found, in sum
};

/// Of fleets that some plan fits; no bound is above any plan.
Compared compare(int fleets, const Range& hosts, const Range& devices, int steps,
                 Recompute recompute = Recompute::kNone, bool sums_beside = false) {
  Compared compared;
  for (int seed = 0; seed < testing::random_cases(fleets); ++seed) {
    std::mt19937 random(static_cast<unsigned>(seed));
    PlanningCase problem = random_hosts(hosts, devices, random);
    if (sums_beside) problem.at_own_speed();
    const auto search = recompute == Recompute::kNone ? search_pipelines : search_recomputing;
    const auto plan = search(problem.request(), testing::layer_bytes_counter(problem));
    if (!plan) continue;
    ++compared.planned;
    Wanderer wanderer(problem, recompute, static_cast<unsigned>(seed));
    double best = plan->prediction.step_seconds;
    for (const Sketch& sketch : {wanderer.sketch_of(*plan), wanderer.row(), wanderer.lines(2)})
      if (!sketch.empty()) best = std::min(best, wanderer.wander(sketch, steps));
    const double proved =
        recompute == Recompute::kNone
            ? plan->search.lower_bound_step_seconds
            : *prove_pipelines(problem.request(), testing::layer_bytes_counter(problem), recompute,
                               plan->prediction.step_seconds);
    const double bound = proved * (1 - 1e-9);
    EXPECT_LE(bound, best) << "seed " << seed;
    compared.plans += best / plan->prediction.step_seconds;
    compared.bounds += bound / best;
  }
  std::printf("%d cases; of the best that was found plans take %.3f, bounds %.3f\n",
              compared.planned, compared.planned / compared.plans,
              compared.bounds / compared.planned);
  return compared;
}

TEST(LowerBound, IsBelowAllPlansAndPlansAreNearTheBestThatAreFoundOtherwise) {
  const Compared compared = compare(40, {1, 4}, {1, 4}, 500);
  EXPECT_GE(compared.planned, testing::random_cases(28));
  EXPECT_GE(compared.plans, 0.97 * compared.planned)
      << "hardly worse than the best found otherwise";
}

TEST(LowerBound, OfManyHostsToo) {
  const Compared compared = compare(12, {4, 8}, {1, 3}, 200);
  EXPECT_GE(compared.planned, testing::random_cases(9));
  EXPECT_GE(compared.plans, 0.95 * compared.planned);
}

TEST(LowerBound, OfPlansThatComputeBlocksAgain) {
  const Compared compared = compare(24, {1, 4}, {1, 4}, 300, Recompute::kBlock);
  EXPECT_GE(compared.planned, testing::random_cases(18));
}

TEST(LowerBound, OfManySetsOfFewDevicesToo) {
  const Compared compared = compare(10, {1, 1}, {6, 8}, 300);
  EXPECT_GE(compared.planned, testing::random_cases(9));
  EXPECT_GE(compared.plans, 0.95 * compared.planned);
}

TEST(LowerBound, OfPlansWhoseSumsGoOnBesideComputing) {
  const Compared compared = compare(30, {2, 4}, {1, 3}, 300, Recompute::kNone, true);
  EXPECT_GE(compared.planned, testing::random_cases(22));
  EXPECT_GE(compared.plans, 0.95 * compared.planned);
}

TEST(StepBound, IsWhatItWouldBeWhateverItWasAskedBefore) {
  for (const testing::CutFleet& fleet : testing::cut_fleets()) {
    if (fleet.name != "64" && fleet.name != "8-two-types" && fleet.name != "4") continue;
    const PlanningCase problem = fleet.make();
    const PlanRequest request = problem.request();
    const PipelineSpace space(request, *group_devices(request, GroupBy::kType));
    const MemoryCounter counter = testing::layer_bytes_counter(problem);
    const auto costs =
        *PipelineCosts::make(request, space.groups, space.micro_batches, counter.layers);
    SetTimes times(costs, space.sets(space.longest), space.micro_batches, space.few);
    const LeastSums sums(request, space.groups, space.longest, false);
    const HostSums hosts(request, space.groups, costs, sums, false);
    const auto anew = [&] {
      return StepBound(space.packing(1, space.most_replicas(), kNearly), &times, sums, hosts, 0);
    };
    StepBound asked = anew();
    const double least = anew().seconds(kNothing);
    EXPECT_LT(least, kNothing);
    for (const double times_least : {0.7, 1.5, 0.9, 3.0, 1.02, 0.5, 10.0}) {
      const double step = times_least * least;
      EXPECT_NEAR(asked.seconds(step), std::min(step, least), 0.005 * least)
          << fleet.name << " below " << step;
    }
  }
}

}  // namespace
}  // namespace motley
