#include "scheduler/service/api.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "core/file_system.h"
#include "core/json_fields.h"
#include "core/spec/json.h"
#include "core/spec/reader.h"
#include "scheduler/launch/this_host.h"
#include "scheduler/service/job_json.h"
#include "scheduler/service/job_log.h"
#include "scheduler/service/openapi.h"
#include "scheduler/service/replies.h"
#include "scheduler/service/streams.h"

namespace motley {
namespace {

using nlohmann::json;

constexpr int64_t kPage = 50;
constexpr int64_t kLargestPage = 200;
constexpr int64_t kMostLast = 10'000;
constexpr size_t kLogPiece = 64 << 10;
constexpr size_t kLargestArray = 64 << 20;  ///< bytes of job.json

Result<bool> flag_in(const HttpRequest& request, const std::string& name) {
  const std::string text = text_in(request, name);
  if (text.empty() || text == "false") return false;
  if (text == "true") return true;
  return fail(ErrorCode::kInvalidSpec, name + ": expected true or false, found '" + text + "'");
}

Result<JobQuery> query_of(const HttpRequest& request) {
  JobQuery query;
  query.name = text_in(request, "name");
  query.queue = text_in(request, "queue");
  query.owner = text_in(request, "owner");
  query.label = text_in(request, "label");
  MOTLEY_TRY(query.array, number_in(request, "array", 0, INT64_MAX));
  const std::string state = text_in(request, "state");
  if (state == "unfinished") {
    query.which = JobFilter::kUnfinished;
  } else if (state == "finished") {
    query.which = JobFilter::kFinished;
  } else if (!state.empty()) {
    query.state = state_of_name(state);
    if (!query.state)
      return fail(ErrorCode::kUsage, "there is no state '" + state +
                                         "'; there are unfinished, finished, waiting, queued, "
                                         "profiling, planning, launching, running, stopping, "
                                         "succeeded, failed and cancelled");
    query.which = is_final(*query.state) ? JobFilter::kFinished : JobFilter::kUnfinished;
  }
  return query;
}

/// A file of data names each of its files in every job of an array.
Result<Unit> check_size(const std::vector<JobSpec>& jobs) {
  size_t bytes = 0;
  for (size_t i = 0; jobs.size() > 1 && i < jobs.size() && bytes <= kLargestArray; ++i)
    bytes += to_json(jobs[i]).dump().size();
  if (bytes <= kLargestArray) return Unit{};
  return fail(ErrorCode::kInvalidSpec,
              "'array': its jobs, which name their data files each, are larger than 64 MiB "
              "(submit fewer at a time, or data in fewer files)",
              place_of(jobs.front(), ""));
}

/// What a program's environment is set to is often a secret.
Result<std::string> spec_shown_to(const Caller& caller, const StoredJob& job) {
  if (caller.role == Role::kAdmin || caller.user == job.owner) return job.spec;
  MOTLEY_TRY(json spec, parse_json(job.spec));
  if (spec.contains("program"))
    for (json& value : spec["program"]["env"]) value = "***";
  return spec.dump();
}

/// What is to be changed, by key, as JSON values or as texts of YAML.
Result<std::vector<Override>> changes_of(const HttpRequest& request) {
  MOTLEY_TRY(const json body, parse_json(request.body));
  if (!body.is_object() || body.empty())
    return fail(ErrorCode::kInvalidSpec,
                "expected an object of keys and values, such as {\"priority\": 70}");
  std::vector<Override> changes;
  for (const auto& [key, value] : body.items())
    changes.push_back({key, value.is_string() ? value.get<std::string>() : value.dump()});
  return changes;
}

/// A program's place is the same on all machines. Where none of the devices is here that need not
/// be so of this one.
Result<Unit> check_place(const JobSpec& job, const Coordinator& coordinator) {
  const auto& nodes = coordinator.nodes();
  const bool has_own = std::any_of(nodes.begin(), nodes.end(),
                                   [](const auto& node) { return node.second.is_own(); });
  std::error_code error;
  if (!has_own || !job.is_program() || std::filesystem::is_directory(job.program.workdir, error))
    return Unit{};
  return fail(ErrorCode::kInvalidSpec,
              "'workdir': there is no directory " + job.program.workdir + " on " + own_host_name() +
                  ", where the service is: a job's paths are those of there",
              place_of(job, "workdir"));
}

/// The jobs of a submission's body, with what its target says besides.
Result<Submission> submission_of(const HttpRequest& request) {
  const std::string source = text_in(request, "source");
  const std::filesystem::path path(source.empty() ? "/job.yaml" : source);
  if (!path.is_absolute())
    return fail(ErrorCode::kInvalidSpec,
                "source: expected an absolute path, found '" + source + "'");
  std::vector<Override> overrides;
  if (request.query.count("priority") != 0)
    overrides.push_back({"priority", text_in(request, "priority"), "--priority"});
  Submission submission;
  MOTLEY_TRY(submission.jobs,
             parse_jobs(request.body, source.empty() ? "job.yaml" : source,
                        path.parent_path().string(), overrides, JobParts::kAllOrProgram));
  MOTLEY_TRY_VOID(check_size(submission.jobs));
  submission.owner = request.caller.user;
  MOTLEY_TRY(submission.key, submission_key(request));
  MOTLEY_TRY(submission.held, flag_in(request, "hold"));
  return submission;
}

}  // namespace

/// What is asked of a job: open to who owns it.
template <JobRequest kWhat>
Api::Route Api::request_route(std::string_view after) {
  return {Role::kUser,
          "POST",
          "/v1/jobs/",
          after,
          true,
          "",
          [](Api& api, const HttpRequest& request, const HttpReply& reply, int64_t job) {
            api.ask(kWhat, request, reply, job);
          },
          true};
}

Api::Route Api::node_route(Role least, std::string_view method, std::string_view what,
                           std::string_view parameters, Route::Answer answer) {
  return {least, method, "/v1/nodes/", what, false, parameters, answer, false, true};
}

const std::vector<Api::Route>& Api::routes() {
  static const std::vector<Route> table = [] {
    std::vector<Route> all = job_routes();
    for (const Route& route : node_routes()) all.push_back(route);
    return all;
  }();
  return table;
}

std::vector<Api::Route> Api::node_routes() {
  using Request = const HttpRequest&;
  using Reply = const HttpReply&;
  using enum Role;
  return {
      {kViewer, "GET", "/v1/nodes", "", false, "",
       [](Api& api, Request, Reply reply, int64_t) { api.nodes_.list(reply); }},
      node_route(
          kViewer, "GET", "", "",
          [](Api& api, Request request, Reply reply, int64_t) { api.nodes_.show(request, reply); }),
      node_route(
          kNode, "POST", "/join", "",
          [](Api& api, Request request, Reply reply, int64_t) { api.nodes_.join(request, reply); }),
      node_route(kNode, "POST", "/report", "",
                 [](Api& api, Request request, Reply reply, int64_t) {
                   api.nodes_.report(request, reply);
                 }),
      node_route(kNode, "POST", "/leave", "session",
                 [](Api& api, Request request, Reply reply, int64_t) {
                   api.nodes_.leave(request, reply);
                 }),
      node_route(kNode, "GET", "/orders", "session",
                 [](Api& api, Request request, Reply reply, int64_t) {
                   api.nodes_.orders(request, reply);
                 }),
      node_route(kAdmin, "POST", "/drain", "deadline reason",
                 [](Api& api, Request request, Reply reply, int64_t) {
                   api.nodes_.drain(request, reply);
                 }),
      node_route(kAdmin, "POST", "/undrain", "",
                 [](Api& api, Request request, Reply reply, int64_t) {
                   api.nodes_.undrain(request, reply);
                 }),
      node_route(kAdmin, "DELETE", "", "",
                 [](Api& api, Request request, Reply reply, int64_t) {
                   api.nodes_.forget(request, reply);
                 }),
      {kAdmin, "POST", "/v1/commands", "", false, "",
       [](Api& api, Request request, Reply reply, int64_t) { api.nodes_.start(request, reply); }},
      {kAdmin, "GET", "/v1/commands/", "", false, "",
       [](Api& api, Request request, Reply reply, int64_t) { api.nodes_.output(request, reply); },
       false, true},
  };
}

std::vector<Api::Route> Api::job_routes() {
  using Request = const HttpRequest&;
  using Reply = const HttpReply&;
  using enum Role;
  return {
      {kViewer, "GET", "/v1/jobs", "", false, "state name queue owner label array before limit",
       [](Api& api, Request request, Reply reply, int64_t) { api.list(request, reply); }},
      {kUser, "POST", "/v1/jobs", "", false, "source priority hold",
       [](Api& api, Request request, Reply reply, int64_t) { api.submit(request, reply); }},
      {kViewer, "GET", "/v1/jobs/", "", true, "",
       [](Api& api, Request request, Reply reply, int64_t job) { api.show(request, reply, job); }},
      {kUser, "PATCH", "/v1/jobs/", "", true, "",
       [](Api& api, Request request, Reply reply, int64_t job) { api.update(request, reply, job); },
       true},
      {kUser, "DELETE", "/v1/jobs/", "", true, "",
       [](Api& api, Request, Reply reply, int64_t job) { api.remove(reply, job); }, true},
      {kViewer, "GET", "/v1/jobs/", "/why", true, "",
       [](Api& api, Request request, Reply reply, int64_t job) { api.why(request, reply, job); }},
      {kViewer, "GET", "/v1/jobs/", "/progress", true, "",
       [](Api& api, Request, Reply reply, int64_t job) { api.progress(reply, job); }},
      {kViewer, "GET", "/v1/jobs/", "/logs", true, "after attempt rank",
       [](Api& api, Request request, Reply reply, int64_t job) { api.logs(request, reply, job); }},
      request_route<JobRequest::kCancel>("/cancel"),
      request_route<JobRequest::kHold>("/hold"),
      request_route<JobRequest::kRelease>("/release"),
      request_route<JobRequest::kRequeue>("/requeue"),
      {kUser, "POST", "/v1/jobs/", "/resume", true, "step",
       [](Api& api, Request request, Reply reply, int64_t job) { api.resume(request, reply, job); },
       true},
      {kViewer, "GET", "/v1/events", "", false, "job after last limit",
       [](Api& api, Request request, Reply reply, int64_t) { api.events(request, reply); }},
      {kViewer, "GET", "/v1/devices", "", false, "",
       [](Api& api, Request, Reply reply, int64_t) { api.devices(reply); }},
      {kViewer, "GET", "/v1/fleet", "", false, "",
       [](Api& api, Request request, Reply reply, int64_t) { api.fleet(request, reply); }},
      {kViewer, "GET", "/v1/profiles", "", false, "limit",
       [](Api& api, Request request, Reply reply, int64_t) { api.profiles(request, reply); }},
      {kAdmin, "POST", "/v1/tokens", "", false, "",
       [](Api& api, Request request, Reply reply, int64_t) { api.create_token(request, reply); }},
      {kAdmin, "GET", "/v1/tokens", "", false, "",
       [](Api& api, Request request, Reply reply, int64_t) { api.list_tokens(request, reply); }},
      {kAdmin, "POST", "/v1/tokens/", "/revoke", true, "",
       [](Api& api, Request request, Reply reply, int64_t token) {
         api.revoke_token(request, reply, token);
       }},
      {kAdmin, "POST", "/v1/tokens/revoke", "", false, "user",
       [](Api& api, Request request, Reply reply, int64_t) { api.revoke_tokens(request, reply); }},
      {kViewer, "GET", "/v1/whoami", "", false, "",
       [](Api& api, Request request, Reply reply, int64_t) { api.whoami(request, reply); }},
      {kViewer, "GET", "/v1/openapi.json", "", false, "",
       [](Api&, Request, Reply reply, int64_t) {
         static const HttpResponse document = json_response(openapi_document(all_routes()));
         reply(document);
       }},
      {kViewer, "GET", "/metrics", "", false, "",
       [](Api& api, Request request, Reply reply, int64_t) { api.metrics(request, reply); }},
      {kNobody, "GET", "/healthz", "", false, "",
       [](Api& api, Request request, Reply reply, int64_t) { api.healthz(request, reply); }},
      {kNobody, "GET", "/readyz", "", false, "",
       [](Api& api, Request request, Reply reply, int64_t) { api.readyz(request, reply); }},
  };
}

std::vector<Api::RouteView> Api::all_routes() {
  std::vector<RouteView> views;
  for (const Route& route : routes())
    views.push_back({route.least, std::string(route.method),
                     std::string(route.before) +
                         (route.has_number ? "{id}"
                          : route.has_name ? "{name}"
                                           : "") +
                         std::string(route.after),
                     std::string(route.parameters), route.of_owner});
  return views;
}

namespace {

/// What stands between the parts of a path; empty where it is another path.
std::string_view name_between(std::string_view path, std::string_view before,
                              std::string_view after) {
  if (path.size() <= before.size() + after.size() || !path.starts_with(before) ||
      !path.ends_with(after))
    return {};
  path.remove_prefix(before.size());
  path.remove_suffix(after.size());
  return path.find('/') == path.npos ? path : std::string_view();
}

/// The same as a number.
std::optional<int64_t> number_between(std::string_view whole, std::string_view before,
                                      std::string_view after) {
  const std::string_view path = name_between(whole, before, after);
  int64_t number = 0;
  const auto parsed = std::from_chars(path.data(), path.data() + path.size(), number);
  const bool digits = parsed.ec == std::errc() && parsed.ptr == path.data() + path.size();
  return digits && number > 0 ? std::optional(number) : std::nullopt;
}

}  // namespace

std::optional<HttpResponse> Api::find(HttpRequest* request, Found* found) const {
  auto caller = access_.caller_of(*request);
  if (!caller && caller.error().code != ErrorCode::kNotPermitted)
    return error_response(500, caller.error());
  if (!caller) return unauthorised(*request, caller.error());
  request->caller = std::move(*caller);
  std::string allowed;
  const std::string method = request->method == "HEAD" ? "GET" : request->method;
  for (const Route& route : routes()) {
    const auto number = number_between(request->path, route.before, route.after);
    request->name = name_between(request->path, route.before, route.after);
    const bool fits = route.has_number ? number.has_value()
                      : route.has_name ? !request->name.empty()
                                       : request->path == route.before;
    if (!fits) continue;
    *found = {&route, number.value_or(0)};
    if (method == route.method) return not_permitted(route, *request, found->number);
    allowed += (allowed.empty() ? "" : ", ") + std::string(route.method);
    if (route.method == "GET") allowed += ", HEAD";
  }
  if (allowed.empty())
    return error_response(404, {ErrorCode::kNotFound, "there is no " + request->path, {}});
  HttpResponse response = error_response(
      405,
      {ErrorCode::kUsage, request->path + " takes " + allowed + ", not " + request->method, {}});
  response.allow = allowed;
  return response;
}

std::optional<HttpResponse> Api::refusal_of(HttpRequest head) const {
  Found found;
  if (auto refusal = find(&head, &found)) return refusal;
  const auto known = only(head, found.route->parameters);
  return known ? std::nullopt
               : std::optional(error_response(status_of(known.error().code), known.error()));
}

void Api::handle(HttpRequest request, const HttpReply& reply) {
  Found found;
  if (auto refusal = find(&request, &found)) return reply(std::move(*refusal));
  if (const auto known = only(request, found.route->parameters); !known)
    return refuse(reply, known.error());
  if (request.method == "HEAD") request.accept.clear();  // its header alone is sent
  const auto answer = [this, caller = request.caller, reply](HttpResponse response) {
    if (response.standing == Standing::kStranger && caller.role != Role::kNobody)
      response.standing = Standing::kKnown;
    if (response.events) response.events = access_.limited(std::move(response.events), caller);
    reply(std::move(response));
  };
  found.route->answer(*this, request, answer, found.number);
}

void Api::list(const HttpRequest& request, const HttpReply& reply) {
  const auto query = query_of(request);
  if (!query) return refuse(reply, query.error());
  const auto before = number_in(request, "before", INT64_MAX, INT64_MAX);
  const auto limit = number_in(request, "limit", kPage, kLargestPage);
  if (!before || !limit) return refuse(reply, before ? limit.error() : before.error());
  const auto jobs = list_jobs(kept_, *query, *before, static_cast<int>(*limit));
  if (!jobs) return refuse(reply, jobs.error());
  json page = {{"jobs", json::array()}, {"next", nullptr}};
  for (const StoredJob& job : jobs->jobs) {
    page["jobs"].push_back(to_json(job));
    page["jobs"].back()["progress"] = progress_json(progress_of(directory_, job));
  }
  if (jobs->next > 0) page["next"] = jobs->next;
  reply(json_response(page));
}

void Api::submit(const HttpRequest& request, const HttpReply& reply) {
  auto submission = submission_of(request);
  if (!submission)
    return reply(error_response(status_of_refused(submission.error().code), submission.error()));
  for (const JobSpec& job : submission->jobs)
    if (const auto there = check_place(job, coordinator_); !there)
      return reply(error_response(status_of_refused(there.error().code), there.error()));
  for (const JobSpec& job : submission->jobs)
    if (const auto fine = check_priority(request.caller, job.service.priority); !fine)
      return reply(error_response(403, fine.error()));
  add(std::move(*submission), request.caller, reply);
}

void Api::add(Submission submission, const Caller& caller, const HttpReply& reply) {
  coordinator_.submit(std::move(submission), [this, reply, caller](Result<int64_t> id) {
    if (!id) return reply(error_response(status_of_refused(id.error().code), id.error()));
    reply(job_response(*id, caller, 201));
  });
}

HttpResponse Api::job_response(int64_t id, const Caller& caller, int status) const {
  const auto job = find_job(kept_, id);
  const auto attempts = list_attempts(kept_, id);
  if (!job) return error_response(status_of(job.error().code), job.error());
  if (!attempts) return error_response(500, attempts.error());
  json document = to_json(*job);
  document["attempts"] = json::array();
  for (const StoredAttempt& attempt : *attempts) document["attempts"].push_back(to_json(attempt));
  document["directory"] = directory_.job(id);
  document["progress"] = progress_json(progress_of(directory_, *job));
  const auto spec = spec_shown_to(caller, *job);
  if (!spec) return error_response(500, spec.error());
  HttpResponse response = json_response(document, status);
  // The job is kept as the JSON that it is: no need to take it apart.
  response.body.resize(response.body.rfind('}'));
  response.body += ",\"job\":" + *spec + "}\n";
  return response;
}

void Api::show(const HttpRequest& request, const HttpReply& reply, int64_t job) {
  reply(job_response(job, request.caller, 200));
}

void Api::why(const HttpRequest&, const HttpReply& reply, int64_t id) {
  const auto job = find_job(kept_, id);
  if (!job) return refuse(reply, job.error());
  const JobStatus& status = job->status;
  auto why = coordinator_.why(id);
  if (!why)
    why = WhyJob{{"it has ended: " + std::string(name_of(status.state)) +
                  (status.cause.empty() ? "" : ": " + status.cause)},
                 "",
                 0};
  json document = to_json(*why);
  document["id"] = id;
  document["state"] = name_of(status.state);
  reply(json_response(document));
}

void Api::logs(const HttpRequest& request, const HttpReply& reply, int64_t job) {
  const auto attempt = number_in(request, "attempt", 0, INT32_MAX);
  const auto rank = number_in(request, "rank", 0, INT32_MAX);
  if (!attempt || !rank) return refuse(reply, attempt ? rank.error() : attempt.error());
  LogChoice choice{job, *attempt > 0};
  if (request.query.count("rank") != 0) choice.rank = static_cast<int>(*rank);
  LogPlace place{static_cast<int>(std::max<int64_t>(1, *attempt)), 0};
  // Who comes back asks for the same target again, with where it was.
  const std::string after =
      request.last_event_id.empty() ? text_in(request, "after") : request.last_event_id;
  if (!after.empty()) {
    const auto parsed = LogPlace::parse(after);
    if (!parsed)
      return refuse(reply, {ErrorCode::kUsage, "after: expected what 'next' said before", {}});
    place = *parsed;
  }
  const auto piece = read_job_log(kept_, directory_, choice, place, kLogPiece);
  if (!piece) return refuse(reply, piece.error());
  if (wants_events(request)) {
    HttpResponse response;
    response.events = follow_log(kept_, directory_, choice, place);
    response.standing = Standing::kFollower;
    return reply(std::move(response));
  }
  reply(json_response({{"text", piece->text},
                       {"attempt", piece->attempt},
                       {"next", piece->next.to_string()},
                       {"over", piece->over}}));
}

void Api::update(const HttpRequest& request, const HttpReply& reply, int64_t job) {
  const auto changes = changes_of(request);
  if (!changes)
    return reply(error_response(status_of_refused(changes.error().code), changes.error()));
  if (const auto fine = check_priority(request.caller, job, *changes); !fine)
    return reply(error_response(403, fine.error()));
  const auto answer = [this, reply, job, caller = request.caller](const Result<Unit>& done) {
    if (done) return reply(job_response(job, caller, 200));
    const ErrorCode code = done.error().code;
    // What is wrong with the values is said as of a submission.
    const bool of_job = code == ErrorCode::kInvalidSpec || code == ErrorCode::kNoDevice;
    if (of_job) return reply(error_response(status_of_refused(code), done.error()));
    refuse(reply, done.error());
  };
  coordinator_.update(job, *changes, answer, request.caller.user);
}

void Api::ask(JobRequest what, const HttpRequest& request, const HttpReply& reply, int64_t job) {
  const auto answer = [this, reply, job, caller = request.caller](const Result<Unit>& done) {
    if (!done) return refuse(reply, done.error());
    reply(job_response(job, caller, 200));
  };
  coordinator_.ask(job, what, answer, request.caller.user);
}

void Api::remove(const HttpReply& reply, int64_t job) {
  retention_.remove(job, [reply, job](const Result<Unit>& removed) {
    if (!removed) return refuse(reply, removed.error());
    reply(json_response({{"id", job}, {"removed", true}}));
  });
}

/// After which the events begin that are asked for.
Result<int64_t> Api::first_event(const HttpRequest& request, int64_t job) const {
  if (!request.last_event_id.empty()) {
    HttpRequest resumed;
    resumed.query["Last-Event-ID"] = request.last_event_id;
    return number_in(resumed, "Last-Event-ID", 0, INT64_MAX);
  }
  if (request.query.count("last") == 0) return number_in(request, "after", 0, INT64_MAX);
  if (request.query.count("after") != 0) return fail(ErrorCode::kUsage, "one of after and last");
  MOTLEY_TRY(const int64_t last, number_in(request, "last", 0, kMostLast));
  return event_before_newest(kept_, job, last);
}

void Api::events(const HttpRequest& request, const HttpReply& reply) {
  const auto job = number_in(request, "job", 0, INT64_MAX);
  const auto limit = number_in(request, "limit", kPage, kLargestPage);
  if (!job || !limit) return refuse(reply, job ? limit.error() : job.error());
  if (*job != 0) {
    const auto known = find_job(kept_, *job);
    if (!known) return refuse(reply, known.error());
  }
  const auto after = first_event(request, *job);
  if (!after) return refuse(reply, after.error());
  if (wants_events(request)) {
    HttpResponse response;
    response.events = follow_events(kept_, *job, *after);
    response.standing = Standing::kFollower;
    return reply(std::move(response));
  }
  const auto events = list_events(kept_, *job, *after, static_cast<int>(*limit));
  if (!events) return refuse(reply, events.error());
  json page = {{"events", json::array()}, {"next", *after}};
  for (const StoredEvent& event : *events) page["events"].push_back(to_json(event));
  if (!events->empty()) page["next"] = events->back().id;
  reply(json_response(page));
}

void Api::fleet(const HttpRequest&, const HttpReply& reply) {
  const DevicePools& pools = coordinator_.devices();
  json devices = json::array();
  for (size_t i = 0; i < pools.fleet().devices.size(); ++i) {
    json device = to_json(pools.fleet().devices[i]);
    const int64_t owner = pools.owner_of(i);
    device["job"] = owner == 0 ? json(nullptr) : json(owner);
    devices.push_back(std::move(device));
  }
  reply(json_response({{"policy", policy_}, {"devices", devices}}));
}

void Api::profiles(const HttpRequest& request, const HttpReply& reply) {
  const auto limit = number_in(request, "limit", kPage, kLargestPage);
  if (!limit) return refuse(reply, limit.error());
  const auto speeds = newest_speeds(kept_, static_cast<int>(*limit));
  if (!speeds) return refuse(reply, speeds.error());
  json profiles = json::array();
  for (const StoredSpeed& speed : *speeds) profiles.push_back(to_json(speed));
  reply(json_response({{"profiles", profiles}}));
}

void Api::healthz(const HttpRequest&, const HttpReply& reply) {
  HttpResponse response;
  response.type = "text/plain";
  response.body = "ok\n";
  reply(std::move(response));
}

void Api::readyz(const HttpRequest& request, const HttpReply& reply) {
  const std::optional<Error>& broken = coordinator_.broken();
  if (!broken) return healthz(request, reply);
  if (request.caller.role != Role::kNobody) return reply(error_response(503, *broken));
  // A stranger need not know what lies where.
  const char* why = is_disk_full(*broken) ? "the disk is full" : "nothing can be kept";
  reply(error_response(503, {broken->code, std::string("not ready: ") + why, {}}));
}

}  // namespace motley
