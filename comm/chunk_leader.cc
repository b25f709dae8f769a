// The chunk's leader: it adds up what its island hands in, speaks to the leaders of the other
// islands, and hands out the total.

#include <algorithm>
#include <array>
#include <cstring>

#include "comm/chunk_task.h"
#include "comm/element_sums.h"
#include "comm/link_residuals.h"

namespace motley {
namespace {

class Leader final : public ChunkTask {
 public:
  Leader(ReductionSite& site, const Chunk& chunk, const LeaderBuffers& buffers)
      : ChunkTask(site, chunk), buffers_(buffers) {}
  ~Leader() override {
    for (const Transfer& open : transfers_) site_.transport.abandon(open.id);
  }

  /// Receives are posted as early as there is memory for them.
  Result<Unit> open();
  Result<bool> advance() override;
  bool done() const override { return state_ == State::kDone; }
  ChunkWait waits_for() const override;

 private:
  enum class State { kContribute, kAcross, kHandOut, kSending, kDone };
  struct Transfer {
    SendId id;
    int peer = 0;
    bool incoming = false;
  };

  bool contributes(int which) const { return !of(which).contributors.empty(); }
  bool receives(int which) const { return !of(which).receivers.empty(); }
  const IslandPart& of(int which) const { return chunk_.part->islands[static_cast<size_t>(which)]; }
  int leader(int which) const { return chunk_.part->leader(which, chunk_.number); }
  bool alone() const { return chunk_.islands() == 1; }
  bool is_root() const { return !chunk_.part->direct() && root() == chunk_.home; }
  int root() const { return chunk_.part->root(chunk_.number); }
  template <class Body>
  Result<Unit> each_other_island(Body body);

  Result<Unit> expect(int which, bool something, std::byte* into, int tag);
  Result<Unit> send(int which, const std::byte* data, int tag);
  Result<bool> contribute();
  Result<bool> poll_transfers();
  bool open_transfers(bool incoming_only) const;
  Result<bool> across();
  Result<Unit> hand_on();
  void list_sums();
  Result<Unit> send_total();
  void encode(std::byte* elements);
  void decode_and_add_up();
  bool all_handed_in();
  void list_contributions();
  void free_contributions();
  void add_up();
  int other_receivers() const;
  bool place_is_free() const;
  std::byte* place_for_total() const;
  Result<bool> hand_out();

