#include "worker/train/load_verdict.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "worker/train/agreement.h"

namespace motley {
namespace {

using Kind = LoadVerdict::Kind;

/// Nothing where the error is no fault of the checkpoint.
std::optional<LoadVerdict> verdict_on(const Result<Unit>& copied, const Result<Unit>& loaded,
                                      int rank, int leader) {
  if (copied && loaded) return LoadVerdict{};
  const Error& error = copied ? loaded.error() : copied.error();
  switch (error.code) {
    case ErrorCode::kCorrupt:  // what arrives wrong was wrong where it came from
      return LoadVerdict{Kind::kDamaged, copied ? leader : 0, error.message};
    case ErrorCode::kIo:  // a copy that cannot be written is another matter
      if (!copied && rank != 0) return std::nullopt;
      return LoadVerdict{Kind::kUnreadable, leader, error.message};
    case ErrorCode::kPeerLost:
      return LoadVerdict{Kind::kUnreadable, leader, error.message};
    default:
      return std::nullopt;
  }
}

std::string to_text(const LoadVerdict& verdict) {
  return nlohmann::json::array({static_cast<int>(verdict.kind), verdict.island, verdict.why})
      .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

LoadVerdict verdict_from_text(const std::string& text) {
  const auto json = nlohmann::json::parse(text);
  return {static_cast<Kind>(json.at(0).get<int>()), json.at(1).get<int>(),
          json.at(2).get<std::string>()};
}

}  // namespace

Result<std::vector<LoadVerdict>> load_verdicts(Communicator& world, const Storage& storage,
                                               const Result<Unit>& copied,
                                               const Result<Unit>& loaded) {
  const auto mine = verdict_on(copied, loaded, world.rank(), storage.leader_of(world.rank()));
  Result<Unit> others_fault = Unit{};
  if (!mine) others_fault = copied ? loaded : copied;
  MOTLEY_TRY_VOID(all_succeeded(world, others_fault));
  MOTLEY_TRY(const std::vector<std::string> texts, world.all_gather(to_text(*mine)));
  std::vector<LoadVerdict> verdicts;
  for (const std::string& text : texts) verdicts.push_back(verdict_from_text(text));
  return verdicts;
}

bool all_loaded(const std::vector<LoadVerdict>& verdicts) {
  return std::all_of(verdicts.begin(), verdicts.end(),
                     [](const LoadVerdict& each) { return each.kind == Kind::kLoaded; });
}

std::map<int, std::string> damaged_copies(const std::vector<LoadVerdict>& verdicts) {
  std::map<int, std::string> damaged;
  for (const LoadVerdict& each : verdicts)
    if (each.kind == Kind::kDamaged) damaged.try_emplace(each.island, each.why);
  // Where rank 0 could not read on, what had arrived was incomplete, not wrong.
  if (verdicts.front().kind == Kind::kUnreadable) damaged.erase(0);
  return damaged;
}

std::string why_unreadable(const std::vector<LoadVerdict>& verdicts) {
  const auto first = std::find_if(verdicts.begin(), verdicts.end(), [](const LoadVerdict& each) {
    return each.kind == Kind::kUnreadable;
  });
  return first == verdicts.end() ? "" : first->why;
}

}  // namespace motley
