#include "comm/collectives.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "core/check.h"

namespace motley {
namespace {

/// The first `size` ranks of another transport, which must outlive it.
class LeadingRanks final : public Transport {
 public:
  LeadingRanks(Transport& all, int size) : all_(all), size_(size) {}

  int rank() const override { return all_.rank(); }
  int size() const override { return size_; }
  std::string description() const override { return all_.description(); }
  Result<Unit> exchange(std::span<const Incoming> receives, std::span<const Outgoing> sends,
                        const std::string& operation) override {
    return all_.exchange(receives, sends, operation);
  }
  void give_up(int exit_status) override { all_.give_up(exit_status); }

 private:
  Transport& all_;
  int size_;
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

struct Sum {
  template <class T>
  static T combine(T a, T b) {
    return a + b;
  }
  // Fixed-point sums may wrap; an overflow is found and repeated by those who use them.
  static int64_t combine(int64_t a, int64_t b) {
    return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
  }
};
struct Max {
  static int64_t combine(int64_t a, int64_t b) { return std::max(a, b); }
};

class Collectives final : public Communicator {
 public:
  explicit Collectives(std::unique_ptr<Transport> transport) : transport_(std::move(transport)) {}

  int rank() const override { return transport_->rank(); }
  int size() const override { return transport_->size(); }
  std::string description() const override { return transport_->description(); }

  Result<Unit> all_reduce_sum(std::span<float> inout) override {
    return all_reduce<Sum>(inout, "all_reduce_sum of floats");
  }
  Result<Unit> all_reduce_sum(std::span<double> inout) override {
    return all_reduce<Sum>(inout, "all_reduce_sum of doubles");
  }
  Result<Unit> all_reduce_sum(std::span<int64_t> inout) override {
    return all_reduce<Sum>(inout, "all_reduce_sum of integers");
  }
  Result<Unit> all_reduce_max(std::span<int64_t> inout) override {
    return all_reduce<Max>(inout, "all_reduce_max");
  }

  Result<std::vector<std::string>> all_gather(const std::string& mine) override;
  Result<Unit> broadcast(std::string& data, int root) override;
  Result<Unit> barrier() override;
  Result<Unit> send(std::span<const std::byte> data, int to) override;
  Result<Unit> receive(std::span<std::byte> data, int from) override;

  int64_t bytes_sent() const override { return bytes_sent_; }
  void give_up(int exit_status) override { transport_->give_up(exit_status); }

  std::unique_ptr<Communicator> leading(int ranks) override {
    MOTLEY_CHECK_LE(ranks, size());
    MOTLEY_CHECK_LT(rank(), ranks);
    return communicator_over(std::make_unique<LeadingRanks>(*transport_, ranks));
  }

 private:
  template <class Combine, class T>
  Result<Unit> all_reduce(std::span<T> inout, const char* operation);
  template <class T>
  Result<Unit> scatter_pieces(std::span<T> inout, T* arrived, const std::string& operation);
  template <class Combine, class T>
  void combine_in_rank_order(std::span<T> own, T* arrived) const;
  template <class T>
  Result<Unit> gather_pieces(std::span<T> inout, const std::string& operation);

  void expect(int from, std::span<std::byte> into) {
    if (!into.empty()) receives_.push_back({from, into});
  }
  void offer(int to, std::span<const std::byte> data) {
    if (!data.empty()) sends_.push_back({to, data});
  }
  Result<Unit> exchange(const std::string& operation);

