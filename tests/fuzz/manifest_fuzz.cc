// Manifests of checkpoints: as they are, and with a hash that fits, so that what is behind it is
// reached; and the names that files of checkpoints may have.

#include <nlohmann/json.hpp>

#include "core/check.h"
#include "core/hash.h"
#include "core/manifest.h"
#include "tests/fuzz/fuzz_target.h"

namespace motley::testing {
namespace {

constexpr std::string_view kHashMember = "\n \"xxh3_128\": \"";

/// A manifest that was read is written as it was, or would be by this program.
void fuzz_manifest(const std::string& text) {
  const auto manifest = manifest_from_text(text);
  if (!manifest) return;
  const auto again = manifest_from_text(to_text(*manifest));
  MOTLEY_CHECK(again.has_value(), "a manifest that was written cannot be read");
  MOTLEY_CHECK_EQ(to_text(*again), to_text(*manifest));
}

std::string without_hash(const std::string& text) { return text.substr(0, text.find(kHashMember)); }

Manifest some_manifest(int files) {
  Manifest manifest;
  manifest.job = "job";
  manifest.step = 1200;
  manifest.epoch = Epoch(7);
  manifest.plan_id = std::string(16, 'a');
  manifest.code_version = "0.1.0";
  manifest.arithmetic_class = "cpu";
  manifest.data_hash = std::string(16, 'b');
  StoredTensor tensor{"weight/norm.gain", "F32", {128 * files}, {}};
  for (int i = 0; i < files; ++i) {
    const std::string name = shard_file_name(Rank(i));
    manifest.files.push_back({name, 1096 + 512, 1096, std::string(32, 'c')});
    tensor.slices.push_back({name, 1096, 512, {{int64_t{128} * i}, {128}}, {std::string(32, 'd')}});
  }
  manifest.tensors.push_back(std::move(tensor));
  return manifest;
}

}  // namespace

void fuzz_one(std::string_view input) {
  const char choice = take_choice(&input);
  const std::string text(input);
  if (choice == 'n') {
    CheckpointName name;
    if (parse_checkpoint_directory_name(text, &name))
      MOTLEY_CHECK_EQ(checkpoint_directory_name(name.step, name.epoch), text);
    if (is_shard_file_name(text))
      MOTLEY_CHECK(text.find('/') == text.npos, "a path passes for a name");
    return;
  }
  if (choice == 'r') return fuzz_manifest(text);
  fuzz_manifest(text + std::string(kHashMember) + xxh3_128_hex(text) + "\"\n}\n");
}

std::vector<std::string> fuzz_seeds() {
  const std::string one = to_text(some_manifest(1)), four = to_text(some_manifest(4));
  MOTLEY_CHECK(manifest_from_text(four).has_value(), "a manifest of ours is refused");
  return {"r" + one, "h" + without_hash(one), "h" + without_hash(four), "nstep-00001200.e7",
          "ns0003.safetensors"};
}

}  // namespace motley::testing
