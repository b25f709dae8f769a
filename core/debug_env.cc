#include "core/debug_env.h"

#include <pwd.h>
#include <unistd.h>

#include <charconv>
#include <cstdlib>

namespace motley {
namespace {

const char* process_environment(const char* name) { return std::getenv(name); }

std::string value_or_empty(const EnvLookup& lookup, const char* name) {
  const char* value = lookup(name);
  return value ? value : "";
}

std::string home_directory(const EnvLookup& lookup) {
  const std::string home = value_or_empty(lookup, "HOME");
  if (!home.empty()) return home;
  const passwd* user = getpwuid(geteuid());  // NOLINT: once, before threads
  return user && user->pw_dir ? user->pw_dir : "/";
}

/// Cuts the text before the first `separator` (or all of it) off the front.
std::string_view take(std::string_view* text, char separator) {
  const size_t end = text->find(separator);
  const std::string_view part = text->substr(0, end);
  text->remove_prefix(end == std::string_view::npos ? text->size() : end + 1);
  return part;
}

bool parse_int(std::string_view text, int* out) {
  const char* end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, *out);
  return parsed.ec == std::errc() && parsed.ptr == end && *out >= 0;
}

}  // namespace

DebugEnv read_debug_env(const EnvLookup& lookup) {
  return {.failpoint = value_or_empty(lookup, "MOTLEY_FAILPOINT"),
          .worker_path = value_or_empty(lookup, "MOTLEY_WORKER"),
          .modules = value_or_empty(lookup, "MOTLEY_MODULES"),
          .debug = value_or_empty(lookup, "MOTLEY_DEBUG"),
          .socket = value_or_empty(lookup, "MOTLEY_SOCKET"),
          .server = value_or_empty(lookup, "MOTLEY_SERVER"),
          .cudnn = value_or_empty(lookup, "MOTLEY_CUDNN")};
}

std::vector<EnvSetting> read_debug_env_settings(const EnvLookup& lookup) {
  std::vector<EnvSetting> settings;
  for (const char* name : {"MOTLEY_FAILPOINT", "MOTLEY_WORKER", "MOTLEY_MODULES", "MOTLEY_DEBUG",
                           "MOTLEY_SOCKET", "MOTLEY_SERVER", "MOTLEY_CUDNN"}) {
    const char* value = lookup(name);
    settings.push_back({name, value ? value : "", value ? "environment" : "default"});
  }
  return settings;
}

std::string xdg_directory(const EnvLookup& lookup, const char* variable, const char* fallback) {
  std::string base = value_or_empty(lookup, variable);
  if (base.empty() || base.front() != '/') base = home_directory(lookup) + "/" + fallback;
  return base + "/motley";
}

const DebugEnv& debug_env() {
  static const DebugEnv env = read_debug_env(process_environment);
  return env;
}

std::vector<EnvSetting> debug_env_settings() {
  return read_debug_env_settings(process_environment);
}

std::string state_directory() {
  return xdg_directory(process_environment, "XDG_STATE_HOME", ".local/state");
}

std::string cache_directory() {
  return xdg_directory(process_environment, "XDG_CACHE_HOME", ".cache");
}

std::string config_directory() {
  return xdg_directory(process_environment, "XDG_CONFIG_HOME", ".config");
}

bool failpoint(const std::string& name, int rank) {
  static Failpoints failpoints(debug_env().failpoint);
  return failpoints.reached(name, rank);
}

Failpoints::Failpoints(std::string_view list) {
  while (!list.empty()) {
    std::string_view entry = take(&list, ',');
    Armed armed{.name = std::string(take(&entry, ':'))};
    const std::string_view rank = take(&entry, ':');
    const std::string_view count = take(&entry, ':');
    if (armed.name.empty()) continue;
    if (!rank.empty() && rank != "*" && !parse_int(rank, &armed.rank)) continue;
    if (!count.empty() && (!parse_int(count, &armed.count) || armed.count == 0)) continue;
    armed_.push_back(std::move(armed));
  }
}

bool Failpoints::reached(std::string_view name, int rank) {
  if (armed_.empty()) return false;  // the usual case: nothing to count, no lock
  const std::lock_guard lock(mutex_);
  bool now = false;
  for (Armed& armed : armed_) {
    if (armed.name != name || (armed.rank >= 0 && armed.rank != rank)) continue;
    ++armed.calls;
    now |= armed.count == 0 || armed.calls == armed.count;
  }
  return now;
}

}  // namespace motley
