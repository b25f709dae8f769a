// lib/motley_mpi.so: Transport over MPI's point-to-point messages. Works with any MPI-3 library;
// needs MPI_THREAD_SERIALIZED only: of a rank's two threads one calls at a time.

#include <dlfcn.h>
#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "comm/call_watch.h"
#include "comm/mpi_module.h"
#include "comm/mpi_notices.h"
#include "comm/patience.h"
#include "comm/post_pool.h"
#include "core/check.h"
#include "core/debug_env.h"

namespace motley {
namespace {

constexpr int kExchangeTag = 0;
constexpr int kMessageTag = 1;
constexpr int kFirstTransferTag = 2;
/// Large messages travel in pieces: over TCP these reach the link's rate with receives posted
/// early, in shared memory they cost nothing.
constexpr size_t kChunkBytes = 256 << 10;
/// Others may have told why sooner than this rank finds out itself; asking costs a call of MPI.
constexpr auto kQuietBeforeAsking = std::chrono::milliseconds(1);
constexpr unsigned kAsksForOneCall = 16;
/// For ending all ranks.
constexpr std::chrono::nanoseconds kAbortTime = std::chrono::seconds(10);

const std::string kStarting = "the start";
const std::string kEnding = "the end";
const std::string kPost = "post";
const std::string kNotices = "telling who is lost";
const std::string kAcross = "a reduction (across)";

std::atomic<int> rank_of_process{-1};

/// A call of MPI is stuck: so would be the one that ends the other ranks. That this one ends
/// without a word to mpirun ends them.
void end_process(const std::string& stuck) {
  std::fprintf(stderr, "motley: rank %d: %s\n", rank_of_process.load(), stuck.c_str());
  std::fflush(stderr);
  _exit(exit_code(ErrorCode::kPeerLost));
}

std::string text_of(int mpi_error) {
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(mpi_error, text, &length);
  return std::string(text, static_cast<size_t>(length));
}

/// What is under way together; kept between uses so that a step allocates nothing.
struct Requests {
  std::vector<MPI_Request> handles;
  std::vector<int> peers;  // of each handle

