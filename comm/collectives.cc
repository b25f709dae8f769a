#include "comm/collectives.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "comm/chunk_reducer.h"
#include "comm/element_sums.h"
#include "core/check.h"

namespace motley {
namespace {

/// Some ranks of another transport, which must outlive it, under numbers of their own.
class SomeRanks final : public Transport {
 public:
  SomeRanks(Transport& all, const std::vector<int>& ranks)
      : all_(all), ranks_(ranks), rank_(position_of(all.rank())) {}

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(ranks_.size()); }
  std::string description() const override { return all_.description(); }
  Result<Unit> exchange(std::span<const Incoming> receives, std::span<const Outgoing> sends,
                        const std::string& operation) override {
    receives_.clear();
    sends_.clear();
    for (const Incoming& in : receives) receives_.push_back(translated(in));
    for (const Outgoing& out : sends) sends_.push_back(translated(out));
    return all_.exchange(receives_, sends_, operation);
  }
  Result<SendId> post(const Outgoing& message) override { return all_.post(translated(message)); }
  Result<Unit> complete(SendId send, const std::string& operation) override {
    return all_.complete(send, operation);
  }
  Result<Unit> receive(const Incoming& message, const std::string& operation) override {
    return all_.receive(translated(message), operation);
  }
  Result<SendId> begin(const Incoming& message, int tag) override {
    return all_.begin(translated(message), tag);
  }
  Result<SendId> begin(const Outgoing& message, int tag) override {
    return all_.begin(translated(message), tag);
  }
  Result<bool> finished(SendId transfer) override { return all_.finished(transfer); }
  void abandon(SendId transfer) override { all_.abandon(transfer); }
  Result<Unit> alive() override { return all_.alive(); }
  std::chrono::nanoseconds timeout() const override { return all_.timeout(); }
  Error lost(const std::string& what) override { return all_.lost(what); }
  void give_up(int exit_status) override { all_.give_up(exit_status); }

 private:
  /// Checks by the way that the ranks exist and differ.
  int position_of(int mine) const {
    std::vector<int> seen(static_cast<size_t>(all_.size()), -1);
    for (int i = 0; i < size(); ++i) {
      const int rank = ranks_[static_cast<size_t>(i)];
      MOTLEY_CHECK(rank >= 0 && rank < all_.size(), "group with rank " + std::to_string(rank));
      MOTLEY_CHECK_EQ(seen[static_cast<size_t>(rank)], -1);
      seen[static_cast<size_t>(rank)] = i;
    }
    MOTLEY_CHECK(seen[static_cast<size_t>(mine)] >= 0, "a group is made by its members");
    return seen[static_cast<size_t>(mine)];
  }
  Incoming translated(const Incoming& in) const {
    return {ranks_[static_cast<size_t>(in.from)], in.into};
  }
  Outgoing translated(const Outgoing& out) const {
    return {ranks_[static_cast<size_t>(out.to)], out.data};
  }

  Transport& all_;
  const std::vector<int> ranks_;
  const int rank_;
  std::vector<Incoming> receives_;
  std::vector<Outgoing> sends_;
};

/// Elements [begin, end) of `count` that `rank` of `size` reduces: contiguous, sizes differ by at
/// most one.
struct Piece {
  size_t begin = 0;
  size_t end = 0;
  size_t count() const { return end - begin; }
};
Piece piece_of(size_t count, int rank, int size) {
  const auto r = static_cast<size_t>(rank);
  const auto n = static_cast<size_t>(size);
  const size_t base = count / n;
  const size_t longer = count % n;  // the first `longer` pieces have one more
  const size_t begin = r * base + std::min(r, longer);
  return {begin, begin + base + (r < longer ? 1 : 0)};
}

/// Nothing travels for no bytes.
constexpr SendId kNothingToSend;

class Collectives final : public Communicator {
 public:
  explicit Collectives(std::unique_ptr<Transport> transport) : transport_(std::move(transport)) {}

  int rank() const override { return transport_->rank(); }
  int size() const override { return transport_->size(); }
  std::string description() const override { return transport_->description(); }

