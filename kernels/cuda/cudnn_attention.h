#pragma once
// Causal attention of one GPU through cuDNN.

#include <map>
#include <memory>
#include <string>

#include "kernels/cuda/cudnn_attention_graphs.h"
#include "kernels/cuda/cudnn_plan.h"
#include "kernels/ops/attention.h"

namespace motley::cudnn {

/// The library's handle and its plans, of which each shape's are made once, at first use: so never
/// while a stream is being captured. One thread uses it.
class Attention {
 public:
  /// For the current device. `workspace` of device memory stays the caller's; it may be in use by
  /// whatever else is on the stream. kUnsupported or kDeviceLost with one line.
  static Result<std::unique_ptr<Attention>> start(const Library& library, Stream stream,
                                                  void* workspace, int64_t workspace_size);
  ~Attention();
  Attention(const Attention&) = delete;
  Attention& operator=(const Attention&) = delete;

  /// Whether both directions of a shape (heads == heads_in_row) are done here; the first that is
  /// not is logged.
  bool serves(const AttentionShape& shape);
  /// Of a shape that is served. What went wrong in one line; empty: it is on the stream.
  std::string forward(const AttentionForwardArgs& args, DataType type);
  std::string backward(const AttentionBackwardArgs& args, DataType type);

  std::string version_text() const { return library_.version_text(); }

 private:
  struct Plans {
    std::string refusal;  ///< why there are none
    std::unique_ptr<Plan> forward, backward;
    AttentionShape slice;  ///< of backward
  };

  Attention(const Library& library, void* workspace, int64_t workspace_size)
      : library_(library), workspace_(workspace), workspace_size_(workspace_size) {}
  const Plans& plans(const AttentionShape& shape);
  Plans make(const AttentionShape& shape) const;
  std::string run(const Plan& plan, std::span<const Argument> arguments) const;

  const Library& library_;
  void* const workspace_;
  const int64_t workspace_size_;
  Handle handle_ = nullptr;
  std::map<AttentionShape, Plans> plans_;
  bool has_logged_refusal_ = false;
};

template <class Args>
AttentionShape shape_of(const Args& args, DataType type) {
  return {args.samples, args.context, args.heads, args.head_dim, args.heads, type};
}

}  // namespace motley::cudnn
