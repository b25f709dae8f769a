#include "kernels/cuda/cudnn_plan.h"

#include <algorithm>

namespace motley::cudnn {
namespace {

constexpr int64_t kMostEngines = 16;  // of one heuristic; it names less than ten
constexpr int64_t kMostNotes = 16;

Descriptor describe_device(Descriptors& d, const std::string& json) {
  const Descriptor device = d.make(DescriptorType::kDeviceProperties);
  d.set(device, Attribute::kDeviceJson, AttributeType::kChar, static_cast<int64_t>(json.size()),
        json.data());
  d.finish(device);
  return device;
}

/// Empty where the library knows none.
std::vector<Descriptor> configs_of(Descriptors& d, Descriptor heuristic) {
  std::vector<Descriptor> configs(kMostEngines);
  for (Descriptor& config : configs) config = d.make(DescriptorType::kEngineConfig);
  int64_t count = 0;
  if (!d.good() ||
      d.library().get_attribute(heuristic, Attribute::kHeuristicResults, AttributeType::kDescriptor,
                                kMostEngines, &count, configs.data()) != Status::kSuccess)
    count = 0;
  configs.resize(static_cast<size_t>(std::clamp<int64_t>(count, 0, kMostEngines)));
  return configs;
}

/// As far as the engine tells.
bool repeats_bits(Descriptors& d, Descriptor config) {
  const Library& library = d.library();
  Descriptor engine = d.make(DescriptorType::kEngine);
  int64_t count = 0;
  if (!d.good() ||
      library.get_attribute(config, Attribute::kConfigEngine, AttributeType::kDescriptor, 1, &count,
                            &engine) != Status::kSuccess)
    return false;
  std::vector<NumericalNote> notes(kMostNotes);
  if (library.get_attribute(engine, Attribute::kEngineNumericalNotes, AttributeType::kNumericalNote,
                            kMostNotes, &count, notes.data()) != Status::kSuccess)
    return false;
  notes.resize(static_cast<size_t>(std::clamp<int64_t>(count, 0, kMostNotes)));
  return std::ranges::find(notes, NumericalNote::kNondeterministic) == notes.end();
}

/// Negative: it does not tell.
int64_t number_of(const Library& library, Descriptor descriptor, Attribute name) {
  int64_t value = -1, count = 0;
  const Status status =
      library.get_attribute(descriptor, name, AttributeType::kInt64, 1, &count, &value);
  return status == Status::kSuccess ? value : -1;
}

}  // namespace

std::vector<Engine> usable_engines(Descriptors& descriptors, Descriptor graph, const Target& target,
                                   int64_t most_workspace) {
  const Descriptor heuristic = descriptors.make(DescriptorType::kHeuristic);
  descriptors.set(heuristic, Attribute::kHeuristicGraph, graph);
  descriptors.set(heuristic, Attribute::kHeuristicMode, HeuristicMode::kA);
  if (target.handle == nullptr)
    descriptors.set(heuristic, Attribute::kHeuristicDevice,
                    describe_device(descriptors, target.description));
  descriptors.finish(heuristic);
  std::vector<Engine> usable;
  for (const Descriptor config : configs_of(descriptors, heuristic)) {
    const int64_t workspace =
        number_of(descriptors.library(), config, Attribute::kConfigWorkspaceSize);
    if (workspace >= 0 && workspace <= most_workspace && repeats_bits(descriptors, config))
      usable.push_back({config, workspace});
  }
  return usable;
}

Result<std::unique_ptr<Plan>> Plan::make(const Library& library, Handle handle,
                                         const MakeGraph& graph, int64_t most_workspace) {
  std::unique_ptr<Plan> plan(new Plan(library));
  Descriptors& descriptors = plan->descriptors_;
  const Descriptor made = graph(descriptors);
  for (const Engine& engine : usable_engines(descriptors, made, {handle, {}}, most_workspace))
    if (plan->finish(handle, engine, most_workspace)) return plan;
  const std::string why = descriptors.good() ? "it has no engine for it" : descriptors.refusal();
  return fail(ErrorCode::kUnsupported, "cuDNN " + library.version_text() + ": " + why);
}

// An engine that its own library calls usable may fail to compile: the next may not.
bool Plan::finish(Handle handle, const Engine& engine, int64_t most_workspace) {
  const Library& library = descriptors_.library();
  const Descriptor plan = descriptors_.make(DescriptorType::kPlan);
  descriptors_.set(plan, Attribute::kPlanConfig, engine.config);
  descriptors_.set(plan, Attribute::kPlanHandle, AttributeType::kHandle, 1, &handle);
  if (!descriptors_.good() || library.finalize(plan) != Status::kSuccess) return false;
  const int64_t workspace = number_of(library, plan, Attribute::kPlanWorkspaceSize);
  if (workspace < 0 || workspace > most_workspace) return false;
  plan_ = plan;
  return true;
}

Status Plan::run(Handle handle, std::span<const Argument> arguments, void* workspace) const {
  std::vector<int64_t> ids;
  std::vector<void*> data;
  for (const Argument& argument : arguments) {
    ids.push_back(argument.id);
    data.push_back(argument.data);
  }
  const Library& library = descriptors_.library();
  const auto count = static_cast<int64_t>(ids.size());
  Descriptor pack = nullptr;
  Status status = library.create_descriptor(DescriptorType::kVariantPack, &pack);
  const auto set = [&](Attribute name, AttributeType type, int64_t values, const void* first) {
    if (status == Status::kSuccess) status = library.set_attribute(pack, name, type, values, first);
  };
  set(Attribute::kPackIds, AttributeType::kInt64, count, ids.data());
  set(Attribute::kPackPointers, AttributeType::kPointer, count, data.data());
  set(Attribute::kPackWorkspace, AttributeType::kPointer, 1, &workspace);
  if (status == Status::kSuccess) status = library.finalize(pack);
  if (status == Status::kSuccess) status = library.execute(handle, plan_, pack);
  if (pack != nullptr) library.destroy_descriptor(pack);
  return status;
}

}  // namespace motley::cudnn
