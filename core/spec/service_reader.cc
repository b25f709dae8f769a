#include "core/spec/service_reader.h"

#include <set>
#include <utility>

namespace motley {
namespace {

constexpr const char* kName = "up to 64 letters, digits, '.', '_' and '-'";

bool is_name(std::string_view text) {
  return !text.empty() && text.size() <= 64 && is_plain_name(text);
}

constexpr const char* kJobs = "a job's number, a range such as 12..21, or a list of them";

/// "12" or "12..21", as both ends.
Result<std::pair<int64_t, int64_t>> to_job_range(const YamlNode& node) {
  const size_t dots = node.kind == YamlNode::Kind::kScalar ? node.text.find("..") : node.text.npos;
  if (dots == node.text.npos) {
    MOTLEY_TRY(const int64_t number, to_integer(node, {1, INT64_MAX}));
    return std::pair(number, number);
  }
  YamlNode low = node, high = node;
  low.text.resize(dots);
  high.text.erase(0, dots + 2);
  const auto first = to_integer(low, {1, INT64_MAX}), last = to_integer(high, {1, INT64_MAX});
  if (!first || !last || *first > *last) return fail_expected(node, kJobs);
  return std::pair(*first, *last);
}

/// after: 12, 12..21 or [12, 15..17]; []: none, for an update
Result<std::vector<int64_t>> to_job_numbers(const YamlNode& node) {
  if (node.kind == YamlNode::Kind::kList && node.items.empty()) return std::vector<int64_t>();
  MOTLEY_TRY(const auto items, to_list(node, kJobs));
  std::set<int64_t> numbers;
  for (const YamlNode* item : items) {
    MOTLEY_TRY(const auto range, to_job_range(*item));
    const auto room = static_cast<int64_t>(ServiceSpec::kMostBefore - numbers.size());
    if (range.second - range.first >= room)
      return fail_at(node, "more than " + std::to_string(ServiceSpec::kMostBefore) + " jobs");
    for (int64_t number = range.first; number <= range.second; ++number) numbers.insert(number);
  }
  return std::vector<int64_t>(numbers.begin(), numbers.end());
}

/// labels: {team: vision, sweep: "7"}
Result<Unit> read_labels(const YamlNode& node, ServiceSpec& service) {
  if (node.kind != YamlNode::Kind::kMapping) return fail_expected(node, "a mapping of texts");
  if (node.member_count() > ServiceSpec::kMostLabels) return fail_at(node, "more than 64 labels");
  for (size_t i = 0; i < node.member_count(); ++i) {
    if (!is_name(node.key(i).text)) return fail_expected(node.key(i), kName);
    MOTLEY_TRY(const std::string value, to_text(node.value(i), "a text"));
    if (value.size() > 256 || value.find('\n') != std::string::npos)
      return fail_expected(node.value(i), "one line of up to 256 bytes");
    service.labels[node.key(i).text] = value;
  }
  return Unit{};
}

Result<Nanos> to_longest(const YamlNode& node) {
  const std::string expects = "a duration such as 6h";
  MOTLEY_TRY(const Nanos longest, to_measure(node, expects, parse_duration));
  if (longest <= Nanos(0)) return fail_expected(node, "a duration above 0");
  return longest;
}

}  // namespace

const YamlKeys<ServiceSpec>& service_keys() {
  using Spec = ServiceSpec;
  static const YamlKeys<Spec> keys = {
      integer("priority", &Spec::priority, {0, Spec::kMostPriority}),
      text("queue", &Spec::queue, kName, is_name),
      converted("after", kJobs, &Spec::after, to_job_numbers),
      YamlKey<Spec>("labels", "a mapping of texts", read_labels),
      converted("max_duration", "a duration such as 6h", &Spec::max_duration, to_longest),
      flag("preemptible", &Spec::preemptible),
      converted("stop_grace", "a duration such as 5m", &Spec::stop_grace, to_longest),
  };
  return keys;
}

}  // namespace motley
