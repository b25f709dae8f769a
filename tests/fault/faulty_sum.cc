// faulty_sum HOME ISLANDS PHASE VICTIM FAULT SECONDS, run by mpirun: a sum over all ranks, in
// islands of so many ranks ("2,2"), goes well once; of the second one rank, the victim, does
// something else when it has come to PHASE (contribute, across, receive, collective): `kill` or
// `stop` itself, `wait` until something has been done to its link, or a `mismatch`: another call.
// All say in HOME/rank.N how that ended: "ok", or the error. A file HOME/ready.N says that the
// first sum is over, HOME/reached.N that the victim is there; HOME/start and HOME/go are waited
// for.

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <numeric>
#include <sstream>
#include <string>
#include <vector>

#include "comm/communicator.h"

namespace motley {
namespace {

/// As motley-worker does: so that mpirun does not silence those who are about to say why.
constexpr useconds_t kHeadStart = 1'000'000;
constexpr int64_t kElements = 400'000;
/// More chunks than can be under way: all wait for the one that does not take its totals.
constexpr int64_t kManyElements = 800'000;
/// One chunk: who waits for its total waits for nothing else.
constexpr int64_t kFewElements = 1000;

struct Case {
  std::string home, phase, fault;
  std::vector<int> islands;
  int victim = 0;
  double seconds = 0;

  /// Of each rank.
  Islands whole() const {
    Islands all;
    for (size_t i = 0; i < islands.size(); ++i) {
      all.of_rank.insert(all.of_rank.end(), static_cast<size_t>(islands[i]), static_cast<int>(i));
      all.bytes_per_second.push_back(125e6);
    }
    return all;
  }
  /// The victim's end there, before its island's sum leaves, is nobody's lack of a contribution.
  int64_t elements() const {
    if (phase == "receive") return kManyElements;
    return phase == "across" && fault != "wait" ? kFewElements : kElements;
  }
  void say(const std::string& file, int rank, const std::string& text) const {
    const std::string path = home + "/" + file + "." + std::to_string(rank);
    std::ofstream(path + ".new") << text << "\n";
    std::rename((path + ".new").c_str(), path.c_str());
  }
  void await(const std::string& file) const {
    while (access((home + "/" + file).c_str(), F_OK) != 0) usleep(5000);
  }
};

int64_t term(int rank, int64_t i) { return (rank + 1) * (i % 1000 + 1); }

/// A reduction of a class in which all receive; at the phase of receiving the victim does only
/// that.
class Sum final : public ElementGate {
 public:
  Sum(const Case& which, Communicator& comm) : case_(which), comm_(comm) {
    std::vector<int> all(static_cast<size_t>(comm.size()));
    std::iota(all.begin(), all.end(), 0);
    class_ = {.contributors = all, .receivers = all, .owner = {}, .elements = which.elements()};
    if (case_.phase == "receive") std::erase(class_.contributors, case_.victim);
  }

  Result<Unit> open() {
    Islands islands = case_.whole();
    plan_ = plan_reduction({class_}, islands, sizeof(int64_t));
    MOTLEY_TRY(reducer_, comm_.open_reducer(plan_, islands,
                                            {{{.offset = 0, .count = class_.elements, .at = 0}}}));
    return Unit{};
  }

  /// What `at_phase` does, on another thread than this, it does once.
  Result<Unit> begin(std::function<void()> at_phase, SumType type = SumType::kInt64) {
    at_phase_ = std::move(at_phase);
    values_.resize(static_cast<size_t>(class_.elements));
    for (int64_t i = 0; i < class_.elements; ++i)
      values_[static_cast<size_t>(i)] = term(comm_.rank(), i);
    return reducer_->begin_beside(std::as_writable_bytes(std::span(values_)), type, *this);
  }
  Result<Unit> wait() {
    MOTLEY_TRY_VOID(reducer_->wait());
    for (int64_t i = 0; i < class_.elements; ++i) {
      int64_t sum = 0;
      for (const int rank : class_.contributors) sum += term(rank, i);
      if (values_[static_cast<size_t>(i)] != sum)
        return fail(ErrorCode::kInternal, "element " + std::to_string(i) + " is wrong");
    }
    return Unit{};
  }

  Result<bool> readable(std::span<const ElementRun> runs) override {
    if (at_phase_ && (case_.phase != "across" || leads(runs))) std::exchange(at_phase_, nullptr)();
    return true;
  }
  Result<Unit> written(std::span<const ElementRun>) override { return Unit{}; }

