#include "core/spec/precisions.h"

#include "core/spec/names.h"

namespace motley {
namespace {

/// "a1/2 (kind cuda) computes in fp32"
std::string what_computes(const JobSpec& job, const DeviceSpec& device) {
  return device.id + " (kind " + spec_name(device.kind) + ") computes in " +
         spec_name(precision_computed(job, device));
}

bool agree(const JobSpec& job, const DeviceSpec& a, const DeviceSpec& b) {
  const Precision one = precision_computed(job, a), other = precision_computed(job, b);
  return job.train.numerics == Numerics::kExact ? one == other
                                                : full_precision(one) == full_precision(other);
}

}  // namespace

DeviceKind kind_driven(const JobSpec& job, const DeviceSpec& device) {
  const bool float64 = device.kind == DeviceKind::kCpu && job.train.precision == Precision::kFp64;
  return float64 ? DeviceKind::kReference : device.kind;
}

Precision precision_wanted(const JobSpec& job, const std::string& type) {
  const std::string* longest = nullptr;
  for (const auto& [name, precision] : job.train.precision_by_type)
    if (type_matches(type, name) && (longest == nullptr || name.size() > longest->size()))
      longest = &name;
  return longest == nullptr ? job.train.precision : job.train.precision_by_type.at(*longest);
}

Precision precision_computed(const JobSpec& job, const DeviceSpec& device) {
  const DeviceKind kind = kind_driven(job, device);
  if (kind == DeviceKind::kReference) return Precision::kFp64;
  const Precision wanted = precision_wanted(job, device.type);
  return is_reduced(wanted) || wanted == Precision::kTf32 ? wanted : Precision::kFp32;
}

bool precision_open(const JobSpec& job, const DeviceSpec& device) {
  return device.kind == DeviceKind::kCuda && job.train.numerics == Numerics::kFast &&
         precision_wanted(job, device.type) == Precision::kAuto;
}

Precision precision_allowed(const JobSpec& job, const DeviceSpec& device, Precision planned) {
  const bool chosen = planned != Precision::kAuto && planned != Precision::kFp64;
  return precision_open(job, device) && chosen ? planned : precision_computed(job, device);
}

bool lacks_precision(const JobSpec& job, const DeviceSpec& device) {
  const Precision wanted = precision_wanted(job, device.type);
  return wanted != Precision::kAuto && wanted != Precision::kFp32 &&
         wanted != precision_computed(job, device);
}

Result<Unit> check_precisions(const FleetSpec& fleet, const JobSpec& job) {
  for (const DeviceSpec& device : fleet.devices) {
    const SourcePlace place =
        device.place.file.empty() ? SourcePlace{job.source, 0, 0} : device.place;
    if (lacks_precision(job, device))
      return fail(ErrorCode::kInvalidSpec,
                  what_computes(job, device) + ", but train.precision is " +
                      spec_name(precision_wanted(job, device.type)) +
                      ", which it lacks; choose others with "
                      "resources.devices.types, or train in another precision",
                  place);
    const DeviceSpec& first = fleet.devices.front();
    if (agree(job, device, first)) continue;
    return fail(ErrorCode::kInvalidSpec,
                what_computes(job, first) + ", " + what_computes(job, device) +
                    ": devices that train together need one precision; choose among them with "
                    "resources.devices.types",
                place);
  }
  return Unit{};
}

}  // namespace motley
