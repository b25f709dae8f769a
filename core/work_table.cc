#include "core/work_table.h"

#include <nlohmann/json.hpp>

#include "core/json_fields.h"
#include "core/spec/json.h"
#include "core/spec/names.h"

namespace motley {
namespace {

using nlohmann::json;

constexpr int kWorkVersion = 1;
constexpr double kMostWork = 1e30;
constexpr int kMostCounted = 1 << 30;
constexpr int64_t kMostTableBytes = INT64_MAX / 4;

json pass_json(const PassWork& work) {
  return {{"product_flops", work.product_flops}, {"product_bytes", work.product_bytes},
          {"other_flops", work.other_flops},     {"other_bytes", work.other_bytes},
          {"operations", work.operations},       {"sums", work.sums}};
}

void read_pass(JsonFields& fields, PassWork& work) {
  fields.read_between("product_flops", work.product_flops, 0, kMostWork)
      .read_between("product_bytes", work.product_bytes, 0, kMostWork)
      .read_between("other_flops", work.other_flops, 0, kMostWork)
      .read_between("other_bytes", work.other_bytes, 0, kMostWork)
      .read_between("operations", work.operations, 0, kMostCounted)
      .read_between("sums", work.sums, 0, kMostCounted);
}

json layer_json(const LayerWork& layer) {
  json points = json::array();
  for (const WorkPoint& point : layer.points)
    points.push_back({{"micro_batch", point.micro_batch},
                      {"memory", point.memory.value()},
                      {"forward", pass_json(point.forward)},
                      {"backward", pass_json(point.backward)}});
  return {{"layer", layer.layer},
          {"share", layer.share},
          {"recompute", spec_name(layer.recompute)},
          {"sum_bytes_per_sample", layer.sum_bytes_per_sample},
          {"points", std::move(points)}};
}

void read_work_layer(JsonFields& fields, LayerWork& layer) {
  fields.read("layer", layer.layer)
      .read_between("share", layer.share, 1e-9, 1)
      .read_word("recompute", layer.recompute, from_spec_name<Recompute>)
      .read_between("sum_bytes_per_sample", layer.sum_bytes_per_sample, 0, kMostWork)
      .each("points", [&](JsonFields& f) {
        WorkPoint& point = layer.points.emplace_back();
        f.read_between("micro_batch", point.micro_batch, 1, kMostCounted)
            .read_between("memory", point.memory, 0, kMostTableBytes)
            .object("forward", [&](JsonFields& of) { read_pass(of, point.forward); })
            .object("backward", [&](JsonFields& of) { read_pass(of, point.backward); });
      });
  if (layer.points.empty()) fields.fault("points", "has no point");
}

json table_json(const WorkTable& table) {
  json layers = json::array(), memory = json::array();
  for (const LayerWork& layer : table.layers) layers.push_back(layer_json(layer));
  for (const MemoryPoint& point : table.memory)
    memory.push_back({{"micro_batch", point.micro_batch},
                      {"fixed", point.fixed.value()},
                      {"activations", point.activations.value()}});
  return {{"update_flops", table.update_flops},
          {"update_bytes", table.update_bytes},
          {"layers", std::move(layers)},
          {"memory", std::move(memory)}};
}

void read_table(JsonFields& fields, WorkTable& table) {
  fields.read_between("update_flops", table.update_flops, 0, kMostWork)
      .read_between("update_bytes", table.update_bytes, 0, kMostWork)
      .each("layers", [&](JsonFields& f) { read_work_layer(f, table.layers.emplace_back()); })
      .each("memory", [&](JsonFields& f) {
        MemoryPoint& point = table.memory.emplace_back();
        f.read_between("micro_batch", point.micro_batch, 1, kMostCounted)
            .read_between("fixed", point.fixed, 0, kMostTableBytes)
            .read_between("activations", point.activations, 0, kMostTableBytes);
      });
}

}  // namespace

json to_json(const WorkRequest& request) {
  json devices = json::array();
  for (const WorkDevice& device : request.devices)
    devices.push_back({{"kind", spec_name(device.kind)},
                       {"precision", spec_name(device.precision)},
                       {"threads", device.threads},
                       {"memory_limit", device.memory_limit.value()}});
  return {{"version", kWorkVersion}, {"job", to_json(request.job)}, {"devices", devices}};
}

Result<WorkRequest> work_request_from_json(const json& document) {
  WorkRequest request;
  JsonFields fields(document);
  fields.read_version(kWorkVersion).each("devices", [&](JsonFields& f) {
    WorkDevice& device = request.devices.emplace_back();
    f.read_word("kind", device.kind, from_spec_name<DeviceKind>)
        .read_word("precision", device.precision, from_spec_name<Precision>)
        .read_between("threads", device.threads, 1, 1024)
        .read("memory_limit", device.memory_limit);
    if (device.precision == Precision::kAuto) f.fault("precision", "must be told");
  });
  const json* job = fields.member("job");
  MOTLEY_TRY_VOID(fields.done());
  MOTLEY_TRY(request.job, job_from_json(*job));
  MOTLEY_TRY_VOID(validate(request.job.model));
  return request;
}

json to_json(const std::vector<WorkTable>& tables) {
  json rows = json::array();
  for (const WorkTable& table : tables) rows.push_back(table_json(table));
  return {{"version", kWorkVersion}, {"devices", std::move(rows)}};
}

Result<std::vector<WorkTable>> work_tables_from_json(const json& document) {
  std::vector<WorkTable> tables;
  JsonFields fields(document);
  fields.read_version(kWorkVersion).each("devices", [&](JsonFields& f) {
    read_table(f, tables.emplace_back());
  });
  MOTLEY_TRY_VOID(fields.done());
  return tables;
}

}  // namespace motley
