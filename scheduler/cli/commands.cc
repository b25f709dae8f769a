#include "scheduler/cli/command.h"

namespace motley {

const std::vector<CommandEntry>& commands() {
  static const std::vector<CommandEntry> table = {
      {"run", "train a job: measure, plan, train, follow; run again to continue", make_run_command},
      {"resume", "continue a stopped or failed run, perhaps on other devices", make_resume_command},
      {"plan", "who would compute what, the prediction, and why the others lost",
       make_plan_command},
      {"worth", "should these device types be mixed at all: every set of them, and the verdict",
       make_worth_command},
      {"fit", "the memory a job or a model needs, the smallest device and mix that train it",
       make_fit_command},
      {"simulate", "a step second by second, also of a fleet that nobody has here",
       make_simulate_command},
      {"profile", "measure the devices of a job's fleet", make_profile_command},
      {"profiles", "what has been measured so far", make_profiles_command},
      {"devices", "the devices of this machine", make_devices_command},
      {"fleet", "write a fleet file of what hosts have, or of what Slurm says", make_fleet_command},
      {"bench", "measure what this machine's links can do", make_bench_command},
      {"report", "what a run came to: predicted against actual", make_report_command},
      {"sample", "text from a run's newest checkpoint", make_sample_command},
      {"export",
       "what other tools need: hostfile and job.json for mpirun, a batch script for Slurm",
       make_export_command},
      {"doctor", "what is missing on this machine, with one fix each", make_doctor_command},
      {"serve", "coordinator of the job service: takes jobs and gives them this machine's devices",
       make_serve_command},
      {"submit", "give a job to the service", make_submit_command},
      {"ls", "the jobs of the service", make_ls_command},
      {"show", "a job of the service and its attempts", make_show_command},
      {"why", "what a job waits for, and what would start it", make_why_command},
      {"logs", "what a job has printed, also after its end", make_logs_command},
      {"events", "what has happened to jobs", make_events_command},
      {"cancel", "end a job; a checkpoint is saved first", make_cancel_command},
      {"hold", "stop a job with a checkpoint, until it is released", make_hold_command},
      {"release", "let a held job go on", make_release_command},
      {"requeue", "stop a job with a checkpoint and let it start anew", make_requeue_command},
      {"rm", "forget a job that has ended, with its runs", make_rm_command},
      {"token", "who may ask the service over the network: create, ls, revoke", make_token_command},
      {"login", "to a service on another machine; commands then ask that one", make_login_command},
      {"logout", "forget a service on another machine", make_logout_command},
      {"backup", "a copy of what the service knows", make_backup_command},
      {"completion", "a completion script for bash, zsh or fish", make_completion_command},
      {"runner", "", make_runner_command},
      {"rank", "", make_rank_command},
      {"attempt", "", make_attempt_command},
  };
  return table;
}

}  // namespace motley
