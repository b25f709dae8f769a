#pragma once
// Signals as something to wait for beside other input, instead of something that strikes anywhere.

#include <optional>

#include "scheduler/launch/child_process.h"

namespace motley {

/// While it lives, SIGINT, SIGTERM, SIGUSR1 and SIGHUP are taken here. One at a time in a process.
class SignalInbox {
 public:
  SignalInbox();
  ~SignalInbox();
  SignalInbox(const SignalInbox&) = delete;
  SignalInbox& operator=(const SignalInbox&) = delete;

  int fd() const { return fd_.get(); }  ///< readable when next() has one
  std::optional<int> next();            ///< does not block
  int last() const { return last_; }    ///< the last one next() gave; 0: none

 private:
  Fd fd_;
  int last_ = 0;
};

}  // namespace motley
