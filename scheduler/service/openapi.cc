#include "scheduler/service/openapi.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <nlohmann/json.hpp>

#include "core/version.h"

namespace motley {
namespace {

using nlohmann::json;

/// Of a route, what its table does not say.
struct Words {
  std::string_view route;
  std::string_view summary;
  std::string_view answers;     ///< a schema; "": text
  std::string_view takes = {};  ///< a schema; "JobFile": YAML; "": nothing
  bool streams = false;         ///< with Accept: text/event-stream
  bool adds_job = false;        ///< a repetition is told by its Idempotency-Key
};

constexpr Words kWords[] = {
    {"GET /v1/jobs", "Jobs, the newest first", "JobPage"},
    {"POST /v1/jobs",
     "Submit a job, or an array of them; answered, with the first, when all are on disk", "Job",
     "JobFile", false, true},
    {"GET /v1/jobs/{id}", "A job and its attempts", "Job"},
    {"PATCH /v1/jobs/{id}", "Other values for one that has not ended", "Job", "JobChanges"},
    {"DELETE /v1/jobs/{id}", "Forget one that has ended, with its runs", "Removed"},
    {"GET /v1/jobs/{id}/why", "What a job waits for, and what would start it", "Why"},
    {"GET /v1/jobs/{id}/progress", "How far it is, rank by rank", "JobProgress"},
    {"GET /v1/jobs/{id}/logs", "What its attempts have printed", "LogPiece", "", true},
    {"POST /v1/jobs/{id}/cancel", "End it, after a checkpoint", "Job"},
    {"POST /v1/jobs/{id}/hold", "Stop it, after a checkpoint, until it is released", "Job"},
    {"POST /v1/jobs/{id}/release", "Let a held job go on", "Job"},
    {"POST /v1/jobs/{id}/requeue", "Stop it, after a checkpoint, and start it anew", "Job"},
    {"POST /v1/jobs/{id}/resume", "A new job that goes on from a checkpoint of one that has ended",
     "Job", "", false, true},
    {"GET /v1/events", "What has happened to jobs", "EventPage", "", true},
    {"GET /v1/devices", "What each device does, and how well", "DevicePage"},
    {"GET /v1/fleet", "The devices, and who has them", "Fleet"},
    {"GET /v1/profiles", "What was measured of jobs, the newest first", "ProfilePage"},
    {"GET /v1/nodes", "The machines, and what they have", "NodePage"},
    {"GET /v1/nodes/{name}", "A machine", "Node"},
    {"POST /v1/nodes/{name}/join", "An agent offers its machine's devices", "Node", "NodeJoin"},
    {"POST /v1/nodes/{name}/report", "An agent's sign of life", "NodeAnswer", "NodeReport"},
    {"POST /v1/nodes/{name}/leave", "An agent ends", "Node"},
    {"GET /v1/nodes/{name}/orders", "Commands that an agent is to run", "Document", "", true},
    {"POST /v1/nodes/{name}/drain", "Give it no new attempts", "Node"},
    {"POST /v1/nodes/{name}/undrain", "Give it attempts again", "Node"},
    {"DELETE /v1/nodes/{name}", "Forget one that is lost", "Forgotten"},
    {"POST /v1/commands", "Run a command of an attempt on a node", "Document", "NodeCommand"},
    {"GET /v1/commands/{name}", "What a command prints, and its end", "Document", "", true},
    {"POST /v1/tokens", "A new token, told this once", "Token", "TokenWish"},
    {"GET /v1/tokens", "All tokens, without their secrets", "TokenPage"},
    {"POST /v1/tokens/{id}/revoke", "A token is not valid from now on", "Token"},
    {"POST /v1/tokens/revoke", "No token of a user is valid from now on", "TokenPage"},
    {"GET /v1/whoami", "Whose token this is", "Whoami"},
    {"GET /v1/openapi.json", "This document", "Document"},
    {"GET /metrics", "For Prometheus", ""},
    {"GET /healthz", "Whether it answers", ""},
    {"GET /readyz", "Whether it can do its work", ""},
};

/// Of each parameter: its schema and what it means.
constexpr std::array<std::string_view, 3> kParameters[] = {
    {"after", R"({"type": ["integer", "string"]})", "goes on after this number, or log's place"},
    {"array", R"({"type": "integer", "minimum": 0})", "of the array with this first job"},
    {"attempt", R"({"type": "integer", "minimum": 0})", "of this attempt only"},
    {"before", R"({"type": "integer", "minimum": 0})", "numbers below it: the next page"},
    {"deadline", R"({"type": "string"})", "a duration (10m); what runs there then is stopped"},
    {"hold", R"({"type": "boolean"})", "it waits until it is released"},
    {"job", R"({"type": "integer", "minimum": 0})", "of this job only"},
    {"label", R"({"type": "string"})", "name, or name=value"},
    {"last", R"({"type": "integer", "minimum": 0, "maximum": 10000})",
     "begins with the newest so many; instead of after"},
    {"limit", R"({"type": "integer", "minimum": 0, "maximum": 200, "default": 50})", "at most"},
    {"name", R"({"type": "string"})", "of this name"},
    {"owner", R"({"type": "string"})", "of this user"},
    {"priority", R"({"type": "integer", "minimum": 0, "maximum": 100})",
     "instead of the job's own"},
    {"queue", R"({"type": "string"})", "of this queue"},
    {"rank", R"({"type": "integer", "minimum": 0})", "what that rank has printed"},
    {"reason", R"({"type": "string"})", "shown to who asks"},
    {"session", R"({"type": "string"})", "of the agent, as it joined"},
    {"source", R"({"type": "string"})",
     "absolute path of the job file: paths in it are relative to that"},
    {"state", R"({"type": "string"})", "unfinished, finished, or a state"},
    {"step", R"({"type": "integer", "minimum": 0})", "of the checkpoint; else the newest one"},
    {"user", R"({"type": "string"})", "whose tokens"},
};

constexpr const char* kSchemas = R"json({
"Time": {"type": ["number", "null"], "description": "seconds since 1970; null: not yet, or never"},
"Error": {"type": "object", "required": ["error"], "properties": {"error": {"type": "object", "required": ["code", "message"],
  "properties": {"code": {"type": "string"}, "message": {"type": "string"}}}}},
"JobFile": {"type": "string", "description": "a job file (YAML)"},
"JobChanges": {"type": "object", "minProperties": 1, "description": "keys of a job file, such as resources.devices.count; values, or texts of YAML"},
"JobSummary": {"type": "object",
  "required": ["id", "name", "owner", "queue", "priority", "state", "attempt", "restarts", "held", "cause", "array", "submitted", "finished", "progress"],
  "properties": {"id": {"type": "integer"}, "name": {"type": "string"}, "owner": {"type": "string"}, "queue": {"type": "string"},
    "priority": {"type": "integer"}, "state": {"enum": ["waiting", "queued", "profiling", "planning", "launching", "running", "stopping",
      "succeeded", "failed", "cancelled"]},
    "attempt": {"type": "integer"}, "restarts": {"type": "integer"}, "held": {"type": "boolean"}, "cause": {"type": "string"},
    "array": {"type": ["object", "null"], "required": ["first", "index", "size"], "properties": {"first": {"type": "integer"},
      "index": {"type": "integer"}, "size": {"type": "integer"}}},
    "submitted": {"$ref": "#/components/schemas/Time"}, "finished": {"$ref": "#/components/schemas/Time"},
    "progress": {"oneOf": [{"$ref": "#/components/schemas/Progress"}, {"type": "null"}], "description": "null: no attempt tells of any"}}},
"Progress": {"type": "object", "required": ["phase", "begun", "step", "steps", "loss", "samples_per_second", "step_seconds", "eta_seconds",
  "straggler"], "properties": {"phase": {"type": "string"}, "begun": {"$ref": "#/components/schemas/Time"}, "step": {"type": ["integer", "null"]},
    "steps": {"type": ["integer", "null"]}, "loss": {"type": ["number", "null"]}, "samples_per_second": {"type": ["number", "null"]},
    "step_seconds": {"type": ["number", "null"]}, "eta_seconds": {"type": ["number", "null"]},
    "straggler": {"type": ["object", "null"], "properties": {"rank": {"type": "integer"}, "device": {"type": "string"},
      "others_wait_share": {"type": "number"}, "text": {"type": "string"}, "job": {"type": "integer"}}},
    "ranks": {"type": "array", "items": {"$ref": "#/components/schemas/RankProgress"}}}},
"RankProgress": {"type": "object", "required": ["rank", "device", "host", "type", "compute_seconds", "wait_seconds", "update_seconds",
  "memory_bytes", "memory_limit_bytes", "waiting_share"], "properties": {"rank": {"type": "integer"}, "device": {"type": "string"},
    "host": {"type": "string"}, "type": {"type": "string"}, "compute_seconds": {"type": ["number", "null"]},
    "wait_seconds": {"type": ["number", "null"]}, "update_seconds": {"type": ["number", "null"]}, "memory_bytes": {"type": ["integer", "null"]},
    "memory_limit_bytes": {"type": ["integer", "null"]}, "waiting_share": {"type": ["number", "null"]}}},
"JobProgress": {"type": "object", "required": ["id", "state", "progress"], "properties": {"id": {"type": "integer"}, "state": {"type": "string"},
  "progress": {"oneOf": [{"$ref": "#/components/schemas/Progress"}, {"type": "null"}]}}},
"DeviceNow": {"type": "object", "required": ["device", "host", "type", "uuid", "state", "job", "job_name", "rank", "busy_share", "waiting_share",
  "step_seconds", "memory_bytes", "memory_limit_bytes", "gpu_utilisation", "temperature", "gpu_memory_used_bytes", "gpu_memory_bytes"],
  "properties": {"device": {"type": "string"}, "host": {"type": "string"}, "type": {"type": "string"}, "uuid": {"type": "string"},
    "state": {"enum": ["free", "given", "leftover", "draining", "lost", "awaited"]},
    "job": {"type": ["integer", "null"]}, "job_name": {"type": ["string", "null"]}, "rank": {"type": ["integer", "null"]},
    "busy_share": {"type": ["number", "null"]}, "waiting_share": {"type": ["number", "null"]}, "step_seconds": {"type": ["number", "null"]},
    "memory_bytes": {"type": ["integer", "null"]}, "memory_limit_bytes": {"type": ["integer", "null"]},
    "gpu_utilisation": {"type": ["integer", "null"]}, "temperature": {"type": ["integer", "null"]},
    "gpu_memory_used_bytes": {"type": ["integer", "null"]}, "gpu_memory_bytes": {"type": ["integer", "null"]}}},
"DevicePage": {"type": "object", "required": ["devices", "stragglers"], "properties": {
  "devices": {"type": "array", "items": {"$ref": "#/components/schemas/DeviceNow"}},
  "stragglers": {"type": "array", "items": {"type": "object"}}}},
"Job": {"allOf": [{"$ref": "#/components/schemas/JobSummary"}, {"type": "object", "required": ["directory", "attempts", "job"],
  "properties": {"directory": {"type": "string"}, "job": {"type": "object",
    "description": "job.json; values of program.env are told to its owner and administrators alone, else ***"},
    "attempts": {"type": "array", "items": {"$ref": "#/components/schemas/Attempt"}}}}]},
"Attempt": {"type": "object", "required": ["attempt", "devices", "begun", "ended", "seconds", "outcome", "cause"],
  "properties": {"attempt": {"type": "integer"}, "devices": {"type": "array", "items": {"type": "string"}},
    "begun": {"$ref": "#/components/schemas/Time"}, "ended": {"$ref": "#/components/schemas/Time"}, "seconds": {"type": "number"},
    "outcome": {"enum": ["", "done", "measured", "not measured", "stopped", "failed"]}, "cause": {"type": "string"}}},
"JobPage": {"type": "object", "required": ["jobs", "next"], "properties": {
  "jobs": {"type": "array", "items": {"$ref": "#/components/schemas/JobSummary"}}, "next": {"type": ["integer", "null"]}}},
"Removed": {"type": "object", "required": ["id", "removed"], "properties": {"id": {"type": "integer"}, "removed": {"type": "boolean"}}},
"Why": {"type": "object", "required": ["id", "state", "reasons", "remedy", "position", "estimated_start_seconds"], "properties": {"id": {"type": "integer"},
  "state": {"type": "string"}, "reasons": {"type": "array", "items": {"type": "string"}}, "remedy": {"type": ["string", "null"]},
  "position": {"type": ["integer", "null"]}, "estimated_start_seconds": {"type": ["number", "null"], "description": "from now"}}},
"ProfilePage": {"type": "object", "required": ["profiles"], "properties": {"profiles": {"type": "array", "items": {"type": "object",
  "required": ["job", "name", "type", "samples_per_second", "measured"], "properties": {"job": {"type": "integer"}, "name": {"type": "string"},
  "type": {"type": "string"}, "samples_per_second": {"type": "number", "description": "of one device alone; 0: it cannot train it"},
  "measured": {"$ref": "#/components/schemas/Time"}}}}}},
"LogPiece": {"type": "object", "required": ["text", "attempt", "next", "over"], "properties": {"text": {"type": "string"},
  "attempt": {"type": "integer"}, "next": {"type": "string"}, "over": {"type": "boolean"}}},
"Event": {"type": "object", "required": ["id", "time", "job", "node", "text"], "properties": {"id": {"type": "integer"},
  "time": {"$ref": "#/components/schemas/Time"}, "job": {"type": ["integer", "null"]}, "node": {"type": ["string", "null"]},
  "text": {"type": "string"}}},
"EventPage": {"type": "object", "required": ["events", "next"], "properties": {
  "events": {"type": "array", "items": {"$ref": "#/components/schemas/Event"}}, "next": {"type": "integer"}}},
"Fleet": {"type": "object", "required": ["policy", "devices"], "properties": {"policy": {"type": "string"},
  "devices": {"type": "array", "items": {"type": "object", "description": "as in fleet.json, and job: who has it"}}}},
"Node": {"type": "object", "required": ["name", "state", "own", "cause", "draining", "reason", "labels", "heartbeat_seconds",
  "deadline_seconds", "given", "devices"], "properties": {"name": {"type": "string"}, "state": {"enum": ["ready", "awaited", "lost", "draining"]},
  "own": {"type": "boolean"}, "cause": {"type": "string"}, "draining": {"type": "boolean"}, "reason": {"type": "string"},
  "labels": {"type": "object"}, "heartbeat_seconds": {"type": ["number", "null"]}, "deadline_seconds": {"type": ["number", "null"]},
  "given": {"type": "integer"}, "devices": {"type": "array", "items": {"type": "object", "description": "as in fleet.json, job: who has it, aside: of an attempt that is over something still runs there"}}}},
"NodePage": {"type": "object", "required": ["nodes"], "properties": {"nodes": {"type": "array", "items": {"$ref": "#/components/schemas/Node"}}}},
"Forgotten": {"type": "object", "required": ["name", "forgotten"], "properties": {"name": {"type": "string"}, "forgotten": {"type": "boolean"}}},
"AttemptId": {"type": "object", "required": ["job", "attempt"], "properties": {"job": {"type": "integer"}, "attempt": {"type": "integer"}}},
"NodeJoin": {"type": "object", "required": ["session", "fleet", "labels"], "properties": {"session": {"type": "string"},
  "fleet": {"type": "object", "description": "fleet.json of this node alone"}, "labels": {"type": "object"}}},
"NodeReport": {"type": "object", "required": ["session", "running", "pieces"], "properties": {"session": {"type": "string"},
  "running": {"type": "array", "items": {"$ref": "#/components/schemas/AttemptId"}}, "pieces": {"type": "array", "items": {"type": "object"}},
  "gauges": {"type": "array", "items": {"type": "object"}}}},
"NodeAnswer": {"type": "object", "required": ["attempts", "received", "unwanted"], "properties": {
  "attempts": {"type": "array", "items": {"$ref": "#/components/schemas/AttemptId"}}, "received": {"type": "object"},
  "unwanted": {"type": "array", "items": {"type": "string"}}}},
"NodeCommand": {"type": "object", "required": ["id", "job", "attempt", "node", "command", "input", "key"], "properties": {
  "id": {"type": "string"}, "job": {"type": "integer"}, "attempt": {"type": "integer"}, "node": {"type": "string"},
  "command": {"type": "string"}, "input": {"type": "string"}, "key": {"type": "string"}}},
"TokenWish": {"type": "object", "properties": {"user": {"type": "string"}, "role": {"enum": ["viewer", "user", "admin", "node"]},
  "label": {"type": "string"}, "node": {"type": "string"}, "expires_seconds": {"type": "integer", "minimum": 1}}, "additionalProperties": false},
"Token": {"type": "object", "required": ["id", "user", "role", "label", "node", "created", "expires", "revoked", "valid"], "properties": {
  "id": {"type": "integer"}, "user": {"type": "string"}, "role": {"enum": ["viewer", "user", "admin", "node"]}, "label": {"type": "string"},
  "node": {"type": ["string", "null"], "description": "that it speaks for; null: any other, or the first that joins by it"},
  "created": {"$ref": "#/components/schemas/Time"}, "expires": {"$ref": "#/components/schemas/Time"},
  "revoked": {"$ref": "#/components/schemas/Time"}, "valid": {"type": "boolean"},
  "token": {"type": "string", "description": "of a new one"}, "address": {"type": ["string", "null"]}, "fingerprint": {"type": ["string", "null"]}}},
"TokenPage": {"type": "object", "required": ["tokens"], "properties": {
  "tokens": {"type": "array", "items": {"$ref": "#/components/schemas/Token"}}}},
"Whoami": {"type": "object", "required": ["user", "role"], "properties": {"user": {"type": "string"}, "role": {"type": "string"}}},
"Document": {"type": "object"}
})json";

