#pragma once
// What one rank encodes of a reduction, and what was lost of it: kept by chunk and added to the
// same chunk the next time (comm/compression/error_feedback.h).

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "comm/chunk_task.h"
#include "comm/compression/error_feedback.h"
#include "core/reduction.h"

namespace motley {

/// One thread at a time.
class LinkResiduals {
 public:
  /// Of a plan that compresses, which outlives it. All are 0.
  LinkResiduals(const ReductionPlan& plan, int rank);

  const CodecSpec& codec() { return feedback_.codec().spec(); }
  void set_codec(const CodecSpec& codec) { feedback_.set_codec(codec); }
  /// `chunk`, float32 elements that this rank encodes, with what was lost before; in `out`, of
  /// wire_bytes(). Afterwards the chunk is what decode() gives everywhere.
  void encode(const Chunk& chunk, std::span<float> elements, std::span<std::byte> out);
  void decode(std::span<const std::byte> in, std::span<float> out);
  void decode_add(std::span<const std::byte> in, std::span<float> out);

  /// Writes what this rank has lost into `flat`, where the runs of the classes say. What it has not
  /// encoded stays as it is.
  void gather(const std::vector<std::vector<ElementRun>>& runs, std::span<float> flat) const;
  /// Takes what `flat` has of chunks that this rank is the first to encode; the others' are 0.
  /// Summed over the ranks that is all of `flat`, once.
  void restore(const std::vector<std::vector<ElementRun>>& runs, std::span<const float> flat);

 private:
  /// Calls body(residual, run) for each run of the chunk.
  template <class Body>
  void each_run(const EncodedChunk& chunk, const std::vector<std::vector<ElementRun>>& runs,
                Body body) const;

  const ReductionPlan& plan_;
  const int rank_;
  std::vector<EncodedChunk> encoded_;
  std::vector<std::vector<int64_t>> begins_;  ///< of each chunk of each part; -1: another's
  std::vector<float> residual_;
  ErrorFeedback feedback_;
};

}  // namespace motley
