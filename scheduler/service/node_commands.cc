#include "scheduler/service/node_commands.h"

#include <chrono>
#include <nlohmann/json.hpp>
#include <utility>

#include "scheduler/service/node_json.h"

namespace motley {
namespace {

/// Who waits may have to come again, to another coordinator for one.
constexpr Nanos kReaderMayBeAway{3'000'000'000};
/// So that the other side, and a connection that is gone, are noticed.
constexpr Nanos kBetweenTicks{500'000'000};
constexpr std::chrono::milliseconds kPatience{20};
constexpr int kLostStatus = 255;  // as ssh says it

}  // namespace

void NodeCommands::start(NodeCommand command) {
  Entry entry;
  entry.left = clock_.now();
  const std::string id = command.id;
  entry.command = std::move(command);
  commands_.try_emplace(id, std::move(entry));
}

void NodeCommands::told(const std::string& node, const std::vector<CommandPiece>& pieces) {
  for (const CommandPiece& piece : pieces) {
    const auto found = commands_.find(piece.command);
    if (found == commands_.end() || found->second.command.node != node) continue;
    Entry& entry = found->second;
    if (piece.number == static_cast<int>(entry.pieces.size()) && !entry.is_over())
      entry.pieces.push_back(piece);
  }
}

NodeCommands::ForNode NodeCommands::settle(const std::string& node) {
  ForNode answer;
  for (auto each = commands_.begin(); each != commands_.end();) {
    const Entry& entry = each->second;
    const bool here = entry.command.node == node;
    const bool left = entry.readers == 0 && clock_.now() - entry.left > kReaderMayBeAway;
    if (here) answer.received[each->first] = static_cast<int>(entry.pieces.size());
    if (here && left) answer.unwanted.push_back(each->first);
    const bool done = entry.is_over() || !may_run_(entry.command.attempt, entry.command.node);
    each = left && done ? commands_.erase(each) : std::next(each);
  }
  return answer;
}

class NodeCommands::Orders final : public EventSource {
 public:
  Orders(std::shared_ptr<NodeCommands> all, std::string node)
      : all_(std::move(all)), node_(std::move(node)), ticked_(all_->clock_.now()) {}

  std::string next() override {
    std::string text;
    for (const auto& [id, entry] : all_->commands_) {
      const bool wanted = entry.command.node == node_ && !entry.is_over();
      if (!wanted || !told_.insert(id).second) continue;
      text += json_event_of(id, "start", to_json(entry.command));
    }
    const Nanos now = all_->clock_.now();
    if (!text.empty() || now - ticked_ < kBetweenTicks) return text;
    ticked_ = now;
    return "event: tick\ndata: {}\n\n";
  }
  bool over() const override { return false; }
  std::chrono::milliseconds patience() const override { return kPatience; }

 private:
  std::shared_ptr<NodeCommands> all_;
  std::string node_;
  std::set<std::string> told_;
  Nanos ticked_{0};
};

class NodeCommands::Output final : public EventSource {
 public:
  Output(std::shared_ptr<NodeCommands> all, std::string id)
      : all_(std::move(all)), id_(std::move(id)), ticked_(all_->clock_.now()) {
    ++all_->commands_.at(id_).readers;
  }
  ~Output() override {
    const auto found = all_->commands_.find(id_);
    if (found == all_->commands_.end()) return;
    --found->second.readers;
    found->second.left = all_->clock_.now();
  }

  std::string next() override {
    const auto found = all_->commands_.find(id_);
    if (found == all_->commands_.end()) return end_with("the command is not known any more");
    const Entry& entry = found->second;
    std::string text;
    for (; next_ < entry.pieces.size(); ++next_) {
      text += json_event_of(std::to_string(next_), "piece", to_json(entry.pieces[next_]));
      over_ = entry.pieces[next_].is_end();
    }
    if (!over_ && !all_->may_run_(entry.command.attempt, entry.command.node))
      return end_with("node " + entry.command.node + " is lost, or the attempt is over");
    const Nanos now = all_->clock_.now();
    if (!text.empty() || now - ticked_ < kBetweenTicks) return text;
    ticked_ = now;
    return ": here\n\n";
  }
  bool over() const override { return over_; }
  std::chrono::milliseconds patience() const override { return kPatience; }

 private:
  std::string end_with(const std::string& why) {
    over_ = true;
    CommandPiece end{id_, static_cast<int>(next_), "end", why, kLostStatus};
    return json_event_of(std::to_string(next_), "piece", to_json(end));
  }

  std::shared_ptr<NodeCommands> all_;
  std::string id_;
  size_t next_ = 0;
  bool over_ = false;
  Nanos ticked_{0};
};

std::shared_ptr<EventSource> NodeCommands::orders(const std::shared_ptr<NodeCommands>& all,
                                                  const std::string& node) {
  return std::make_shared<Orders>(all, node);
}

std::shared_ptr<EventSource> NodeCommands::output(const std::shared_ptr<NodeCommands>& all,
                                                  const std::string& id) {
  return std::make_shared<Output>(all, id);
}

}  // namespace motley
