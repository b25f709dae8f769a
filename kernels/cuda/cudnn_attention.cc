#include "kernels/cuda/cudnn_attention.h"

#include <array>
#include <cmath>
#include <limits>

#include "core/log.h"

namespace motley::cudnn {
namespace {

constexpr int64_t kElement = 2;  // bytes of bfloat16 and float16

/// The numbers that graphs read from the host's memory, while the execution is put on the stream.
struct Scalars {
  float scale, minus_infinity = -std::numeric_limits<float>::infinity(), one = 1;

  explicit Scalars(int64_t head_dim) : scale(1 / std::sqrt(static_cast<float>(head_dim))) {}
};

/// Where a slice that starts at a sample and a head begins in each kind of operand.
class SlicePlace {
 public:
  SlicePlace(const AttentionShape& shape, int64_t sample, int64_t head)
      : shape_(shape), sample_(sample), head_(head) {}

  /// q (which 0), k (1) or v (2).
  void* part(const Address& qkv, int64_t which) const {
    return elements(qkv, 3, which * shape_.heads_in_row);
  }
  void* plain(const Address& out) const { return elements(out, 1, 0); }
  void* statistic(const Address& lse) const {
    return lse.as<float>() + (sample_ * shape_.heads_in_row + head_) * shape_.context;
  }

 private:
  void* elements(const Address& address, int64_t parts, int64_t skipped_heads) const {
    const int64_t rows = sample_ * shape_.context * parts * shape_.heads_in_row;
    return address.as<std::byte>() + (rows + skipped_heads + head_) * shape_.head_dim * kElement;
  }

  const AttentionShape& shape_;
  int64_t sample_, head_;
};

}  // namespace

std::string attention_refusal(const Library& library, int capability) {
  constexpr size_t kOfMore = 91801;  // the first whose backward repeats on more than sm_90
  const int generation = capability / 10;
  if (generation < 8) return "cuDNN's need sm_80";
  if (generation == 9 || (generation != 10 && library.version >= kOfMore)) return {};
  const std::string gpu = "sm_" + std::to_string(capability);
  return "backward of cuDNN " + library.version_text() + " may not repeat its bits on " + gpu;
}

Result<std::unique_ptr<Attention>> Attention::start(const Library& library, Stream stream,
                                                    void* workspace, int64_t workspace_size) {
  std::unique_ptr<Attention> attention(new Attention(library, workspace, workspace_size));
  Status status = library.create(&attention->handle_);
  if (status == Status::kSuccess) status = library.set_stream(attention->handle_, stream);
  if (status != Status::kSuccess)
    return fail(ErrorCode::kUnsupported,
                "cuDNN " + library.version_text() + " does not start: " + library.reason(status));
  return attention;
}

Attention::~Attention() {
  plans_.clear();
  if (handle_ != nullptr) library_.destroy(handle_);
}

const Attention::Plans& Attention::plans(const AttentionShape& shape) {
  const auto found = plans_.find(shape);
  return found != plans_.end() ? found->second : plans_.emplace(shape, make(shape)).first->second;
}

Attention::Plans Attention::make(const AttentionShape& shape) const {
  Plans plans;
  plans.slice = attention_slice(shape, workspace_size_);
  if (plans.slice.samples == 0) {
    plans.refusal = "the gradients of one head's scores do not fit into its workspace";
    return plans;
  }
  const auto forward = [&](Descriptors& d) { return attention_forward_graph(d, shape, handle_); };
  const auto backward = [&](Descriptors& d) {
    return attention_backward_graph(d, plans.slice, handle_);
  };
  auto forward_plan = Plan::make(library_, handle_, forward, workspace_size_);
  auto backward_plan = Plan::make(library_, handle_, backward, workspace_size_);
  if (!forward_plan) plans.refusal = forward_plan.error().message;
  if (!backward_plan) plans.refusal = backward_plan.error().message;
  if (!plans.refusal.empty()) return plans;
  plans.forward = std::move(*forward_plan);
  plans.backward = std::move(*backward_plan);
  return plans;
}

bool Attention::serves(const AttentionShape& shape) {
  const std::string& refusal = plans(shape).refusal;
  if (refusal.empty()) return true;
  if (!has_logged_refusal_)
    log_info("attention of " + std::to_string(shape.heads) + " heads of " +
             std::to_string(shape.head_dim) + ", context " + std::to_string(shape.context) +
             ", in our own kernels: " + refusal);
  has_logged_refusal_ = true;
  return false;
}

std::string Attention::forward(const AttentionForwardArgs& args, DataType type) {
  const AttentionShape shape = shape_of(args, type);
  const SlicePlace all(shape, 0, 0);
  Scalars scalars(shape.head_dim);
  return run(*plans(shape).forward,
             std::array<Argument, 7>{{{kQ, all.part(args.qkv, 0)},
                                      {kK, all.part(args.qkv, 1)},
                                      {kV, all.part(args.qkv, 2)},
                                      {kOut, all.plain(args.out)},
                                      {kLse, all.statistic(args.lse)},
                                      {kScale, &scalars.scale},
                                      {kMinusInfinity, &scalars.minus_infinity}}});
}

std::string Attention::backward(const AttentionBackwardArgs& args, DataType type) {
  const AttentionShape shape = shape_of(args, type);
  const Plans& plans = this->plans(shape);
  Scalars scalars(shape.head_dim);
  std::string fault;
  for (int64_t sample = 0; sample < shape.samples; sample += plans.slice.samples)
    for (int64_t head = 0; head < shape.heads && fault.empty(); head += plans.slice.heads) {
      const SlicePlace slice(shape, sample, head);
      fault = run(*plans.backward,
                  std::array<Argument, 13>{{{kQ, slice.part(args.qkv, 0)},
                                            {kK, slice.part(args.qkv, 1)},
                                            {kV, slice.part(args.qkv, 2)},
                                            {kOut, slice.plain(args.out)},
                                            {kLse, slice.statistic(args.lse)},
                                            {kDOut, slice.plain(args.d_out)},
                                            {kDQ, slice.part(args.d_qkv, 0)},
                                            {kDK, slice.part(args.d_qkv, 1)},
                                            {kDV, slice.part(args.d_qkv, 2)},
                                            {kWeighted, slice.statistic(args.workspace)},
                                            {kScale, &scalars.scale},
                                            {kMinusInfinity, &scalars.minus_infinity},
                                            {kOne, &scalars.one}}});
    }
  return fault;
}

std::string Attention::run(const Plan& plan, std::span<const Argument> arguments) const {
  const Status status = plan.run(handle_, arguments, workspace_);
  return status == Status::kSuccess ? std::string() : library_.reason(status);
}

}  // namespace motley::cudnn
