#include "core/spec/catalog_reader.h"

#include <set>

#include "core/spec/yaml_keys.h"

namespace motley {
namespace {

struct CatalogDraft : DeviceCatalog {
  int version = 1;
};

bool is_type(std::string_view text) {
  return !text.empty() && text.size() <= 64 && one_line(text) == text;
}
constexpr const char* kType = "a name of up to 64 characters";

Result<Bytes> to_memory(const YamlNode& node) {
  const std::string expects = "a size such as 24GB";
  MOTLEY_TRY(const Bytes bytes, to_measure(node, expects, parse_bytes));
  if (bytes <= Bytes(0)) return fail_expected(node, expects + " above 0");
  return bytes;
}

Result<double> to_bandwidth(const YamlNode& node) {
  const std::string expects = "a bandwidth such as 936GB/s";
  MOTLEY_TRY(const double rate, to_measure(node, expects, parse_bandwidth));
  if (rate <= 0) return fail_expected(node, expects + " above 0");
  return rate;
}

Result<std::vector<std::string>> to_aliases(const YamlNode& node) {
  MOTLEY_TRY(const auto items, to_list(node, "a list of names"));
  std::vector<std::string> names;
  for (const YamlNode* item : items) {
    MOTLEY_TRY(const std::string name, to_text(*item, kType));
    if (!is_type(name)) return fail_expected(*item, kType);
    names.push_back(name);
  }
  return names;
}

const YamlKeys<CatalogLink>& catalog_link_keys() {
  static const YamlKeys<CatalogLink> keys = {
      converted("bandwidth", "a bandwidth such as 24GB/s", &CatalogLink::bytes_per_second,
                to_bandwidth)
          .required(),
      measure("latency", &CatalogLink::latency, "a duration such as 15us", parse_duration),
  };
  return keys;
}

const YamlKeys<CatalogTflops>& tflops_keys() {
  using T = CatalogTflops;
  static const NumberRange range{.low = 0, .high = 1e6, .above_low = true};
  static const YamlKeys<T> keys = {
      number("fp64", &T::fp64, range), number("fp32", &T::fp32, range).required(),
      number("tf32", &T::tf32, range), number("fp16", &T::fp16, range),
      number("bf16", &T::bf16, range), number("fp8", &T::fp8, range),
  };
  return keys;
}

const YamlKeys<CatalogDevice>& catalog_device_keys() {
  using D = CatalogDevice;
  static const YamlKeys<D> keys = {
      text("type", &D::type, kType, is_type).required(),
      converted("aliases", "a list of names", &D::aliases, to_aliases),
      converted("memory", "a size such as 24GB", &D::memory, to_memory).required(),
      converted("bandwidth", "a bandwidth such as 936GB/s", &D::bytes_per_second, to_bandwidth)
          .required(),
      section("tflops", &D::tflops, tflops_keys).required(),
      section("link", &D::link, catalog_link_keys).required(),
      number("capability", &D::compute_capability, {.low = 1, .high = 99}),
      number("price", &D::price_per_hour, {.low = 0, .high = 1e9}),
  };
  return keys;
}

const YamlKeys<CatalogAssumptions>& assumption_keys() {
  using A = CatalogAssumptions;
  static const NumberRange part{.low = 0, .high = 1, .above_low = true};
  static const YamlKeys<A> keys = {
      number("product_efficiency", &A::product_efficiency, part).required(),
      number("bandwidth_efficiency", &A::bandwidth_efficiency, part).required(),
      measure("operation_overhead", &A::operation_overhead, "a duration such as 4us",
              parse_duration)
          .required(),
      converted("host_bandwidth", "a bandwidth such as 20GB/s", &A::host_bytes_per_second,
                to_bandwidth)
          .required(),
      section("through_host", &A::through_host, catalog_link_keys).required(),
      section("between_hosts", &A::between_hosts, catalog_link_keys).required(),
  };
  return keys;
}

const YamlKeys<CatalogDraft>& catalog_keys() {
  using C = CatalogDraft;
  static const YamlKeys<C> keys = {
      integer("version", &C::version, {1, 1}),
      YamlKey<C>(section<DeviceCatalog>("assume", &C::assume, assumption_keys).required()),
      YamlKey<C>(sections<DeviceCatalog>("devices", &C::devices, catalog_device_keys).required()),
  };
  return keys;
}

/// An alias may be that of several devices, whose memory then tells; a type is of one alone.
Result<Unit> check_names(const DeviceCatalog& catalog, const YamlTree& tree) {
  std::set<std::string> types, aliases;
  for (size_t i = 0; i < catalog.devices.size(); ++i) {
    const CatalogDevice& device = catalog.devices[i];
    const auto twice = [&](const std::string& name) {
      return fail_at(*tree.root.find("devices")->items[i].find("type"),
                     "the name '" + name + "' is given twice");
    };
    if (aliases.contains(device.type) || !types.insert(device.type).second)
      return twice(device.type);
    std::set<std::string> own;
    for (const std::string& alias : device.aliases)
      if (types.contains(alias) || !own.insert(alias).second) return twice(alias);
    aliases.merge(own);
  }
  return Unit{};
}

}  // namespace

Result<DeviceCatalog> parse_catalog(std::string_view text, const std::string& source) {
  MOTLEY_TRY(const YamlTree tree, parse_yaml(text, source, kJobLimits));
  CatalogDraft draft;
  MOTLEY_TRY_VOID(read_mapping(tree.root, catalog_keys(), draft));
  draft.source = source;
  MOTLEY_TRY_VOID(check_names(draft, tree));
  return DeviceCatalog(std::move(draft));
}

Result<DeviceCatalog> read_catalog(const std::string& path) {
  MOTLEY_TRY(const std::string text, read_yaml_file(path, kJobLimits.bytes));
  return parse_catalog(text, path);
}

Result<DeviceCatalog> built_in_catalog() {
  return parse_catalog(built_in_catalog_text(), "configs/devices.yaml");
}

}  // namespace motley
