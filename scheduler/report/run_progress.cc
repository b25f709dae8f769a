#include "scheduler/report/run_progress.h"

#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "core/json_fields.h"
#include "core/or_null.h"
#include "core/units.h"

namespace motley {
namespace {

using nlohmann::json;

constexpr int kProgressVersion = 1;

json to_json(const RankProgress& rank) {
  return {{"rank", rank.rank},
          {"device", rank.device},
          {"host", rank.host},
          {"type", rank.type},
          {"compute_seconds", or_null(rank.compute_seconds)},
          {"wait_seconds", or_null(rank.wait_seconds)},
          {"update_seconds", or_null(rank.update_seconds)},
          {"input_seconds", or_null(rank.input_seconds)},
          {"memory_bytes", or_null(rank.memory)},
          {"memory_limit_bytes", or_null(rank.memory_limit)}};
}

void read_rank(JsonFields& fields, RankProgress& rank) {
  fields.read("rank", rank.rank)
      .read("device", rank.device)
      .read("host", rank.host)
      .read("type", rank.type)
      .read("compute_seconds", rank.compute_seconds)
      .read("wait_seconds", rank.wait_seconds)
      .read("update_seconds", rank.update_seconds)
      .read_if("input_seconds", rank.input_seconds)
      .read("memory_bytes", rank.memory)
      .read("memory_limit_bytes", rank.memory_limit);
}

}  // namespace

std::optional<RankTime> RankProgress::time() const {
  return rank_time(compute_seconds, update_seconds, wait_seconds, input_seconds);
}

std::optional<Straggler> RunProgress::straggler() const {
  std::vector<RankTime> times;
  for (const RankProgress& rank : ranks) {
    const auto time = rank.time();
    if (!time) return std::nullopt;
    times.push_back(*time);
  }
  return find_straggler(times);
}

std::string progress_text(const RunProgress& progress) {
  if (!progress.step) return progress.phase;
  char text[160];
  std::string line = "step " + std::to_string(*progress.step);
  if (const int64_t steps = progress.steps.value_or(0); steps > 0) {
    const double share = static_cast<double>(*progress.step) / static_cast<double>(steps);
    std::snprintf(text, sizeof text, "/%lld  %.0f %%", static_cast<long long>(steps), 100 * share);
    line += text;
  }
  std::snprintf(text, sizeof text, "  loss %.4f", progress.loss.value_or(std::nan("")));
  line += text;
  if (progress.samples_per_second) {
    std::snprintf(text, sizeof text, "  %.4g samples/s", *progress.samples_per_second);
    line += text;
  }
  if (progress.eta_seconds) line += "  " + format_seconds(*progress.eta_seconds) + " left";
  return line;
}

json to_json(const RunProgress& progress) {
  json ranks = json::array();
  for (const RankProgress& rank : progress.ranks) ranks.push_back(to_json(rank));
  return {{"version", kProgressVersion},
          {"epoch", progress.epoch.value()},
          {"phase", progress.phase},
          {"begun", progress.begun},
          {"step", or_null(progress.step)},
          {"steps", or_null(progress.steps)},
          {"loss", or_null(progress.loss)},
          {"samples_per_second", or_null(progress.samples_per_second)},
          {"step_seconds", or_null(progress.step_seconds)},
          {"eta_seconds", or_null(progress.eta_seconds)},
          {"ranks", std::move(ranks)}};
}

Result<RunProgress> run_progress_from_json(const json& document) {
  RunProgress progress;
  JsonFields fields(document);
  fields.read_version(kProgressVersion)
      .read("epoch", progress.epoch)
      .read("phase", progress.phase)
      .read("begun", progress.begun)
      .read("step", progress.step)
      .read("steps", progress.steps)
      .read("loss", progress.loss)
      .read("samples_per_second", progress.samples_per_second)
      .read("step_seconds", progress.step_seconds)
      .read("eta_seconds", progress.eta_seconds)
      .each("ranks", [&](JsonFields& f) { read_rank(f, progress.ranks.emplace_back()); });
  MOTLEY_TRY_VOID(fields.done());
  return progress;
}

}  // namespace motley
