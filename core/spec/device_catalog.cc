#include "core/spec/device_catalog.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "core/units.h"

namespace motley {
namespace {

std::string with_dashes(std::string text) {
  std::replace(text.begin(), text.end(), ' ', '-');
  return text;
}

/// Blanks and case do not matter.
bool same_name(const std::string& one, const std::string& other) {
  return one.size() == other.size() && type_matches(with_dashes(one), with_dashes(other));
}

/// Entries of which the type is a name. A part of a name is none: what follows it, as in "Ti" or
/// "Max-Q", most often makes another device.
std::vector<const CatalogDevice*> named(const DeviceCatalog& catalog, const std::string& type) {
  std::vector<const CatalogDevice*> found;
  for (const CatalogDevice& entry : catalog.devices) {
    const auto is_it = [&](const std::string& name) { return same_name(name, type); };
    if (is_it(entry.type) || std::any_of(entry.aliases.begin(), entry.aliases.end(), is_it))
      found.push_back(&entry);
  }
  return found;
}

std::string types_of(const std::vector<const CatalogDevice*>& entries) {
  std::string text;
  for (size_t i = 0; i < entries.size(); ++i)
    text += (i == 0 ? "" : i + 1 == entries.size() ? " or " : ", ") + entries[i]->type;
  return text;
}

/// " (did you mean 'T4'?)", or all that there is.
std::string known_instead(const DeviceCatalog& catalog, const std::string& type) {
  std::vector<std::string_view> types;
  for (const CatalogDevice& entry : catalog.devices) {
    types.push_back(entry.type);
    types.insert(types.end(), entry.aliases.begin(), entry.aliases.end());
  }
  const std::string near = did_you_mean(type, types.data(), types.size());
  if (!near.empty()) return " (did you mean '" + near + "'?)";
  std::vector<const CatalogDevice*> all;
  for (const CatalogDevice& entry : catalog.devices) all.push_back(&entry);
  return " (it knows " + types_of(all) + ")";
}

tl::unexpected<Error> unknown(const DeviceCatalog& catalog, const DeviceSpec& device) {
  return fail(ErrorCode::kInvalidSpec,
              "device " + device.id + ": " + catalog.source + " has no figures of '" + device.type +
                  "'" + known_instead(catalog, device.type),
              device.place);
}

/// As resources.devices.types names them: by whole parts of their beginning.
bool begins_with(const CatalogDevice& entry, const std::string& wanted) {
  const auto matches = [&](const std::string& name) {
    return type_matches(with_dashes(name), with_dashes(wanted));
  };
  return matches(entry.type) || std::any_of(entry.aliases.begin(), entry.aliases.end(), matches);
}

}  // namespace

double CatalogTflops::in(Precision precision) const {
  switch (precision) {
    case Precision::kFp64:
      return fp64;
    case Precision::kFp32:
    case Precision::kAuto:
      return fp32;
    case Precision::kTf32:
      return tf32;
    case Precision::kFp16:
      return fp16;
    case Precision::kBf16:
      return bf16;
    case Precision::kFp8:
      return fp8;
  }
  return 0;
}

Result<const CatalogDevice*> find_figures(const DeviceCatalog& catalog, const DeviceSpec& device) {
  const std::vector<const CatalogDevice*> candidates = named(catalog, device.type);
  if (candidates.empty()) return unknown(catalog, device);
  if (candidates.size() == 1) return candidates.front();
  if (!device.memory)
    return fail(ErrorCode::kInvalidSpec,
                "device " + device.id + ": a '" + device.type + "' may be " + types_of(candidates) +
                    ": say which, or give its memory",
                device.place);
  const auto distance = [&](const CatalogDevice* entry) {
    return std::llabs(entry->memory.value() - device.memory->value());
  };
  return *std::min_element(
      candidates.begin(), candidates.end(),
      [&](const CatalogDevice* a, const CatalogDevice* b) { return distance(a) < distance(b); });
}

Result<Unit> check_types_known(const DeviceCatalog& catalog, const JobSpec& job) {
  for (size_t i = 0; i < job.devices.types.size(); ++i) {
    const std::string& type = job.devices.types[i];
    if (std::none_of(catalog.devices.begin(), catalog.devices.end(),
                     [&](const CatalogDevice& entry) { return begins_with(entry, type); }))
      return fail(ErrorCode::kInvalidSpec,
                  "'types': " + catalog.source + " has no figures of '" + type + "'" +
                      known_instead(catalog, type),
                  place_of(job, job.devices.key + ".types." + std::to_string(i)));
  }
  return Unit{};
}

}  // namespace motley
