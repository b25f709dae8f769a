#include "core/spec/device_catalog.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "core/units.h"

namespace motley {
namespace {

constexpr std::string_view kLaptop = "laptop";

std::string with_dashes(std::string text) {
  std::replace(text.begin(), text.end(), ' ', '-');
  return text;
}

std::vector<std::string> names_of_entry(const CatalogDevice& entry) {
  std::vector<std::string> names = entry.aliases;
  names.insert(names.begin(), entry.type);
  for (std::string& name : names) name = with_dashes(std::move(name));
  return names;
}

/// A laptop's GPU has other figures than the desktop card that it shares its name with.
bool is_of_laptop(const std::string& name) {
  for (size_t begin = 0; begin < name.size();) {
    const size_t end = std::min(name.find('-', begin), name.size());
    const std::string part = name.substr(begin, end - begin);
    if (part.size() == kLaptop.size() && type_matches(part, kLaptop)) return true;
    begin = end + 1;
  }
  return false;
}

bool both_or_neither_of_laptop(const std::string& one, const std::string& other) {
  return is_of_laptop(one) == is_of_laptop(other);
}

/// The entry with the longest name that is the type or a beginning of it.
const CatalogDevice* by_beginning(const DeviceCatalog& catalog, const std::string& type) {
  const CatalogDevice* best = nullptr;
  size_t length = 0;
  for (const CatalogDevice& entry : catalog.devices)
    for (const std::string& name : names_of_entry(entry))
      if (name.size() > length && type_matches(type, name) &&
          both_or_neither_of_laptop(type, name)) {
        best = &entry;
        length = name.size();
      }
  return best;
}

/// Those that the type is the beginning of.
std::vector<const CatalogDevice*> begun_by(const DeviceCatalog& catalog, const std::string& type) {
  std::vector<const CatalogDevice*> found;
  for (const CatalogDevice& entry : catalog.devices) {
    const std::vector<std::string> names = names_of_entry(entry);
    if (std::any_of(names.begin(), names.end(), [&](const std::string& name) {
          return type_matches(name, type) && both_or_neither_of_laptop(type, name);
        }))
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

tl::unexpected<Error> unknown(const DeviceCatalog& catalog, const DeviceSpec& device) {
  std::vector<std::string_view> types;
  for (const CatalogDevice& entry : catalog.devices) types.push_back(entry.type);
  const std::string near = did_you_mean(device.type, types.data(), types.size());
  std::string hint = " (did you mean '" + near + "'?)";
  if (near.empty()) {
    std::vector<const CatalogDevice*> all;
    for (const CatalogDevice& entry : catalog.devices) all.push_back(&entry);
    hint = " (it knows " + types_of(all) + ")";
  }
  return fail(ErrorCode::kInvalidSpec,
              "device " + device.id + ": " + catalog.source + " has no figures of '" + device.type +
                  "'" + hint,
              device.place);
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
  const std::string type = with_dashes(device.type);
  if (const CatalogDevice* found = by_beginning(catalog, type)) return found;
  const std::vector<const CatalogDevice*> candidates = begun_by(catalog, type);
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

}  // namespace motley
