#pragma once
// Who runs next, on what. A policy ranks offers; one placement serves them all in that order: gangs
// whole or not at all, running jobs stopped only where they may be, holes filled without putting
// off who waits longest, no job given devices that slow it. Pure and deterministic: the service and
// the simulation of a trace call the same code.

#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "scheduler/policies/queue_view.h"

namespace motley {

/// Devices that a job could be given.
struct Offer {
  int devices = 0;
  double rate = 0;     ///< units of its work a second
  double seconds = 0;  ///< until it ends on them
};

/// Smaller goes first. Jobs of a higher priority go before, whatever their ranks.
struct OfferRank {
  int tier = 0;
  double value = 0;
  auto operator<=>(const OfferRank&) const = default;
};

class Policy {
 public:
  virtual ~Policy() = default;
  virtual std::string_view name() const = 0;
  virtual std::string_view description() const = 0;  ///< a line for people
  /// Preemptible jobs are stopped for those that rank before them.
  virtual bool preempts() const { return true; }
  /// Also for those of their own priority, not only for higher ones.
  virtual bool stops_equals() const { return preempts(); }
  /// Nobody passes one that waits, whatever is free.
  virtual bool strict_order() const { return false; }
  /// Before ranks are asked for; the view outlives the questions.
  virtual void look_at(const QueueView& view) { view_ = &view; }
  /// Of the job view.jobs[job].
  virtual OfferRank rank(size_t job, const Offer& offer) const = 0;
  /// Of more devices for a job that is given some, if those that wait for their first do not all go
  /// before; nothing: it gets what they leave.
  virtual std::optional<OfferRank> rank_more(size_t /*job*/, const Offer& /*given*/,
                                             const Offer& /*more*/) const {
    return std::nullopt;
  }
  /// The offer was taken: ranks of others may have risen.
  virtual void taken(size_t, const Offer&) {}

 protected:
  const JobView& job_of(size_t job) const { return view_->jobs[job]; }

 private:
  const QueueView* view_ = nullptr;
};

/// "fifo", "backfill", "fair_share", "shortest_remaining", "makespan"; kUsage names them all.
Result<std::unique_ptr<Policy>> make_policy(std::string_view name);
std::vector<std::string_view> policy_names();

struct Placement {
  size_t job = 0;  ///< in view.jobs
  PoolCounts devices;
  int turn = 0;  ///< who comes before whom, where devices are not free yet
};

/// A job that waits for devices which those of later ranks must not keep from it (EASY backfilling,
/// Lifka 1995).
struct Reservation {
  size_t job = 0;
  PoolCounts devices;
  double at = 0;  ///< seconds; kUnknownSeconds where nobody knows when they are free
};

struct Schedule {
  std::vector<Placement> run;  ///< from now on, by job; who runs and is not here is to be stopped
  std::optional<Reservation> reserved;  ///< the first that could not start
};

/// What should run from now on.
Schedule schedule(Policy& policy, const QueueView& view);

}  // namespace motley
