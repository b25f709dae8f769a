#include "scheduler/run/attempt_follower.h"

#include <nlohmann/json.hpp>

#include "core/file_system.h"
#include "scheduler/launch/worker_program.h"
#include "scheduler/run/attempt_listener.h"

namespace motley {

Result<AttemptRecord> run_training_attempt(const Attempt& attempt, const AttemptOptions& options,
                                           SignalInbox& signals, ProgressLine& line) {
  FileSystem& fs = real_file_system();
  MOTLEY_TRY_VOID(fs.make_directories(options.directory));
  MOTLEY_TRY_VOID(write_text_durably(fs, options.directory + "/plan.json",
                                     to_json(attempt.plan).dump(1) + "\n"));
  RunnerClientOptions client;
  client.program = own_program();
  client.document = options.directory + "/attempt.json";
  client.rsh_agent = options.rsh_agent;
  client.lock_fd = options.lock_fd;
  MOTLEY_TRY_VOID(write_text_durably(fs, client.document, to_json(attempt).dump() + "\n"));
  MOTLEY_TRY(const auto runner, RunnerClient::start(client));
  AttemptListener listener(attempt, options, line);
  Followed followed = follow(
      *runner, signals, options.on_signal,
      [&](const RunnerLine& event) { listener.on_line(event); },
      [&](int signal) { listener.on_signal(signal); });
  line.finish();
  AttemptRecord record = listener.take();
  record.followed = std::move(followed);
  return record;
}

}  // namespace motley
