// A motley-worker that computes nothing: it starts and ends MPI and speaks to the runner as ranks
// do, and misbehaves as told. For tests of the runner.
//
//   fake_worker version --json
//   fake_worker train --attempt FILE
//
// MOTLEY_FAKE holds "what:rank[:step]" separated by spaces:
//   die (SIGKILL itself), fail (says why and exits 1), hang (beats without progress), mute (no
//   beats), liar (exits 0 without a done), stranger (offers a wrong key), old (offers an older
//   epoch), daemon (leaves a process in a session of its own behind)
// MOTLEY_FAKE_STEP_MS: how long a step takes (2).

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "comm/communicator.h"
#include "core/attempt.h"
#include "core/clock.h"
#include "core/reports.h"
#include "core/wire.h"

namespace motley {
namespace {

std::string variable(const char* name) {
  for (char** entry = environ; *entry != nullptr; ++entry)
    if (std::strncmp(*entry, name, std::strlen(name)) == 0 && (*entry)[std::strlen(name)] == '=')
      return *entry + std::strlen(name) + 1;
  return "";
}

/// The step at which this rank shall do `what`; -1: never.
int64_t told(const std::string& what, int rank) {
  std::istringstream words(variable("MOTLEY_FAKE"));
  for (std::string word; words >> word;) {
    std::istringstream parts(word);
    std::string name, who, step;
    std::getline(parts, name, ':');
    std::getline(parts, who, ':');
    std::getline(parts, step, ':');
    if (name == what && std::stoi(who) == rank) return step.empty() ? 0 : std::stoll(step);
  }
  return -1;
}

class FakeRank {
 public:
  FakeRank(Attempt attempt, std::unique_ptr<Communicator> world)
      : attempt_(std::move(attempt)), world_(std::move(world)), rank_(world_->rank()) {
    const std::string ms = variable("MOTLEY_FAKE_STEP_MS");
    if (!ms.empty()) step_seconds_ = std::stod(ms) / 1000;
  }

  int run() {
    if (!connect()) return exit_code(ErrorCode::kPeerLost);
    send(MessageType::kPhase, to_json_text(PhaseReport{rank_, "training", "", 0}));
    if (told("daemon", rank_) >= 0) leave_a_daemon();
    for (int64_t step = 1; step <= attempt_.job.train.steps; ++step) {
      misbehave(step);
      wait(step_seconds_, true);
      if (lost_) return exit_code(ErrorCode::kPeerLost);
      report(step);
      if (stop_wanted_) return done(Outcome::kStopped, exit_code(ErrorCode::kStopped));
    }
    return done(Outcome::kFinished, 0);
  }

 private:
  bool connect() {
    const std::string path = attempt_.control.substr(std::strlen("unix:"));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, path.c_str(), sizeof address.sun_path - 1);
    socket_ = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (::connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
      return false;
    Hello hello{rank_, "here", ::getpid(), ""};
    std::getline(std::ifstream(attempt_.key_file), hello.key);
    if (told("stranger", rank_) >= 0) hello.key = "guess";
    if (told("old", rank_) >= 0) attempt_.epoch = Epoch(attempt_.epoch.value() - 1);
    send(MessageType::kHello, to_json_text(hello));
    return true;
  }

  void send(MessageType type, const std::string& payload) {
    const std::string frame = encode({type, attempt_.epoch, payload});
    if (::send(socket_, frame.data(), frame.size(), MSG_NOSIGNAL) < 0) lost_ = true;
  }

  /// Beats every 0.2 s and listens.
  void wait(double seconds, bool moving) {
    const Nanos end = steady_clock().now() + nanos_of_seconds(seconds);
    if (moving) ++progress_;
    while (!lost_ && steady_clock().now() < end) {
      if (steady_clock().now() >= next_beat_) {
        send(MessageType::kHeartbeat, to_json_text(Heartbeat{rank_, progress_}));
        next_beat_ = steady_clock().now() + nanos_of_seconds(0.2);
      }
      pollfd watched{socket_, POLLIN, 0};
      if (::poll(&watched, 1, 1) > 0) listen();
    }
  }

  void listen() {
    char buffer[1024];
    const ssize_t got = ::recv(socket_, buffer, sizeof buffer, 0);
    lost_ = got <= 0;
    if (lost_ || !reader_.feed({buffer, static_cast<size_t>(got)})) return;
    while (const auto message = reader_.next())
      stop_wanted_ = stop_wanted_ || message->type == MessageType::kStop;
  }

  void misbehave(int64_t step) {
    if (told("die", rank_) == step) ::raise(SIGKILL);
    if (told("liar", rank_) == step) ::_exit(0);
    if (told("hang", rank_) == step) wait(1e6, false);
    if (told("mute", rank_) == step) ::pause();
    if (told("fail", rank_) != step) return;
    std::cerr << "the fake device is lost" << std::endl;
    send(MessageType::kDone,
         to_json_text(DoneReport{rank_, Outcome::kFailed, ErrorCode::kDeviceLost,
                                 "the fake device is lost", ""}));
    ::_exit(1);
  }

  static void leave_a_daemon() {
    if (::fork() != 0) return;
    ::setsid();
    if (::fork() != 0) ::_exit(0);
    ::execl("/bin/sleep", "sleep", "1000", nullptr);
    ::_exit(127);
  }

  void report(int64_t step) {
    StepReport report;
    report.rank = rank_;
    report.step = step;
    report.step_seconds = step_seconds_;
    report.loss = 1.0 / static_cast<double>(step);
    std::memcpy(&report.loss_bits, &report.loss, sizeof report.loss);
    send(MessageType::kStep, to_json_text(report));
  }

  int done(Outcome outcome, int status) {
    send(MessageType::kDone,
         to_json_text(DoneReport{rank_, outcome, ErrorCode::kRunFailed, "", "fake"}));
    world_.reset();  // waits for the others: mpirun ends everybody once one exits with a status
    return status;
  }

  Attempt attempt_;
  std::unique_ptr<Communicator> world_;
  int rank_;
  double step_seconds_ = 0.002;
  int socket_ = -1;
  FrameReader reader_;
  Nanos next_beat_{0};
  int64_t progress_ = 0;
  bool stop_wanted_ = false;
  bool lost_ = false;
};

int run(const std::vector<std::string>& words) {
  if (words.size() == 2 && words[0] == "version") {
    std::cout << R"({"version":"fake","git":"fake","mpi":""})" << std::endl;
    return 0;
  }
  if (words.size() != 3 || words[0] != "train") return exit_code(ErrorCode::kUsage);
  std::ifstream file(words[2]);
  const auto attempt = attempt_from_json(nlohmann::json::parse(file));
  if (!attempt) {
    std::cerr << attempt.error().to_string() << std::endl;
    return exit_code(attempt.error().code);
  }
  auto world = open_mpi_communicator();
  if (!world) {
    std::cerr << world.error().to_string() << std::endl;
    return exit_code(world.error().code);
  }
  // A rank that fails does not take leave of MPI, nor do leaks of MPI's matter.
  ::_exit(FakeRank(*attempt, std::move(*world)).run());
}

}  // namespace
}  // namespace motley

int main(int argc, char** argv) { return motley::run({argv + 1, argv + argc}); }
