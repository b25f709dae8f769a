#include <sys/stat.h>

#include <cstdio>

#include "core/file_system.h"
#include "scheduler/cli/command.h"
#include "scheduler/service/service_directory.h"
#include "scheduler/store/database.h"

namespace motley {
namespace {

/// A copy of what the service knows, with or without a coordinator at work.
class BackupCommand final : public Command {
 public:
  void declare(CommandLine& line) override {
    line.positional("FILE", "where the copy goes; it must not be there yet", &file_)
        .option("--state", "DIR", "of the coordinator, if it was started with one", &state_);
  }

  Result<int> run() override {
    const std::string state = state_.empty() ? default_service_directory() : state_;
    const std::string path = state + "/motley.db";
    if (!real_file_system().exists(path))
      return fail(ErrorCode::kNotFound, "no " + path + ": --state DIR names another place");
    if (real_file_system().exists(file_))
      return fail(ErrorCode::kUsage, file_ + " is there already");
    MOTLEY_TRY(const Database database, Database::open(path, Database::Mode::kRead));
    ::umask(0077);  // jobs may hold what is nobody else's business
    if (const auto copied = database.back_up(file_); !copied) {
      (void)real_file_system().remove_all(file_);  // half a copy would pass for one
      return fail(copied.error());
    }
    std::fprintf(stderr,
                 "copied to %s; to go back to it, end the coordinator and put it in the "
                 "place of %s (and remove %s-wal and %s-shm); tokens that were revoked and jobs "
                 "that were cancelled since then are so no more, and what was begun is stopped\n",
                 file_.c_str(), path.c_str(), path.c_str(), path.c_str());
    return 0;
  }

 private:
  std::string file_, state_;
};

}  // namespace

std::unique_ptr<Command> make_backup_command() { return std::make_unique<BackupCommand>(); }

}  // namespace motley
