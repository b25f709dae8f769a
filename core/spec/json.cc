#include "core/spec/json.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/json_fields.h"
#include "core/or_null.h"
#include "core/spec/codec_json.h"
#include "core/spec/names.h"
#include "core/spec/pin_json.h"

namespace motley {
namespace {

using nlohmann::json;

// --- model ---

void read_model(JsonFields& fields, ModelSpec& model) {
  fields.read("type", model.type)
      .read("layers", model.layers)
      .read("heads", model.heads)
      .read("width", model.width)
      .read("context", model.context)
      .read("vocab", model.vocab)
      .read("dropout", model.dropout);
}

// --- job ---

json data_json(const DataSpec& data) {
  return {{"text", data.text},
          {"files", data.files},
          {"tokenizer", data.tokenizer},
          {"held_out", data.held_out}};
}

void read_data(JsonFields& fields, DataSpec& data) {
  fields.read("text", data.text)
      .read("files", data.files)
      .read("tokenizer", data.tokenizer)
      .read("held_out", data.held_out);
}

json optimizer_json(const OptimizerSpec& optimizer) {
  return {{"type", optimizer.type},
          {"lr", optimizer.lr},
          {"betas", {optimizer.beta1, optimizer.beta2}},
          {"eps", optimizer.eps},
          {"weight_decay", optimizer.weight_decay},
          {"clip", optimizer.clip}};
}

void read_optimizer(JsonFields& fields, OptimizerSpec& optimizer) {
  std::vector<double> betas;
  fields.read("type", optimizer.type)
      .read("lr", optimizer.lr)
      .read("betas", betas)
      .read("eps", optimizer.eps)
      .read("weight_decay", optimizer.weight_decay)
      .read("clip", optimizer.clip);
  if (betas.size() != 2) return fields.fault("betas", "expected two numbers");
  optimizer.beta1 = betas[0];
  optimizer.beta2 = betas[1];
}

void read_precision(JsonFields& fields, TrainSpec& train) {
  const json* written = fields.member("precision");
  if (written == nullptr || !written->is_object() || written->empty())
    return void(fields.read_word("precision", train.precision, from_spec_name<Precision>));
  fields.object("precision", [&](JsonFields& by_type) {
    for (const auto& [type, word] : written->items())
      by_type.read_word(type.c_str(), train.precision_by_type[type], from_spec_name<Precision>);
  });
}

json train_json(const TrainSpec& train) {
  return {{"global_batch", train.global_batch},
          {"grain", or_null(train.grain)},
          {"steps", train.steps},
          {"optimizer", optimizer_json(train.optimizer)},
          {"schedule",
           {{"type", train.schedule.type},
            {"warmup", train.schedule.warmup},
            {"min_lr", train.schedule.min_lr}}},
          {"precision", precision_json(train)},
          {"loss_scale", or_null(train.loss_scale)},
          {"numerics", spec_name(train.numerics)},
          {"seed", train.seed},
          {"eval", {{"every", train.eval.every}, {"samples", train.eval.samples}}}};
}

void read_train(JsonFields& fields, TrainSpec& train) {
  fields.read("global_batch", train.global_batch)
      .read("grain", train.grain)
      .read("steps", train.steps)
      .object("optimizer", [&](JsonFields& f) { read_optimizer(f, train.optimizer); })
      .object("schedule", [&](JsonFields& f) {
        f.read("type", train.schedule.type)
            .read("warmup", train.schedule.warmup)
            .read("min_lr", train.schedule.min_lr);
      });
  read_precision(fields, train);
  fields.read("loss_scale", train.loss_scale);
  fields.read_word("numerics", train.numerics, from_spec_name<Numerics>);
  fields.read("seed", train.seed).object("eval", [&](JsonFields& f) {
    f.read("every", train.eval.every).read("samples", train.eval.samples);
  });
}

json checkpoint_json(const CheckpointSpec& checkpoint) {
  return {{"every_steps", checkpoint.every_steps},
          {"every_ns", checkpoint.every_time.value()},
          {"keep", checkpoint.keep},
          {"dir", checkpoint.dir}};
}

void read_checkpoint(JsonFields& fields, CheckpointSpec& checkpoint) {
  fields.read("every_steps", checkpoint.every_steps)
      .read("every_ns", checkpoint.every_time)
      .read("keep", checkpoint.keep)
      .read("dir", checkpoint.dir);
}

json filter_json(const DeviceFilter& filter) {
  json count = nullptr;
  if (filter.count) count = {{"low", filter.count->low}, {"high", filter.count->high}};
  json document = {
      {"count", count},
      {"types", filter.types},
      {"memory", {{"low", filter.memory.low.value()}, {"high", filter.memory.high.value()}}},
      {"mix", filter.mix}};
  if (!filter.limits.empty()) document["limits"] = filter.limits;
  return document;
}

void read_filter(JsonFields& fields, DeviceFilter& filter) {
  if (!fields.is_null("count"))
    fields.object("count", [&](JsonFields& f) {
      CountRange& count = filter.count.emplace();
      f.read("low", count.low).read("high", count.high);
    });
  fields.read("types", filter.types).object("memory", [&](JsonFields& f) {
    f.read("low", filter.memory.low).read("high", filter.memory.high);
  });
  fields.read("mix", filter.mix);
  if (!fields.has("limits")) return;  // most have none
  const json* written = fields.member("limits");
  if (!written->is_object()) return fields.fault("limits", "expected an object");
  fields.object("limits", [&](JsonFields& f) {
    for (const auto& [type, most] : written->items())
      f.read_between(type.c_str(), filter.limits[type], 0, DeviceFilter::kMostDevices);
  });
}

void read_alternatives(JsonFields& fields, std::vector<DeviceFilter>& any_of) {
  fields.each("any_of", [&](JsonFields& f) {
    DeviceFilter& filter = any_of.emplace_back();
    filter.key = "any_of." + std::to_string(any_of.size() - 1);
    read_filter(f, filter);
  });
}

void read_array(JsonFields& fields, ArrayTask& array) {
  fields.read_between("index", array.index, 0, INT32_MAX)
      .read_between("size", array.size, 1, ArrayTask::kMostTasks)
      .read_between("at_once", array.at_once, 0, ArrayTask::kMostTasks);
}

void read_parallel(JsonFields& fields, ParallelSpec& parallel) {
  fields.read_if("data", parallel.data)
      .read_if("pipeline", parallel.pipeline)
      .read_if("tensor", parallel.tensor)
      .read_if("recompute", parallel.recompute)
      .read_if("host_optimizer", parallel.host_optimizer);
  if (fields.has("shard_optimizer"))
    fields.read_word("shard_optimizer", parallel.shard_optimizer, from_spec_name<ShardOptimizer>);
  read_codec(fields, "compress", parallel.compress);
  if (fields.has("sync"))
    fields.object("sync", [&](JsonFields& f) { f.read("across", parallel.sync.across); });
}

void read_retry(JsonFields& fields, RetrySpec& retry) {
  fields.read("max_restarts", retry.max_restarts)
      .read("exclude_failed_devices", retry.exclude_failed_devices);
}

json program_json(const ProgramSpec& program) {
  return {{"command", program.command},
          {"workdir", program.workdir},
          {"env", program.env},
          {"setup", program.setup}};
}

void read_texts(JsonFields& fields, const char* key, std::map<std::string, std::string>* texts) {
  const json* written = fields.member(key);
  if (written == nullptr) return;
  if (!written->is_object()) return fields.fault(key, "expected an object");
  fields.object(key, [&](JsonFields& members) {
    for (const auto& [name, value] : written->items()) members.read(name.c_str(), (*texts)[name]);
  });
}

void read_program(JsonFields& fields, ProgramSpec& program) {
  fields.read("command", program.command).read("workdir", program.workdir);
  read_texts(fields, "env", &program.env);
  fields.read("setup", program.setup);
}

json service_json(const ServiceSpec& service) {
  json document = {{"priority", service.priority},
                   {"queue", service.queue},
                   {"after", service.after},
                   {"labels", service.labels},
                   {"max_duration_ns", service.max_duration.value()},
                   {"preemptible", service.preemptible}};
  if (service.stop_grace > Nanos(0)) document["stop_grace_ns"] = service.stop_grace.value();
  if (service.resumes.job > 0)
    document["resumes"] = {{"job", service.resumes.job}, {"step", service.resumes.step}};
  return document;
}

void read_service(JsonFields& fields, ServiceSpec& service) {
  fields.read_between("priority", service.priority, 0, ServiceSpec::kMostPriority)
      .read("queue", service.queue)
      .read("after", service.after);
  read_texts(fields, "labels", &service.labels);
  fields.read("max_duration_ns", service.max_duration).read("preemptible", service.preemptible);
  if (fields.has("stop_grace_ns")) fields.read("stop_grace_ns", service.stop_grace);
  if (fields.has("resumes"))
    fields.object("resumes", [&](JsonFields& f) {
      f.read_between("job", service.resumes.job, 1, INT64_MAX)
          .read_between("step", service.resumes.step, 0, INT64_MAX);
    });
}

void read_job(JsonFields& fields, JobSpec& job) {
  fields.read_version(1);
  fields.read("name", job.name)
      .read("source", job.source)
      .read("fleet", job.fleet_path)
      .object("model", [&](JsonFields& f) { read_model(f, job.model); })
      .object("data", [&](JsonFields& f) { read_data(f, job.data); })
      .object("train", [&](JsonFields& f) { read_train(f, job.train); })
      .object("checkpoint", [&](JsonFields& f) { read_checkpoint(f, job.checkpoint); })
      .object("devices", [&](JsonFields& f) { read_filter(f, job.devices); })
      .object("retry", [&](JsonFields& f) { read_retry(f, job.retry); });
  if (fields.has("parallel"))  // jobs were written without it
    fields.object("parallel", [&](JsonFields& f) { read_parallel(f, job.parallel); });
  if (fields.has("pin")) fields.object("pin", [&](JsonFields& f) { read_pin(f, job.pin); });
  if (fields.has("service"))
    fields.object("service", [&](JsonFields& f) { read_service(f, job.service); });
  if (fields.has("any_of")) read_alternatives(fields, job.any_of);
  if (fields.has("array")) fields.object("array", [&](JsonFields& f) { read_array(f, job.array); });
  if (fields.has("program"))
    fields.object("program", [&](JsonFields& f) { read_program(f, job.program); });
}

// --- fleet ---

json pace_json(const std::optional<PaceSpec>& pace) {
  if (!pace) return nullptr;
  return {{"speed", pace->speed},
          {"overhead_ns", pace->overhead.value()},
          {"half_batch", pace->half_batch}};
}

json share_json(const std::optional<ShareSpec>& share) {
  if (!share) return nullptr;
  return {{"sms", share->sms}, {"first", share->first}};
}

json memory_json(const std::optional<Bytes>& memory) {
  return memory ? json(memory->value()) : json(nullptr);
}

void read_device(JsonFields& fields, DeviceSpec& device) {
  fields.read("id", device.id).read("host", device.host);
  fields.read_word("kind", device.kind, from_spec_name<DeviceKind>);
  fields.read("type", device.type)
      .read("uuid", device.uuid)
      .read("threads", device.threads)
      .read("memory", device.memory)
      .read("price_per_hour", device.price_per_hour);
  if (!fields.is_null("paced"))
    fields.object("paced", [&](JsonFields& f) {
      PaceSpec& pace = device.paced.emplace();
      f.read("speed", pace.speed)
          .read("overhead_ns", pace.overhead)
          .read("half_batch", pace.half_batch);
    });
  if (fields.has("share") && !fields.is_null("share"))  // fleets were written without it
    fields.object("share", [&](JsonFields& f) {
      ShareSpec& share = device.share.emplace();
      f.read("sms", share.sms).read("first", share.first);
    });
}

json link_json(const LinkSpec& link) {
  return {{"between", {link.between[0], link.between[1]}},
          {"bytes_per_second", link.bytes_per_second},
          {"latency_ns", link.latency.value()}};
}

void read_link(JsonFields& fields, LinkSpec& link) {
  std::vector<std::string> hosts;
  fields.read("between", hosts)
      .read("bytes_per_second", link.bytes_per_second)
      .read("latency_ns", link.latency);
  if (hosts.size() != 2) return fields.fault("between", "expected two hosts");
  link.between[0] = hosts[0];
  link.between[1] = hosts[1];
}

void read_fleet(JsonFields& fields, FleetSpec& fleet) {
  fields.read_version(1);
  fields.read("source", fleet.source);
  fields.read_word("clock", fleet.clock, from_spec_name<PaceClock>);
  fields.read("pace_flops", fleet.pace_flops)
      .each("devices", [&](JsonFields& f) { read_device(f, fleet.devices.emplace_back()); })
      .each("links", [&](JsonFields& f) { read_link(f, fleet.links.emplace_back()); });
}

template <class Spec, class Read>
Result<Spec> read_document(const json& document, Read read) {
  Spec spec;
  JsonFields fields(document);
  read(fields, spec);
  MOTLEY_TRY_VOID(fields.done());
  return spec;
}

}  // namespace

json precision_json(const TrainSpec& train) {
  if (train.precision_by_type.empty()) return spec_name(train.precision);
  json by_type = json::object();
  for (const auto& [type, precision] : train.precision_by_type)
    by_type[type] = spec_name(precision);
  return by_type;
}

json to_json(const ModelSpec& model) {
  return {{"type", model.type},      {"layers", model.layers},   {"heads", model.heads},
          {"width", model.width},    {"context", model.context}, {"vocab", model.vocab},
          {"dropout", model.dropout}};
}

json to_json(const JobSpec& job) {
  json document = {{"version", job.version},
                   {"name", job.name},
                   {"source", job.source},
                   {"fleet", job.fleet_path},
                   {"model", to_json(job.model)},
                   {"data", data_json(job.data)},
                   {"train", train_json(job.train)},
                   {"checkpoint", checkpoint_json(job.checkpoint)},
                   {"devices", filter_json(job.devices)},
                   {"parallel",
                    {{"data", or_null(job.parallel.data)},
                     {"pipeline", or_null(job.parallel.pipeline)},
                     {"tensor", or_null(job.parallel.tensor)},
                     {"recompute", job.parallel.recompute},
                     {"shard_optimizer", spec_name(job.parallel.shard_optimizer)},
                     {"host_optimizer", job.parallel.host_optimizer},
                     {"compress", to_json(job.parallel.compress)},
                     {"sync", {{"across", job.parallel.sync.across}}}}},
                   {"pin", to_json(job.pin)},
                   {"retry",
                    {{"max_restarts", job.retry.max_restarts},
                     {"exclude_failed_devices", job.retry.exclude_failed_devices}}}};
  // Where the job says nothing of it, as for most runs, neither does its document.
  if (job.service != ServiceSpec()) document["service"] = service_json(job.service);
  for (const DeviceFilter& filter : job.any_of) document["any_of"].push_back(filter_json(filter));
  if (job.array != ArrayTask())
    document["array"] = {
        {"index", job.array.index}, {"size", job.array.size}, {"at_once", job.array.at_once}};
  if (job.is_program()) document["program"] = program_json(job.program);
  return document;
}

json to_json(const DeviceSpec& device) {
  return {{"id", device.id},
          {"host", device.host},
          {"kind", spec_name(device.kind)},
          {"type", device.type},
          {"uuid", device.uuid},
          {"threads", device.threads},
          {"memory", memory_json(device.memory)},
          {"price_per_hour", device.price_per_hour},
          {"paced", pace_json(device.paced)},
          {"share", share_json(device.share)}};
}

json to_json(const FleetSpec& fleet) {
  json devices = json::array();
  for (const DeviceSpec& device : fleet.devices) devices.push_back(to_json(device));
  json links = json::array();
  for (const LinkSpec& link : fleet.links) links.push_back(link_json(link));
  return {
      {"version", fleet.version},       {"source", fleet.source}, {"clock", spec_name(fleet.clock)},
      {"pace_flops", fleet.pace_flops}, {"devices", devices},     {"links", links}};
}

Result<ModelSpec> model_from_json(const json& document) {
  return read_document<ModelSpec>(document, read_model);
}
Result<JobSpec> job_from_json(const json& document) {
  MOTLEY_TRY(JobSpec job, read_document<JobSpec>(document, read_job));
  if (const std::optional<SpecFault> fault = first_fault(job)) {
    std::string pointer = "/" + fault->key;
    std::replace(pointer.begin(), pointer.end(), '.', '/');
    return fail(ErrorCode::kInvalidSpec, pointer + ": " + fault->what);
  }
  return job;
}
Result<DeviceSpec> device_from_json(const json& document) {
  return read_document<DeviceSpec>(document, read_device);
}
Result<FleetSpec> fleet_from_json(const json& document) {
  return read_document<FleetSpec>(document, read_fleet);
}

}  // namespace motley
