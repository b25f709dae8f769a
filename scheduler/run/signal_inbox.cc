#include "scheduler/run/signal_inbox.h"

#include <sys/signalfd.h>
#include <unistd.h>

#include <csignal>

namespace motley {
namespace {

sigset_t taken() {
  sigset_t set;
  ::sigemptyset(&set);
  for (const int signal : {SIGINT, SIGTERM, SIGUSR1, SIGHUP}) ::sigaddset(&set, signal);
  return set;
}

}  // namespace

SignalInbox::SignalInbox() {
  const sigset_t set = taken();
  ::sigprocmask(SIG_BLOCK, &set, nullptr);
  fd_ = Fd(::signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC));
}

SignalInbox::~SignalInbox() {
  const sigset_t set = taken();
  ::sigprocmask(SIG_UNBLOCK, &set, nullptr);
}

std::optional<int> SignalInbox::next() {
  signalfd_siginfo info;
  if (::read(fd_.get(), &info, sizeof info) != sizeof info) return std::nullopt;
  last_ = static_cast<int>(info.ssi_signo);
  return last_;
}

}  // namespace motley
