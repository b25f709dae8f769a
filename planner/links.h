#pragma once
// What a plan knows of the links between its hosts, and what is done to gradients that cross them.

#include <vector>

#include "core/plan.h"
#include "planner/request.h"

namespace motley {

/// `compress: auto` acts on links below this: one gigabit a second, what offices and labs have. A
/// codec keeps up with several times that on one core (tests/bench/README.md), so it never costs
/// more than it saves there.
inline constexpr double kSlowLink = 125e6;

/// What it does there: loses little, and that in a scale for each block of elements.
inline constexpr CodecKind kCodecOfSlowLinks = CodecKind::kInt8;

/// Over links slower than this a part of the bytes goes.
struct ShortenedLinks {
  double below_bytes_per_second = 0;
  double bytes_ratio = 1;
};

/// What compression does to the gradients of a model that ranks hold whole.
ShortenedLinks shortened_links(const LinkCompression& compression, const ModelSpec& model);

/// Of the tensors that are summed as factors then; of a codec of spans none.
FactorElements factored_elements(const CodecSpec& codec, const ModelSpec& model);

/// Of a plan for the job.
LinkCompression compression_wanted(const JobSpec& job);

/// Whether plans over these links may compress anything: where the job names a codec, whatever is
/// known of them.
bool may_compress(const JobSpec& job, const std::vector<LinkProfile>& links);

/// Fills in plan.links from the profile, and plan.compression from the job where the plan has none.
void describe_links(const PlanRequest& request, Plan* plan);

}  // namespace motley