json reference(std::string_view schema) {
  return {{"$ref", "#/components/schemas/" + std::string(schema)}};
}

json content(std::string_view type, json schema) {
  return {{std::string(type), {{"schema", std::move(schema)}}}};
}

json parameter(std::string_view name) {
  for (const auto& [known, schema, meaning] : kParameters)
    if (known == name)
      return {{"name", known},
              {"in", "query"},
              {"schema", json::parse(schema)},
              {"description", meaning}};
  return {{"name", name}, {"in", "query"}, {"schema", {{"type", "string"}}}};
}

json header(const char* name, const char* meaning) {
  return {
      {"name", name}, {"in", "header"}, {"schema", {{"type", "string"}}}, {"description", meaning}};
}

json parameters_of(const Api::RouteView& route, const Words& words) {
  json all = json::array();
  if (route.path.find("{id}") != std::string::npos)
    all.push_back({{"name", "id"},
                   {"in", "path"},
                   {"required", true},
                   {"schema", {{"type", "integer"}, {"minimum", 1}}}});
  if (route.path.find("{name}") != std::string::npos)
    all.push_back(
        {{"name", "name"}, {"in", "path"}, {"required", true}, {"schema", {{"type", "string"}}}});
  for (std::string_view rest = route.parameters; !rest.empty();)
    all.push_back(parameter(cut_off(&rest, ' ')));
  if (words.adds_job)
    all.push_back(header("Idempotency-Key", "a second submission with it is the first one's job"));
  if (words.streams) all.push_back(header("Last-Event-ID", "a stream goes on after it"));
  return all;
}

