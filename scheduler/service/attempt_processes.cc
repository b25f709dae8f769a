#include "scheduler/service/attempt_processes.h"

#include <cstdio>

#include "scheduler/launch/marked_processes.h"

namespace motley {
namespace {

std::string entry_of(const std::string& value) { return std::string(kAttemptMark) + "=" + value; }

}  // namespace

std::string attempt_mark(const ServiceDirectory& directory, AttemptId id) {
  return directory.attempt(id) + "/";  // else that of attempt 1 would be found in 12's
}

std::set<AttemptId> running_attempts(const ServiceDirectory& directory) {
  std::set<AttemptId> found;
  for (const std::string& mark : marks(entry_of(directory.path() + "/jobs/"))) {
    long long job = 0;
    int epoch = 0;
    if (std::sscanf(mark.c_str(), "%lld/attempts/%d/", &job, &epoch) == 2)
      found.insert({job, Epoch(epoch)});
  }
  return found;
}

bool is_running(const ServiceDirectory& directory, AttemptId id) {
  return !marked_processes(entry_of(attempt_mark(directory, id))).empty();
}

void kill_running(const ServiceDirectory& directory, AttemptId id) {
  kill_marked(entry_of(attempt_mark(directory, id)), Nanos(0));
}

}  // namespace motley
