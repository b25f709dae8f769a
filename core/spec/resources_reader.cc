#include "core/spec/resources_reader.h"

namespace motley {
namespace {

/// limits: {A100: 4, RTX3090: 2}
Result<Unit> read_limits(const YamlNode& node, DeviceFilter& filter) {
  if (node.kind != YamlNode::Kind::kMapping)
    return fail_expected(node, "a mapping of device types to counts");
  for (size_t i = 0; i < node.member_count(); ++i) {
    MOTLEY_TRY(const int64_t most, to_integer(node.value(i), {0, DeviceFilter::kMostDevices}));
    filter.limits[node.key(i).text] = static_cast<int>(most);
  }
  return Unit{};
}

Result<CountRange> parse_count(std::string_view text) {
  MOTLEY_TRY(const CountRange count, parse_count_range(text));
  if (count.high < 1)
    return fail(ErrorCode::kInvalidSpec, "'" + std::string(text) + "' leaves no device");
  return count;
}

const YamlKeys<DeviceFilter>& filter_keys() {
  static const YamlKeys<DeviceFilter> keys = {
      measure("count", &DeviceFilter::count, "a count or a range such as 2..8", parse_count),
      converted("types", "a list of device types", &DeviceFilter::types, to_texts),
      measure("memory", &DeviceFilter::memory, "a size or a range such as 20GB..",
              parse_bytes_range),
      flag("mix", &DeviceFilter::mix, "allow", "forbid"),
      {"limits", "a mapping of device types to counts", read_limits},
  };
  return keys;
}

}  // namespace

const YamlKeys<ResourcesDraft>& resources_keys() {
  static const YamlKeys<ResourcesDraft> keys = {
      section("devices", &ResourcesDraft::devices, filter_keys),
  };
  return keys;
}

Result<std::vector<DeviceFilter>> to_alternatives(const YamlNode& node) {
  if (node.kind != YamlNode::Kind::kList || node.items.empty())
    return fail_expected(node, "a list of mappings such as {count: 2, types: [A100]}");
  if (node.items.size() > JobSpec::kMostAlternatives)
    return fail_at(node,
                   "more than " + std::to_string(JobSpec::kMostAlternatives) + " alternatives");
  std::vector<DeviceFilter> alternatives;
  for (const YamlNode& item : node.items) {
    DeviceFilter& filter = alternatives.emplace_back();
    filter.key = "any_of." + std::to_string(alternatives.size() - 1);
    MOTLEY_TRY_VOID(read_mapping(item, filter_keys(), filter));
  }
  return alternatives;
}

}  // namespace motley
