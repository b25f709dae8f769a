#include "core/attempt_result.h"

#include <nlohmann/json.hpp>

#include "core/json_fields.h"
#include "core/json_file.h"
#include "core/or_null.h"

namespace motley {
namespace {

using nlohmann::json;

constexpr int kVersion = 1;
constexpr const char* kName = "/result.json";

void read_fields(JsonFields& from, RankActual* rank) {
  from.read("rank", rank->rank)
      .read("device", rank->device)
      .read("compute_seconds", rank->compute_seconds)
      .read("wait_seconds", rank->wait_seconds)
      .read("update_seconds", rank->update_seconds)
      .read_if("input_seconds", rank->input_seconds)
      .read("samples", rank->samples)
      .read("overruns", rank->paced.overruns)
      .read("sections", rank->paced.sections);
}

}  // namespace

json to_json(const RankActual& rank) {
  return {{"rank", rank.rank},
          {"device", rank.device},
          {"compute_seconds", or_null(rank.compute_seconds)},
          {"wait_seconds", or_null(rank.wait_seconds)},
          {"update_seconds", or_null(rank.update_seconds)},
          {"input_seconds", or_null(rank.input_seconds)},
          {"samples", rank.samples},
          {"overruns", rank.paced.overruns},
          {"sections", rank.paced.sections}};
}

Result<RankActual> rank_actual_from_json(const json& json) {
  RankActual rank;
  JsonFields fields(json);
  read_fields(fields, &rank);
  MOTLEY_TRY_VOID(fields.done());
  return rank;
}

Result<Unit> write_attempt_result(FileSystem& fs, const std::string& attempt_directory,
                                  const AttemptResult& result) {
  json ranks = json::array();
  for (const RankActual& rank : result.ranks) ranks.push_back(to_json(rank));
  const json weights = result.weights_xxh3.empty() ? json(nullptr) : json(result.weights_xxh3);
  const json document = {{"version", kVersion},
                         {"ranks", std::move(ranks)},
                         {"least_wait_seconds", or_null(result.least_wait_seconds)},
                         {"weights_xxh3", weights}};
  return write_text_durably(fs, attempt_directory + kName, document.dump(1) + "\n");
}

Result<AttemptResult> read_attempt_result(FileSystem& fs, const std::string& attempt_directory) {
  MOTLEY_TRY(const json document,
             read_json_file(fs, attempt_directory + kName, ErrorCode::kCorrupt));
  AttemptResult result;
  std::optional<std::string> weights;
  JsonFields fields(document);
  fields.read_version(kVersion)
      .each("ranks", [&](JsonFields& each) { read_fields(each, &result.ranks.emplace_back()); })
      .read_if("least_wait_seconds", result.least_wait_seconds)
      .read("weights_xxh3", weights);
  MOTLEY_TRY_VOID(fields.done());
  result.weights_xxh3 = weights.value_or("");
  return result;
}

}  // namespace motley
