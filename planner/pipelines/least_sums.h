#pragma once
// The least that exchanging gradients takes, whatever the plan: a part of every proof.

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "planner/costs/cost_model.h"
#include "planner/pipelines/pipeline_costs.h"
#include "planner/request.h"

namespace motley {

/// Whoever exchanges most exchanges no less than ranks do on average: all of them, or those that
/// hold the embedding and what is tied to it, of which every replica has one or two. It has as many
/// peers at least as its slices have holders, over links no better than the best, which join
/// several hosts where none has room for so many. What goes over compressed links, or not in every
/// step, is taken to be free.
class LeastSums {
 public:
  /// `cut`: no replica is whole, so that two ranks of each hold what is tied.
  LeastSums(const PlanRequest& request, const std::vector<DeviceGroup>& groups, int most_stages,
            bool cut);

  /// From now on of plans in which stages are shared, of all stages so many devices more than one,
  /// and of which no more than so many replicas are a single stage that is shared.
  void share(int devices_more, int single_stages) {
    shared_by_ = devices_more;
    single_stages_ = single_stages;
  }
  /// Of a step that is computed in so many seconds and whose exchanges take as many: where they go
  /// on beside computing no less than either.
  double step_seconds(double computed, double exchanged) const {
    return beside_ ? std::max(computed, exchanged) : computed + exchanged;
  }
  /// Of that many replicas or more; 0 of one, kNever where there are not enough devices.
  double seconds(int replicas) const;
  /// The same, whatever ranks share of layers.
  double seconds_sharing(int replicas) const;
  /// Of what is tied, within a replica that is cut.
  double within_one() const;
  /// The same where some rank holds this part of all elements.
  double seconds_holding(double held, int replicas) const;
  /// Where so many hosts have all layers each. `any_owners`: whoever owns the state.
  double seconds_of_hosts(int hosts, bool any_owners) const;
  /// Where hosts send or receive so many times all elements on average.
  double seconds_of_traffic(double elements) const;

 private:
  void find_pairs(const std::map<std::string, int>& hosts);
  void find_hosts();
  /// Of exchanging this part of all elements with so many ranks at least, where so many devices
  /// would have to be on one host not to be on several.
  double exchange_seconds(double part, int ranks, int together) const;
  double exchange_seconds(double part, int ranks) const {
    return exchange_seconds(part, ranks, ranks);
  }
  double whole_seconds(int ranks, int together) const;
  double across_seconds(int ranks) const;
  double seconds_of_tied_shared(int replicas) const;
  double seconds_of_embedding(int replicas, int holders) const;

  const Profile* profile_;
  std::shared_ptr<const ReductionModel> reduction_;  ///< what pairs of hosts point into
  bool free_ = false;
  bool beside_;
  bool cut_;
  bool any_owners_;        ///< of shared state; else each holder owns as much as another
  int shared_by_ = 0;      ///< devices, besides one of each stage
  int single_stages_ = 0;  ///< replicas that are one, and shared
  int most_stages_, layers_;
  int devices_ = 0, hosts_ = 0;
  int of_a_host_ = 0;                          ///< devices of the largest host
  double embedding_ = 0, tied_ = 0, row_ = 0;  ///< parts of all elements
  /// By the number of hosts at least: seconds in which each sends and receives everything twice.
  std::vector<double> hosts_least_;
  std::vector<ReductionModel::HostPair> within_, across_;  ///< of hosts; no other is better
};

}  // namespace motley
