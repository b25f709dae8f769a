#pragma once
// The commit record of a checkpoint (RELIABILITY.md; core/FORMATS.md, "manifest"). Exists only
// after every shard is durable.

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "core/hash.h"
#include "core/ids.h"
#include "core/result.h"
#include "core/slices.h"

namespace motley {

class JsonFields;

inline constexpr int64_t kMaxHashBlockBytes = 4 << 20;
inline constexpr int64_t kMaxManifestBytes = 256 << 20;
inline constexpr int64_t kMaxShardHeaderBytes = 100'000'000;  ///< what safetensors allows
inline constexpr const char* kManifestName = "manifest.json";

/// One slice of one tensor lying contiguously in a shard file.
struct StoredSlice {
  std::string file;
  int64_t offset = 0;  ///< in the file, absolute
  int64_t bytes = 0;
  Slice slice;
  std::vector<std::string>
      block_hashes;  ///< XXH3-128 hex of each block of this slice, of hash_block_bytes()
};

/// Names of state tensors: the logical name prefixed "weight/", "adam_m/", "adam_v/".
struct StoredTensor {
  std::string name;
  std::string dtype;  ///< safetensors' words: "F32", "F64"; of a script "BF16", "I64", …, too
  std::vector<int64_t> shape;
  std::vector<StoredSlice> slices;
};

/// A shard: the safetensors header, then slices without holes, so that hashes cover every byte.
struct StoredFile {
  std::string name;
  int64_t bytes = 0;
  int64_t header_bytes = 0;  ///< where the first slice begins
  std::string header_hash;   ///< XXH3-128 hex of the bytes before it
};

/// Of version 1 the block hashes were a list, too long for deep models, and the loss scale
/// optional.
inline constexpr int kManifestVersion = 2;

/// Of fp16; worker/optimizer/loss_scale.h.
struct LossScaleState {
  int exponent = 0;
  int kept_steps = 0;  ///< since it last changed or an overflow
  bool operator==(const LossScaleState&) const = default;
};

struct Manifest {
  int version = kManifestVersion;
  std::string job;   ///< its name
  int64_t step = 0;  ///< steps done
  Epoch epoch;
  std::string plan_id;
  std::string code_version;
  std::string arithmetic_class;  ///< where `exact` bits hold
  uint64_t seed = 0;
  std::string data_hash;
  int64_t next_sample = 0;  ///< global index
  int exact_exponent = 0;   ///< scale of exact's fixed point at the next step
  LossScaleState loss_scale;
  int64_t steps_held = 0;  ///< of them AdamW's second moment was not updated in
  std::vector<StoredTensor> tensors;
  std::vector<StoredFile> files;
};

/// The text of manifest.json; its last member is the XXH3-128 of everything before it.
std::string to_text(const Manifest& manifest);
/// kCorrupt when the hash, a name pattern, a product, a tiling or a file's layout does not hold;
/// kUnsupported when it is whole and of another version than this program's.
/// Time and memory are bounded whatever the text says; the manifest returned can be relied on.
Result<Manifest> manifest_from_text(const std::string& text);

/// Parts of a manifest, which ranks also report. Reading checks types only: whether the numbers fit
/// together, manifest_from_text tells.
nlohmann::json to_json(const StoredTensor& tensor);
nlohmann::json to_json(const StoredFile& file);
void read_fields(JsonFields& from, StoredTensor* tensor);
void read_fields(JsonFields& from, StoredFile* file);

/// Bytes of an element of a safetensors type; 0 for one that no state has.
int64_t element_bytes(const std::string& dtype);
/// Bytes that have a hash of their own in each slice of a tensor: multiples of 512, 1/512 of the
/// tensor, so that a reader of a small part of it reads little else, and no more than
/// kMaxHashBlockBytes, which is also what a shape that nobody can have gets.
int64_t hash_block_bytes(const std::vector<int64_t>& shape, const std::string& dtype);
/// Blocks of that size in a slice, the last perhaps shorter.
constexpr int64_t block_count(int64_t bytes, int64_t block_bytes) {
  return (bytes - 1) / block_bytes + 1;
}

std::string checkpoint_directory_name(int64_t step, Epoch epoch);  ///< "step-00001200.e7"
struct CheckpointName {
  int64_t step = 0;
  Epoch epoch;
};
bool parse_checkpoint_directory_name(const std::string& name, CheckpointName* parsed);
std::string shard_file_name(Rank rank);  ///< "s0000.safetensors"
bool is_shard_file_name(const std::string& name);

}  // namespace motley
