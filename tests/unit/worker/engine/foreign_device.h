#pragma once
// A device whose memory host code may not touch and that computes on its own, as a GPU: what is
// enqueued happens when somebody waits for it, and not before. What an engine must not assume thus
// shows on any machine. It computes as the float64 reference does.

#include <cstring>
#include <deque>
#include <functional>
#include <string>

#include "kernels/device.h"
#include "kernels/reference/reference_device.h"

namespace motley::testing {

class ForeignDevice final : public Device {
 public:
  DeviceKind kind() const override { return DeviceKind::kCuda; }
  Precision precision() const override { return Precision::kFp64; }
  const OpTable& ops() const override { return kEnqueuing; }
  int threads() const override { return 1; }
  std::string arithmetic_class() const override { return reference_.arithmetic_class(); }
  std::string name() const override { return "foreign"; }

  /// Fresh memory is full of NaN: whatever is read before it is written shows.
  Bytes available_memory() override { return Bytes(1 << 30); }
  Result<DeviceBuffer> allocate(Bytes size) override {
    allocated_ += size;
    auto buffer = reference_.allocate(size);
    if (buffer) std::memset(buffer->data(), 0xFF, static_cast<size_t>(size.value()));
    return buffer;
  }
  Result<DeviceBuffer> allocate_pinned(Bytes size) override {
    return reference_.allocate_pinned(size);
  }
  Result<DeviceBuffer> allocate_managed(Bytes size) override {
    return reference_.allocate_managed(size);
  }
  Result<Unit> copy_in(void* device, std::span<const std::byte> host) override {
    MOTLEY_TRY_VOID(enqueue_copy_in(device, host));
    return synchronize();
  }
  Result<Unit> copy_out(std::span<std::byte> host, const void* device) override {
    MOTLEY_TRY_VOID(enqueue_copy_out(host, device));
    return synchronize();
  }
  Result<Unit> enqueue_copy_in(void* device, std::span<const std::byte> host) override {
    copied_in_ += Bytes(static_cast<int64_t>(host.size()));
    enqueue([=, this] { (void)reference_.copy_in(device, host); });
    return Unit{};
  }
  Result<Unit> enqueue_copy_out(std::span<std::byte> host, const void* device) override {
    copied_out_ += Bytes(static_cast<int64_t>(host.size()));
    enqueue([=, this] { (void)reference_.copy_out(host, device); });
    return Unit{};
  }
  std::unique_ptr<StreamMark> make_mark() override { return std::make_unique<Mark>(*this); }
  Result<Unit> synchronize() override {
    ++waits_;
    run_until(enqueued_);
    return Unit{};
  }
  bool host_accessible() const override { return false; }
  /// Kernels of the reference may call it; the engine may not.
  void parallel_for(int64_t count,
                    const std::function<void(int64_t index, int thread)>& body) override {
    reference_.parallel_for(count, body);
  }
  int64_t allocation_count() const override { return reference_.allocation_count(); }

  /// "(forward(block 0))": the ranges that were opened and closed.
  void begin_range(const char* name) override { ranges_ += std::string("(") + name; }
  void end_range() override { ranges_ += ")"; }

  Bytes allocated() const { return allocated_; }  ///< of its own memory
  Bytes copied_in() const { return copied_in_; }
  Bytes copied_out() const { return copied_out_; }
  int64_t waits() const { return waits_; }  ///< for all that was enqueued
  int64_t enqueued() const { return enqueued_; }
  int64_t done() const { return done_; }  ///< of these, from the first on
  const std::string& ranges() const { return ranges_; }

 private:
  class Mark final : public StreamMark {
   public:
    explicit Mark(ForeignDevice& device) : device_(device) {}
    void set() override { behind_ = device_.enqueued_; }
    Result<Unit> wait() override {
      device_.run_until(behind_);
      return Unit{};
    }

   private:
    ForeignDevice& device_;
    int64_t behind_ = 0;
  };

  void enqueue(std::function<void()> work) {
    queue_.push_back(std::move(work));
    ++enqueued_;
  }
  void run_until(int64_t behind) {
    for (; done_ < behind; ++done_) {
      queue_.front()();
      queue_.pop_front();
    }
  }

  /// Enqueues an operation of the reference.
  template <auto field, class Args>
  static void later(Device& device, const Args& args) {
    auto& self = static_cast<ForeignDevice&>(device);
    self.enqueue([&self, args] { (self.reference_.ops().*field)(self.reference_, args); });
  }
  static const OpTable kEnqueuing;

  ReferenceDevice reference_;
  std::deque<std::function<void()>> queue_;
  int64_t enqueued_ = 0, done_ = 0;
  Bytes allocated_{0}, copied_in_{0}, copied_out_{0};
  int64_t waits_ = 0;
  std::string ranges_;
};

inline const OpTable ForeignDevice::kEnqueuing = {
    .matmul = later<&OpTable::matmul, MatmulArgs>,
    .bias_gradient = later<&OpTable::bias_gradient, BiasGradientArgs>,
    .embedding_forward = later<&OpTable::embedding_forward, EmbeddingForwardArgs>,
    .embedding_backward = later<&OpTable::embedding_backward, EmbeddingBackwardArgs>,
    .layer_norm_forward = later<&OpTable::layer_norm_forward, LayerNormForwardArgs>,
    .layer_norm_backward = later<&OpTable::layer_norm_backward, LayerNormBackwardArgs>,
    .add = later<&OpTable::add, AddArgs>,
    .zero = later<&OpTable::zero, ZeroArgs>,
    .copy = later<&OpTable::copy, CopyArgs>,
    .round = later<&OpTable::round, RoundArgs>,
    .scale = later<&OpTable::scale, ScaleArgs>,
    .dropout = later<&OpTable::dropout, DropoutArgs>,
    .attention_forward = later<&OpTable::attention_forward, AttentionForwardArgs>,
    .attention_backward = later<&OpTable::attention_backward, AttentionBackwardArgs>,
    .cross_entropy = later<&OpTable::cross_entropy, CrossEntropyArgs>,
    .cross_entropy_part = later<&OpTable::cross_entropy_part, CrossEntropyPartArgs>,
    .cross_entropy_combine = later<&OpTable::cross_entropy_combine, CrossEntropyCombineArgs>,
    .accumulate_fixed = later<&OpTable::accumulate_fixed, AccumulateFixedArgs>,
    .from_fixed = later<&OpTable::from_fixed, FromFixedArgs>,
    .adamw = later<&OpTable::adamw, AdamwArgs>,
    .square_sum = later<&OpTable::square_sum, SquareSumArgs>,
};

}  // namespace motley::testing
