#pragma once
// Jobs, attempts, events and tokens as the API tells them (core/FORMATS.md).

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string_view>

#include "scheduler/service/coordinator.h"
#include "scheduler/store/job_store.h"
#include "scheduler/store/token_store.h"

namespace motley {

nlohmann::json to_json(const StoredJob& job);
nlohmann::json to_json(const StoredAttempt& attempt);
nlohmann::json to_json(const StoredEvent& event);
nlohmann::json to_json(const StoredToken& token);
nlohmann::json to_json(const StoredSpeed& speed);
nlohmann::json to_json(const WhyJob& why);

/// "queued" and so on; nothing for any other word.
std::optional<JobState> state_of_name(std::string_view name);

}  // namespace motley
