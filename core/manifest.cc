#include "core/manifest.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "core/json_fields.h"

namespace motley {
namespace {

using nlohmann::json;

constexpr size_t kMaxNameLength = 256;
constexpr int64_t kMaxExponent = 1023;  ///< of a double
constexpr size_t kHashDigits = 32;
/// The last member of a manifest; the hash covers every byte before it.
constexpr std::string_view kHashMember = "\n \"xxh3_128\": \"";
constexpr std::string_view kEnd = "\"\n}\n";

/// Without anything between them: there may be millions.
std::string joined(const std::vector<std::string>& hashes) {
  std::string digits;
  digits.reserve(hashes.size() * kHashDigits);
  for (const std::string& hash : hashes) digits += hash;
  return digits;
}

std::vector<std::string> hashes_in(const std::string& digits) {
  std::vector<std::string> hashes;
  hashes.reserve(digits.size() / kHashDigits + 1);
  for (size_t at = 0; at < digits.size(); at += kHashDigits)
    hashes.push_back(digits.substr(at, kHashDigits));
  return hashes;
}

void read_fields(JsonFields& from, StoredSlice* stored) {
  std::string digits;
  from.read("file", stored->file)
      .read("offset", stored->offset)
      .read("bytes", stored->bytes)
      .read("start", stored->slice.start)
      .read("extent", stored->slice.extent)
      .read("block_hashes", digits);
  stored->block_hashes = hashes_in(digits);
}

/// Reads an array of objects, each with its read_fields.
template <class Part>
void read_each(JsonFields& from, const char* key, std::vector<Part>* parts) {
  from.each(key, [parts](JsonFields& fields) { read_fields(fields, &parts->emplace_back()); });
}

auto corrupt(const std::string& what) {
  return fail(ErrorCode::kCorrupt, "malformed manifest: " + what);
}

Result<Manifest> read_manifest(const json& from) {
  Manifest manifest;
  JsonFields fields(from);
  fields.read("version", manifest.version)
      .read("job", manifest.job)
      .read("step", manifest.step)
      .read("epoch", manifest.epoch)
      .read("plan_id", manifest.plan_id)
      .read("code_version", manifest.code_version)
      .read("arithmetic_class", manifest.arithmetic_class)
      .read("seed", manifest.seed)
      .read("data_hash", manifest.data_hash)
      .read("next_sample", manifest.next_sample)
      .read("exact_exponent", manifest.exact_exponent);
  fields.object("loss_scale", [&](JsonFields& scale) {
    scale.read("exponent", manifest.loss_scale.exponent)
        .read_between("kept_steps", manifest.loss_scale.kept_steps, 0, INT32_MAX);
  });
  fields.read_if("steps_held", manifest.steps_held);
  fields.member("xxh3_128");  // checked over the text
  read_each(fields, "tensors", &manifest.tensors);
  read_each(fields, "files", &manifest.files);
  if (const auto read = fields.done(); !read) return corrupt(read.error().message);
  return manifest;
}

bool is_tensor_name(const std::string& name) {
  constexpr std::string_view kAllowed =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._/-";
  return !name.empty() && name.size() <= kMaxNameLength &&
         name.find_first_not_of(kAllowed) == std::string::npos;
}

/// The slices of one file: [offset, end).
using Ranges = std::vector<std::pair<int64_t, int64_t>>;
using FileRanges = std::map<std::string, Ranges>;

Result<Unit> check_slice(const StoredSlice& stored, const StoredTensor& tensor,
                         FileRanges* ranges) {
  std::vector<int64_t> factors = stored.slice.extent;
  factors.push_back(element_bytes(tensor.dtype));
  const auto bytes = checked_product(factors);
  int64_t end = 0;
  if (!bytes || *bytes != stored.bytes || __builtin_add_overflow(stored.offset, *bytes, &end))
    return corrupt(tensor.name + ": a slice's bytes do not match its extent");
  if (static_cast<int64_t>(stored.block_hashes.size()) !=
      block_count(*bytes, hash_block_bytes(tensor.shape, tensor.dtype)))
    return corrupt(tensor.name + ": a slice's hashes do not match its bytes");
  if (stored.block_hashes.back().size() != kHashDigits)
    return corrupt(tensor.name + ": a slice's last hash lacks digits");
  const auto file = ranges->find(stored.file);
  if (file == ranges->end())
    return corrupt(tensor.name + ": a slice lies in a file that is not listed");
  file->second.emplace_back(stored.offset, end);
  return Unit{};
}

Result<Unit> check_tensor(const StoredTensor& tensor, FileRanges* ranges) {
  if (!is_tensor_name(tensor.name)) return corrupt("a tensor's name is not one of ours");
  if (element_bytes(tensor.dtype) == 0) return corrupt(tensor.name + ": unknown dtype");
  std::vector<Slice> slices;
  for (const StoredSlice& stored : tensor.slices) {
    MOTLEY_TRY_VOID(check_slice(stored, tensor, ranges));
    slices.push_back(stored.slice);
  }
  if (const auto tiled = check_tiles(tensor.name, tensor.shape, slices); !tiled)
    return corrupt(tiled.error().message);
  return Unit{};
}

Result<Unit> check_layout(const StoredFile& file, Ranges& slices) {
  std::sort(slices.begin(), slices.end());
  int64_t end = file.header_bytes;
  for (const auto& [offset, slice_end] : slices) {
    if (offset != end) return corrupt(file.name + ": slices overlap or leave a hole");
    end = slice_end;
  }
  if (end != file.bytes) return corrupt(file.name + ": slices do not fill the file");
  return Unit{};
}

/// Read before the rest, which another version may have arranged in another way.
Result<Unit> check_version(const json& document) {
  if (!document.is_object() || !document.contains("version")) return Unit{};
  const json& version = document["version"];
  if (!version.is_number_integer() || version < 1 || version == kManifestVersion) return Unit{};
  const bool newer = version > kManifestVersion;
  const json writer = document.value("code_version", json());
  return fail(ErrorCode::kUnsupported,
              "written by " +
                  (writer.is_string() ? "Motley " + writer.get<std::string>()
                                      : std::string(newer ? "a newer Motley" : "an older Motley")) +
                  ": this program reads manifests of version " + std::to_string(kManifestVersion) +
                  ", this is one of version " + version.dump() +
                  (newer ? "; use the newer program" : "; use the program that wrote it"));
}

Result<Unit> check_manifest(const Manifest& manifest) {
  if (manifest.version != kManifestVersion) return corrupt("impossible version");
  if (std::abs(int64_t{manifest.exact_exponent}) > kMaxExponent ||
      std::abs(int64_t{manifest.loss_scale.exponent}) > kMaxExponent)
    return corrupt("impossible exponent");
  if (manifest.step < 0 || manifest.epoch < Epoch(1) || manifest.next_sample < 0)
    return corrupt("a negative counter");
  if (manifest.steps_held < 0 || manifest.steps_held > manifest.step)
    return corrupt("impossible steps_held");
  FileRanges ranges;
  for (const StoredFile& file : manifest.files) {
    if (!is_shard_file_name(file.name)) return corrupt("a file's name is not one of a shard");
    if (!ranges.try_emplace(file.name).second) return corrupt(file.name + ": listed twice");
    if (file.header_bytes < 0 || file.header_bytes > kMaxShardHeaderBytes)
      return corrupt(file.name + ": impossible header");
  }
  std::set<std::string_view> names;
  for (const StoredTensor& tensor : manifest.tensors) {
    MOTLEY_TRY_VOID(check_tensor(tensor, &ranges));
    if (!names.insert(tensor.name).second) return corrupt(tensor.name + ": listed twice");
  }
  for (const StoredFile& file : manifest.files)
    MOTLEY_TRY_VOID(check_layout(file, ranges.at(file.name)));
  return Unit{};
}

}  // namespace

nlohmann::json to_json(const StoredTensor& tensor) {
  json slices = json::array();
  for (const StoredSlice& stored : tensor.slices) {
    slices.push_back({{"file", stored.file},
                      {"offset", stored.offset},
                      {"bytes", stored.bytes},
                      {"start", stored.slice.start},
                      {"extent", stored.slice.extent},
                      {"block_hashes", joined(stored.block_hashes)}});
  }
  return {{"name", tensor.name},
          {"dtype", tensor.dtype},
          {"shape", tensor.shape},
          {"slices", std::move(slices)}};
}

nlohmann::json to_json(const StoredFile& file) {
  return {{"name", file.name},
          {"bytes", file.bytes},
          {"header_bytes", file.header_bytes},
          {"header_hash", file.header_hash}};
}

void read_fields(JsonFields& from, StoredTensor* tensor) {
  from.read("name", tensor->name).read("dtype", tensor->dtype).read("shape", tensor->shape);
  read_each(from, "slices", &tensor->slices);
}

void read_fields(JsonFields& from, StoredFile* file) {
  from.read("name", file->name)
      .read("bytes", file->bytes)
      .read("header_bytes", file->header_bytes)
      .read("header_hash", file->header_hash);
}

std::string to_text(const Manifest& manifest) {
  json to = {{"version", manifest.version},
             {"job", manifest.job},
             {"step", manifest.step},
             {"epoch", manifest.epoch.value()},
             {"plan_id", manifest.plan_id},
             {"code_version", manifest.code_version},
             {"arithmetic_class", manifest.arithmetic_class},
             {"seed", manifest.seed},
             {"data_hash", manifest.data_hash},
             {"next_sample", manifest.next_sample},
             {"exact_exponent", manifest.exact_exponent},
             {"loss_scale",
              {{"exponent", manifest.loss_scale.exponent},
               {"kept_steps", manifest.loss_scale.kept_steps}}}};
  if (manifest.steps_held > 0) to["steps_held"] = manifest.steps_held;
  to["tensors"] = json::array();
  to["files"] = json::array();
  for (const StoredTensor& tensor : manifest.tensors) to["tensors"].push_back(to_json(tensor));
  for (const StoredFile& file : manifest.files) to["files"].push_back(to_json(file));
  std::string text = to.dump(1, ' ', false, json::error_handler_t::replace);
  text.replace(text.size() - 2, 2, ",");  // the end of the object: "\n}"
  const std::string hash = xxh3_128_hex(text);
  return text.append(kHashMember).append(hash).append(kEnd);
}

Result<Manifest> manifest_from_text(const std::string& text) {
  constexpr size_t kHashedEnd = kHashMember.size() + kHashDigits + kEnd.size();
  if (text.size() < kHashedEnd || text.size() > static_cast<size_t>(kMaxManifestBytes))
    return corrupt("impossible size");
  const std::string_view hashed(text.data(), text.size() - kHashedEnd);
  const std::string end = std::string(kHashMember) + xxh3_128_hex(hashed) + std::string(kEnd);
  if (!text.ends_with(end)) return corrupt("its hash does not match");
  MOTLEY_TRY(const json document, parse_json(text));
  MOTLEY_TRY_VOID(check_version(document));
  MOTLEY_TRY(Manifest manifest, read_manifest(document));
  MOTLEY_TRY_VOID(check_manifest(manifest));
  return manifest;
}

int64_t hash_block_bytes(const std::vector<int64_t>& shape, const std::string& dtype) {
  constexpr int64_t kBlocks = 512, kUnit = 512;
  std::vector<int64_t> factors = shape;
  factors.push_back(element_bytes(dtype));
  const auto bytes = checked_product(factors);
  if (!bytes) return kMaxHashBlockBytes;
  return std::min(((*bytes - 1) / (kBlocks * kUnit) + 1) * kUnit, kMaxHashBlockBytes);
}

int64_t element_bytes(const std::string& dtype) {
  static const std::map<std::string, int64_t, std::less<>> kBytes = {
      {"F64", 8},  {"I64", 8}, {"F32", 4}, {"I32", 4}, {"F16", 2},
      {"BF16", 2}, {"I16", 2}, {"I8", 1},  {"U8", 1},  {"BOOL", 1}};
  const auto found = kBytes.find(dtype);
  return found == kBytes.end() ? 0 : found->second;
}

namespace {

/// Fills with zeros on the left up to `width` digits.
std::string padded(int64_t number, size_t width) {
  const std::string digits = std::to_string(number);
  return std::string(digits.size() < width ? width - digits.size() : 0, '0') + digits;
}

/// Reads the digits at the start of `text` and removes them; false if there are none or too many.
bool take_number(std::string_view* text, int64_t* number) {
  constexpr size_t kMaxDigits = 18;  // no overflow
  const size_t digits = std::min(text->find_first_not_of("0123456789"), text->size());
  if (digits == 0 || digits > kMaxDigits) return false;
  *number = 0;
  for (const char digit : text->substr(0, digits)) *number = *number * 10 + (digit - '0');
  text->remove_prefix(digits);
  return true;
}

}  // namespace

std::string checkpoint_directory_name(int64_t step, Epoch epoch) {
  return "step-" + padded(step, 8) + ".e" + std::to_string(epoch.value());
}

bool parse_checkpoint_directory_name(const std::string& name, CheckpointName* parsed) {
  constexpr std::string_view kPrefix = "step-";
  if (!name.starts_with(kPrefix)) return false;
  std::string_view rest = std::string_view(name).substr(kPrefix.size());
  int64_t step = 0, epoch = 0;
  if (!take_number(&rest, &step) || !rest.starts_with(".e")) return false;
  rest.remove_prefix(2);
  if (!take_number(&rest, &epoch) || epoch < 1 || epoch > INT32_MAX) return false;
  *parsed = {step, Epoch(static_cast<int>(epoch))};
  // One name for each checkpoint: no other padding, nothing after it.
  return name == checkpoint_directory_name(parsed->step, parsed->epoch);
}

std::string shard_file_name(Rank rank) { return "s" + padded(rank.value(), 4) + ".safetensors"; }

bool is_shard_file_name(const std::string& name) {
  if (!name.starts_with('s')) return false;
  std::string_view rest = std::string_view(name).substr(1);
  int64_t rank = 0;
  return take_number(&rest, &rank) && rank <= INT32_MAX &&
         name == shard_file_name(Rank(static_cast<int>(rank)));
}

}  // namespace motley
