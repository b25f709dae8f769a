#include <nlohmann/json.hpp>

#include "core/json_fields.h"
#include "worker/checkpoint/store.h"

namespace motley {

std::string to_text(const ShardReport& report) {
  nlohmann::json tensors = nlohmann::json::array();
  for (const StoredTensor& tensor : report.tensors) tensors.push_back(to_json(tensor));
  return nlohmann::json{{"epoch", report.epoch.value()}, {"rank", report.rank},
                        {"step", report.step},           {"ok", report.ok},
                        {"finite", report.finite},       {"error", report.error},
                        {"file", to_json(report.file)},  {"tensors", std::move(tensors)}}
      // An error may quote a path, which need not be UTF-8.
      .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

Result<ShardReport> shard_report_from_text(const std::string& text) {
  MOTLEY_TRY(const nlohmann::json document, parse_json(text));
  ShardReport report;
  JsonFields fields(document);
  fields.read("epoch", report.epoch)
      .read("rank", report.rank)
      .read("step", report.step)
      .read("ok", report.ok)
      .read("finite", report.finite)
      .read("error", report.error)
      .object("file", [&](JsonFields& from) { read_fields(from, &report.file); })
      .each("tensors",
            [&](JsonFields& from) { read_fields(from, &report.tensors.emplace_back()); });
  if (const auto read = fields.done(); !read)
    return fail(ErrorCode::kCorrupt, "malformed shard report: " + read.error().message);
  return report;
}

}  // namespace motley