  Result<Unit> all_reduce_sum(std::span<float> inout) override {
    return all_reduce(inout, &Collectives::add_up<float>, "all_reduce_sum of floats");
  }
  Result<Unit> all_reduce_sum(std::span<double> inout) override {
    return all_reduce(inout, &Collectives::add_up<double>, "all_reduce_sum of doubles");
  }
  Result<Unit> all_reduce_sum(std::span<int64_t> inout) override {
    return all_reduce(inout, &Collectives::add_up<int64_t>, "all_reduce_sum of integers");
  }
  Result<Unit> all_reduce_max(std::span<int64_t> inout) override {
    return all_reduce(inout, &Collectives::take_largest, "all_reduce_max");
  }

  Result<std::vector<std::string>> all_gather(const std::string& mine) override;
  Result<Unit> broadcast(std::string& data, int root) override;
  Result<Unit> barrier() override;
  Result<Unit> send(std::span<const std::byte> data, int to) override;
  Result<Unit> receive(std::span<std::byte> data, int from) override;
  Result<SendId> post(std::span<const std::byte> data, int to) override;
  Result<Unit> complete(SendId send) override { return complete(send, "complete"); }

  Result<Unit> exchange(std::span<const Incoming> receives, std::span<const Outgoing> sends,
                        const std::string& operation) override;

  int64_t bytes_sent() const override { return bytes_sent_; }
  void give_up(int exit_status) override { transport_->give_up(exit_status); }

  std::unique_ptr<Communicator> group(const std::vector<int>& ranks) override {
    return communicator_over(std::make_unique<SomeRanks>(*transport_, ranks));
  }
  Result<std::unique_ptr<Reducer>> open_reducer(
      const ReductionPlan& plan, const Islands& islands,
      std::vector<std::vector<ElementRun>> runs) override {
    return open_chunk_reducer(*this, *transport_, plan, islands, std::move(runs));
  }

 private:
  /// own = what the operation makes of it and of the others' copies, which lie in the order of
  /// ranks.
  template <class T>
  using Combine = void (Collectives::*)(std::span<T> own, const T* others);
  template <class T>
  Result<Unit> all_reduce(std::span<T> inout, Combine<T> combine, const char* operation);
  template <class T>
  Result<Unit> scatter_pieces(std::span<T> inout, T* arrived, const std::string& operation);
  template <class T>
  void add_up(std::span<T> own, const T* others);
  void take_largest(std::span<int64_t> own, const int64_t* others);
  template <class T>
  Result<Unit> gather_pieces(std::span<T> inout, const std::string& operation);

  void expect(int from, std::span<std::byte> into) {
    if (!into.empty()) receives_.push_back({from, into});
  }
  void offer(int to, std::span<const std::byte> data) {
    if (!data.empty()) sends_.push_back({to, data});
  }
  Result<Unit> exchange_all(const std::string& operation);
  Result<Unit> complete(SendId send, const std::string& operation);
  void check_peer(int peer) const {
    MOTLEY_CHECK(
        peer != rank() && peer >= 0 && peer < size(),
        "a message between ranks " + std::to_string(rank()) + " and " + std::to_string(peer));
  }

