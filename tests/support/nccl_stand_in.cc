// A libnccl.so.2 for tests: the ranks are threads of one process, device memory is host memory.
// Like NCCL with communicators that do not block, calls return "in progress" and a stream is busy
// until all ranks have come; on a stream of an emulated GPU a collective also waits for what was
// enqueued before it. MOTLEY_NCCL_STAND_IN orders mishaps, words with blanks between:
//
//   init_fails=R     rank R cannot connect        absent=R         rank R never comes
//   fails_at=R:N     call N (from 0) of rank R fails behind its back
//   lost_at=R:N      call N of rank R is never made

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <type_traits>
#include <vector>

#include "tests/support/emulated_stream.h"

#ifndef STAND_IN_VERSION
#define STAND_IN_VERSION 22809
#endif

namespace {

enum Status : int {
  kSuccess = 0,
  kSystemError = 2,
  kInvalidArgument = 4,
  kInvalidUsage = 5,
  kRemoteError = 6,
  kInProgress = 7
};
enum DataType : int { kInt8 = 0, kInt64 = 4, kFloat32 = 7, kFloat64 = 8 };
constexpr int kFirstOwnOp = 5;

struct UniqueId {
  char bytes[128];
};
struct Config {
  size_t size;
  unsigned magic, version;
  int blocking;
};

struct Call {
  enum class Kind { kAllReduce, kReduce, kReduceScatter, kAllGather, kBroadcast } kind;
  const void* in;
  void* out;
  size_t count;
  DataType type;
  int root = 0;
  double weight = 1;
  bool reached = false;  // by its rank's stream
  bool over = false;     // performed, or its rank has left

