#include "planner/costs/links.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "core/sync_groups.h"

namespace motley {
namespace {

LinkProfile in_order(LinkProfile link) {
  if (link.between[1] < link.between[0]) std::swap(link.between[0], link.between[1]);
  return link;
}

/// Those that no other of them beats in latency and in bandwidth.
void add_slowest(std::vector<const LinkProfile*> links, std::vector<const LinkProfile*>* slowest) {
  if (links.empty()) return;
  const auto slowness = [](const LinkProfile* link) {
    return link->latency_seconds / link->bytes_per_second;
  };
  const LinkProfile* slow = *std::max_element(
      links.begin(), links.end(),
      [&](const LinkProfile* a, const LinkProfile* b) { return slowness(a) < slowness(b); });
  std::erase_if(links, [&](const LinkProfile* link) {  // most of them, before the rest is sorted
    return link != slow && link->latency_seconds <= slow->latency_seconds &&
           link->bytes_per_second >= slow->bytes_per_second;
  });
  std::stable_sort(links.begin(), links.end(), [](const LinkProfile* a, const LinkProfile* b) {
    return std::pair(-a->latency_seconds, a->bytes_per_second) <
           std::pair(-b->latency_seconds, b->bytes_per_second);
  });
  const LinkProfile* narrowest = nullptr;
  for (const LinkProfile* link : links) {
    if (narrowest != nullptr && link->bytes_per_second >= narrowest->bytes_per_second) continue;
    narrowest = link;
    slowest->push_back(link);
  }
}

}  // namespace

LinkIndex::LinkIndex(const std::vector<LinkProfile>& links) {
  for (const LinkProfile& link : links)
    for (const std::string& host : link.between)
      numbers_.emplace(host, static_cast<int>(numbers_.size()));
  constexpr size_t kFew = 1 << 16;  // pairs
  const size_t pairs = numbers_.size() * numbers_.size();
  const bool dense = pairs <= std::max(kFew, 8 * links.size());
  if (dense) all_.assign(pairs, nullptr);
  for (const LinkProfile& link : links) {
    const int a = number(link.between[0]), b = number(link.between[1]);
    for (const uint64_t at : {place(a, b), place(b, a)}) {
      if (!dense) sparse_.emplace(at, &link);
      if (dense && all_[at] == nullptr) all_[at] = &link;
    }
  }
}

int LinkIndex::number(const std::string& host) const {
  const auto found = numbers_.find(host);
  return found == numbers_.end() ? -1 : found->second;
}

uint64_t LinkIndex::place(int a, int b) const {
  return static_cast<uint64_t>(a) * numbers_.size() + static_cast<uint64_t>(b);
}

const LinkProfile* LinkIndex::between(int a, int b) const {
  if (a < 0 || b < 0) return nullptr;
  if (!all_.empty()) return all_[place(a, b)];
  const auto found = sparse_.find(place(a, b));
  return found == sparse_.end() ? nullptr : found->second;
}

std::vector<const LinkProfile*> slowest_of(const std::vector<LinkProfile>& links,
                                           double shortened_below) {
  std::vector<const LinkProfile*> whole, shortened;
  for (const LinkProfile& link : links)
    (link.bytes_per_second < shortened_below ? shortened : whole).push_back(&link);
  std::vector<const LinkProfile*> slowest;
  add_slowest(std::move(whole), &slowest);
  add_slowest(std::move(shortened), &slowest);
  return slowest;
}

FactorElements factored_elements(const CodecSpec& codec, const ModelSpec& model) {
  FactorElements elements;
  if (codec.kind != CodecKind::kPowerSgd) return elements;
  for (const LogicalTensor& tensor : logical_tensors(model))
    if (const auto matrix = matrix_for_power_sgd(tensor.shape, codec.rank))
      elements.add(codec, *matrix);
  return elements;
}

ShortenedLinks shortened_links(const LinkCompression& compression, const ModelSpec& model) {
  if (!compression.on()) return {};
  constexpr int64_t kFloat = sizeof(float);
  int64_t all = int64_t{1} << 16;
  int64_t sent = 0;
  if (compression.factors()) {
    const FactorElements factored = factored_elements(compression.codec, model);
    const CodecSpec values = codec_of_values(compression.codec.values);
    all = parameter_count(model);
    sent = (all - factored.matrices) * kFloat + encoded_bytes(values, factored.p) +
           encoded_bytes(values, factored.q);
  } else {
    sent = encoded_bytes(compression.codec, all);
  }
  return {compression.below_bytes_per_second,
          static_cast<double>(sent) / static_cast<double>(all * kFloat)};
}

LinkCompression compression_wanted(const JobSpec& job) {
  if (job.parallel.sync.across > 1) return {};
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

SyncPlan sync_wanted(const PlanRequest& request) {
  const int across = request.job.parallel.sync.across;
  if (across == 1) return {};
  Plan all;
  for (const std::string& host : request.fleet.hosts())
    all.ranks.push_back({.device = "", .host = host, .type = ""});
  all.links = request.profile.links;
  return {across, sync_groups(all)};
}

void describe_links(const PlanRequest& request, Plan* plan) {
  std::map<std::string_view, int> hosts;  // and where each comes among them
  for (const RankPlacement& rank : plan->ranks) hosts.emplace(rank.host, 0);
  int place = 0;
  for (auto& [host, number] : hosts) number = place++;
  std::vector<std::pair<std::pair<int, int>, const LinkProfile*>> links;  // numbers sort quickly
  for (const LinkProfile& link : request.profile.links) {
    const auto one = hosts.find(link.between[0]);
    const auto other = hosts.find(link.between[1]);
    if (one != other && one != hosts.end() && other != hosts.end())
      links.push_back({std::minmax(one->second, other->second), &link});
  }
  std::sort(links.begin(), links.end());
  plan->links.clear();
  plan->links.reserve(links.size());
  for (const auto& [between, link] : links) plan->links.push_back(in_order(*link));
  if (!plan->compression.on() && may_compress(request.job, plan->links))
    plan->compression = compression_wanted(request.job);
  plan->sync.across = request.job.parallel.sync.across;
  if (plan->sync.across > 1 && plan->sync.groups.empty()) plan->sync.groups = sync_groups(*plan);
}

}  // namespace motley
