#include "worker/train/stop_signals.h"

#include <sys/prctl.h>

#include <atomic>
#include <csignal>

namespace motley {
namespace {

std::atomic<ControlWishes*> asked = nullptr;  // ranks that are threads all say the same

void ask_to_stop(int signal) {
  ControlWishes& wishes = *asked;
  if (signal == SIGINT && wishes.stop) {
    std::signal(SIGINT, SIG_DFL);
    std::raise(SIGINT);
  }
  wishes.stop = true;
}

}  // namespace

void stop_on_signals(ControlWishes* wishes) {
  static_assert(std::atomic<bool>::is_always_lock_free, "used in a signal handler");
  static_assert(std::atomic<ControlWishes*>::is_always_lock_free, "so is this");
  asked = wishes;
  struct sigaction action = {};
  action.sa_handler = ask_to_stop;
  action.sa_flags = SA_RESTART;
  for (const int signal : {SIGTERM, SIGUSR1, SIGINT}) sigaction(signal, &action, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
}

void die_with_parent() { prctl(PR_SET_PDEATHSIG, SIGKILL); }

}  // namespace motley
