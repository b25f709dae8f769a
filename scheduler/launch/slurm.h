#pragma once
// What Slurm knows of a cluster and what it wants to be told: nodes and their GPUs, and a batch
// script that trains on a mix of them.

#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace motley {

struct SlurmGpus {
  std::string type;  ///< as in gres.conf; empty where it gives none
  int count = 0;
};

struct SlurmNode {
  std::string name;
  std::vector<SlurmGpus> gpus;
  std::vector<std::string> features;
  std::string state;  ///< "idle", "mixed", "down*" …
};

/// GPUs among generic resources, such as "gpu:a100:2(S:0-1),craynetwork:4".
std::vector<SlurmGpus> gpus_of_gres(std::string_view gres);

/// Of what `sinfo --Node --format=%N|%G|%f|%t` prints of a partition, a line each.
Result<std::vector<SlurmNode>> parse_sinfo(std::string_view lines);

/// Nodes of a partition, as sinfo tells. kNotFound without sinfo; kNoDevice where Slurm does not
/// answer or has no such partition.
Result<std::vector<SlurmNode>> slurm_nodes(const std::string& partition);

/// Nodes with a feature (of its --constraint) that a job wants; no feature: any nodes.
struct SlurmMix {
  std::string feature;
  int nodes = 0;
};

/// "a100:1,rtx3090:2" or "3". kUsage.
Result<std::vector<SlurmMix>> parse_mix(std::string_view text);

/// Seconds of a limit as sbatch's --time takes it ("30", "4:00:00", "2-12"); 0: none. kUsage.
Result<int64_t> parse_slurm_time(const std::string& text);

struct SlurmScript {
  std::string name;  ///< of the job
  std::vector<SlurmMix> mix;
  std::string program;                     ///< `motley`, an absolute path
  std::string directory;                   ///< where it writes its log and the fleet
  std::string job_file;                    ///< absolute
  std::vector<std::string> run_arguments;  ///< further ones of `motley run`
  std::string partition;                   ///< empty: Slurm's default
  std::string time;                        ///< limit, as --time takes it; empty: the partition's
  int grace_seconds = 300;                 ///< before the limit a checkpoint is saved
  std::vector<std::string> options;        ///< further ones of sbatch
};

/// The text of a batch script: it asks for the mix, writes the fleet of what it was given, runs the
/// job, saves a checkpoint before its time is over, and goes to the queue again to continue.
std::string sbatch_text(const SlurmScript& script);

}  // namespace motley
