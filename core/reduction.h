#pragma once
// How sums over ranks are taken: a pure function of who has what, of where the ranks are, and of
// how fast the links between them are. All ranks make the same plan, and know by its hash that they
// have.
//
// The ranks of an island share memory; between islands there are links. The elements of a class go
// in chunks, and in each island one rank, the chunk's leader, speaks for all:
//
//   contribute   every contributor of the island hands its elements to the leader, who adds them up
//   across       each leader sends its island's sum to all others, who add them up alike (direct),
//                or to the leader of the chunk's root island, who adds them up and sends the total
//                back (rooted)
//   receive      the leader hands the total to the receivers of its island
//
// Contributions are added in the order of (island, rank): a repeated run gives the same bits, and
// all ranks get identical bits. Of k islands N bytes each, direct puts N·(k-1) bytes on each
// island's link in one latency; rooted N·(1 + (k-2)·s) in two, where s is the share of the chunks
// that are rooted at the island: with two islands direct is never worse.
//
// Where a class is compressed, what a leader sends across is encoded with what was lost of the
// same chunk before (comm/link_residuals.h): the island's sum, and at a root the total. All ranks,
// also those that have the sum itself, go on with what the others decode.

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/ids.h"
#include "core/link_profile.h"
#include "core/units.h"

namespace motley {

struct Plan;

/// Where elements of a class lie among all of the model in canonical order: from number `at` on at
/// `place` and what follows it.
struct ElementPlace {
  int64_t at = 0;
  int64_t place = 0;
};

/// Elements that the same ranks add up and receive: all_reduce (contributors and receivers are the
/// same), reduce (one receiver), broadcast (one contributor), and what is between them.
struct ReductionClass {
  std::vector<int> contributors;  ///< rising, at least one
  std::vector<int> receivers;     ///< rising, at least one
  std::optional<int> owner;       ///< a rank of either kind that adds up; unset: as is fastest
  int64_t elements = 0;
  std::vector<ElementPlace> places = {};  ///< rising, the first at 0; empty: {0, 0}
};

/// A run of elements of a rank's flat buffer, in elements.
struct ElementRun {
  int64_t offset = 0;
  int64_t count = 0;
  int64_t at = 0;  ///< number of its first element within its class
};

struct Islands {
  std::vector<int> of_rank;              ///< the number of each rank's island, from 0
  std::vector<double> bytes_per_second;  ///< of each island's link to the others, each way
  double latency_seconds = 0;            ///< of the slowest of these links

  int count() const { return static_cast<int>(bytes_per_second.size()); }
};

/// From which end of the model chunks go: as a backward pass makes gradients, or as a forward pass
/// needs weights.
enum class ReductionOrder { kFromTheEnd, kFromTheBeginning };

/// Chunks a rank leads at a time: enough to keep a link busy while earlier ones come back.
inline constexpr int kChunksLed = 8;
/// Of a small sum within one island: ranks may share cores, and every turn of theirs costs more
/// than chunks that overlap gain.
inline constexpr int kChunksLedAtHome = 1;

struct ReductionOptions {
  Bytes largest_chunk{128 << 10};  ///< between islands, where that fills the links
  Bytes longest_chunk{1 << 20};    ///< where it takes more (core/chunk_sizes.h)
  Bytes smallest_chunk{32 << 10};  ///< but for the last of a class
  Bytes smallest_at_home{8 << 10};
  Bytes largest_at_home{64 << 10};  ///< of a class within one island: what stays in caches
  /// Of float32 elements, by a codec of spans; another leaves them as they are. A chunk that it
  /// shortens is up to four times as long, but no longer than the longest.
  LinkCompression compression = {};
  ReductionOrder order = ReductionOrder::kFromTheEnd;
};

/// In one island of a class.
struct IslandPart {
  int island = 0;
  std::vector<int> contributors, receivers;  ///< rising
  std::vector<int> leaders;  ///< take turns: its contributors, or else its receivers

