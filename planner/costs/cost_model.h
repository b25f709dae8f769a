#pragma once
// What a step costs: the one set of formulas behind search, prediction and report.
//
// Devices meet once a step, to reduce the gradients. Between two meetings each is on its own: it
// updates its weights and goes on with the next step's samples, so a late one may catch up
// (worker/train/stepper.h). Hence
//
//   step = max(compute + update) + reduction(number of ranks, hosts)     over the used devices

#include <limits>
#include <map>
#include <string>
#include <vector>

#include "core/plan.h"
#include "core/profile.h"
#include "core/result.h"
#include "core/spec/job_spec.h"
#include "planner/costs/links.h"
#include "planner/request.h"

namespace motley {

/// Which micro-batches a job allows on any device.
struct MicroBatchRule {
  int grain = 1;
  bool exact = false;  ///< then only the grain itself
  double headroom = kMemoryHeadroom;
  int global_batch = 0;  ///< samples of a step; 0: not known
};

/// The micro-batch of whole grains of which so many samples are computed at most: themselves, or
/// all of a step whose last grain is short. 0 where the rule allows none.
int micro_batch_of(int samples, const MicroBatchRule& rule);

/// Micro-batches that fit the device's limit less headroom by its memory table; rising. Empty: the
/// device cannot hold the model.
std::vector<int> micro_batch_sizes(const DeviceProfile& device, const MicroBatchRule& rule);

/// The device's limit less headroom.
Bytes usable_memory(const DeviceProfile& device, double headroom);

/// `full` micro-batches and perhaps a smaller one.
inline double compute_seconds(double overhead, int full, double seconds_full, double seconds_rest) {
  return overhead + full * seconds_full + seconds_rest;
}

/// What a device does between two reductions.
inline double section_seconds(double compute, double update) { return compute + update; }

/// Of all the model's elements, with their state on the device or in host memory.
inline double whole_update_seconds(const DeviceProfile& device, bool in_host) {
  return in_host && device.host_update_seconds > 0 ? device.host_update_seconds
                                                   : device.update_seconds;
}

/// Always added in this order, so that equal plans have equal bits.
inline double step_seconds(double slowest_section, double reduction) {
  return slowest_section + reduction;
}

/// Seconds a device computes for `samples` samples of a step in micro-batches of `micro_batch` (the
/// last may be smaller). Requires the curve "model".
double device_seconds(const DeviceProfile& device, int samples, int micro_batch);

struct MicroBatchChoice {
  int micro_batch = 0;
  double seconds = 0;
};
/// The quickest of `sizes` (at least one) for that many samples; the smallest among equals.
MicroBatchChoice best_micro_batch(const DeviceProfile& device, int samples,
                                  const std::vector<int>& sizes);

/// Exposed seconds of reducing the gradients: those of the slowest pair of hosts that take part, a
/// host paired with itself included. Within a host the measured reductions tell; between hosts the
/// link, 2·(n-1)·(latency + bytes/n / bandwidth), times what a measured reduction over several
/// hosts took of the same formula. Numbers of ranks nobody measured are interpolated. Over links
/// that are compressed fewer bytes go; nothing was measured with compression. Hosts in different
/// sync groups average weights and moments instead, every so many steps.
class ReductionModel {
 public:
  /// `profile` outlives it.
  ReductionModel(const Profile& profile, Bytes gradient_bytes, const ShortenedLinks& shortened = {},
                 const SyncPlan& sync = {});

  /// What is known of a host, looked up once.
  struct Host {
    int number = -1;                              ///< among those with links
    const std::map<int, double>* sums = nullptr;  ///< measured within it, by number of ranks
    int group = -1;                               ///< that averages; -1: in none
  };
  /// Two hosts that take part, or one and itself.
  struct HostPair {
    double latency_seconds = 0;  ///< of their link
    double bytes_per_second = 0;
    const std::map<int, double>* sums = nullptr;  ///< of one host
    bool linked = false;                          ///< a link was measured
    bool shortened = false;                       ///< fewer bytes cross it
    bool same = false;                            ///< one and itself
    bool alone = false;                           ///< the same, of one with links to others alone
    bool apart = false;                           ///< in groups that average
  };
  Host host(const std::string& name) const;
  HostPair pair(const Host& a, const Host& b, bool same) const;

