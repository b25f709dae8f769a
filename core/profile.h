#pragma once
// What was measured: seconds against micro-batch, memory, links. The planner's only knowledge of
// the hardware.

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/host_link.h"
#include "core/ids.h"
#include "core/link_profile.h"
#include "core/plan.h"
#include "core/result.h"

namespace motley {

/// Where figures come from; every table printed says which.
enum class Evidence { kSimulated, kPaced, kThrottled, kMeasured };
const char* name_of(Evidence evidence);
std::optional<Evidence> evidence_from_name(std::string_view name);

struct CurvePoint {
  int micro_batch = 0;
  double seconds = 0;  ///< median of forward + backward of one micro-batch
  double spread = 0;   ///< (max - min) / median over the repetitions
  int repetitions = 0;
  double forward_seconds = 0;  ///< of `seconds` the forward pass; 0: not told apart

  bool operator==(const CurvePoint&) const = default;
};

/// seconds ≈ fixed + per_sample · micro_batch, least squares of the relative errors, neither part
/// negative; residual is the largest relative error of the fit at a point. Between points use
/// interpolation (seconds_at), not the fit.
struct CurveFit {
  double fixed = 0;
  double per_sample = 0;
  double residual = 0;

  bool operator==(const CurveFit&) const = default;
};

/// Cost of one kind of layer ("embedding", "block", "head") as one rank computes it; "model" means
/// all layers in one, the only kind a plain data-parallel plan needs.
struct LayerCurve {
  std::string layer = "model";
  double share = 1;  ///< below 1: of the heads, columns and rows of a layer shared by several ranks
  Recompute recompute = Recompute::kNone;
  /// Of a shared layer: sums over its ranks in a micro-batch, and bytes a sample in all of them.
  /// Neither takes any time in `points`: that depends on where the ranks are.
  int sums = 0;
  double sum_bytes_per_sample = 0;
  std::vector<CurvePoint> points;  ///< rising micro_batch, at least one
  CurveFit fit;

  /// Piecewise linear between points, through the fit's slope beyond the last, the first point
  /// scaled by the fit below it.
  double seconds_at(int micro_batch) const;
  /// Of these the forward pass.
  double forward_seconds_at(int micro_batch) const;
  /// How far they may be off, relatively: what was seen at the points around the micro-batch, and
  /// where there is no point, what the straight line misses.
  double uncertainty_at(int micro_batch) const;

  bool operator==(const LayerCurve&) const = default;
};

/// Bytes an engine that holds the whole model needs on its device at one micro-batch size, counted
/// (not measured) by the worker. What ranks of a plan hold besides is core/rank_memory.h's.
struct MemoryPoint {
  int micro_batch = 0;
  Bytes fixed{0};        ///< parameters, gradients, optimizer state, samples and losses
  Bytes activations{0};  ///< arena of the static program
  Bytes total() const { return fixed + activations; }

  bool operator==(const MemoryPoint&) const = default;
};

/// Share of each memory limit left free unless told otherwise: libraries and drivers take some
/// later.
inline constexpr double kMemoryHeadroom = 0.05;

struct DeviceProfile {
  std::string device;  ///< DeviceSpec::id
  std::string type;
  std::string identity;  ///< device_identity() of core/spec/device_identity.h
  Evidence evidence = Evidence::kMeasured;
  /// What it computed in: where the job leaves that open, the fastest it has. kAuto: not told.
  Precision precision = Precision::kAuto;
  Bytes memory_limit{0};
  std::vector<LayerCurve> curves;
  double step_overhead_seconds = 0;   ///< per step, whatever the number of micro-batches
  double update_seconds = 0;          ///< clip and optimizer, of the whole model
  double host_update_seconds = 0;     ///< the same with its state in host memory; 0: not known
  Bytes host_memory{0};               ///< of its host, for all on it; 0: not known
  std::optional<HostLink> host_link;  ///< nothing of a paced device, whose copies stand for nothing
  std::vector<MemoryPoint> memory;  ///< every micro-batch size from 1 up to the largest considered

  /// Samples a second at the best micro-batch of the whole model, or where that was not measured of
  /// one layer of each kind; 0 without curves.
  double best_speed() const;
  /// Null where it was not measured.
  const LayerCurve* curve(const std::string& layer, double share = 1,
                          Recompute recompute = Recompute::kNone) const;

  bool operator==(const DeviceProfile&) const = default;
};

/// The reduction of this job's gradients as measured over some ranks.
struct ReductionPoint {
  int ranks = 0;
  std::vector<std::string> hosts;  ///< they were on, each once; empty: of no consequence
  Bytes bytes{0};
  double seconds = 0;  ///< median
  double spread = 0;   ///< (max - min) / median over the repetitions
  /// Of CPUs on several hosts: the share of the seconds by which computing is held up where it goes
  /// on beside the reduction.
  double busy_share = 0;
};

struct Profile {
  std::string code_version;
  std::string job_key;  ///< hash of `job`
  std::string job;      ///< profile_job(): model, precision, numerics, optimizer; empty: unknown
  std::vector<DeviceProfile> devices;
  std::vector<LinkProfile> links;
  std::vector<ReductionPoint> reductions;

  const DeviceProfile* find(const std::string& device) const;
};

nlohmann::json to_json(const Profile& profile);
Result<Profile> profile_from_json(
    const nlohmann::json& json);  ///< kInvalidSpec with the JSON pointer of the fault

/// Least squares of the points, as LayerCurve::fit describes.
CurveFit fit_curve(const std::vector<CurvePoint>& points);

}  // namespace motley
