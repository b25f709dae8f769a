#pragma once
// Causal attention of one GPU through cuDNN.

#include <map>
#include <memory>
#include <string>

#include "kernels/cuda/cudnn_attention_graphs.h"
#include "kernels/cuda/cudnn_plan.h"
#include "kernels/ops/attention.h"

namespace motley::cudnn {

/// Why our own kernels do it on GPUs of this capability (90: sm_90), in one line; empty: cuDNN may.
/// It begins with sm_80, but in training a run must repeat its bits, and no engine of cuDNN tells
/// that it does not (kNondeterministic) although some of backward's do not. Of the form we ask for
/// (attention_backward_graph) NVIDIA's own users say that it does: TransformerEngine of sm_90,
/// cudnn-frontend of sm_8x and sm_12x, too, from 9.18.1 on. On sm_10x that one takes an engine
/// which the library does not name by itself.
std::string attention_refusal(const Library& library, int capability);

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
