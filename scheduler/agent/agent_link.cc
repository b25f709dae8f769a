#include "scheduler/agent/agent_link.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/clock.h"
#include "core/units.h"

namespace motley {
namespace {

using nlohmann::json;

constexpr auto kBeat = std::chrono::milliseconds(500);
constexpr auto kTryAgain = std::chrono::milliseconds(200);
constexpr auto kEndWithin = std::chrono::seconds(2);  // there are more ticks than that
constexpr Nanos kJoinWithin{10'000'000'000};
constexpr size_t kPiecesInReport = 32;  // of 4 KiB: below what a body may have, however escaped

std::string body_of(const json& document) {
  return document.dump(-1, ' ', false, json::error_handler_t::replace);
}

bool among(const std::vector<AttemptId>& attempts, AttemptId attempt) {
  return std::find(attempts.begin(), attempts.end(), attempt) != attempts.end();
}

}  // namespace

AgentLink::AgentLink(const ServiceClient& client, NodeJoin join)
    : client_(client), line_(client), join_(std::move(join)), watch_(join_.fleet) {
  if (auto made = make_pipe()) wake_ = std::move(*made);
  for (const Fd* end : {&wake_.read, &wake_.write}) ::fcntl(end->get(), F_SETFL, O_NONBLOCK);
  wishes_.heard = steady_clock().now();
}

AgentLink::~AgentLink() {
  stop();
  for (std::thread* thread : {&reporter_, &listener_})
    if (thread->joinable()) thread->join();
}

Result<Unit> AgentLink::join_once() const {
  MOTLEY_TRY_VOID(client_.post("/v1/nodes/" + join_.name + "/join", body_of(to_json(join_))));
  return Unit{};
}

Result<Unit> AgentLink::join(const std::function<bool()>& go_on) {
  const Nanos until = steady_clock().now() + kJoinWithin;
  for (bool told = false;;) {
    // Also while an agent that was killed is not yet known to be gone.
    const auto joined = join_once();
    const bool may_pass = !joined && (joined.error().code == ErrorCode::kNoDevice ||
                                      joined.error().code == ErrorCode::kPeerLost ||
                                      joined.error().code == ErrorCode::kNotPermitted);
    if (!may_pass || steady_clock().now() >= until || !go_on()) return joined;
    if (!std::exchange(told, true))
      std::fprintf(stderr, "node %s cannot join yet: %s; it tries again for %s\n",
                   join_.name.c_str(), joined.error().to_string().c_str(),
                   format_seconds(seconds_of(kJoinWithin)).c_str());
    std::this_thread::sleep_for(kTryAgain);
  }
}

Result<Unit> AgentLink::leave() {
  MOTLEY_TRY_VOID(client_.post("/v1/nodes/" + join_.name + "/leave?session=" + join_.session));
  return Unit{};
}

void AgentLink::start() {
  working_ = 2;
  reporter_ = std::thread([this] {
    report_on();
    end_thread();
  });
  listener_ = std::thread([this] {
    take_orders();
    end_thread();
  });
}

void AgentLink::end_thread() {
  const std::lock_guard lock(mutex_);
  --working_;
  changed_.notify_all();
}

bool AgentLink::stop() {
  std::unique_lock lock(mutex_);
  stopping_ = true;
  changed_.notify_all();
  return changed_.wait_for(lock, kEndWithin, [this] { return working_ == 0; });
}

void AgentLink::wake() {
  const char byte = 0;
  [[maybe_unused]] const ssize_t written = ::write(wake_.write.get(), &byte, 1);
}

// --- the thread that runs commands ---

AgentLink::Wishes AgentLink::take() {
  char bytes[256];
  while (::read(wake_.read.get(), bytes, sizeof bytes) > 0) {
  }
  const std::lock_guard lock(mutex_);
  Wishes taken = std::move(wishes_);
  wishes_ = {};
  wishes_.heard = taken.heard;
  return taken;
}

void AgentLink::add(std::vector<CommandPiece> pieces) {
  if (pieces.empty()) return;
  {
    const std::lock_guard lock(mutex_);
    for (CommandPiece& piece : pieces)
      if (const auto found = outboxes_.find(piece.command); found != outboxes_.end())
        found->second.pieces.push_back(std::move(piece));
  }
  changed_.notify_all();
}

void AgentLink::forget(AttemptId attempt) {
  const std::lock_guard lock(mutex_);
  std::erase_if(outboxes_,
                [&](const auto& entry) { return entry.second.command.attempt == attempt; });
}

std::vector<AttemptId> AgentLink::attempts() const {
  const std::lock_guard lock(mutex_);
  std::vector<AttemptId> attempts;
  for (const auto& [id, outbox] : outboxes_)
    if (!among(attempts, outbox.command.attempt)) attempts.push_back(outbox.command.attempt);
  return attempts;
}

// --- reports ---

bool AgentLink::unsent() const {
  return std::any_of(outboxes_.begin(), outboxes_.end(), [](const auto& entry) {
    return entry.second.received < entry.second.pieces.size();
  });
}

void AgentLink::report_on() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    lock.unlock();
    auto told = report();
    // Of a coordinator that has forgotten us, or lost us while we could not reach it.
    if (!told && told.error().code == ErrorCode::kNotFound) told = join_once();
    lock.lock();
    const bool refused = !told && told.error().code == ErrorCode::kNotPermitted;
    if (refused) wishes_.refusal = told.error();
    if (told) wishes_.heard = steady_clock().now();
    if (refused) wake();
    if (!told || !unsent()) changed_.wait_for(lock, told ? kBeat : kTryAgain);
  }
}

