#pragma once
// What a plan knows of the links between its hosts, and what is done to gradients that cross them.

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/plan.h"
#include "planner/request.h"

namespace motley {

/// What `compress: auto` does on slow links: loses little, and that in a scale for each block of
/// elements.
inline constexpr CodecKind kCodecOfSlowLinks = CodecKind::kInt8;

/// Links by the hosts that they join.
class LinkIndex {
 public:
  /// `links` outlive it; of several between the same hosts the first counts.
  explicit LinkIndex(const std::vector<LinkProfile>& links);

  int number(const std::string& host) const;  ///< -1: it has no link
  /// Null where none was measured, or a host has no number.
  const LinkProfile* between(int a, int b) const;

 private:
  uint64_t place(int a, int b) const;

  std::unordered_map<std::string, int> numbers_;
  std::vector<const LinkProfile*> all_;                      ///< where most pairs have one
  std::unordered_map<uint64_t, const LinkProfile*> sparse_;  ///< where few have
};

/// Some of the links: whatever the bytes and however often a message is waited for, one of them is
/// the slowest. Links below `shortened_below` bytes per second are not compared with others.
std::vector<const LinkProfile*> slowest_of(const std::vector<LinkProfile>& links,
                                           double shortened_below);

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
