#pragma once
// The one place for environment variables, all of them for debugging and tests. Behaviour belongs
// in YAML.

#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace motley {

struct DebugEnv {
  std::string failpoint;  ///< MOTLEY_FAILPOINT: "name[:rank[:count]]", e.g. "kill_at_step_7:2"; see
                          ///< HACKING.md
  std::string
      worker_path;  ///< MOTLEY_WORKER: the motley-worker to launch instead of the one beside motley
  std::string modules;  ///< MOTLEY_MODULES: a directory whose modules come before those of lib/
  std::string debug;    ///< MOTLEY_DEBUG: "collectives": ranks compare their calls (comm/checked.h)
  std::string socket;   ///< MOTLEY_SOCKET: where the coordinator listens, instead of in its state
                        ///< directory
  std::string server;   ///< MOTLEY_SERVER: "HOST:PORT" of the coordinator that clients ask, which
                        ///< they have logged in to
  std::string cudnn;  ///< MOTLEY_CUDNN: the library to open as cuDNN, or "none": attention is then
                      ///< computed by our own kernels
};

/// Read once at first use.
const DebugEnv& debug_env();

/// For --print-config: name, value, origin ("default" or "environment").
struct EnvSetting {
  std::string name, value, origin;
};
std::vector<EnvSetting> debug_env_settings();

/// ${XDG_STATE_HOME:-~/.local/state}/motley, ${XDG_CACHE_HOME:-~/.cache}/motley and
/// ${XDG_CONFIG_HOME:-~/.config}/motley.
std::string state_directory();
std::string cache_directory();
std::string config_directory();

/// True when `name[:rank]` is armed for this rank now. Counts its own calls where a count is given.
bool failpoint(const std::string& name, int rank);

/// What MOTLEY_FAILPOINT arms: "name[:rank[:count]]", several separated by commas. Without a rank
/// (or with *) every rank; with a count only the count-th call that matches, from 1. Malformed
/// entries arm nothing. Thread-safe.
class Failpoints {
 public:
  explicit Failpoints(std::string_view list);
  bool reached(std::string_view name, int rank);

 private:
  struct Armed {
    std::string name;
    int rank = -1;  ///< -1: any
    int count = 0;  ///< 0: every call
    int calls = 0;
  };
  std::mutex mutex_;
  std::vector<Armed> armed_;
};

/// The environment as a function, so that tests need not change the real one; null: not set.
using EnvLookup = std::function<const char*(const char* name)>;
DebugEnv read_debug_env(const EnvLookup& lookup);
std::vector<EnvSetting> read_debug_env_settings(const EnvLookup& lookup);
/// `variable` if it names an absolute path (the XDG specification ignores others), else
/// ~/`fallback`; then "/motley".
std::string xdg_directory(const EnvLookup& lookup, const char* variable, const char* fallback);

}  // namespace motley
