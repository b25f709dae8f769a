#pragma once
// The subcommands of motley-worker. Each adds itself to the command line; when chosen, it runs
// while the line is parsed and leaves its outcome.

#include "core/result.h"

namespace CLI {
class App;
}

namespace motley {

void add_train_command(CLI::App& app, Result<Unit>* outcome);
void add_profile_command(CLI::App& app, Result<Unit>* outcome);
void add_estimate_command(CLI::App& app, Result<Unit>* outcome);
void add_bench_comm_command(CLI::App& app, Result<Unit>* outcome);
void add_bench_link_command(CLI::App& app, Result<Unit>* outcome);
void add_devices_command(CLI::App& app, Result<Unit>* outcome);
void add_sample_command(CLI::App& app, Result<Unit>* outcome);
void add_script_checkpoint_command(CLI::App& app, Result<Unit>* outcome);
void add_version_command(CLI::App& app, Result<Unit>* outcome);

}  // namespace motley