 private:
  /// A leader asks for its own elements when it has the others'.
  bool leads(std::span<const ElementRun> runs) const {
    const ReductionPart& part = plan_.parts[0];
    const int home = case_.whole().of_rank[static_cast<size_t>(comm_.rank())];
    return part.leader(home, runs[0].at / part.chunk_elements) == comm_.rank();
  }

  const Case& case_;
  Communicator& comm_;
  ReductionClass class_;
  ReductionPlan plan_;
  std::vector<int64_t> values_;
  std::function<void()> at_phase_;
  std::unique_ptr<Reducer> reducer_;  ///< ends before what it uses
};

void misbehave(const Case& which) {
  which.say("reached", which.victim, which.fault);
  if (which.fault == "kill") std::raise(SIGKILL);
  if (which.fault == "stop") std::raise(SIGSTOP);
  if (which.fault == "wait") which.await("go");
}

Result<Unit> plain_collective(const Case& which, Communicator& comm, bool is_victim) {
  if (is_victim) misbehave(which);
  const bool other = is_victim && which.fault == "mismatch";
  std::vector<int64_t> values(other ? 41 : 40, comm.rank() + 1);
  MOTLEY_TRY_VOID(comm.all_reduce_sum(std::span(values)));
  if (values[0] != comm.size() * (comm.size() + 1) / 2)
    return fail(ErrorCode::kInternal, "the sum is wrong");
  return Unit{};
}

/// Instead of waiting: for its sums, before it has given any, and while they are under way; as
/// other elements.
Result<Unit> another_call(const Case& which, Communicator& comm, Sum& sum) {
  if (which.phase == "contribute") return comm.barrier();
  if (which.phase == "receive") {
    MOTLEY_TRY_VOID(sum.begin(nullptr, SumType::kFloat64));
    return sum.wait();
  }
  std::atomic<bool> there = false;
  MOTLEY_TRY_VOID(sum.begin([&] {
    there = true;
    there.notify_all();
  }));
  there.wait(false);
  return comm.barrier();
}

Result<Unit> faulty_round(const Case& which, Communicator& comm, Sum& sum) {
  const bool is_victim = comm.rank() == which.victim;
  if (which.phase == "collective") return plain_collective(which, comm, is_victim);
  if (is_victim && which.fault == "mismatch") return another_call(which, comm, sum);
  std::function<void()> at_phase;
  if (is_victim) at_phase = [&which] { misbehave(which); };
  MOTLEY_TRY_VOID(sum.begin(at_phase));
  return sum.wait();
}

Result<Unit> both_rounds(const Case& which, Communicator& comm) {
  Sum sum(which, comm);
  MOTLEY_TRY_VOID(sum.open());
  MOTLEY_TRY_VOID(sum.begin(nullptr));
  MOTLEY_TRY_VOID(sum.wait());
  MOTLEY_TRY_VOID(comm.barrier());
  which.say("ready", comm.rank(), "");
  which.await("start");
  const auto done = faulty_round(which, comm, sum);
  which.say("rank", comm.rank(), done ? "ok" : done.error().to_string());
  return done;
}

int run(const Case& which) {
  auto comm = open_mpi_communicator({.timeout = Nanos(static_cast<int64_t>(which.seconds * 1e9))});
  if (!comm) {
    std::fprintf(stderr, "%s\n", comm.error().to_string().c_str());
    return 1;
  }
  const auto done = both_rounds(which, **comm);
  if (done) return 0;
  std::fprintf(stderr, "rank %d: %s\n", (*comm)->rank(), done.error().to_string().c_str());
  usleep(kHeadStart);
  (*comm)->give_up(exit_code(done.error().code));
  comm->reset();
  return exit_code(done.error().code);
}

std::vector<int> numbers(const std::string& text) {
  std::vector<int> found;
  std::istringstream in(text);
  for (std::string one; std::getline(in, one, ',');) found.push_back(std::stoi(one));
  return found;
}

}  // namespace
}  // namespace motley

int main(int argc, char** argv) {
  if (argc != 7) return 2;
  return motley::run({.home = argv[1],
                      .phase = argv[3],
                      .fault = argv[5],
                      .islands = motley::numbers(argv[2]),
                      .victim = std::stoi(argv[4]),
                      .seconds = std::stod(argv[6])});
}
