#include "planner/links.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <tuple>
#include <utility>

namespace motley {
namespace {

LinkProfile in_order(LinkProfile link) {
  if (link.between[1] < link.between[0]) std::swap(link.between[0], link.between[1]);
  return link;
}

bool comes_before(const LinkProfile& a, const LinkProfile& b) {
  return std::tie(a.between[0], a.between[1]) < std::tie(b.between[0], b.between[1]);
}

}  // namespace

LinkCompression compression_wanted(const JobSpec& job) {
  if (job.parallel.compress.kind != CodecKind::kAuto) return {.codec = job.parallel.compress};
  if (job.train.numerics == Numerics::kExact) return {};
  return {.codec = {.kind = kCodecOfSlowLinks, .warmup = job.parallel.compress.warmup},
          .below_bytes_per_second = kSlowLink};
}

bool may_compress(const JobSpec& job, const std::vector<LinkProfile>& links) {
  const LinkCompression wanted = compression_wanted(job);
  return wanted.on() && (std::isinf(wanted.below_bytes_per_second) ||
                         std::any_of(links.begin(), links.end(), [&](const LinkProfile& link) {
                           return link.between[0] != link.between[1] &&
                                  link.bytes_per_second < wanted.below_bytes_per_second;
                         }));
}

void describe_links(const PlanRequest& request, Plan* plan) {
  std::set<std::string> hosts;
  for (const RankPlacement& rank : plan->ranks) hosts.insert(rank.host);
  plan->links.clear();
  for (const LinkProfile& link : request.profile.links)
    if (link.between[0] != link.between[1] && hosts.contains(link.between[0]) &&
        hosts.contains(link.between[1]))
      plan->links.push_back(in_order(link));
  std::sort(plan->links.begin(), plan->links.end(), comes_before);
  if (!plan->compression.on() && may_compress(request.job, plan->links))
    plan->compression = compression_wanted(request.job);
}

}  // namespace motley