  std::unique_ptr<Transport> transport_;
  // Kept between calls so that a step allocates nothing.
  std::vector<Incoming> receives_;
  std::vector<Outgoing> sends_;
  std::vector<std::byte> scratch_;
  int64_t bytes_sent_ = 0;
};

Result<Unit> Collectives::exchange(const std::string& operation) {
  for (const Outgoing& out : sends_) bytes_sent_ += static_cast<int64_t>(out.data.size());
  auto done = transport_->exchange(receives_, sends_, operation);
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
template <class Combine, class T>
Result<Unit> Collectives::all_reduce(std::span<T> inout, const char* operation) {
  if (size() == 1 || inout.empty()) return Unit{};
  const Piece own = piece_of(inout.size(), rank(), size());
  const size_t arriving = own.count() * static_cast<size_t>(size() - 1) * sizeof(T);
  if (scratch_.size() < arriving) scratch_.resize(arriving);
  T* arrived = reinterpret_cast<T*>(scratch_.data());
  MOTLEY_TRY_VOID(scatter_pieces(inout, arrived, operation));
  combine_in_rank_order<Combine>(inout.subspan(own.begin, own.count()), arrived);
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
  return exchange(operation);
}

/// own = x_0 + x_1 + … + x_{n-1}, where x_rank is own and `arrived` holds the others by rank. In
/// blocks that stay in the cache.
template <class Combine, class T>
void Collectives::combine_in_rank_order(std::span<T> own, T* arrived) const {
  constexpr size_t kBlock = 4096 / sizeof(T);
  T sum[kBlock];
  for (size_t begin = 0; begin < own.size(); begin += kBlock) {
    const size_t count = std::min(kBlock, own.size() - begin);
    const T* theirs = arrived + begin;
    for (int peer = 0; peer < size(); ++peer) {
      const T* from = own.data() + begin;
      if (peer != rank()) {
        from = theirs;
        theirs += own.size();
      }
      if (peer == 0) {
        std::copy_n(from, count, sum);
      } else {
        for (size_t i = 0; i < count; ++i) sum[i] = Combine::combine(sum[i], from[i]);
      }
    }
    std::copy_n(sum, count, own.data() + begin);
  }
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
  return exchange(operation);
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
  MOTLEY_TRY_VOID(exchange(operation));

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
  MOTLEY_TRY_VOID(exchange(operation));
  return all;
}

// The root sends the length, then the contents, to each rank.
Result<Unit> Collectives::broadcast(std::string& data, int root) {
  const std::string operation = "broadcast from rank " + std::to_string(root);
  auto length = static_cast<int64_t>(data.size());
  for (int peer = 0; peer < size() && rank() == root; ++peer) {
    if (peer != root) offer(peer, std::as_bytes(std::span(&length, 1)));
  }
  if (rank() != root) expect(root, std::as_writable_bytes(std::span(&length, 1)));
  MOTLEY_TRY_VOID(exchange(operation));

  data.resize(static_cast<size_t>(length));
  for (int peer = 0; peer < size() && rank() == root; ++peer) {
    if (peer != root) offer(peer, std::as_bytes(std::span(data)));
  }
  if (rank() != root) expect(root, std::as_writable_bytes(std::span(data)));
  return exchange(operation);
}

Result<Unit> Collectives::barrier() {
  const std::byte token{1};
  std::vector<std::byte> tokens(static_cast<size_t>(size()));
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank()) continue;
    expect(peer, std::span(&tokens[static_cast<size_t>(peer)], 1));
    offer(peer, std::span(&token, 1));
  }
  return exchange("barrier");
}

Result<Unit> Collectives::send(std::span<const std::byte> data, int to) {
  MOTLEY_CHECK(to != rank() && to >= 0 && to < size(), "send to rank " + std::to_string(to));
  offer(to, data);
  return exchange("send to rank " + std::to_string(to));
}

Result<Unit> Collectives::receive(std::span<std::byte> data, int from) {
  MOTLEY_CHECK(from != rank() && from >= 0 && from < size(),
               "receive from rank " + std::to_string(from));
  expect(from, data);
  return exchange("receive from rank " + std::to_string(from));
}

class NoPeers final : public Transport {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  std::string description() const override { return "solo"; }
  Result<Unit> exchange(std::span<const Incoming> receives, std::span<const Outgoing> sends,
                        const std::string&) override {
    MOTLEY_CHECK(receives.empty() && sends.empty(), "a group of one has nobody to talk to");
    return Unit{};
  }
  void give_up(int) override {}
};

}  // namespace

std::unique_ptr<Communicator> communicator_over(std::unique_ptr<Transport> transport) {
  return std::make_unique<Collectives>(std::move(transport));
}

std::unique_ptr<Communicator> solo_communicator() {
  return communicator_over(std::make_unique<NoPeers>());
}

}  // namespace motley
