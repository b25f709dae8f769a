// Of the API: how far what runs is, and what the devices do.

#include <nlohmann/json.hpp>

#include "scheduler/service/api.h"
#include "scheduler/service/metrics_text.h"
#include "scheduler/service/replies.h"

namespace motley {

using nlohmann::json;

void Api::progress(const HttpReply& reply, int64_t id) {
  const auto job = find_job(kept_, id);
  if (!job) return refuse(reply, job.error());
  const auto progress = progress_of(directory_, *job);
  reply(json_response({{"id", id},
                       {"state", name_of(job->status.state)},
                       {"progress", progress ? whole_progress_json(*progress) : json(nullptr)}}));
}

FleetView Api::look_at_fleet() const {
  return view_of_fleet(coordinator_, kept_, directory_,
                       gauges_ ? gauges_() : std::vector<DeviceGauge>());
}

void Api::devices(const HttpReply& reply) { reply(json_response(to_json(look_at_fleet()))); }

void Api::metrics(const HttpRequest&, const HttpReply& reply) {
  HttpResponse response;
  response.type = "text/plain; version=0.0.4";
  response.body = metrics_text(coordinator_, look_at_fleet());
  reply(std::move(response));
}

}  // namespace motley
