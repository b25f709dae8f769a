#include "scheduler/runner/rank_connections.h"

namespace motley {

bool tells_of(int rank, const Message& message) {
  if (message.type == MessageType::kStep) {
    const auto report = step_report_from_text(message.payload);
    return report && report->rank == rank;
  }
  if (message.type == MessageType::kPhase) {
    const auto report = phase_report_from_text(message.payload);
    return report && report->rank == rank;
  }
  return true;
}

Result<Unit> RankConnections::listen(const std::string& scratch,
                                     const std::vector<std::string>& hosts) {
  MOTLEY_TRY(key_, AttemptKey::generate());
  key_file_ = scratch + "/key";
  MOTLEY_TRY_VOID(key_.write(key_file_));
  MOTLEY_TRY(control_, hosts.empty() ? listener_.listen_here(scratch + "/control")
                                     : listener_.listen_for(hosts.front()));
  return Unit{};
}

void RankConnections::start() {
  listener_.start([this](RankSession::Socket socket) {
    std::make_shared<RankSession>(
        std::move(socket),
        [this](RankSession& session, const Message& message) {
          return on_message(session, message);
        },
        [this](RankSession& session) {
          if (session.rank() >= 0) events_.gone(session.rank());
        })
        ->start();
  });
}

void RankConnections::send(int rank, MessageType type) {
  const auto found = sessions_.find(rank);
  if (found == sessions_.end()) return;
  if (const auto session = found->second.lock()) session->send({type, epoch_, "{}"});
}

bool RankConnections::on_message(RankSession& session, const Message& message) {
  if (session.rank() < 0) return accept_hello(session, message);
  return message.epoch != epoch_ || events_.message(session.rank(), message);
}

bool RankConnections::accept_hello(RankSession& session, const Message& message) {
  if (message.type != MessageType::kHello) return false;
  auto hello = hello_from_text(message.payload);
  if (!hello || hello->rank < 0 || hello->rank >= ranks_) return false;
  if (const std::string why = reason_to_refuse(message.epoch, *hello); !why.empty()) {
    events_.refused(hello->rank, why);
    return false;
  }
  session.set_rank(hello->rank);
  sessions_[hello->rank] = session.weak_from_this();
  hello->key.clear();
  events_.connected(*hello);
  return true;
}

std::string RankConnections::reason_to_refuse(Epoch epoch, const Hello& hello) const {
  if (epoch != epoch_)
    return "it belongs to attempt " + std::to_string(epoch.value()) + ", not " +
           std::to_string(epoch_.value());
  if (!key_.matches(hello.key)) return "its key is not this attempt's";
  if (sessions_.count(hello.rank) != 0) return "it is connected already";
  return "";
}

}  // namespace motley