  void clear() {
    handles.clear();
    peers.clear();
  }
  std::string pending_peers() const;
};

class MpiTransport final : public Transport {
 public:
  MpiTransport(int rank, int size, const CommunicatorOptions& options)
      : rank_(rank),
        size_(size),
        timeout_(options.timeout.value()),
        watch_(timeout_, end_process),
        notices_(watch_, kStarting) {}
  MpiTransport(const MpiTransport&) = delete;
  MpiTransport& operator=(const MpiTransport&) = delete;
  ~MpiTransport() override {
    if (abort_status_ != 0) abort();
    MOTLEY_CHECK(posts_.empty() && begun_.empty(), "a rank left with open transfers");
    const CallWatch::Call call(watch_, "MPI_Finalize", kEnding);
    notices_.close();
    MPI_Finalize();
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string description() const override;
  Result<Unit> exchange(std::span<const Incoming> receives, std::span<const Outgoing> sends,
                        const std::string& operation) override {
    return transfer(receives, sends, kExchangeTag, operation);
  }
  Result<SendId> post(const Outgoing& message) override;
  Result<Unit> complete(SendId send, const std::string& operation) override {
    MOTLEY_TRY_VOID(wait_for(posts_.at(send), operation));
    posts_.close(send);
    return Unit{};
  }
  Result<Unit> receive(const Incoming& message, const std::string& operation) override {
    return transfer(std::span(&message, 1), {}, kMessageTag, operation);
  }
  Result<SendId> begin(const Incoming& message, int tag) override {
    return begin(std::span(&message, 1), {}, tag);
  }
  Result<SendId> begin(const Outgoing& message, int tag) override {
    return begin({}, std::span(&message, 1), tag);
  }
  Result<bool> finished(SendId transfer) override;
  void abandon(SendId transfer) override;
  Result<Unit> alive() override;
  std::chrono::nanoseconds timeout() const override { return timeout_; }
  Error lost(const std::string& what) override;
  void give_up(int exit_status) override {
    int none = 0;
    abort_status_.compare_exchange_strong(none, std::max(1, exit_status));
  }

 private:
  Result<SendId> begin(std::span<const Incoming> receives, std::span<const Outgoing> sends,
                       int tag);
  Result<Unit> transfer(std::span<const Incoming> receives, std::span<const Outgoing> sends,
                        int tag, const std::string& operation);
  Result<Unit> start(Requests& requests, std::span<const Incoming> receives,
                     std::span<const Outgoing> sends, int tag, const std::string& operation);
  Result<Unit> wait_for(Requests& requests, const std::string& operation);
  void abort() const;
  tl::unexpected<Error> lost(const std::string& what, const std::string& operation) {
    return fail(lost(what + " in " + operation));
  }

  const int rank_;
  const int size_;
  const std::chrono::nanoseconds timeout_;
  std::atomic<int> abort_status_{0};
  std::mutex mpi_;  // held in every call of the library but its first and last
  CallWatch watch_;
  MpiNotices notices_;
  Requests transfer_;
  PostPool<Requests> posts_;
  std::atomic<unsigned> asked_{0};
  PostPool<Requests> begun_;  // of begin(), whose thread may be another
  std::vector<int> finished_;
};

/// "Open MPI v4.1.4"; allowed before MPI is started.
std::string library_version() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING];
  int length = 0;
  MPI_Get_library_version(text, &length);
  const std::string whole(text, static_cast<size_t>(length));
  return whole.substr(0, whole.find_first_of(",\n"));
}

std::string MpiTransport::description() const { return "mpi: " + library_version(); }

Result<Unit> MpiTransport::transfer(std::span<const Incoming> receives,
                                    std::span<const Outgoing> sends, int tag,
                                    const std::string& operation) {
  if (const auto started = start(transfer_, receives, sends, tag, operation); !started)
    return lost(started.error().message, operation);
  return wait_for(transfer_, operation);
}

Result<SendId> MpiTransport::post(const Outgoing& message) {
  const SendId id = posts_.open();
  if (const auto started = start(posts_.at(id), {}, std::span(&message, 1), kMessageTag, kPost);
      !started)
    return lost(started.error().message, kPost);
  return id;
}

Result<Unit> MpiTransport::start(Requests& requests, std::span<const Incoming> receives,
                                 std::span<const Outgoing> sends, int tag,
                                 const std::string& operation) {
  const std::lock_guard lock(mpi_);
  const CallWatch::Call call(watch_, sends.empty() ? "MPI_Irecv" : "MPI_Isend", operation);
  requests.clear();
  int error = MPI_SUCCESS;
  const auto each_chunk = [&](int peer, auto bytes, auto&& begin_one) {
    for (size_t begin = 0; begin < bytes.size() && error == MPI_SUCCESS; begin += kChunkBytes) {
      const auto chunk = bytes.subspan(begin, std::min(kChunkBytes, bytes.size() - begin));
      requests.handles.push_back(MPI_REQUEST_NULL);
      requests.peers.push_back(peer);
      error =
          begin_one(chunk.data(), static_cast<int>(chunk.size()), peer, &requests.handles.back());
    }
  };
  for (const Incoming& in : receives) {
    each_chunk(in.from, in.into, [tag](std::byte* data, int count, int peer, MPI_Request* request) {
      return MPI_Irecv(data, count, MPI_BYTE, peer, tag, MPI_COMM_WORLD, request);
    });
  }
  for (const Outgoing& out : sends) {
    each_chunk(out.to, out.data,
               [tag](const std::byte* data, int count, int peer, MPI_Request* request) {
                 return MPI_Isend(data, count, MPI_BYTE, peer, tag, MPI_COMM_WORLD, request);
               });
  }
  if (error != MPI_SUCCESS) return fail(ErrorCode::kPeerLost, text_of(error));
  return Unit{};
}

Result<SendId> MpiTransport::begin(std::span<const Incoming> receives,
                                   std::span<const Outgoing> sends, int tag) {
  const SendId id = begun_.open();
  if (const auto started = start(begun_.at(id), receives, sends, kFirstTransferTag + tag, kAcross);
      !started)
    return lost(started.error().message, kAcross);
  return id;
}

Result<bool> MpiTransport::finished(SendId transfer) {
  Requests& requests = begun_.at(transfer);
  int done = 0;
  int error = MPI_SUCCESS;
  {
    const std::lock_guard lock(mpi_);
    const CallWatch::Call call(watch_, "MPI_Testall", kAcross);
    error = MPI_Testall(static_cast<int>(requests.handles.size()), requests.handles.data(), &done,
                        MPI_STATUSES_IGNORE);
  }
  if (error != MPI_SUCCESS)
    return lost(text_of(error) + " with " + requests.pending_peers(), kAcross);
  if (done != 0) begun_.close(transfer);
  return done != 0;
}

/// All ranks end soon. What may still arrive is called off, what is being sent cannot be.
void MpiTransport::abandon(SendId transfer) {
  const std::lock_guard lock(mpi_);
  const CallWatch::Call call(watch_, "MPI_Cancel", kAcross);
  for (MPI_Request& request : begun_.at(transfer).handles) {
    if (request == MPI_REQUEST_NULL) continue;
    MPI_Cancel(&request);
    MPI_Request_free(&request);
  }
  begun_.close(transfer);
}

Result<Unit> MpiTransport::wait_for(Requests& requests, const std::string& operation) {
  std::vector<MPI_Request>& handles = requests.handles;
  if (finished_.size() < handles.size()) finished_.resize(handles.size());
  Patience patience;
  for (size_t open = handles.size(); open > 0;) {
    int count = 0;
    int error = MPI_SUCCESS;
    {
      const std::lock_guard lock(mpi_);
      const CallWatch::Call call(watch_, "MPI_Testsome", operation);
      if (failpoint("mpi_call_sticks", rank_))
        for (;;) pause();
      error = MPI_Testsome(static_cast<int>(handles.size()), handles.data(), &count,
                           finished_.data(), MPI_STATUSES_IGNORE);
    }
    if (error != MPI_SUCCESS)
      return lost(text_of(error) + " with " + requests.pending_peers(), operation);
    if (count > 0) {
      open -= static_cast<size_t>(count);
      patience.something_happened();
    } else if (patience.silence() > timeout_) {
      return lost(requests.pending_peers() + " did not answer", operation);
    } else {
      if (patience.silence() > kQuietBeforeAsking) MOTLEY_TRY_VOID(alive());
      patience.pause();
    }
  }
  return Unit{};
}

Result<Unit> MpiTransport::alive() {
  if (++asked_ % kAsksForOneCall != 0) return Unit{};
  std::optional<std::string> heard;
  {
    const std::lock_guard lock(mpi_);
    const CallWatch::Call call(watch_, "MPI_Test", kNotices);
    heard = notices_.heard();
  }
  if (!heard) return Unit{};
  give_up(exit_code(ErrorCode::kPeerLost));
  return fail(ErrorCode::kPeerLost, *heard);
}

Error MpiTransport::lost(const std::string& what) {
  {
    const std::lock_guard lock(mpi_);
    const CallWatch::Call call(watch_, "MPI_Isend", kNotices);
    notices_.tell_all(what);
  }
  give_up(exit_code(ErrorCode::kPeerLost));
  return {ErrorCode::kPeerLost, what, {}};
}

/// What cannot be told to mpirun, as over a link that is cut, it finds out.
void MpiTransport::abort() const {
  CallWatch soon(std::min(timeout_, kAbortTime),
                 [this](const std::string&) { _exit(abort_status_); });
  const CallWatch::Call call(soon, "MPI_Abort", kEnding);
  MPI_Abort(MPI_COMM_WORLD, abort_status_);
}

std::string Requests::pending_peers() const {
  std::set<int> waited_for;
  for (size_t i = 0; i < handles.size(); ++i)
    if (handles[i] != MPI_REQUEST_NULL) waited_for.insert(peers[i]);
  std::string text = waited_for.size() > 1 ? "ranks" : "rank";
  for (const int peer : waited_for) text += " " + std::to_string(peer);
  return text;
}

/// Open MPI's plug-ins find their symbols in libmpi only if it is visible to all, which it is not
/// when this module was opened with RTLD_LOCAL: promote it, whatever its name.
void make_mpi_symbols_global() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&MPI_Init_thread), &info) != 0)
    dlopen(info.dli_fname, RTLD_NOW | RTLD_GLOBAL | RTLD_NOLOAD);
}

