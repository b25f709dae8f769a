#include "core/spec/job_update.h"

#include <algorithm>
#include <array>

#include "core/spec/resources_reader.h"
#include "core/spec/service_reader.h"
#include "core/spec/yaml_keys.h"

namespace motley {
namespace {

struct UpdateDraft : JobSpec {
  ResourcesDraft resources;
};

bool is_below(std::string_view key, std::string_view above) {
  return key.starts_with(above) && (key.size() == above.size() || key[above.size()] == '.');
}

/// `any_of: ~` is as good as none.
const YamlKeys<UpdateDraft>& update_keys() {
  using Draft = UpdateDraft;
  static const YamlKeys<Draft> keys = [] {
    static const YamlKeys<RetrySpec> retry = {
        integer("max_restarts", &RetrySpec::max_restarts, {0, RetrySpec::kMostRestarts})};
    YamlKeys<Draft> list = {
        section("resources", &Draft::resources, resources_keys),
        converted("any_of", "a list of alternatives", &Draft::any_of, to_alternatives).nullable(),
        {"retry", "a mapping of keys",
         [](const YamlNode& node, Draft& draft) { return read_mapping(node, retry, draft.retry); }},
    };
    for (const YamlKey<ServiceSpec>& key : service_keys())
      list.push_back({key.name, key.expects, [&key](const YamlNode& node, Draft& draft) {
                        return key.read(node, draft.service);
                      }});
    return list;
  }();
  return keys;
}

Result<Unit> check_changeable(const Override& change) {
  constexpr std::array<std::string_view, 10> kChangeable = {
      "priority",   "queue", "labels", "max_duration",      "preemptible",
      "stop_grace", "after", "any_of", "resources.devices", "retry.max_restarts"};
  std::string all;
  for (const std::string_view key : kChangeable) {
    if (is_below(change.path, key)) return Unit{};
    all += (all.empty() ? "" : ", ") + std::string(key);
  }
  return fail(ErrorCode::kInvalidSpec, "'" + change.path +
                                           "' of a job that is submitted cannot be changed (what "
                                           "can: " +
                                           all + "; for all else submit another job)");
}

/// What is set as a whole replaces what was there.
void forget_replaced(const std::vector<Override>& changes, UpdateDraft* draft) {
  for (const Override& change : changes) {
    if (change.path == "labels") draft->service.labels.clear();
    if (change.path == "any_of") draft->any_of.clear();
    if (change.path == "resources.devices") draft->resources.devices = {};
    if (change.path == "resources.devices.limits") draft->resources.devices.limits.clear();
  }
}

}  // namespace

Result<JobSpec> updated_job(const JobSpec& job, const std::vector<Override>& changes) {
  MOTLEY_TRY(YamlTree tree, parse_yaml("{}", job.source, kJobLimits));
  for (const Override& change : changes) {
    MOTLEY_TRY_VOID(check_changeable(change));
    MOTLEY_TRY_VOID(override_value(tree, change.path, change.value, change.where));
  }
  UpdateDraft draft;
  static_cast<JobSpec&>(draft) = job;
  draft.resources.devices = job.devices;
  forget_replaced(changes, &draft);
  MOTLEY_TRY_VOID(read_mapping(tree.root, update_keys(), draft));
  if (const YamlNode* resources = tree.root.find("resources"); resources && !draft.any_of.empty())
    return fail_at(
        *resources,
        "'any_of' and 'resources.devices' exclude each other (any_of=null ends the former)");
  draft.devices = draft.any_of.empty() ? draft.resources.devices : DeviceFilter();
  if (const std::optional<SpecFault> fault = first_fault(draft))
    return fail_at(tree.nearest(fault->key), fault->what);
  return JobSpec(std::move(draft));
}

bool concerns_start(std::string_view key) {
  return is_below(key, "resources") || is_below(key, "any_of") || is_below(key, "after");
}

}  // namespace motley
