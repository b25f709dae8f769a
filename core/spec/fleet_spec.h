#pragma once
// The devices a job may use, one by one (DESIGN.md §4). No type says how many a node has.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/ids.h"
#include "core/result.h"
#include "core/spec/job_spec.h"

namespace motley {

enum class DeviceKind {
  kCpu,
  kCuda,
  kReference
};  ///< reference: float64 on the CPU, naive loops; an oracle for tests

/// Emulation of a device nobody has here: real arithmetic, then a wait until the time it would have
/// taken, overhead (once a section) + FLOPs / (flops · speed · b/(b + half_batch)), b the
/// micro-batch's samples. Only the worker's pacer reads this: profiler and planner see measured
/// times.
struct PaceSpec {
  double speed = 1;
  Nanos overhead{0};
  double half_batch = 0;
  bool operator==(const PaceSpec&) const = default;
};

/// A part of a GPU's multiprocessors, for real tests of unlike devices on one card. Devices with
/// shares of one GPU get theirs in the order of the file, none twice.
struct ShareSpec {
  int sms = 0;    ///< multiprocessors
  int first = 0;  ///< how many the devices before it on the same GPU have
  bool operator==(const ShareSpec&) const = default;
};

struct DeviceSpec {
  std::string
      id;  ///< "host/0": the host and its position in the file; unique, names the device everywhere
  std::string host;
  DeviceKind kind = DeviceKind::kCuda;
  std::string type;             ///< free name, e.g. "A100-40GB"
  std::string uuid;             ///< CUDA only
  int threads = 1;              ///< CPU only
  std::optional<Bytes> memory;  ///< limit given by the file; unset: measured
  double price_per_hour = 0;
  std::optional<PaceSpec> paced;
  std::optional<ShareSpec> share = {};  ///< CUDA only; unset: the whole GPU

  // For messages only; not in JSON.
  std::string memory_written = {};  ///< `memory` in the words of the file it was read from
  SourcePlace memory_place = {};
  SourcePlace place = {};  ///< of its kind, or else of the device
};

struct LinkSpec {
  std::string between[2];  ///< hosts
  double bytes_per_second = 0;
  Nanos latency{0};
};

struct FleetSpec {
  int version = 1;
  std::string source;
  PaceClock clock = PaceClock::kSleep;
  double pace_flops = 0;            ///< FLOP/s that speed 1 means
  std::vector<DeviceSpec> devices;  ///< in the order of the file, hosts kept together as written
  std::vector<LinkSpec> links;

  std::vector<std::string> hosts() const;  ///< in order of first appearance
  const DeviceSpec* find(const std::string& id) const;
  bool single_host() const { return hosts().size() <= 1; }
};

/// Whether a training sums gradients between hosts while this device still computes, if all do: a
/// CPU at the speed it has.
bool computes_beside_sums(const DeviceSpec& device);

/// Whether `other` takes from the memory that `device` has: what computes on the host of a CPU,
/// shares of the same GPU, the device itself.
bool takes_same_memory(const DeviceSpec& device, const DeviceSpec& other);

/// kInvalidSpec at the second GPU of a host that has no uuid (planning needs none): computing on
/// both would be computing on the first twice. Shares of one GPU may be without.
Result<Unit> check_told_apart(const FleetSpec& fleet);

/// Whether `wanted` is `type` or whole '-'-separated parts of its beginning, case ignored: "a100"
/// matches "A100-40GB", not "A1000".
bool type_matches(std::string_view type, std::string_view wanted);

/// Of types that the job has a precision or a limit for and no device of the fleet is of, those
/// whose names are nearly that of one it has and the job does not name: a sentence each.
std::vector<std::string> misspelt_types(const FleetSpec& fleet, const JobSpec& job);

/// Devices that the job admits by type, memory and limits and does not leave out, in fleet order;
/// of more than a limit allows those that are pinned, then the first. kNoDevice naming the first
/// unmet demand, at the job's words. At least count.low come back; the planner keeps to count.high.
/// A device without a memory entry meets no demand for memory.
Result<FleetSpec> admitted(const FleetSpec& fleet, const JobSpec& job);
/// The same by another filter than job.devices: one of its alternatives.
Result<FleetSpec> admitted(const FleetSpec& fleet, const JobSpec& job, const DeviceFilter& filter);
/// What admitted() finds, whatever the job demands of all of it.
FleetSpec fitting(const FleetSpec& fleet, const JobSpec& job);

/// The first of job.any_of that the fleet satisfies is job.devices from now on, and the only one.
/// kNoDevice with what each of them lacks.
Result<Unit> choose_alternative(const FleetSpec& fleet, JobSpec& job);

/// Before anything is measured: kNoPlan, at the job's words, where no plan can have what `parallel`
/// wants because the admitted devices are too few, or too few of one host to share a stage.
Result<Unit> check_parallel(const FleetSpec& fleet, const JobSpec& job);

/// What of the job keeps a device out: "resources.devices.types (A100, H100)", "pin.leave_out";
/// empty for one that is admitted unless there are too many for a limit.
std::string unmet_demand(const DeviceSpec& device, const JobSpec& job);
std::string unmet_demand(const DeviceSpec& device, const JobSpec& job, const DeviceFilter& filter);
/// Why a plan has not got such a device: "not admitted by " and a demand, or "pin.leave_out".
std::string why_not_admitted(const DeviceSpec& device, const JobSpec& job);

}  // namespace motley
