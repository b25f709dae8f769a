#include <cstdio>
#include <nlohmann/json.hpp>

#include "core/spec/catalog_reader.h"
#include "core/spec/model_job.h"
#include "core/spec/model_presets.h"
#include "core/spec/reader.h"
#include "scheduler/cli/command.h"
#include "scheduler/cli/job_options.h"
#include "scheduler/report/fit_table.h"
#include "scheduler/run/fit_model.h"
#include "scheduler/run/measure.h"

namespace motley {
namespace {

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const ModelPreset& preset : model_presets()) names.emplace_back(preset.name);
  return names;
}

/// `motley fit JOB|MODEL`: what would one have to buy?
class FitCommand final : public Command {
 public:
  void declare(CommandLine& line) override {
    line.positional("JOB", "job file (YAML), a model file, or a model's name such as gpt2-124m",
                    &job_)
        .completes(model_names())
        .option("--fleet", "FILE", "say whether these devices train it, instead of the job's own",
                &fleet_)
        .option("--catalog", "FILE", "devices to choose from, instead of those built in", &catalog_)
        .flag("--json", "all of it as one object", &json_)
        .option("--set", "KEY=VALUE", "override a value of the job", &set_);
  }

  Result<int> run() override {
    MOTLEY_TRY(const std::vector<Override> overrides, parse_overrides(set_));
    MOTLEY_TRY(JobSpec job, read_job_or_model(job_, overrides));
    MOTLEY_TRY(const DeviceCatalog catalog,
               catalog_.empty() ? built_in_catalog() : read_catalog(catalog_));
    MOTLEY_TRY(ModelFit fit, fit_model(job, catalog));
    if (!fleet_.empty() || !job.fleet_path.empty()) {
      MOTLEY_TRY(const FleetSpec fleet, resolve_fleet(fleet_, job));
      MOTLEY_TRY(fit.fleet, judged(job, fleet, catalog));
    }
    const std::string text = json_ ? fit_json(fit).dump(2) + "\n" : fit_text(fit);
    std::fputs(text.c_str(), stdout);
    if (!fit.fits())
      return fail(ErrorCode::kNoPlan,
                  "nothing of " + catalog.source + " trains " + fit.job +
                      (fit.most_devices < 2
                           ? ""
                           : ", nor up to " + std::to_string(fit.most_devices) + " in a pipeline") +
                      ": " + nearest_text(fit));
    if (!fleet_.empty() && !fit.fleet->why_not.empty())
      return fail(ErrorCode::kNoPlan, "no plan found for " + fit.job + " on " + fleet_);
    return 0;
  }

 private:
  /// Of the job's own fleet nobody asked: what cannot be said of it is said.
  Result<FleetFit> judged(const JobSpec& job, const FleetSpec& fleet,
                          const DeviceCatalog& catalog) const {
    auto fit = fit_fleet(job, fleet, catalog);
    if (fit || !fleet_.empty() || fit.error().code != ErrorCode::kInvalidSpec) return fit;
    return FleetFit{.source = fleet.source, .why_not = fit.error().to_string()};
  }

  std::string job_, fleet_, catalog_;
  std::vector<std::string> set_;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> make_fit_command() { return std::make_unique<FitCommand>(); }

}  // namespace motley
