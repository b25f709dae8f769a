#pragma once
// What `motley fit` prints (core/FORMATS.md, "fit").

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/precision.h"
#include "core/result.h"
#include "planner/questions/memory_fit.h"
#include "planner/state/state_search.h"

namespace motley {

/// The whole model on one GPU, in one precision.
struct FitNeed {
  Precision precision = Precision::kFp32;
  Bytes parameters{0};  ///< with their copies in reduced precision
  Bytes gradients{0};
  Bytes optimizer{0};
  Bytes activations{0};
  Bytes total{0};          ///< with samples and losses
  Bytes with_headroom{0};  ///< the least memory whose share without headroom is that
  Bytes host{0};           ///< in host memory besides
};

/// A device of a fleet that cannot be part of any plan.
struct LeftOutDevice {
  std::string device = {};
  std::string type = {};
  std::string why = {};
};

/// What a fleet that somebody named makes of it.
struct FleetFit {
  std::string source;
  std::string why_not = {};                  ///< empty: it trains the model
  std::vector<LeftOutDevice> left_out = {};  ///< trained without
  // Of the rank with the least memory left by a plan for it:
  std::string device = {};
  Bytes needs{0};
  Bytes memory{0};
  int devices_used = 0;
};

struct SavingMix {
  FitMix mix;
  MemoryWays ways;  ///< of all its devices
};

struct ModelFit {
  std::string job;
  std::string catalog;
  int64_t parameters = 0;
  int micro_batch = 1;
  double headroom = 0;
  int most_devices = 0;        ///< of a mix
  std::vector<FitNeed> needs;  ///< in each precision that some type may use
  std::vector<FitType> types;  ///< of the catalog that the job admits
  std::vector<bool> holds;     ///< it whole, by type
  std::vector<std::pair<std::string, std::string>> left_out;  ///< other types, and why
  std::optional<size_t> device;                               ///< the smallest that does
  std::optional<FitMix> like;                                 ///< the smallest mix of one type
  std::optional<FitMix> unlike;                               ///< of two
  std::string like_not_asked;        ///< why nothing was looked for; empty: it was
  std::string unlike_not_asked;      ///< the same of two types
  std::optional<FitShards> sharded;  ///< the smallest of whole replicas that share the state
  // One device that does not hold it but does
  std::optional<FitShards> recomputing;  ///< where blocks are computed again
  std::optional<FitShards> in_host;      ///< where the optimizer's state lies in host memory
  std::optional<FitShards> saving_both;  ///< only where both are; smaller than with either
  // Mixes smaller than those above where some of that is done
  std::optional<SavingMix> like_saving, unlike_saving;
  std::optional<FleetFit> fleet;

  bool fits() const {
    return device || like || unlike || sharded || recomputing || in_host || saving_both ||
           like_saving || unlike_saving;
  }
  const FitNeed& need(Precision precision) const;
  /// In which a type needs least for the whole model.
  Precision least_of(const FitType& type) const;
};

std::string fit_text(const ModelFit& fit);
nlohmann::json fit_json(const ModelFit& fit);

/// The type that comes nearest to holding the model, and what it lacks; of one that nothing fits.
std::string nearest_text(const ModelFit& fit);

}  // namespace motley
