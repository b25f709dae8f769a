#include "worker/engine/memory_account.h"

#include <algorithm>

namespace motley {

void MemoryAccount::add(MemoryUse use, Bytes size) {
  Bytes& own = held_[static_cast<size_t>(use)];
  own += size;
  peaks_[static_cast<size_t>(use)] = std::max(peak_of(use), own);
  Bytes all{0};
  for (const Bytes part : held_) all += part;
  peak_ = std::max(peak_, all);
}

void MemoryAccount::remove(MemoryUse use, Bytes size) {
  held_[static_cast<size_t>(use)] = held(use) - size;
}

MemoryCharge::MemoryCharge(MemoryAccount& account, MemoryUse use, Bytes size)
    : account_(&account), use_(use), size_(size) {
  account.add(use, size);
}

MemoryCharge::~MemoryCharge() {
  if (account_ != nullptr) account_->remove(use_, size_);
}

}  // namespace motley