  bool matches(const Call& other) const {
    return kind == other.kind && count == other.count && type == other.type && root == other.root;
  }
};
struct Transfer {
  int from, to;
  const void* in;
  void* out;
  size_t bytes;
};

using Parts = std::map<int, std::shared_ptr<Call>>;  // of one collective, by rank

struct Clique;
struct Member {
  Clique* clique = nullptr;
  int rank = 0;
  Status status = kSuccess;
  int calls = 0;           // made so far, point to point ones among them
  int collectives = 0;     // the others
  int unfinished = 0;      // of all calls
  bool enqueuing = false;  // the next look at the status still finds the last call in progress
  std::map<int, double> weights = {};
};
struct Clique {
  std::vector<Member*> members;
  size_t joined = 0;               // ever
  std::map<int, Parts> waiting;    // by the number of the collective
  std::deque<Transfer> transfers;  // sends and receives without their counterpart
};

std::mutex mutex;
std::map<int, Clique> cliques;
std::map<std::string, int> counts;
int next_id = 1;
thread_local int group_depth = 0;

/// Whether `word=rank` or `word=rank:call` was ordered.
bool ordered(const std::string& word, int rank, int call = -1) {
  const char* orders = std::getenv("MOTLEY_NCCL_STAND_IN");
  if (orders == nullptr) return false;
  const std::string wanted =
      word + "=" + std::to_string(rank) + (call < 0 ? "" : ":" + std::to_string(call));
  return (" " + std::string(orders) + " ").find(" " + wanted + " ") != std::string::npos;
}

size_t size_of(DataType type) { return type == kInt8 ? 1 : type == kFloat32 ? 4 : 8; }

template <class T>
void add_parts(const Parts& parts, size_t elements, std::vector<char>* sum) {
  std::vector<T> total(elements);
  for (const auto& [rank, call] : parts)
    for (size_t i = 0; i < elements; ++i) {
      T value;
      std::memcpy(&value, static_cast<const char*>(call->in) + i * sizeof(T), sizeof(T));
      if constexpr (std::is_same_v<T, uint64_t>)
        total[i] += value;
      else
        total[i] += static_cast<T>(call->weight) * value;
    }
  sum->resize(elements * sizeof(T));
  std::memcpy(sum->data(), total.data(), sum->size());
}

std::vector<char> sum_of(const Parts& parts, size_t elements) {
  std::vector<char> sum;
  switch (parts.begin()->second->type) {
    case kFloat32:
      add_parts<float>(parts, elements, &sum);
      break;
    case kFloat64:
      add_parts<double>(parts, elements, &sum);
      break;
    default:
      add_parts<uint64_t>(parts, elements, &sum);
  }
  return sum;
}

void perform(const Parts& parts) {
  const Call& one = *parts.begin()->second;
  const size_t bytes = one.count * size_of(one.type);
  const size_t ranks = parts.size();
  std::vector<char> result;
  const bool to_root = one.kind == Call::Kind::kReduce;
  if (one.kind == Call::Kind::kAllReduce || to_root) result = sum_of(parts, one.count);
  if (one.kind == Call::Kind::kReduceScatter) result = sum_of(parts, one.count * ranks);
  if (one.kind == Call::Kind::kAllGather)
    for (const auto& [rank, call] : parts)
      result.insert(result.end(), static_cast<const char*>(call->in),
                    static_cast<const char*>(call->in) + bytes);
  if (one.kind == Call::Kind::kBroadcast) {
    const auto* from = static_cast<const char*>(parts.at(one.root)->in);
    result.assign(from, from + bytes);
  }
  for (const auto& [rank, call] : parts) {
    if (to_root && rank != one.root) continue;
    const bool scattered = one.kind == Call::Kind::kReduceScatter;
    const size_t offset = scattered ? static_cast<size_t>(rank) * bytes : 0;
    if (!result.empty())
      std::memcpy(call->out, result.data() + offset, scattered ? bytes : result.size());
  }
}

/// Whether this call of the member goes through; counts it.
bool begin_call(Member* member) {
  const int number = member->calls++;
  ++member->unfinished;
  if (group_depth == 0) member->enqueuing = true;
  if (ordered("fails_at", member->rank, number)) member->status = kRemoteError;
  return member->status == kSuccess && !ordered("lost_at", member->rank, number);
}

/// The rank's stream has come to its part of a collective. Whether it may go on.
bool reach(Clique& clique, int number, Call& part) {
  const std::lock_guard lock(mutex);
  part.reached = true;
  if (part.over) return true;
  const Parts& parts = clique.waiting.at(number);
  const bool all =
      parts.size() == clique.members.size() &&
      std::all_of(parts.begin(), parts.end(), [](const auto& of) { return of.second->reached; });
  if (!all) return false;
  perform(parts);
  for (const auto& [rank, call] : parts) call->over = true;
  clique.waiting.erase(number);
  for (Member* other : clique.members) --other->unfinished;
  return true;
}

const char* name_of(Call::Kind kind) {
  switch (kind) {
    case Call::Kind::kAllReduce:
      return "all_reduce";
    case Call::Kind::kReduce:
      return "reduce";
    case Call::Kind::kReduceScatter:
      return "reduce_scatter";
    case Call::Kind::kAllGather:
      return "all_gather";
    case Call::Kind::kBroadcast:
      break;
  }
  return "broadcast";
}

Status submit(Member* member, const Call& call, void* stream) {
  Clique& clique = *member->clique;
  const auto part = std::make_shared<Call>(call);
  std::unique_lock lock(mutex);
  const int number = member->collectives++;
  ++counts[name_of(call.kind)];
  if (!begin_call(member)) return kInProgress;
  Parts& parts = clique.waiting[number];
  for (const auto& [rank, other] : parts)
    if (!call.matches(*other)) return kInvalidUsage;
  parts.emplace(member->rank, part);
  lock.unlock();
  if (stream == nullptr)
    reach(clique, number, *part);
  else
    static_cast<motley::testing::EmulatedStream*>(stream)->enqueue(
        [&clique, number, part] { return reach(clique, number, *part); });
  return kInProgress;
}

Status submit(Member* member, const Transfer& transfer) {
  const std::lock_guard lock(mutex);
  if (!begin_call(member)) return kSuccess;
  Clique& clique = *member->clique;
  for (auto other = clique.transfers.begin(); other != clique.transfers.end(); ++other) {
    if (other->from != transfer.from || other->to != transfer.to ||
        (other->in == nullptr) == (transfer.in == nullptr))
      continue;
    if (other->bytes != transfer.bytes) return kInvalidUsage;
    std::memcpy(transfer.out ? transfer.out : other->out, transfer.in ? transfer.in : other->in,
                transfer.bytes);
    --clique.members[static_cast<size_t>(transfer.from)]->unfinished;
    --clique.members[static_cast<size_t>(transfer.to)]->unfinished;
    clique.transfers.erase(other);
    return kSuccess;
  }
  clique.transfers.push_back(transfer);
  return kSuccess;
}

Status leave(Member* member, const char* how) {
  const std::lock_guard lock(mutex);
  ++counts[how];
  Clique& clique = *member->clique;
  for (Member*& place : clique.members)
    if (place == member) place = nullptr;
  for (auto& [number, parts] : clique.waiting)
    if (const auto own = parts.find(member->rank); own != parts.end()) {
      own->second->over = true;
      parts.erase(own);
    }
  std::erase_if(clique.transfers, [&](const Transfer& transfer) {
    return (transfer.in ? transfer.from : transfer.to) == member->rank;
  });
  delete member;
  return kSuccess;
}

}  // namespace

