#include "core/spec/service_reader.h"

#include <algorithm>

namespace motley {
namespace {

constexpr const char* kName = "up to 64 letters, digits, '.', '_' and '-'";

bool is_name(std::string_view text) {
  return !text.empty() && text.size() <= 64 && is_plain_name(text);
}

/// after: 12 or [12, 13]
Result<std::vector<int64_t>> to_job_numbers(const YamlNode& node) {
  MOTLEY_TRY(const auto items, to_list(node, "a job's number or a list of them"));
  if (items.size() > ServiceSpec::kMostNames) return fail_at(node, "more than 64 jobs");
  std::vector<int64_t> numbers;
  for (const YamlNode* item : items) {
    MOTLEY_TRY(const int64_t number, to_integer(*item, {1, INT64_MAX}));
    numbers.push_back(number);
  }
  std::sort(numbers.begin(), numbers.end());
  numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
  return numbers;
}

/// labels: {team: vision, sweep: "7"}
Result<Unit> read_labels(const YamlNode& node, ServiceSpec& service) {
  if (node.kind != YamlNode::Kind::kMapping) return fail_expected(node, "a mapping of texts");
  if (node.member_count() > ServiceSpec::kMostNames) return fail_at(node, "more than 64 labels");
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
      converted("after", "a job's number or a list of them", &Spec::after, to_job_numbers),
      YamlKey<Spec>("labels", "a mapping of texts", read_labels),
      converted("max_duration", "a duration such as 6h", &Spec::max_duration, to_longest),
      flag("preemptible", &Spec::preemptible),
  };
  return keys;
}

}  // namespace motley
