#pragma once
// The sends a transport has begun and not completed, by small reused ids. One thread.

#include <deque>
#include <vector>

#include "comm/transport.h"
#include "core/check.h"

namespace motley {

/// Allocates only to hold more open sends than ever before. A send keeps its address while open.
template <class Send>
class PostPool {
 public:
  /// The send is as it was when its id was last closed.
  SendId open() {
    if (free_.empty()) {
      free_.push_back(static_cast<int>(slots_.size()));
      slots_.emplace_back();
    }
    const int id = free_.back();
    free_.pop_back();
    slots_[static_cast<size_t>(id)].open = true;
    return SendId(id);
  }
  Send& at(SendId id) { return slot(id).send; }
  void close(SendId id) {
    slot(id).open = false;
    free_.push_back(id.value());
  }
  bool empty() const { return free_.size() == slots_.size(); }
  template <class Visit>
  void for_each_open(const Visit& visit) {
    for (Slot& slot : slots_)
      if (slot.open) visit(slot.send);
  }

 private:
  struct Slot {
    Send send;
    bool open = false;
  };
  Slot& slot(SendId id) {
    MOTLEY_CHECK(id.value() >= 0 && static_cast<size_t>(id.value()) < slots_.size(),
                 "there is no send of this id");
    Slot& found = slots_[static_cast<size_t>(id.value())];
    MOTLEY_CHECK(found.open, "the send is complete already");
    return found;
  }

  std::deque<Slot> slots_;
  std::vector<int> free_;
};

}  // namespace motley
