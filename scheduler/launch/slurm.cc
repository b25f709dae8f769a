#include "scheduler/launch/slurm.h"

#include <charconv>
#include <numeric>

#include "scheduler/launch/command.h"
#include "scheduler/launch/remote_hosts.h"

namespace motley {
namespace {

constexpr double kSinfoSeconds = 30;
constexpr int kMostNodes = 100'000;

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(separator, begin), text.size());
    parts.emplace_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

/// -1: it is no number.
int number_of(std::string_view text) {
  int number = -1;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), number);
  return parsed.ec == std::errc() && parsed.ptr == text.data() + text.size() ? number : -1;
}

/// Several features in one allocation; a single one needs no brackets.
std::string constraint_of(const std::vector<SlurmMix>& mix) {
  if (mix.size() == 1) return mix.front().feature;
  std::string text = "[";
  for (const SlurmMix& part : mix)
    text += (text.size() > 1 ? "&" : "") + part.feature + "*" + std::to_string(part.nodes);
  return text + "]";
}

/// In its directory, from wherever the script is submitted: its name for --output, where % is
/// Slurm's.
std::string log_of(const SlurmScript& script) {
  std::string path;
  for (const char c : script.directory) {
    if (c == '%') path += '%';
    if (c == '"' || c == '\\') path += '\\';
    path += c;
  }
  return "\"" + path + "/" + script.name + "-%j.log\"";
}

std::string directives_of(const SlurmScript& script) {
  const int nodes = std::accumulate(script.mix.begin(), script.mix.end(), 0,
                                    [](int sum, const SlurmMix& part) { return sum + part.nodes; });
  std::vector<std::string> options = {"--job-name=" + script.name,
                                      "--nodes=" + std::to_string(nodes)};
  if (!script.mix.front().feature.empty())
    options.push_back("--constraint=\"" + constraint_of(script.mix) + "\"");
  // Unequal counts of GPUs: a request by number would be the same for every node.
  options.push_back("--exclusive");
  if (!script.partition.empty()) options.push_back("--partition=" + script.partition);
  if (!script.time.empty()) options.push_back("--time=" + script.time);
  options.push_back("--signal=B:USR1@" + std::to_string(script.grace_seconds));
  options.insert(options.end(), {"--requeue", "--open-mode=append", "--output=" + log_of(script)});
  options.insert(options.end(), script.options.begin(), script.options.end());
  std::string text;
  for (const std::string& option : options) text += "#SBATCH " + option + "\n";
  return text;
}

/// What `ssh` is elsewhere: a step on one node, with all the GPUs that it has.
constexpr const char* kOnNode = R"(
# Ranks are started by calling this script, as others call ssh: on-node HOST COMMAND. A step on one node can be given all
# of its GPUs; a step over unlike nodes could not.
if [[ ${1-} == on-node ]]; then
  host=$2
  shift 2
  gpus=$(sinfo --noheader --Node --nodes="$host" --format=%G | head -n 1 | grep -o 'gpu:[^,(]*' | awk -F: '{n += $NF} END {print n + 0}')
  options=(--overlap --nodes=1 --ntasks=1 --nodelist="$host")
  if ((gpus > 0)); then options+=(--gpus="$gpus"); fi
  # What describes the whole allocation would be taken for the shape of this step.
  unset "${!SLURM_GPUS@}" SLURM_NTASKS SLURM_TASKS_PER_NODE
  exec srun "${options[@]}" /bin/sh -c "$*"
fi
)";

constexpr const char* kRun = R"(
export OMPI_MCA_plm=rsh
# What leaves its step is ended with it: Open MPI's daemons stay.
export OMPI_MCA_orte_leave_session_attached=1 OMPI_MCA_plm_rsh_num_concurrent=65536
agent="bash $0 on-node"
fleet=fleet-$SLURM_JOB_ID.yaml
out_of_time=false
trap 'out_of_time=true' USR1
hosts=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | paste -sd,)
"$motley" fleet init --hosts "$hosts" --rsh-agent "$agent" --output "$fleet" || exit
if $out_of_time; then  # queued again it would be the same
  echo "the time of this allocation was nearly over before the training began: ask for more (--time), or less --grace" >&2
  exit 75
fi

"$motley" run "$job" --fleet "$fleet" --rsh-agent "$agent" "${arguments[@]}" &
training=$!
signalled=false
trap 'signalled=true; out_of_time=true; kill -TERM "$training"' USR1  # the time is nearly over
trap 'signalled=true; kill -TERM "$training"' TERM  # cancelled, or others go before: then Slurm itself queues it again
while true; do
  wait "$training"
  status=$?
  $signalled || break
  signalled=false  # a signal ends `wait`, not the training
done
# 75: it has stopped with a checkpoint saved, and goes on from there.
if $out_of_time && ((status == 75)); then scontrol requeue "$SLURM_JOB_ID"; fi
exit "$status"
)";

}  // namespace