/// Open MPI moves a message beyond the eager limit only while its sender is inside a call: one that
/// was posted would wait until the sender has computed. Our chunks (kChunkBytes) stay below this
/// limit. Values the user has set are left alone; other MPI libraries know nothing of these.
void raise_eager_limits() {
  const char* const settings[][2] = {{"OMPI_MCA_btl_vader_eager_limit", "300000"},
                                     {"OMPI_MCA_btl_vader_segment_size", "33554432"},
                                     {"OMPI_MCA_btl_tcp_eager_limit", "300000"}};
  for (const auto& [name, value] : settings) setenv(name, value, 0);
}

int start_mpi(const CommunicatorOptions& options, int* provided) {
  CallWatch watch(std::chrono::nanoseconds(options.timeout.value()), end_process);
  const CallWatch::Call call(watch, "MPI_Init_thread", kStarting);
  return MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, provided);
}

}  // namespace
}  // namespace motley

extern "C" {

[[gnu::visibility("default")]] int motley_mpi_version() { return motley::kMpiModuleVersion; }

[[gnu::visibility("default")]] std::string motley_mpi_library() {
  return motley::library_version();
}

[[gnu::visibility("default")]] motley::Result<std::unique_ptr<motley::Transport>> motley_mpi_open(
    const motley::CommunicatorOptions& options) {
  using motley::ErrorCode;
  motley::make_mpi_symbols_global();
  motley::raise_eager_limits();
  int provided = 0;
  if (motley::start_mpi(options, &provided) != MPI_SUCCESS)
    return motley::fail(ErrorCode::kBrokenInstall, "MPI does not start");
  if (provided < MPI_THREAD_SERIALIZED)
    return motley::fail(ErrorCode::kBrokenInstall,
                        "this MPI lets only one thread of a process call it");
  int rank = 0;
  int size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  motley::rank_of_process = rank;
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  return std::make_unique<motley::MpiTransport>(rank, size, options);
}
}
