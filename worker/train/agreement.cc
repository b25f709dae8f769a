#include "worker/train/agreement.h"

#include <nlohmann/json.hpp>

namespace motley {
namespace {

tl::unexpected<Error> ended_by(int culprit, const std::string& message) {
  return fail(ErrorCode::kPeerLost,
              "rank " + std::to_string(culprit) + " ended the run: " + message);
}

/// Nobody leaves before all have heard: who leaves ends the others' calls.
void wait_until_all_know(Communicator& world) { (void)world.barrier(); }

struct Demand {
  std::string Identity::*field;
  const char* what;
  const char* remedy;
};
constexpr Demand kDemands[] = {
    {&Identity::program, "Motley", "install the same version on both"},
    {&Identity::communicator, "communication by", "install the same MPI on both"},
    {&Identity::data_hash, "data with hash", "the data files must be the same on both"},
    {&Identity::arithmetic_class, "arithmetic of class",
     "exact needs one class: use like hosts or numerics: fast"},
};

/// What is wrong with `other`, or nothing.
std::string difference(const Identity& first, const Identity& other) {
  for (const auto& [field, what, remedy] : kDemands) {
    if (first.*field == other.*field) continue;
    return "host " + other.host + " has " + what + " " + other.*field + ", host " + first.host +
           " has " + first.*field + ": " + remedy;
  }
  return "";
}

}  // namespace

Result<Unit> all_succeeded(Communicator& world, const Result<Unit>& mine) {
  nlohmann::json words;  // null: success
  if (!mine) words = mine.error().to_string();
  const auto all =
      world.all_gather(words.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  if (!all) return mine ? fail(all.error()) : mine;
  Result<Unit> joint = mine;
  bool failed = false;
  for (int rank = 0; rank < world.size(); ++rank) {
    const auto theirs = nlohmann::json::parse((*all)[static_cast<size_t>(rank)]);
    if (theirs.is_null()) continue;
    failed = true;
    if (joint) joint = ended_by(rank, theirs.get<std::string>());
  }
  if (failed) wait_until_all_know(world);
  return joint;
}

tl::unexpected<Error> joint_failure(Communicator& ranks, ErrorCode code, const std::string& message,
                                    int speaker) {
  wait_until_all_know(ranks);
  if (ranks.rank() == 0) return fail(code, message);
  return ended_by(speaker, message);
}

Result<Unit> all_alike(Communicator& world, const Identity& mine) {
  const nlohmann::json words = {mine.host, mine.program, mine.communicator, mine.arithmetic_class,
                                mine.data_hash};
  MOTLEY_TRY(const std::vector<std::string> all, world.all_gather(words.dump()));
  Identity first;
  for (int rank = 0; rank < world.size(); ++rank) {
    const auto parsed = nlohmann::json::parse(all[static_cast<size_t>(rank)]);
    const auto theirs = parsed.get<std::vector<std::string>>();
    const Identity other{theirs.at(0), theirs.at(1), theirs.at(2), theirs.at(3), theirs.at(4)};
    if (rank == 0) first = other;
    if (const std::string what = difference(first, other); !what.empty())
      return joint_failure(world, ErrorCode::kBrokenInstall, what);
  }
  return Unit{};
}

}  // namespace motley