  std::unique_ptr<Transport> transport_;
  // Kept between calls so that a step allocates nothing.
  std::vector<Incoming> receives_;
  std::vector<Outgoing> sends_;
  std::vector<std::byte> scratch_;
  std::vector<const std::byte*> terms_;
  int64_t bytes_sent_ = 0;
};

Result<Unit> Collectives::exchange(std::span<const Incoming> receives,
                                   std::span<const Outgoing> sends, const std::string& operation) {
  for (const Outgoing& out : sends) bytes_sent_ += static_cast<int64_t>(out.data.size());
  return transport_->exchange(receives, sends, operation);
}

Result<Unit> Collectives::exchange_all(const std::string& operation) {
  auto done = exchange(receives_, sends_, operation);
  receives_.clear();
  sends_.clear();
  return done;
}

// All-reduce of `count` elements over n ranks, without a root:
//
//   reduce-scatter  every rank owns one piece of count/n elements; it receives the others' copies
//                   of its piece and combines them in rank order (own one included at its place)
//   all-gather      it sends the combined piece to everyone
//
// Two exchanges; each rank sends (count - piece) + (n-1)·piece elements, 2·(n-1)/n·count when n
// divides count. Only the owner combines, hence identical bits everywhere.
template <class T>
Result<Unit> Collectives::all_reduce(std::span<T> inout, Combine<T> combine,
                                     const char* operation) {
  if (size() == 1 || inout.empty()) return Unit{};
  const Piece own = piece_of(inout.size(), rank(), size());
  const size_t arriving = own.count() * static_cast<size_t>(size() - 1) * sizeof(T);
  if (scratch_.size() < arriving) scratch_.resize(arriving);
  T* arrived = reinterpret_cast<T*>(scratch_.data());
  MOTLEY_TRY_VOID(scatter_pieces(inout, arrived, operation));
  (this->*combine)(inout.subspan(own.begin, own.count()), arrived);
  return gather_pieces(inout, operation);
}

/// Sends every other rank its piece; `arrived` gets the others' copies of mine, by rank.
template <class T>
Result<Unit> Collectives::scatter_pieces(std::span<T> inout, T* arrived,
                                         const std::string& operation) {
  const size_t mine = piece_of(inout.size(), rank(), size()).count();
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank()) continue;
    expect(peer, std::as_writable_bytes(std::span(arrived, mine)));
    arrived += mine;
    const Piece theirs = piece_of(inout.size(), peer, size());
    offer(peer, std::as_bytes(inout.subspan(theirs.begin, theirs.count())));
  }
  return exchange_all(operation);
}

/// By rising rank, own one included at its place.
template <class T>
void Collectives::add_up(std::span<T> own, const T* others) {
  terms_.clear();
  for (int peer = 0; peer < size(); ++peer) {
    const T* const term = peer == rank() ? own.data() : others;
    if (peer != rank()) others += own.size();
    terms_.push_back(reinterpret_cast<const std::byte*>(term));
  }
  sum_elements(sum_type_of<T>(), reinterpret_cast<std::byte*>(own.data()), terms_, std::ssize(own));
}

void Collectives::take_largest(std::span<int64_t> own, const int64_t* others) {
  for (int peer = 1; peer < size(); ++peer, others += own.size())
    for (size_t i = 0; i < own.size(); ++i) own[i] = std::max(own[i], others[i]);
}

template <class T>
Result<Unit> Collectives::gather_pieces(std::span<T> inout, const std::string& operation) {
  const Piece own = piece_of(inout.size(), rank(), size());
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank()) continue;
    const Piece theirs = piece_of(inout.size(), peer, size());
    expect(peer, std::as_writable_bytes(inout.subspan(theirs.begin, theirs.count())));
    offer(peer, std::as_bytes(inout.subspan(own.begin, own.count())));
  }
  return exchange_all(operation);
}

// Lengths first, then contents: two exchanges, n-1 times the own bytes on the wire.
Result<std::vector<std::string>> Collectives::all_gather(const std::string& mine) {
  const std::string operation = "all_gather";
  std::vector<int64_t> lengths(static_cast<size_t>(size()), static_cast<int64_t>(mine.size()));
  const int64_t my_length = static_cast<int64_t>(mine.size());
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank()) continue;
    expect(peer, std::as_writable_bytes(std::span(&lengths[static_cast<size_t>(peer)], 1)));
    offer(peer, std::as_bytes(std::span(&my_length, 1)));
  }
  MOTLEY_TRY_VOID(exchange_all(operation));

  std::vector<std::string> all(static_cast<size_t>(size()));
  for (int peer = 0; peer < size(); ++peer) {
    std::string& theirs = all[static_cast<size_t>(peer)];
    if (peer == rank()) {
      theirs = mine;
      continue;
    }
    theirs.resize(static_cast<size_t>(lengths[static_cast<size_t>(peer)]));
    expect(peer, std::as_writable_bytes(std::span(theirs)));
    offer(peer, std::as_bytes(std::span(mine)));
  }
  MOTLEY_TRY_VOID(exchange_all(operation));
  return all;
}

