#include "core/manifest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "core/hash.h"
#include "core/model.h"

namespace motley {
namespace {

using ::testing::HasSubstr;

const std::string kHash(32, 'a');

StoredSlice stored(const std::string& file, int64_t offset, Slice slice) {
  const int64_t bytes = slice.elements() * 4;
  return {
      file, offset, bytes, std::move(slice),
      std::vector<std::string>(static_cast<size_t>(block_count(bytes, kMaxHashBlockBytes)), kHash)};
}

/// Two files, two tensors, one of them in two slices.
Manifest valid_manifest() {
  Manifest manifest;
  manifest.job = "a \"quoted\" job";
  manifest.step = 1200;
  manifest.epoch = Epoch(7);
  manifest.plan_id = "p";
  manifest.seed = UINT64_MAX;
  manifest.next_sample = 76800;
  manifest.exact_exponent = -3;
  manifest.tensors = {{"weight/a",
                       "F32",
                       {2, 3},
                       {stored("s0000.safetensors", 80, {{0, 0}, {2, 1}}),
                        stored("s0001.safetensors", 80, {{0, 1}, {2, 2}})}},
                      {"weight/b", "F32", {5}, {stored("s0000.safetensors", 88, {{0}, {5}})}}};
  manifest.files = {{"s0000.safetensors", 108, 80, kHash}, {"s0001.safetensors", 96, 80, kHash}};
  return manifest;
}

TEST(Manifest, ReadsBackWhatItWrote) {
  const Manifest manifest = valid_manifest();
  const std::string text = to_text(manifest);
  const auto read = manifest_from_text(text);
  ASSERT_TRUE(read) << read.error().to_string();
  EXPECT_EQ(to_text(*read), text);
  EXPECT_EQ(read->seed, UINT64_MAX);
  EXPECT_EQ(read->exact_exponent, -3);
  EXPECT_EQ(read->tensors[0].slices[1].slice, (Slice{{0, 1}, {2, 2}}));
  EXPECT_EQ(text.find("steps_held"), std::string::npos);
}

TEST(Manifest, KnowsInHowManyStepsTheSecondMomentWasHeld) {
  Manifest manifest = valid_manifest();
  manifest.steps_held = 1050;
  const auto read = manifest_from_text(to_text(manifest));
  ASSERT_TRUE(read) << read.error().to_string();
  EXPECT_EQ(read->steps_held, 1050);
  manifest.steps_held = manifest.step + 1;
  EXPECT_FALSE(manifest_from_text(to_text(manifest)));
}

TEST(Manifest, ItsLastMemberIsTheHashOfWhatStandsBefore) {
  const std::string text = to_text(valid_manifest());
  const size_t member = text.find("\n \"xxh3_128\": \"");
  ASSERT_NE(member, std::string::npos);
  EXPECT_EQ(text.substr(member),
            "\n \"xxh3_128\": \"" + xxh3_128_hex(text.substr(0, member)) + "\"\n}\n");
}

TEST(Manifest, AnyChangedByteIsNoticed) {
  const std::string text = to_text(valid_manifest());
  for (size_t i = 0; i < text.size(); ++i) {
    std::string spoilt = text;
    spoilt[i] = static_cast<char>(spoilt[i] ^ 1);
    EXPECT_FALSE(manifest_from_text(spoilt)) << i;
    EXPECT_FALSE(manifest_from_text(text.substr(0, i))) << i;
  }
}

/// A manifest whose own hash is right and whose content is not.
struct Hostile {
  const char* name;
  std::function<void(Manifest&)> spoil;
};

class HostileManifest : public ::testing::TestWithParam<Hostile> {};

TEST_P(HostileManifest, IsRefused) {
  Manifest manifest = valid_manifest();
  GetParam().spoil(manifest);
  const auto read = manifest_from_text(to_text(manifest));
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().code, ErrorCode::kCorrupt);
  EXPECT_THAT(read.error().message, HasSubstr("malformed manifest: "));
}

const Hostile kHostile[] = {
    {"version", [](Manifest& m) { m.version = 0; }},
    {"exponent", [](Manifest& m) { m.exact_exponent = INT32_MIN; }},
    {"epoch", [](Manifest& m) { m.epoch = Epoch(0); }},
    {"step", [](Manifest& m) { m.step = -1; }},
    {"path_as_file", [](Manifest& m) { m.files[0].name = "../s0000.safetensors"; }},
    {"absolute_file", [](Manifest& m) { m.files[0].name = "/etc/passwd"; }},
    {"file_twice", [](Manifest& m) { m.files[1].name = m.files[0].name; }},
    {"file_not_listed", [](Manifest& m) { m.files.pop_back(); }},
    {"negative_header", [](Manifest& m) { m.files[0].header_bytes = -1; }},
    {"huge_header", [](Manifest& m) { m.files[0].header_bytes = INT64_MAX; }},
    {"slices_overlap_in_file", [](Manifest& m) { m.tensors[1].slices[0].offset = 84; }},
    {"hole_in_file", [](Manifest& m) { m.tensors[1].slices[0].offset = 92; }},
    {"bytes_after_slices", [](Manifest& m) { m.files[0].bytes += 4; }},
    {"offset_overflows", [](Manifest& m) { m.tensors[1].slices[0].offset = INT64_MAX; }},
    {"offset_negative", [](Manifest& m) { m.tensors[1].slices[0].offset = INT64_MIN; }},
    {"bytes_do_not_match", [](Manifest& m) { m.tensors[1].slices[0].bytes = 16; }},
    {"too_few_hashes", [](Manifest& m) { m.tensors[1].slices[0].block_hashes.clear(); }},
    {"too_many_hashes", [](Manifest& m) { m.tensors[1].slices[0].block_hashes.push_back(kHash); }},
    {"hash_too_short", [](Manifest& m) { m.tensors[1].slices[0].block_hashes[0].pop_back(); }},
    {"hash_too_long", [](Manifest& m) { m.tensors[1].slices[0].block_hashes[0].push_back('a'); }},
    {"tensor_twice", [](Manifest& m) { m.tensors[1] = m.tensors[0]; }},
    {"tensor_name", [](Manifest& m) { m.tensors[0].name = "weight/a@0"; }},
    {"no_tensor_name", [](Manifest& m) { m.tensors[0].name.clear(); }},
    {"dtype", [](Manifest& m) { m.tensors[0].dtype = "PICKLE"; }},
    {"gap", [](Manifest& m) { m.tensors[0].shape[1] = 4; }},
    {"overlap", [](Manifest& m) { m.tensors[0].slices[1].slice.start[1] = 0; }},
    {"outside", [](Manifest& m) { m.tensors[0].slices[1].slice.start[1] = 2; }},
    {"dimensions_differ", [](Manifest& m) { m.tensors[0].slices[0].slice.start.push_back(0); }},
    {"product_overflows",
     [](Manifest& m) {
       m.tensors[1].shape = {int64_t{1} << 62, 16};
       m.tensors[1].slices[0].slice = whole(m.tensors[1].shape);
     }},
    {"size_wraps_to_the_right_number",
     [](Manifest& m) {
       m.tensors[1].shape = {(int64_t{1} << 62) + 5};  // times four: 20, modulo 2^64
       m.tensors[1].slices[0].slice = whole(m.tensors[1].shape);
     }},
    {"many_dimensions",
     [](Manifest& m) {
       m.tensors[1].shape.assign(1000, 1);
       m.tensors[1].shape[0] = 5;
       m.tensors[1].slices[0].slice = whole(m.tensors[1].shape);
     }},
    {"many_slices_at_one_place",
     [](Manifest& m) { m.tensors[1].slices.resize(10'000, m.tensors[1].slices[0]); }},
};

INSTANTIATE_TEST_SUITE_P(Each, HostileManifest, ::testing::ValuesIn(kHostile),
                         [](const auto& tested) { return std::string(tested.param.name); });

/// With the hash that belongs to it.
std::string sealed(std::string text) {
  return text + "\n \"xxh3_128\": \"" + xxh3_128_hex(text) + "\"\n}\n";
}

TEST(Manifest, TextThatIsNoManifestIsRefused) {
  EXPECT_FALSE(manifest_from_text(""));
  EXPECT_FALSE(manifest_from_text(sealed("")));
  EXPECT_FALSE(manifest_from_text(sealed("{")));
  EXPECT_FALSE(manifest_from_text(sealed("{\"version\": 1,")));
  EXPECT_FALSE(manifest_from_text(sealed("{\"a\":" + std::string(1'000'000, '[') + ",")));
  EXPECT_FALSE(manifest_from_text(std::string(static_cast<size_t>(kMaxManifestBytes) + 1, ' ')));
  std::string text = to_text(valid_manifest());
  text.resize(text.find("\n \"xxh3_128\""));
  ASSERT_TRUE(manifest_from_text(sealed(text)));
  for (const auto& [from, to] : std::vector<std::pair<std::string, std::string>>{
           {"\"step\": 1200", "\"step\": 1e300"},
           {"\"step\": 1200", "\"step\": 18446744073709551615"},
           {"\"step\": 1200", "\"step\": \"1200\""},
           {"\"epoch\": 7", "\"epoch\": 4294967303"},
           {"\"step\": 1200,", "\"step\": 1200, \"unknown\": 1,"},
           {"\"step\": 1200,", ""},
           {"\"loss_scale\": {", "\"loss_scales\": {"},
           {"\"files\": [", "\"files\": [7, "}}) {
    std::string changed = text;
    ASSERT_NE(changed.find(from), std::string::npos) << from;
    changed.replace(changed.find(from), from.size(), to);
    EXPECT_FALSE(manifest_from_text(sealed(changed))) << to;
  }
}

/// What one rank saves of a model: each tensor whole, in three states, one after the other.
Manifest manifest_of(const ModelSpec& model) {
  Manifest manifest;
  manifest.epoch = Epoch(1);
  StoredFile file{shard_file_name(Rank(0)), 1000, 1000, kHash};
  for (const LogicalTensor& tensor : logical_tensors(model)) {
    for (const char* state : {"weight/", "adam_m/", "adam_v/"}) {
      StoredSlice whole_slice{
          file.name, file.bytes, whole(tensor.shape).elements() * 4, whole(tensor.shape), {}};
      whole_slice.block_hashes.assign(
          static_cast<size_t>(
              block_count(whole_slice.bytes, hash_block_bytes(tensor.shape, "F32"))),
          kHash);
      file.bytes += whole_slice.bytes;
      manifest.tensors.push_back({state + tensor.name, "F32", tensor.shape, {whole_slice}});
    }
  }
  manifest.files = {file};
  return manifest;
}

TEST(Manifest, OfADeepModelIsSmallEnoughToBeReadBack) {
  const Manifest manifest = manifest_of({"gpt", 200, 4, 256, 1024, 50257});
  const std::string text = to_text(manifest);
  EXPECT_LT(static_cast<int64_t>(text.size()), kMaxManifestBytes / 4);
  const auto read = manifest_from_text(text);
  ASSERT_TRUE(read) << read.error().to_string();
  EXPECT_EQ(read->tensors.size(), manifest.tensors.size());
}

TEST(Manifest, CheckpointsHaveOneNameEach) {
  EXPECT_EQ(checkpoint_directory_name(1200, Epoch(7)), "step-00001200.e7");
  CheckpointName name;
  ASSERT_TRUE(parse_checkpoint_directory_name("step-00001200.e7", &name));
  EXPECT_EQ(name.step, 1200);
  EXPECT_EQ(name.epoch, Epoch(7));
  EXPECT_TRUE(
      parse_checkpoint_directory_name(checkpoint_directory_name(123456789012, Epoch(99)), &name));
  for (const char* other :
       {"step-1200.e7", "step-000001200.e7", "step-00001200.e07", "step-00001200.e0",
        "step-00001200.e", "step-00001200", "step-.e7", "step-00001200.e7.old", "step-0000-200.e7",
        ".tmp-step-00001200.e7", "step-99999999999999999999.e1", "step-00001200.e9999999999", ""})
    EXPECT_FALSE(parse_checkpoint_directory_name(other, &name)) << other;
}

TEST(Manifest, ShardsHaveOneNameEach) {
  EXPECT_EQ(shard_file_name(Rank(3)), "s0003.safetensors");
  EXPECT_TRUE(is_shard_file_name("s0003.safetensors"));
  EXPECT_TRUE(is_shard_file_name(shard_file_name(Rank(123456))));
  for (const char* other : {"s3.safetensors", "s00003.safetensors", "s-003.safetensors",
                            "../s0003.safetensors", "s0003.safetensors ", "s0003", "", "s"})
    EXPECT_FALSE(is_shard_file_name(other)) << other;
}

}  // namespace
}  // namespace motley
