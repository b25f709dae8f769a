#include "worker/train/slice_exchange.h"

#include <algorithm>
#include <cstring>
#include <initializer_list>
#include <optional>

#include "core/rank_memory.h"

namespace motley {
namespace {

/// Fixed-point sums may wrap; an overflow is found and repeated by those who use them.
template <class T>
T added(T a, T b) {
  return a + b;
}
int64_t added(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
}

template <class T>
std::span<std::byte> bytes_of(std::span<T> values) {
  return std::as_writable_bytes(values);
}

/// Calls body(offset, count) for what of a transfer is in `range`.
template <class Body>
void each_run(const SliceTransfer& transfer, SliceRange range, Body body) {
  auto run = std::partition_point(
      transfer.runs.begin(), transfer.runs.end(),
      [&](const SliceRun& other) { return other.at + other.count <= range.begin; });
  for (; run != transfer.runs.end() && run->at < range.end; ++run) {
    const int64_t begin = std::max(run->at, range.begin);
    body(run->offset + (begin - run->at), std::min(run->at + run->count, range.end) - begin);
  }
}

/// A range of a transfer: how many elements, and where, if they lie side by side.
struct Message {
  int64_t elements = 0;
  std::optional<int64_t> offset;
};
Message message_of(const SliceTransfer& transfer, SliceRange range) {
  Message message;
  each_run(transfer, range, [&](int64_t offset, int64_t count) {
    message.offset = message.elements == 0 ? std::optional(offset) : std::nullopt;
    message.elements += count;
  });
  return message;
}

/// Beyond the last number in any of these.
int64_t end_of(const std::vector<SliceTransfer>& transfers) {
  int64_t end = 0;
  for (const SliceTransfer& transfer : transfers)
    end = std::max(end, transfer.runs.back().at + transfer.runs.back().count);
  return end;
}

/// What of these is in a round.
std::vector<ParameterRange> touched(
    std::initializer_list<const std::vector<SliceTransfer>*> transfers, SliceRange round) {
  std::vector<SliceRun> runs;
  for (const auto* some : transfers)
    for (const SliceTransfer& transfer : *some)
      each_run(transfer, round, [&](int64_t offset, int64_t count) {
        runs.push_back({.offset = offset, .count = count});
      });
  return ranges_over(std::move(runs));
}

}  // namespace

SliceExchange::SliceExchange(const Plan& plan, const ModelSpec& model, Communicator& world,
                             int widest, MemoryAccount& account)
    : world_(world),
      transfers_(plan, model, Rank(world.rank())),
      message_(exchange_message_bytes(plan.world_size())),
      outgoing_(account, MemoryUse::kExchange, transfers_.outgoing_bytes(message_, widest)),
      incoming_(account, MemoryUse::kExchange, transfers_.incoming_bytes(message_, widest)) {
  sends_.reserve(static_cast<size_t>(plan.world_size()));
  receives_.reserve(static_cast<size_t>(plan.world_size()));
}

/// This round's part of each transfer. What lies side by side travels from there, the rest is
/// packed first.
void SliceExchange::offer(const Flat& flat, const std::vector<SliceTransfer>& transfers,
                          SliceRange round) {
  sends_.clear();
  std::byte* free = outgoing_.data();
  for (const SliceTransfer& transfer : transfers) {
    const Message message = message_of(transfer, round);
    if (message.elements == 0) continue;
    const auto size = static_cast<size_t>(message.elements * flat.element_bytes);
    sends_.push_back(
        {transfer.peer, std::span(message.offset ? flat.at(*message.offset) : free, size)});
    if (message.offset) continue;
    each_run(transfer, round, [&](int64_t offset, int64_t count) {
      const auto bytes = static_cast<size_t>(count * flat.element_bytes);
      std::memcpy(free, flat.at(offset), bytes);
      free += bytes;
    });
  }
}

void SliceExchange::expect(const Flat& flat, const std::vector<SliceTransfer>& transfers,
                           SliceRange round, bool in_place) {
  receives_.clear();
  std::byte* free = incoming_.data();
  for (const SliceTransfer& transfer : transfers) {
    const Message message = message_of(transfer, round);
    if (message.elements == 0) continue;
    const auto size = static_cast<size_t>(message.elements * flat.element_bytes);
    const bool direct = in_place && message.offset;
    receives_.push_back({transfer.peer, std::span(direct ? flat.at(*message.offset) : free, size)});
    if (!direct) free += size;
  }
}

/// `in_place`: what arrives belongs where this rank's runs are, and is received there where they
/// lie side by side. `arrived` is told of each message, in the order of peers within a round.
Result<Unit> SliceExchange::move(const Flat& flat, const std::vector<SliceTransfer>& outgoing,
                                 const std::vector<SliceTransfer>& incoming, bool in_place,
                                 const Arrived& arrived, const std::string& operation) {
  const int64_t most = message_.value() / flat.element_bytes;
  const int64_t end = std::max(end_of(outgoing), end_of(incoming));
  for (SliceRange round{0, most}; round.begin < end; round = {round.end, round.end + most}) {
    if (flat.staged != nullptr) {
      const std::vector<ParameterRange> now = touched({&outgoing, &incoming}, round);
      MOTLEY_TRY_VOID(flat.staged->fetch(now));
      MOTLEY_TRY_VOID(
          flat.staged->fetch(touched({&outgoing, &incoming}, {round.end, round.end + most})));
      MOTLEY_TRY_VOID(flat.staged->wait(now));
    }
    offer(flat, outgoing, round);
    expect(flat, incoming, round, in_place);
    MOTLEY_TRY_VOID(world_.exchange(receives_, sends_, operation));
    auto received = receives_.begin();
    for (const SliceTransfer& transfer : incoming)
      if (message_of(transfer, round).elements > 0)
        arrived(transfer, round, (received++)->into.data());
    if (flat.staged != nullptr)
      MOTLEY_TRY_VOID(flat.staged->give_back(touched({&incoming}, round)));
  }
  return Unit{};
}

template <class T>
Result<Unit> SliceExchange::reduce_all(std::span<T> flat, StagedView* staged) {
  if (staged != nullptr) MOTLEY_TRY_VOID(staged->wait(ranges_over(transfers_.uncounted)));
  for (const SliceRun& run : transfers_.uncounted)
    std::fill_n(flat.begin() + run.offset, run.count, T{});
  const auto add = [&](const SliceTransfer& transfer, SliceRange range, const std::byte* data) {
    const auto* term = reinterpret_cast<const T*>(data);
    each_run(transfer, range, [&](int64_t offset, int64_t count) {
      T* sum = flat.data() + offset;
      for (int64_t i = 0; i < count; ++i) sum[i] = added(sum[i], term[i]);
      term += count;
    });
  };
  return move(Flat{bytes_of(flat), sizeof(T), staged}, transfers_.to_owners,
              transfers_.from_contributors, false, add, "reduction of gradients");
}

Result<Unit> SliceExchange::reduce(const GradientSpans& gradients) {
  if (!gradients.fixed.empty()) return reduce_all(gradients.fixed, gradients.staged);
  if (!gradients.doubles.empty()) return reduce_all(gradients.doubles, gradients.staged);
  return reduce_all(gradients.floats, gradients.staged);
}

Result<Unit> SliceExchange::distribute(const GradientSpans& gradients) {
  StagedView* const staged = gradients.staged;
  if (!gradients.fixed.empty())
    return distribute(Flat{bytes_of(gradients.fixed), sizeof(int64_t), staged});
  if (!gradients.doubles.empty())
    return distribute(Flat{bytes_of(gradients.doubles), sizeof(double), staged});
  return distribute(Flat{bytes_of(gradients.floats), sizeof(float), staged});
}

Result<Unit> SliceExchange::distribute(std::span<std::byte> flat, int element_bytes) {
  return distribute(Flat{flat, element_bytes});
}

Result<Unit> SliceExchange::distribute(const Flat& flat) {
  const auto unpack = [&](const SliceTransfer& transfer, SliceRange range, const std::byte* data) {
    if (message_of(transfer, range).offset) return;  // it lies there already
    each_run(transfer, range, [&](int64_t offset, int64_t count) {
      const auto size = static_cast<size_t>(count * flat.element_bytes);
      std::memcpy(flat.at(offset), data, size);
      data += size;
    });
  };
  return move(flat, transfers_.to_holders, transfers_.from_owners, true, unpack,
              "distribution of slices");
}

}  // namespace motley