// The root sends the length, then the contents, to each rank.
Result<Unit> Collectives::broadcast(std::string& data, int root) {
  const std::string operation = "broadcast";
  auto length = static_cast<int64_t>(data.size());
  for (int peer = 0; peer < size() && rank() == root; ++peer) {
    if (peer != root) offer(peer, std::as_bytes(std::span(&length, 1)));
  }
  if (rank() != root) expect(root, std::as_writable_bytes(std::span(&length, 1)));
  MOTLEY_TRY_VOID(exchange_all(operation));

  data.resize(static_cast<size_t>(length));
  for (int peer = 0; peer < size() && rank() == root; ++peer) {
    if (peer != root) offer(peer, std::as_bytes(std::span(data)));
  }
  if (rank() != root) expect(root, std::as_writable_bytes(std::span(data)));
  return exchange_all(operation);
}

Result<Unit> Collectives::barrier() {
  const std::byte token{1};
  std::vector<std::byte> tokens(static_cast<size_t>(size()));
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank()) continue;
    expect(peer, std::span(&tokens[static_cast<size_t>(peer)], 1));
    offer(peer, std::span(&token, 1));
  }
  return exchange_all("barrier");
}

Result<Unit> Collectives::send(std::span<const std::byte> data, int to) {
  MOTLEY_TRY(const SendId begun, post(data, to));
  return complete(begun, "send");
}

Result<Unit> Collectives::receive(std::span<std::byte> data, int from) {
  check_peer(from);
  if (data.empty()) return Unit{};
  return transport_->receive({from, data}, "receive");
}

Result<SendId> Collectives::post(std::span<const std::byte> data, int to) {
  check_peer(to);
  if (data.empty()) return kNothingToSend;
  bytes_sent_ += static_cast<int64_t>(data.size());
  return transport_->post({to, data});
}

Result<Unit> Collectives::complete(SendId send, const std::string& operation) {
  if (send == kNothingToSend) return Unit{};
  return transport_->complete(send, operation);
}

class NoPeers final : public Transport {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  std::string description() const override { return "solo"; }
  Result<Unit> exchange(std::span<const Incoming> receives, std::span<const Outgoing> sends,
                        const std::string&) override {
    MOTLEY_CHECK(receives.empty() && sends.empty(), kNobody);
    return Unit{};
  }
  Result<SendId> post(const Outgoing&) override { return fail(ErrorCode::kInternal, kNobody); }
  Result<Unit> complete(SendId, const std::string&) override {
    return fail(ErrorCode::kInternal, kNobody);
  }
  Result<Unit> receive(const Incoming&, const std::string&) override {
    return fail(ErrorCode::kInternal, kNobody);
  }
  Result<SendId> begin(const Incoming&, int) override {
    return fail(ErrorCode::kInternal, kNobody);
  }
  Result<SendId> begin(const Outgoing&, int) override {
    return fail(ErrorCode::kInternal, kNobody);
  }
  Result<bool> finished(SendId) override { return fail(ErrorCode::kInternal, kNobody); }
  void abandon(SendId) override {}
  Result<Unit> alive() override { return Unit{}; }
  std::chrono::nanoseconds timeout() const override { return std::chrono::nanoseconds::max(); }
  Error lost(const std::string& what) override { return {ErrorCode::kPeerLost, what, {}}; }
  void give_up(int) override {}

 private:
  static constexpr const char* kNobody = "a group of one has nobody to talk to";
};

}  // namespace

std::unique_ptr<Communicator> communicator_over(std::unique_ptr<Transport> transport) {
  return std::make_unique<Collectives>(std::move(transport));
}

std::unique_ptr<Communicator> solo_communicator() {
  return communicator_over(std::make_unique<NoPeers>());
}

}  // namespace motley