std::vector<SlurmGpus> gpus_of_gres(std::string_view gres) {
  std::vector<SlurmGpus> found;
  // Commas within parentheses belong to sockets and indices.
  std::string flat;
  int depth = 0;
  for (const char c : gres) {
    depth += c == '(' ? 1 : 0;
    if (depth == 0) flat += c;
    depth -= c == ')' ? 1 : 0;
  }
  for (const std::string& resource : split(flat, ',')) {
    const std::vector<std::string> words = split(resource, ':');
    if (words.front() != "gpu" || words.size() > 3) continue;
    const int last = number_of(words.back());
    SlurmGpus gpus{words.size() == 3 || (words.size() == 2 && last < 0) ? words[1] : "",
                   words.size() == 1 || last < 0 ? 1 : last};
    if (gpus.count > 0) found.push_back(std::move(gpus));
  }
  return found;
}

Result<std::vector<SlurmNode>> parse_sinfo(std::string_view lines) {
  std::vector<SlurmNode> nodes;
  for (const std::string& line : split(lines, '\n')) {
    if (line.empty()) continue;
    const std::vector<std::string> fields = split(line, '|');
    if (fields.size() != 4 || fields[0].empty())
      return fail(ErrorCode::kNoDevice, "sinfo says what we do not understand: '" + line + "'");
    SlurmNode node{fields[0], gpus_of_gres(fields[1]), {}, fields[3]};
    if (fields[2] != "(null)") node.features = split(fields[2], ',');
    nodes.push_back(std::move(node));
  }
  return nodes;
}

Result<std::vector<SlurmNode>> slurm_nodes(const std::string& partition) {
  const auto said = run_command(
      {{"sinfo", "--noheader", "--Node", "--partition=" + partition, "--format=%N|%G|%f|%t"}, ""},
      nanos_of_seconds(kSinfoSeconds));
  if (!said)
    return fail(ErrorCode::kNotFound, "no Slurm here: " + said.error().message +
                                          "; --hosts a,b asks the hosts themselves");
  if (said->timed_out || !said->status.ok())
    return fail(ErrorCode::kNoDevice,
                "sinfo does not tell the nodes: " +
                    (said->timed_out ? "no answer within 30 s" : last_line(said->err)));
  MOTLEY_TRY(auto nodes, parse_sinfo(said->out));
  if (nodes.empty())
    return fail(ErrorCode::kNoDevice, "Slurm has no partition '" + partition +
                                          "', or it has no nodes: `sinfo --summarize` lists them");
  return nodes;
}

Result<std::vector<SlurmMix>> parse_mix(std::string_view text) {
  std::vector<SlurmMix> mix;
  for (const std::string& part : split(text, ',')) {
    const size_t colon = part.rfind(':');
    const bool plain = colon == std::string::npos;
    SlurmMix wanted{plain ? "" : part.substr(0, colon),
                    number_of(plain ? part : part.substr(colon + 1))};
    const bool named = !wanted.feature.empty();
    if (wanted.nodes < 1 || wanted.nodes > kMostNodes || named == plain ||
        wanted.feature.find_first_of(" \"'[]&|*()\\$`") != std::string::npos)
      return fail(ErrorCode::kUsage,
                  "--nodes: expected features and counts of nodes such as "
                  "a100:1,rtx3090:2, or a count such as 3, found '" +
                      part + "' (`sinfo --format '%N %f %G'` lists features)");
    mix.push_back(std::move(wanted));
    if (mix.size() > 1 && (mix.front().feature.empty() || plain))
      return fail(ErrorCode::kUsage, "--nodes: a count without a feature stands alone");
  }
  return mix;
}

Result<int64_t> parse_slurm_time(const std::string& text) {
  if (text == "UNLIMITED" || text == "INFINITE") return 0;
  const size_t dash = text.find('-');
  const bool with_days = dash != std::string::npos;
  const std::vector<std::string> parts = split(with_days ? text.substr(dash + 1) : text, ':');
  const int days = with_days ? number_of(std::string_view(text).substr(0, dash)) : 0;
  bool fits = days >= 0 && parts.size() <= 3;
  for (const std::string& part : parts) fits = fits && number_of(part) >= 0;
  if (!fits)
    return fail(
        ErrorCode::kUsage,
        "--time: expected a limit of sbatch such as 30 (minutes), 4:00:00 or 2-12, found '" + text +
            "'");
  // Hours come first where there are days or three parts; else minutes.
  int64_t unit = with_days || parts.size() == 3 ? 3600 : 60;
  int64_t seconds = int64_t{days} * 86'400;
  for (const std::string& part : parts) {
    seconds += number_of(part) * unit;
    unit /= 60;
  }
  return seconds;
}

std::string sbatch_text(const SlurmScript& script) {
  std::string text = "#!/bin/bash\n# Written by `motley export slurm`; submit it with sbatch.\n" +
                     directives_of(script) + kOnNode + "\ncd " + shell_quoted(script.directory) +
                     " || exit\nmotley=" + shell_quoted(script.program) +
                     "\njob=" + shell_quoted(script.job_file) + "\narguments=(";
  for (size_t i = 0; i < script.run_arguments.size(); ++i)
    text += (i == 0 ? "" : " ") + shell_quoted(script.run_arguments[i]);
  return text + ")\n" + kRun;
}

}  // namespace motley
