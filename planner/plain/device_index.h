#pragma once
// Devices by their names: FleetSpec::find and Profile::find look through all of them.

#include <string>
#include <string_view>
#include <unordered_map>

#include "core/profile.h"
#include "core/spec/fleet_spec.h"

namespace motley {

class DeviceIndex {
 public:
  /// Both outlive it and keep their devices; of several with one name the first counts.
  DeviceIndex(const FleetSpec& fleet, const Profile& profile) {
    for (const DeviceSpec& spec : fleet.devices) specs_.emplace(spec.id, &spec);
    for (const DeviceProfile& device : profile.devices) profiles_.emplace(device.device, &device);
  }

  /// Null where there is none.
  const DeviceSpec* spec(const std::string& device) const { return found(specs_, device); }
  const DeviceProfile* profile(const std::string& device) const { return found(profiles_, device); }

 private:
  template <class Value>
  using Names = std::unordered_map<std::string_view, const Value*>;

  template <class Value>
  static const Value* found(const Names<Value>& names, const std::string& device) {
    const auto entry = names.find(device);
    return entry == names.end() ? nullptr : entry->second;
  }

  Names<DeviceSpec> specs_;
  Names<DeviceProfile> profiles_;
};

}  // namespace motley
