// A new job that goes on from what one that has ended has saved.

#include <nlohmann/json.hpp>

#include "core/json_fields.h"
#include "core/spec/json.h"
#include "scheduler/run/fork_run.h"
#include "scheduler/service/api.h"
#include "scheduler/service/replies.h"

namespace motley {
namespace {

/// `runs`: the state directory of the job's runs. kNotPermitted where there is nothing to go on
/// from; kNotFound naming the steps there are where `step` is none of them.
Result<Unit> check_resumable(const StoredJob& job, const JobSpec& spec, const std::string& runs,
                             int64_t step) {
  const std::string name = "job " + std::to_string(job.id);
  const JobState state = job.status.state;
  if (!is_final(state))
    return fail(ErrorCode::kNotPermitted, name + " has not ended: it is " + name_of(state));
  const std::string path = newest_run(runs, job.name);
  const auto run = path.empty() ? Result<RunDirectory>(fail(ErrorCode::kNotFound, "no run"))
                                : RunDirectory::find(path);
  if (!run || run->committed(spec).empty())
    return fail(ErrorCode::kNotPermitted,
                name +
                    (spec.is_program() ? " is a program that has left no checkpoint of motley_torch"
                                       : " has saved no checkpoint") +
                    ": there is nothing to go on from, submit it again");
  if (step > 0) MOTLEY_TRY_VOID(checkpoint_of_step(*run, spec, step));
  if (step == 0 && state == JobState::kSucceeded)
    return fail(ErrorCode::kNotPermitted,
                name +
                    " has succeeded: nothing is left of it (an earlier step to go back to is "
                    "named by --step)");
  return Unit{};
}

}  // namespace

Result<Submission> Api::resumption_of(const HttpRequest& request, int64_t id) const {
  MOTLEY_TRY(const StoredJob job, find_job(kept_, id));
  MOTLEY_TRY(const nlohmann::json document, parse_json(job.spec));
  MOTLEY_TRY(JobSpec spec, job_from_json(document));
  MOTLEY_TRY(const int64_t step, number_in(request, "step", 0, INT64_MAX));
  MOTLEY_TRY_VOID(check_resumable(job, spec, directory_.job(id) + "/motley", step));
  spec.service.resumes = {id, step};
  spec.service.after.clear();  // it had come to its turn
  Submission submission;
  submission.jobs.push_back(std::move(spec));
  submission.owner = job.owner;
  submission.by = request.caller.user;
  MOTLEY_TRY(submission.key, submission_key(request));
  return submission;
}

void Api::resume(const HttpRequest& request, const HttpReply& reply, int64_t job) {
  auto submission = resumption_of(request, job);
  if (!submission) return refuse(reply, submission.error());
  if (const auto fine = check_priority(request.caller, submission->jobs.front().service.priority);
      !fine)
    return reply(error_response(403, fine.error()));
  add(std::move(*submission), request.caller, reply);
}

}  // namespace motley
