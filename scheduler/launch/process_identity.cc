#include "scheduler/launch/process_identity.h"

#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <sstream>

namespace motley {
namespace {

constexpr int kFieldsBeforeStart = 19;  // of /proc/<pid>/stat, from the state on

std::string boot_name() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string name;
  file >> name;
  return name;
}

}  // namespace

std::optional<ProcessIdentity> identity_of(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  const size_t name_end = line.rfind(')');  // the name before it may hold anything
  if (name_end == std::string::npos) return std::nullopt;
  std::istringstream fields(line.substr(name_end + 1));
  std::string skipped;
  for (int i = 0; i < kFieldsBeforeStart; ++i) fields >> skipped;
  ProcessIdentity identity{pid, 0, boot_name()};
  if (!(fields >> identity.start_ticks)) return std::nullopt;
  return identity;
}

Fd watch_process(const ProcessIdentity& process) {
  // glibc 2.36 declares pidfd_open without extern "C". The descriptor closes on exec.
  Fd fd(static_cast<int>(::syscall(SYS_pidfd_open, process.pid, 0)));
  // Whoever has the number now that we hold it: it is looked at only afterwards.
  if (fd.valid() && identity_of(process.pid) != process) fd.reset();
  return fd;
}

Nanos age_of(const ProcessIdentity& process) {
  timespec up{};
  ::clock_gettime(CLOCK_BOOTTIME, &up);
  const double started =
      static_cast<double>(process.start_ticks) / static_cast<double>(::sysconf(_SC_CLK_TCK));
  const double now = static_cast<double>(up.tv_sec) + static_cast<double>(up.tv_nsec) * 1e-9;
  return nanos_of_seconds(std::max(0.0, now - started));
}

}  // namespace motley
