#pragma once
// One command of `motley`: a file <name>_command.cc with a class and its maker, and a row in
// commands.cc.

#include <memory>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "scheduler/cli/command_line.h"

namespace motley {

class Command {
 public:
  virtual ~Command() = default;
  /// Names its words and options; they are filled in before run().
  virtual void declare(CommandLine& line) = 0;
  /// The exit code; an error is printed as one line and gives its own (core/result.h).
  virtual Result<int> run() = 0;
};

struct CommandEntry {
  std::string_view name;
  std::string_view summary;  ///< one line of `motley --help`; empty: not listed there
  std::unique_ptr<Command> (*make)();
};

/// In the order of the help.
const std::vector<CommandEntry>& commands();

std::unique_ptr<Command> make_agent_command();
std::unique_ptr<Command> make_attempt_command();
std::unique_ptr<Command> make_backup_command();
std::unique_ptr<Command> make_bench_command();
std::unique_ptr<Command> make_cancel_command();
std::unique_ptr<Command> make_completion_command();
std::unique_ptr<Command> make_devices_command();
std::unique_ptr<Command> make_fleet_command();
std::unique_ptr<Command> make_diagnose_command();
std::unique_ptr<Command> make_doctor_command();
std::unique_ptr<Command> make_drain_command();
std::unique_ptr<Command> make_events_command();
std::unique_ptr<Command> make_export_command();
std::unique_ptr<Command> make_fit_command();
std::unique_ptr<Command> make_forget_command();
std::unique_ptr<Command> make_hold_command();
std::unique_ptr<Command> make_logs_command();
std::unique_ptr<Command> make_login_command();
std::unique_ptr<Command> make_logout_command();
std::unique_ptr<Command> make_ls_command();
std::unique_ptr<Command> make_nodes_command();
std::unique_ptr<Command> make_plan_command();
std::unique_ptr<Command> make_profile_command();
std::unique_ptr<Command> make_profiles_command();
std::unique_ptr<Command> make_release_command();
std::unique_ptr<Command> make_report_command();
std::unique_ptr<Command> make_requeue_command();
std::unique_ptr<Command> make_rm_command();
std::unique_ptr<Command> make_resume_command();
std::unique_ptr<Command> make_rsh_command();
std::unique_ptr<Command> make_run_command();
std::unique_ptr<Command> make_runner_command();
std::unique_ptr<Command> make_rank_command();
std::unique_ptr<Command> make_sample_command();
std::unique_ptr<Command> make_serve_command();
std::unique_ptr<Command> make_show_command();
std::unique_ptr<Command> make_simulate_command();
std::unique_ptr<Command> make_submit_command();
std::unique_ptr<Command> make_token_command();
std::unique_ptr<Command> make_top_command();
std::unique_ptr<Command> make_undrain_command();
std::unique_ptr<Command> make_update_command();
std::unique_ptr<Command> make_whoami_command();
std::unique_ptr<Command> make_why_command();
std::unique_ptr<Command> make_worth_command();

}  // namespace motley
