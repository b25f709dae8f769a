#include "comm/link_residuals.h"

#include <algorithm>

namespace motley {
namespace {

size_t elements_in(const std::vector<EncodedChunk>& chunks) {
  int64_t elements = 0;
  for (const EncodedChunk& chunk : chunks) elements += chunk.count;
  return static_cast<size_t>(elements);
}

/// One codec serves all parts of a plan.
CodecSpec codec_of(const ReductionPlan& plan) {
  const auto part = std::find_if(plan.parts.begin(), plan.parts.end(),
                                 [](const ReductionPart& one) { return one.compressed(); });
  return part->codec;
}

}  // namespace

LinkResiduals::LinkResiduals(const ReductionPlan& plan, int rank)
    : plan_(plan),
      rank_(rank),
      encoded_(chunks_encoded(plan, rank)),
      begins_(plan.parts.size()),
      residual_(elements_in(encoded_), 0.0F),
      feedback_(codec_of(plan), residual_) {
  int64_t begin = 0;
  for (const EncodedChunk& chunk : encoded_) {
    std::vector<int64_t>& of_part = begins_[chunk.part];
    if (of_part.empty()) of_part.assign(static_cast<size_t>(plan.parts[chunk.part].chunks()), -1);
    of_part[static_cast<size_t>(chunk.number)] = begin;
    begin += chunk.count;
  }
}

void LinkResiduals::encode(const Chunk& chunk, std::span<float> elements,
                           std::span<std::byte> out) {
  const auto part = static_cast<size_t>(chunk.part - plan_.parts.data());
  feedback_.compress(begins_[part][static_cast<size_t>(chunk.number)], elements, out);
}

void LinkResiduals::decode(std::span<const std::byte> in, std::span<float> out) {
  feedback_.codec().decode(in, out);
}

void LinkResiduals::decode_add(std::span<const std::byte> in, std::span<float> out) {
  feedback_.codec().decode_add(in, out);
}

template <class Body>
void LinkResiduals::each_run(const EncodedChunk& chunk,
                             const std::vector<std::vector<ElementRun>>& runs, Body body) const {
  const int64_t begin = begins_[chunk.part][static_cast<size_t>(chunk.number)];
  each_run_within(runs[chunk.part], chunk.first, chunk.count, [&](const ElementRun& run) {
    body(static_cast<size_t>(begin + run.at - chunk.first), run);
  });
}

void LinkResiduals::gather(const std::vector<std::vector<ElementRun>>& runs,
                           std::span<float> flat) const {
  for (const EncodedChunk& chunk : encoded_)
    each_run(chunk, runs, [&](size_t begin, const ElementRun& run) {
      std::copy_n(residual_.begin() + static_cast<std::ptrdiff_t>(begin), run.count,
                  flat.begin() + run.offset);
    });
}

void LinkResiduals::restore(const std::vector<std::vector<ElementRun>>& runs,
                            std::span<const float> flat) {
  std::fill(residual_.begin(), residual_.end(), 0.0F);
  for (const EncodedChunk& chunk : encoded_) {
    const ReductionPart& part = plan_.parts[chunk.part];
    if (part.first_encoder(chunk.number) != part.home_of(rank_)) continue;
    each_run(chunk, runs, [&](size_t begin, const ElementRun& run) {
      std::copy_n(flat.begin() + run.offset, run.count,
                  residual_.begin() + static_cast<std::ptrdiff_t>(begin));
    });
  }
}

}  // namespace motley