AgentReport AgentLink::next_report() const {
  AgentReport report;
  report.life = {join_.name, join_.session, attempts(), watch_.latest()};
  const std::lock_guard lock(mutex_);
  for (const auto& [id, outbox] : outboxes_)
    for (size_t i = outbox.received;
         i < outbox.pieces.size() && report.pieces.size() < kPiecesInReport; ++i)
      report.pieces.push_back(outbox.pieces[i]);
  return report;
}

Result<Unit> AgentLink::report() {
  const AgentReport report = next_report();
  MOTLEY_TRY(const json answer,
             line_.post("/v1/nodes/" + join_.name + "/report", body_of(to_json(report))));
  MOTLEY_TRY(const AgentAnswer understood, agent_answer_from_json(answer));
  understand(understood, report.life.running);
  return Unit{};
}

/// Only what was reported is ended: what was begun since may not be known in this answer.
void AgentLink::understand(const AgentAnswer& answer, const std::vector<AttemptId>& reported) {
  const std::lock_guard lock(mutex_);
  for (const AttemptId attempt : reported)
    if (!among(answer.attempts, attempt)) wishes_.end_attempts.push_back(attempt);
  for (auto& [id, outbox] : outboxes_)
    if (const auto found = answer.commands.received.find(id);
        found != answer.commands.received.end())
      outbox.received = std::min(outbox.pieces.size(), static_cast<size_t>(found->second));
  for (const std::string& id : answer.commands.unwanted) {
    const auto found = outboxes_.find(id);
    if (found == outboxes_.end() || std::exchange(found->second.ending, true)) continue;
    wishes_.end_commands.push_back(found->second.command);
  }
  if (!wishes_.end_attempts.empty() || !wishes_.end_commands.empty()) wake();
}

// --- orders ---

void AgentLink::take_orders() {
  const auto go_on = [this] {
    const std::lock_guard lock(mutex_);
    return !stopping_;
  };
  const std::string target = "/v1/nodes/" + join_.name + "/orders?session=" + join_.session;
  while (go_on()) {
    const auto take = [&](const json& data) {
      take_order(data);
      return go_on();
    };
    // The next coordinator tells all its orders anyway: nothing has to be gone on with.
    (void)client_.follow(target, take, Nanos(0));
    std::this_thread::sleep_for(kTryAgain);
  }
}

void AgentLink::take_order(const json& data) {
  auto command = node_command_from_json(data);
  if (!command || command->node != join_.name) return;
  const std::lock_guard lock(mutex_);
  const auto [found, is_new] = outboxes_.try_emplace(command->id);
  // It comes again from a coordinator that was restarted: all is told once more.
  found->second.received = 0;
  if (!is_new) return;
  found->second.command = *command;
  wishes_.start.push_back(std::move(*command));
  wake();
}

}  // namespace motley