  const LeaderBuffers buffers_;
  State state_ = State::kContribute;
  std::vector<int> slots_;  ///< of the others' contributions, by rising rank
  std::vector<Transfer> transfers_;
  /// Of this island, encoded where it is sent so; null: it contributes nothing.
  const std::byte* sum_ = nullptr;
  const std::byte* total_ = nullptr;
  std::vector<const std::byte*> terms_;
  std::byte token_{1};  ///< what travels where there is nothing to say but that one is ready
};

template <class Body>
Result<Unit> Leader::each_other_island(Body body) {
  for (int which = 0; which < chunk_.islands(); ++which)
    if (which != chunk_.home) MOTLEY_TRY_VOID(body(which));
  return Unit{};
}

Result<Unit> Leader::expect(int which, bool something, std::byte* into, int tag) {
  const int peer = leader(which);
  MOTLEY_TRY(const SendId id,
             site_.transport.begin(
                 Incoming{peer, std::span(into, something ? site_.wire_bytes(chunk_) : 1)}, tag));
  transfers_.push_back({id, peer, true});
  return Unit{};
}

/// Null: the token.
Result<Unit> Leader::send(int which, const std::byte* data, int tag) {
  const int peer = leader(which);
  const auto bytes = data == nullptr ? std::span<const std::byte>(&token_, 1)
                                     : std::span(data, site_.wire_bytes(chunk_));
  MOTLEY_TRY(const SendId id, site_.transport.begin(Outgoing{peer, bytes}, tag));
  transfers_.push_back({id, peer, false});
  site_.bytes_sent += static_cast<int64_t>(bytes.size());
  return Unit{};
}

Result<Unit> Leader::open() {
  if (alone()) return Unit{};
  if (chunk_.part->direct() || is_root()) {
    size_t next = 0;
    return each_other_island([&](int which) {
      return expect(which, contributes(which), buffers_.received[next++], chunk_.message_tag);
    });
  }
  return expect(root(), receives(chunk_.home), buffers_.received[0], chunk_.message_tag + 1);
}

Result<bool> Leader::advance() {
  switch (state_) {
    case State::kContribute:
      return contribute();
    case State::kAcross:
      return across();
    case State::kHandOut:
      return hand_out();
    case State::kSending: {
      MOTLEY_TRY(const bool moved, poll_transfers());
      if (transfers_.empty()) state_ = State::kDone;
      return moved || transfers_.empty();
    }
    case State::kDone:
      return false;
  }
  return false;
}

/// The island's sum; within one island that is the total.
Result<bool> Leader::contribute() {
  if (alone() && !place_is_free()) return false;
  if (!all_handed_in()) return false;
  MOTLEY_TRY(const bool readable, site_.readable(chunk_));
  if (!readable) return false;
  list_contributions();
  if (alone()) {
    add_up();
  } else if (terms_.size() == 1 && slots_.empty() && !site_.compresses(chunk_)) {
    sum_ = terms_[0];
  } else if (!terms_.empty()) {
    sum_elements(site_.type, buffers_.sum, terms_, chunk_.count);
    sum_ = buffers_.sum;
  }
  free_contributions();
  state_ = alone() ? State::kHandOut : State::kAcross;
  MOTLEY_TRY_VOID(hand_on());
  return true;
}

/// Asked again and again: what was found once is not looked for any more.
bool Leader::all_handed_in() {
  size_t next = 0;
  for (const int rank : chunk_.island().contributors) {
    if (rank == site_.rank()) continue;
    if (next++ < slots_.size()) continue;
    const int member = site_.member_of[static_cast<size_t>(rank)];
    const int slot = site_.memory->find_contribution(member, chunk_.tag);
    if (slot < 0) return false;
    slots_.push_back(slot);
  }
  return true;
}

void Leader::list_contributions() {
  terms_.clear();
  auto slot = slots_.begin();
  for (const int rank : chunk_.island().contributors) {
    if (rank != site_.rank()) {
      const int member = site_.member_of[static_cast<size_t>(rank)];
      terms_.push_back(site_.memory->contribution(member, *slot++).data);
    } else if (const std::byte* const lies = site_.in_place(chunk_)) {
      terms_.push_back(lies);
    } else {
      site_.gather(chunk_, buffers_.sum);
      terms_.push_back(buffers_.sum);
    }
  }
}

void Leader::free_contributions() {
  auto slot = slots_.begin();
  for (const int rank : chunk_.island().contributors) {
    if (rank == site_.rank()) continue;
    const int member = site_.member_of[static_cast<size_t>(rank)];
    site_.memory->contribution(member, *slot++).tag.store(0, std::memory_order_release);
  }
}

/// The island's sum, to all or to the root.
Result<Unit> Leader::hand_on() {
  if (alone() || is_root()) return Unit{};
  if (sum_ != nullptr && site_.compresses(chunk_)) {
    encode(buffers_.sum);
    sum_ = buffers_.encoded;
  }
  if (!chunk_.part->direct()) return send(root(), sum_, chunk_.message_tag);
  return each_other_island([&](int which) { return send(which, sum_, chunk_.message_tag); });
}

Result<bool> Leader::poll_transfers() {
  bool moved = false;
  for (size_t i = 0; i < transfers_.size();) {
    MOTLEY_TRY(const bool finished, site_.transport.finished(transfers_[i].id));
    if (!finished) {
      ++i;
      continue;
    }
    transfers_[i] = transfers_.back();
    transfers_.pop_back();
    moved = true;
  }
  return moved;
}

bool Leader::open_transfers(bool incoming_only) const {
  return std::any_of(transfers_.begin(), transfers_.end(),
                     [&](const Transfer& transfer) { return transfer.incoming || !incoming_only; });
}

Result<bool> Leader::across() {
  MOTLEY_TRY(const bool moved, poll_transfers());
  const bool receiver = chunk_.receives(site_.rank());
  // What is being sent from where it lies stays as it is until it has left.
  const bool overwrites = receiver && sum_ != nullptr && sum_ == site_.in_place(chunk_);
  if (open_transfers(!overwrites) || !place_is_free()) return moved;
  list_sums();
  if (!terms_.empty()) site_.compresses(chunk_) ? decode_and_add_up() : add_up();
  if (is_root()) MOTLEY_TRY_VOID(send_total());
  state_ = State::kHandOut;
  return true;
}

/// What the total is made of: the islands' sums in their order, or what the root has made of them.
void Leader::list_sums() {
  terms_.clear();
  if (!chunk_.part->direct() && !is_root()) {
    if (receives(chunk_.home)) terms_.push_back(buffers_.received[0]);
    return;
  }
  size_t next = 0;
  for (int which = 0; which < chunk_.islands(); ++which) {
    const std::byte* const term = which == chunk_.home ? sum_ : buffers_.received[next++];
    if (contributes(which)) terms_.push_back(term);
  }
}

Result<Unit> Leader::send_total() {
  const std::byte* total = total_;
  if (site_.compresses(chunk_) && chunk_.encodes()) {
    encode(place_for_total());
    total = buffers_.encoded;
  }
  return each_other_island([&](int which) {
    return send(which, receives(which) ? total : nullptr, chunk_.message_tag + 1);
  });
}

void Leader::encode(std::byte* elements) {
  site_.residuals->encode(chunk_, site_.floats(chunk_, elements),
                          std::span(buffers_.encoded, site_.wire_bytes(chunk_)));
}

/// Everywhere the same operations in the same order. A root's own sum alone is not encoded.
void Leader::decode_and_add_up() {
  std::byte* const place = place_for_total();
  const std::span<float> total = site_.floats(chunk_, place);
  for (size_t i = 0; i < terms_.size(); ++i) {
    const std::span encoded(terms_[i], site_.wire_bytes(chunk_));
    const bool plain = terms_[i] == buffers_.sum;
    if (plain && i == 0)
      std::memcpy(place, terms_[i], site_.bytes(chunk_));
    else if (plain)
      sum_elements(site_.type, place, std::array<const std::byte*, 2>{place, terms_[i]},
                   chunk_.count);
    else if (i == 0)
      site_.residuals->decode(encoded, total);
    else
      site_.residuals->decode_add(encoded, total);
  }
  total_ = place;
}

int Leader::other_receivers() const {
  return static_cast<int>(chunk_.island().receivers.size()) -
         (chunk_.receives(site_.rank()) ? 1 : 0);
}

/// The last total in the slot may still be read.
bool Leader::place_is_free() const {
  return other_receivers() == 0 || site_.memory->total(site_.member(), buffers_.slot)
                                           .readers.load(std::memory_order_acquire) == 0;
}

std::byte* Leader::place_for_total() const {
  if (other_receivers() > 0) return site_.memory->total(site_.member(), buffers_.slot).data;
  std::byte* const lies = site_.in_place(chunk_);
  const bool receiver = chunk_.receives(site_.rank());
  return receiver && lies != nullptr ? lies : buffers_.total;
}

void Leader::add_up() {
  std::byte* const place = place_for_total();
  if (terms_.size() == 1 && place == buffers_.total) {
    total_ = terms_[0];
    return;
  }
  sum_elements(site_.type, place, terms_, chunk_.count);
  total_ = place;
}

Result<bool> Leader::hand_out() {
  if (const int others = other_receivers(); others > 0) {
    const auto slot = site_.memory->total(site_.member(), buffers_.slot);
    slot.readers.store(others, std::memory_order_relaxed);
    slot.tag.store(chunk_.tag, std::memory_order_release);
  }
  if (chunk_.receives(site_.rank())) {
    if (total_ != site_.in_place(chunk_)) site_.scatter(chunk_, total_);
    MOTLEY_TRY_VOID(site_.written(chunk_));
  }
  state_ = State::kSending;
  return true;
}

ChunkWait Leader::waits_for() const {
  const auto named = [](int rank) { return "rank " + std::to_string(rank); };
  if (state_ == State::kContribute && (!alone() || place_is_free())) {
    for (const int rank : chunk_.island().contributors) {
      if (rank == site_.rank()) continue;
      const int member = site_.member_of[static_cast<size_t>(rank)];
      if (site_.memory->find_contribution(member, chunk_.tag) < 0)
        return {named(rank) + " (contribute)", 1};
    }
    return {named(site_.rank()) + " itself (contribute)", 0};
  }
  const bool from_root = !chunk_.part->direct() && !is_root();
  for (const Transfer& transfer : transfers_)
    if (transfer.incoming || state_ == State::kSending)
      return {named(transfer.peer) + " (across)", from_root ? 3 : 2};
  std::string readers;
  for (const int rank : chunk_.island().receivers)
    if (rank != site_.rank()) readers += (readers.empty() ? "" : " or ") + named(rank);
  if (!readers.empty()) return {readers + " (receive)", 0};
  // Alone on its host: what it sends is still on its way, or it is about to be done.
  if (!transfers_.empty()) return {named(transfers_.front().peer) + " (across)", 2};
  return {named(site_.rank()) + " itself (receive)", 0};
}

}  // namespace

Result<std::unique_ptr<ChunkTask>> leader_task(ReductionSite& site, const Chunk& chunk,
                                               const LeaderBuffers& buffers) {
  auto leader = std::make_unique<Leader>(site, chunk, buffers);
  MOTLEY_TRY_VOID(leader->open());
  return std::unique_ptr<ChunkTask>(std::move(leader));
}

}  // namespace motley