extern "C" {

/// How often something was called: "abort", "destroy", "finalize"; of collectives "all_reduce",
/// "reduce", "reduce_scatter", "all_gather" and "broadcast".
int nccl_stand_in_count(const char* what) {
  const std::lock_guard lock(mutex);
  return counts[what];
}
/// Whether a rank of the newest communicator has calls that others have not joined.
bool nccl_stand_in_busy(int rank) {
  const std::lock_guard lock(mutex);
  const Clique& clique = cliques.rbegin()->second;
  const Member* member = clique.members[static_cast<size_t>(rank)];
  return member != nullptr && member->unfinished > 0;
}

Status ncclGetVersion(int* version) {
  *version = STAND_IN_VERSION;
  return kSuccess;
}
Status ncclGetUniqueId(UniqueId* id) {
  const std::lock_guard lock(mutex);
  std::memset(id->bytes, 0x5a, sizeof id->bytes);
  std::memcpy(id->bytes + sizeof id->bytes - sizeof next_id, &next_id, sizeof next_id);
  ++next_id;
  return kSuccess;
}
#ifndef STAND_IN_INCOMPLETE
Status ncclCommInitRankConfig(Member** member, int ranks, UniqueId id, int rank, Config* config) {
  if (config->magic != 0xcafebeef || config->blocking != 0 || config->size != 24)
    return kInvalidArgument;
  if (ordered("init_fails", rank)) return kSystemError;
  const std::lock_guard lock(mutex);
  int number = 0;
  std::memcpy(&number, id.bytes + sizeof id.bytes - sizeof number, sizeof number);
  Clique& clique = cliques[number];
  clique.members.resize(static_cast<size_t>(ranks));
  *member = new Member{&clique, rank};
  if (ordered("absent", rank)) return kInProgress;
  clique.members[static_cast<size_t>(rank)] = *member;
  ++clique.joined;
  return kInProgress;
}
#endif
Status ncclCommFinalize(Member*) {
  const std::lock_guard lock(mutex);
  ++counts["finalize"];
  return kInProgress;
}
Status ncclCommDestroy(Member* member) { return leave(member, "destroy"); }
Status ncclCommAbort(Member* member) { return leave(member, "abort"); }
Status ncclCommGetAsyncError(Member* member, Status* status) {
  const std::lock_guard lock(mutex);
  *status = member->status;
  const Clique& clique = *member->clique;
  if (clique.joined < clique.members.size()) *status = kInProgress;
  if (*status == kSuccess && member->enqueuing) {
    member->enqueuing = false;
    *status = kInProgress;
  }
  return kSuccess;
}
const char* ncclGetErrorString(Status status) {
  return status == kSystemError    ? "unhandled system error"
         : status == kRemoteError  ? "remote process exited or there was a network error"
         : status == kInvalidUsage ? "invalid usage"
                                   : "some error";
}
const char* ncclGetLastError(Member*) { return "the stand-in was told to"; }
Status ncclRedOpCreatePreMulSum(int* op, void* scalar, DataType type, int, Member* member) {
  const std::lock_guard lock(mutex);
  *op = kFirstOwnOp + static_cast<int>(member->weights.size());
  double weight = 0;
  float narrow = 0;
  if (type == kFloat64) std::memcpy(&weight, scalar, sizeof weight);
  if (type == kFloat32) {
    std::memcpy(&narrow, scalar, sizeof narrow);
    weight = narrow;
  }
  member->weights[*op] = weight;
  return kSuccess;
}
Status ncclRedOpDestroy(int op, Member* member) {
  const std::lock_guard lock(mutex);
  return member->weights.erase(op) == 1 ? kSuccess : kInvalidArgument;
}
// What collectives begin with; NCCL's functions have as many parameters as they have.
#define COLLECTIVE const void *in, void *out, size_t count, DataType type
Status ncclAllReduce(COLLECTIVE, int op, Member* member, void* stream) {
  return submit(member,
                Call{.kind = Call::Kind::kAllReduce,
                     .in = in,
                     .out = out,
                     .count = count,
                     .type = type,
                     .weight = op == 0 ? 1 : member->weights.at(op)},
                stream);
}
Status ncclReduce(COLLECTIVE, int, int root, Member* member, void* stream) {
  return submit(member, Call{Call::Kind::kReduce, in, out, count, type, root}, stream);
}
Status ncclReduceScatter(COLLECTIVE, int, Member* member, void* stream) {
  return submit(member, Call{Call::Kind::kReduceScatter, in, out, count, type}, stream);
}
Status ncclAllGather(COLLECTIVE, Member* member, void* stream) {
  return submit(member, Call{Call::Kind::kAllGather, in, out, count, type}, stream);
}
Status ncclBroadcast(COLLECTIVE, int root, Member* member, void* stream) {
  return submit(member, Call{Call::Kind::kBroadcast, in, out, count, type, root}, stream);
}
#undef COLLECTIVE
// Not on an emulated GPU: transfers of a group would have to advance together.
Status ncclSend(const void* in, size_t bytes, DataType, int peer, Member* member, void* stream) {
  if (stream != nullptr) return kInvalidUsage;
  return submit(member, Transfer{member->rank, peer, in, nullptr, bytes});
}
Status ncclRecv(void* out, size_t bytes, DataType, int peer, Member* member, void* stream) {
  if (stream != nullptr) return kInvalidUsage;
  return submit(member, Transfer{peer, member->rank, nullptr, out, bytes});
}
Status ncclGroupStart() {
  ++group_depth;
  return kSuccess;
}
Status ncclGroupEnd() {
  --group_depth;
  return kSuccess;
}
}