  /// Where a host has links to others but none within nor sums, it has a single rank, and sums
  /// nothing within; nobody measured what is lacking otherwise, which is taken to be as slow as the
  /// slowest link of any.
  double seconds(int ranks, const std::vector<std::string>& hosts) const;
  double pair_seconds(int ranks, const std::string& a, const std::string& b) const;
  double pair_seconds(int ranks, const HostPair& hosts) const;
  /// Of these hosts, each of which has everything, over their links alone: 2·(k-1)·(latency +
  /// bytes/k / bandwidth), times what a measured reduction over several hosts took of that. 0 of
  /// one.
  double host_seconds(const std::vector<std::string>& hosts) const;
  double host_pair_seconds(int hosts, const HostPair& pair) const;

  /// Numbers of ranks, rising, from each of which up to before the next the seconds of every pair
  /// only rise, or only fall. Without any they always rise with the ranks.
  std::vector<int> turns() const;

 private:
  using Points = std::map<int, double>;  ///< seconds by number of ranks

  double every_step_seconds(int ranks, const HostPair& hosts) const;
  const LinkProfile* link(const std::string& a, const std::string& b) const;
  HostPair over(const LinkProfile& link) const;
  double ring_seconds(int ranks, const HostPair& link, bool shortened) const;
  double slowest_link_seconds(int ranks) const;
  double most_seconds(int ranks) const;
  void calibrate(const ReductionPoint& point);

  const Profile* profile_;
  Bytes bytes_;
  ShortenedLinks shortened_;
  LinkIndex links_;
  std::vector<const LinkProfile*> slow_links_;  ///< one of them is the slowest for any ranks
  std::map<std::string, Points> within_;        ///< by host
  Points across_;                               ///< over several hosts
  int steps_across_ = 1;                        ///< from one average over sync groups to the next
  std::map<std::string, int> group_;            ///< of each host, where there are several
  Points calibration_;                          ///< across_ as multiples of the links' formula
  Points host_calibration_;                     ///< the same of hosts, by their number
  Points anywhere_;                             ///< measured on hosts unknown
};

/// The largest share by which measured reductions hold up computing beside them.
double busy_share(const Profile& profile);

/// How far reductions as measured may be off, relatively: the largest spread of any.
double reduction_spread(const Profile& profile);

/// Bytes reduced in a step: the gradients in fp32, or in exact's 64-bit fixed point.
Bytes gradient_bytes(const JobSpec& job);

/// Largest micro-batch whose memory fits the device's limit less headroom; 0 when none does.
int largest_micro_batch(const DeviceProfile& device, double headroom);

/// Samples per second of one device alone on the whole global batch, at its best micro-batch; 0
/// when none is allowed.
double solo_samples_per_second(const DeviceProfile& device, int global_batch,
                               const MicroBatchRule& rule);

/// The rule of a job with this grain; with grain 0 the job's own, or 1 where the planner chooses.
MicroBatchRule micro_batch_rule(const PlanRequest& request, int grain = 0);

/// The rule of a device alone: no grain but exact's.
MicroBatchRule solo_rule(const Plan& plan, double headroom = kMemoryHeadroom);

/// Fills plan.prediction from the profile, of any valid plan. A replica that is cut takes what the
/// event simulation of its stages says (planner/costs/replica_times.h); replicas meet at the step's
/// end. `counted`: what each rank needs; none: of plain data parallelism the profile's tables say,
/// of any other plan nothing is said. kInvalidSpec when the profile lacks one of its devices or a
/// curve that it needs.
Result<Unit> predict(const PlanRequest& request, Plan* plan,
                     const std::vector<RankMemory>& counted = {});

/// Whether a rank's device, which was measured, has that much free.
bool has_room(const PlanRequest& request, const RankPlacement& rank, const RankMemory& counted);
/// The same of all ranks.
bool have_room(const PlanRequest& request, const Plan& plan,
               const std::vector<RankMemory>& counted);

/// The same of the step alone, for plans that are only compared: not how certain it is, nor what
/// devices could do alone. A plan may have no owners, and has even ones then. Where computing
/// alone takes `enough` seconds or longer nothing more is found out: the step is said to take as
/// long as that.
Result<Unit> predict_step(const PlanRequest& request, Plan* plan,
                          double enough = std::numeric_limits<double>::infinity());

}  // namespace motley