  bool contributes() const { return !contributors.empty(); }
  bool receives() const { return !receivers.empty(); }
};

/// A class, ready to be cut into chunks.
struct ReductionPart {
  std::vector<IslandPart> islands;  ///< rising
  int64_t elements = 0;
  int64_t chunk_elements = 0;  ///< of all chunks but the last
  /// Rooted: which of `islands` adds up chunk c is roots[c % roots.size()]. Empty: direct.
  std::vector<int> roots;
  CodecSpec codec;                   ///< of what crosses links
  std::vector<ElementPlace> places;  ///< of the class

  int64_t chunks() const { return (elements + chunk_elements - 1) / chunk_elements; }
  int64_t elements_of(int64_t c) const {
    return std::min(chunk_elements, elements - c * chunk_elements);
  }
  bool direct() const { return roots.empty(); }
  bool compressed() const { return codec.kind != CodecKind::kOff; }
  /// Whether the leader of islands[which] encodes something of chunk c.
  bool encodes(int which, int64_t c) const;
  /// The first of the islands that do.
  int first_encoder(int64_t c) const;
  /// Which of `islands` the rank is in, if it has a part in this; else -1.
  int home_of(int rank) const;
  /// Who speaks for islands[which] in chunk c.
  int leader(int which, int64_t c) const;
  int root(int64_t c) const { return roots[static_cast<size_t>(c) % roots.size()]; }
  /// Of the chunk's first element.
  int64_t place(int64_t c) const;
};

/// A chunk of a plan.
struct ReductionTurn {
  size_t part = 0;
  int64_t chunk = 0;

  bool operator==(const ReductionTurn&) const = default;
};

struct ReductionPlan {
  int element_bytes = 0;
  ReductionOrder order = ReductionOrder::kFromTheEnd;
  std::vector<ReductionPart> parts;  ///< of the classes in their order

  /// All chunks in the order in which they go. Parts that lie close together take turns chunk by
  /// chunk: where each has an owner of its own, the links of all are busy at once.
  std::vector<ReductionTurn> turns() const;
  /// Of all that decides what is sent to whom and when: 16 hexadecimal digits.
  std::string hash() const;
  /// What an island's link carries out and in, the more of both: what its leaders send and receive.
  Bytes link_bytes(int island) const;
  bool compressed() const;
  /// Of so many elements of a part, where they cross a link.
  int64_t wire_bytes(const ReductionPart& part, int64_t elements) const;
};

/// A chunk of which a rank keeps what was lost.
struct EncodedChunk {
  size_t part = 0;
  int64_t number = 0;
  int64_t first = 0;  ///< elements of the class
  int64_t count = 0;
};
/// Those that `rank` encodes, by part and number.
std::vector<EncodedChunk> chunks_encoded(const ReductionPlan& plan, int rank);

ReductionPlan plan_reduction(const std::vector<ReductionClass>& classes, const Islands& islands,
                             int element_bytes, const ReductionOptions& options = {});

/// Whether a sum among these ranks crosses links that are slow enough to compress.
bool crosses_slow_link(const std::vector<int>& ranks, const Islands& islands,
                       const LinkCompression& compression);

/// In how many rounds `parts` that share a model alternate over it: often, so that all are at work
/// at any time of a backward pass, but with no more stretches than a plan can list.
int64_t rounds_over_model(int64_t parts);

/// The ranks of each host are an island; hosts are numbered as they first appear. A host's link is
/// as fast as the fastest of those measured between it and another host; what was not measured is
/// taken to be like the others.
Islands islands_of(const std::vector<std::string>& host_of_rank,
                   const std::vector<LinkProfile>& links);

/// Of its hosts and the links it knows.
Islands islands_of(const Plan& plan);

/// The shares of rooted chunks, summing to 1, that minimise the longest time any link takes,
/// max (1 + (k-2)·s) / bandwidth, over k >= 2 islands.
std::vector<double> root_shares(const std::vector<double>& bytes_per_second);

}  // namespace motley
