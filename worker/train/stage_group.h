#pragma once
// The ranks that share a stage's layers: sums in the middle of a program, between paced sections.

#include <algorithm>
#include <memory>

#include "comm/communicator.h"
#include "worker/engine/tensor_group.h"
#include "worker/train/sections.h"

namespace motley {

class StageGroup final : public TensorGroup {
 public:
  /// Borrows `sections`.
  StageGroup(std::unique_ptr<Communicator> ranks, Sections& sections)
      : ranks_(std::move(ranks)), sections_(sections) {}

  /// How many samples the programs that follow compute, of how many they were made for: an
  /// evaluation's is always that of the largest micro-batch, and only its share counts.
  void set_samples(int samples) { set_samples(samples, samples); }
  void set_samples(int samples, int of) {
    samples_ = samples;
    share_ = static_cast<double>(samples) / of;
  }
  /// Of the work since the last call: what sum() has charged already.
  double take_charged() { return std::exchange(charged_, 0); }

  Result<Unit> sum(std::span<float> data, double flops) override { return sum_all(data, flops); }
  Result<Unit> sum(std::span<double> data, double flops) override { return sum_all(data, flops); }

 private:
  template <class T>
  Result<Unit> sum_all(std::span<T> data, double flops) {
    sections_.charge(flops * share_, samples_);
    charged_ += flops * share_;
    sections_.close();
    MOTLEY_TRY_VOID(sections_.meet(TraceKind::kGroupSum, *ranks_));
    // In pieces: what the sum of one needs for itself does not grow with the model.
    constexpr size_t kPiece = (4 << 20) / sizeof(T);
    for (auto rest = data; !rest.empty(); rest = rest.subspan(std::min(kPiece, rest.size())))
      MOTLEY_TRY_VOID(ranks_->all_reduce_sum(rest.first(std::min(kPiece, rest.size()))));
    sections_.mark(TraceKind::kGroupSum);
    sections_.open();
    return Unit{};
  }

  std::unique_ptr<Communicator> ranks_;
  Sections& sections_;
  int samples_ = 0;
  double share_ = 1;
  double charged_ = 0;
};

}  // namespace motley