json responses_of(const Api::RouteView& route, const Words& words) {
  json good = {{"description", words.summary}};
  good["content"] = words.answers.empty() ? content("text/plain", {{"type", "string"}})
                                          : content("application/json", reference(words.answers));
  if (words.streams) good["content"].update(content("text/event-stream", {{"type", "string"}}));
  const json wrong = {{"description", "what is wrong, in a line"},
                      {"content", content("application/json", reference("Error"))}};
  const bool makes = words.adds_job || (!words.takes.empty() && route.method == "POST" &&
                                        !words.route.starts_with("POST /v1/nodes/"));
  json all = {{makes ? "201" : "200", good}, {"default", wrong}};
  if (route.least != Role::kNobody) all["401"] = all["403"] = wrong;
  return all;
}

json operation(const Api::RouteView& route, const Words& words) {
  json described = {{"summary", words.summary},
                    {"parameters", parameters_of(route, words)},
                    {"responses", responses_of(route, words)}};
  if (route.least == Role::kNobody)
    described["security"] = json::array();
  else
    described["description"] = "Takes the role " + std::string(name_of(route.least)) +
                               (route.of_owner ? ", of who owns the job, or admin." : ".");
  if (!words.takes.empty())
    described["requestBody"] = {
        {"required", true},
        {"content", content(words.takes == "JobFile" ? "application/yaml" : "application/json",
                            reference(words.takes))}};
  return described;
}

}  // namespace

json openapi_document(const std::vector<Api::RouteView>& routes) {
  json paths = json::object();
  for (const Api::RouteView& route : routes) {
    const std::string key = route.method + " " + route.path;
    const auto* words = std::find_if(std::begin(kWords), std::end(kWords),
                                     [&](const Words& each) { return each.route == key; });
    std::string method = route.method;
    for (char& c : method) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    paths[route.path][method] = operation(route, words == std::end(kWords) ? Words{} : *words);
  }
  return {{"openapi", "3.1.0"},
          {"info", {{"title", "Motley job service"}, {"version", build_version().version}}},
          {"paths", paths},
          {"security", json::array({{{"token", json::array()}}})},
          {"components",
           {{"schemas", json::parse(kSchemas)},
            {"securitySchemes", {{"token", {{"type", "http"}, {"scheme", "bearer"}}}}}}}};
}

}  // namespace motley
