#pragma once
// What a plan knows of the links between its hosts, and what is done to gradients that cross them.

#include <vector>

#include "core/plan.h"
#include "planner/request.h"

namespace motley {

/// What `compress: auto` does on slow links: loses little, and that in a scale for each block of
/// elements.
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

/// When all devices of the fleet would average, and in which groups.
SyncPlan sync_wanted(const PlanRequest& request);

/// Fills in plan.links from the profile, and plan.compression and plan.sync from the job where the
/// plan has none.
void describe_links(const PlanRequest& request, Plan* plan);

}  // namespace motley
