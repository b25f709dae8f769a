#pragma once
// Keeps the copies of every slice equal, however each replica is cut (slice_classes.h says who
// holds what, core/reduction.h how the sums are taken):
//
//   sum          gradients: every counted copy is added up; all holders get the sum, or where
//                optimizer state is sharded its owner alone
//   distribute   weights, where state is sharded: what owners have updated goes to the holders
//
// Of n replicas on as many hosts each sends and receives 2·(n-1)/n of what it holds; replicas on
// one host count as one. What a chunk needs of a device with memory of its own gets under way to
// the host when the chunk's turn comes near, and what it has made goes back beside those that
// follow (StagedView). Matrices that PowerSGD compresses are summed by factored_sums.h, before the
// rest.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "comm/communicator.h"
#include "core/device_islands.h"
#include "core/plan.h"
#include "worker/engine/engine.h"
#include "worker/engine/memory_account.h"
#include "worker/train/factored_sums.h"
#include "worker/train/slice_classes.h"

namespace motley {

/// Opens for what is final. Any thread.
class FinalGate final : public ElementGate {
 public:
  /// Nothing is.
  void close();
  void open(const ParameterRange& range);
  Result<bool> readable(std::span<const ElementRun> runs) override;
  Result<Unit> written(std::span<const ElementRun>) override { return Unit{}; }
  bool is_open(const ElementRun& run);

 private:
  std::mutex mutex_;
  std::map<int64_t, int64_t> open_;  ///< ends of ranges that do not touch, by where they begin
};

/// Knows what has been written since begin(). Any thread.
class ArrivalGate final : public ElementGate {
 public:
  /// What is written from outside: rising, without overlaps.
  void expect(std::vector<ElementRun> arriving) { arriving_ = std::move(arriving); }
  void begin() { written_.close(); }
  bool has_arrived(const ParameterRange& range);
  Result<bool> readable(std::span<const ElementRun>) override { return true; }
  Result<Unit> written(std::span<const ElementRun> runs) override;

 private:
  std::vector<ElementRun> arriving_;
  FinalGate written_;
};

/// Of one element that is exchanged.
struct ElementBytes {
  int gradient = 0;
  int weight = 0;
};

class SliceExchange {
 public:
  /// Collective, for the ranks of a valid plan whose GPUs sum among themselves in these islands:
  /// who is not a speaker has no part in sums. Finds all classes and allocates what they need.
  static Result<std::unique_ptr<SliceExchange>> open(const Plan& plan, const ModelSpec& model,
                                                     Communicator& world,
                                                     const ElementBytes& elements,
                                                     MemoryAccount& account,
                                                     const DeviceIslands& islands = {});

  /// Whether sum() and begin_distribute() look at anything of this rank.
  bool has_gradients() const { return has_gradients_; }
  bool has_weights() const { return has_weights_; }

  /// Collective. What a rank gets no sum of is undefined afterwards.
  Result<Unit> sum(const GradientSpans& gradients);
  /// Whether sums may begin while gradients are still computed.
  bool may_begin_early() const { return factored_ == nullptr; }
  /// The same while gradients are still computed, where the host reaches them: what is_final() has
  /// said of a range goes out. Until finish_sum() nobody else touches that.
  Result<Unit> begin_sum(const GradientSpans& gradients);
  void is_final(const ParameterRange& range);
  Result<Unit> finish_sum() { return sums_->wait(); }
  /// Whether what begin_sum() began is over; finish_sum() follows all the same.
  Result<bool> is_summed() { return sums_->wait_for(std::chrono::nanoseconds(0)); }
  /// Collective, where state is sharded: the next forward pass may begin, and waits with arrive()
  /// for what it uses. Until then, or finish_distribute(), weights that others own are nobody's.
  Result<Unit> begin_distribute(std::span<std::byte> weights, int element_bytes);
  bool has_arrived(const ParameterRange& range) {
    return !distributing_ || arrivals_.has_arrived(range);
  }
  Result<Unit> arrive(const ParameterRange& range);
  Result<Unit> finish_distribute();

  /// Whether anything of the sums is compressed on any rank (core/link_profile.h).
  bool compresses() const { return residual_sums_ != nullptr; }
  /// In the sums that begin from now on (comm/reducer.h); all ranks say the same.
  void set_codec(const CodecSpec& codec) { sums_->set_codec(codec); }
  /// What the sums lack so far, laid out as the gradients; empty unless compresses(). Owners have
  /// theirs after gather_residuals().
  std::span<float> residuals() { return residuals_; }
  /// Collective, between two sums.
  Result<Unit> gather_residuals();
  /// Takes what residuals() has, which every holder knows, instead of what was lost here. Of how
  /// many elements that this rank owns there is no use for it, because they are not compressed.
  int64_t restore_residuals();

  /// Of gradients, so far, on links between hosts.
  int64_t bytes_sent() const {
    return sums_->bytes_sent() + (factored_ ? factored_->bytes_sent() : 0);
  }

 private:
  SliceExchange() = default;
  Result<Unit> open_sums(const Plan& plan, const ModelSpec& model, Communicator& world,
                         int element_bytes, const DeviceIslands& islands);
  Result<Unit> open_residuals(const Plan& plan, const ModelSpec& model, Communicator& world);

  MemoryCharge charge_;
  FinalGate finals_;      ///< outlives the sums
  ArrivalGate arrivals_;  ///< outlives weights_
  bool distributing_ = false;
  std::unique_ptr<FactoredSums> factored_;  ///< null: there are none
  std::unique_ptr<Reducer> sums_, weights_;
  std::unique_ptr<Reducer> residual_sums_;  ///< null: nothing is compressed
  std::vector<ElementRun> compressed_;      ///< of what this rank holds
  std::vector<ElementRun> owned_;
  std::vector<float> residuals_;
  bool has_gradients_ = false;
  bool has_weights_ = false;
};

/// What open() allocates for a rank, and whether it will compress anything.
struct SliceExchangeNeeds {
  Bytes bytes;
  bool compresses = false;
};
/// The same for any rank of a valid plan, what they have in common looked at once. Borrows the plan
/// and model of `classes`.
class SliceExchangeCounter {
 public:
  SliceExchangeCounter(PlanClasses& classes, const ElementBytes& elements);
  SliceExchangeNeeds count(Rank self) const;

 private:
  const Plan& plan_;
  const ModelSpec& model_;
  const Islands islands_;
  std::vector<FactoredTensor> factored_;
  std::vector<ReductionPlan> reductions_;
  bool compresses_ = false;
};

SliceExchangeNeeds slice_exchange_needs(const Plan& plan, const ModelSpec& model, Rank self,
                                        const ElementBytes& elements,
                                        const DeviceIslands& islands = {});

}  // namespace motley
