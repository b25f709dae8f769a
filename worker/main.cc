#include <CLI/CLI.hpp>
#include <cstdio>

#include "core/log.h"
#include "core/output.h"
#include "worker/commands/commands.h"

int main(int argc, char** argv) {
  CLI::App app("The worker of Motley: `motley` starts it for you, one for each device.",
               "motley-worker");
  app.require_subcommand(1);
  motley::Result<motley::Unit> outcome = motley::Unit{};
  motley::add_train_command(app, &outcome);
  motley::add_profile_command(app, &outcome);
  motley::add_estimate_command(app, &outcome);
  motley::add_bench_comm_command(app, &outcome);
  motley::add_bench_link_command(app, &outcome);
  motley::add_devices_command(app, &outcome);
  motley::add_sample_command(app, &outcome);
  motley::add_script_checkpoint_command(app, &outcome);
  motley::add_version_command(app, &outcome);
  const auto parse = [&]() -> motley::Result<int> {
    try {
      app.parse(argc, argv);
      return 0;
    } catch (const CLI::ParseError& error) {
      return app.exit(error) == 0 ? 0 : motley::exit_code(motley::ErrorCode::kUsage);
    }
  };
  const motley::Result<int> parsed = motley::without_exceptions(parse);
  if (!parsed) outcome = motley::fail(parsed.error());
  if (const auto written = motley::flush_output(); outcome && !written)
    outcome = motley::fail(written.error());
  if (outcome) return *parsed;
  // Of several ranks that end alike, one has the words.
  if (!outcome.error().message.empty())
    std::fprintf(stderr, "motley-worker: %s\n",
                 motley::one_line(outcome.error().to_string()).c_str());
  return motley::exit_code(outcome.error().code);
}
