#include "scheduler/run/data_record.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/file_system.h"
#include "core/hash.h"
#include "core/json_fields.h"
#include "core/json_file.h"

namespace motley {
namespace {

constexpr int kVersion = 1;
constexpr size_t kPiece = 1 << 20;

Result<DataFile> record_of(const std::string& path) {
  std::error_code error;
  const auto size = std::filesystem::file_size(path, error);  // fails for folders and devices, too
  if (error) return fail(ErrorCode::kNotFound, "data file " + path + ": " + error.message());
  std::ifstream file(path, std::ios::binary);
  Xxh3Stream hash(Xxh3Stream::Width::k128);
  std::vector<char> piece(kPiece);
  while (file.read(piece.data(), static_cast<std::streamsize>(kPiece)) || file.gcount() > 0)
    hash.add(piece.data(), static_cast<size_t>(file.gcount()));
  if (!file.eof()) return fail(ErrorCode::kIo, "data file " + path + " cannot be read");
  return DataFile{path, Bytes(static_cast<int64_t>(size)), hash.hex()};
}

Result<DataRecord> record_from_json(const nlohmann::json& json) {
  DataRecord record;
  JsonFields fields(json);
  fields.read_version(kVersion).each("files", [&](JsonFields& each) {
    DataFile file;
    each.read("path", file.path).read("bytes", file.bytes).read("xxh3", file.xxh3);
    record.push_back(std::move(file));
  });
  MOTLEY_TRY_VOID(fields.done());
  return record;
}

/// Where the job names its data file number `i`; a job read back from a run no longer knows.
SourcePlace place_of(const JobSpec& job, size_t i) {
  const auto& places = job.data.file_places;
  return i < places.size() ? places[i] : SourcePlace{job.source, 0, 0};
}

}  // namespace

Result<DataRecord> record_of_data(const DataSpec& data) {
  DataRecord record;
  for (const std::string& path : data.files) {
    MOTLEY_TRY(DataFile file, record_of(path));
    record.push_back(std::move(file));
  }
  return record;
}

nlohmann::json to_json(const DataRecord& record) {
  nlohmann::json files = nlohmann::json::array();
  for (const DataFile& file : record)
    files.push_back({{"path", file.path}, {"bytes", file.bytes.value()}, {"xxh3", file.xxh3}});
  return {{"version", kVersion}, {"files", std::move(files)}};
}

Result<Unit> check_data(const RunDirectory& run, const JobSpec& job, const DataRecord& now) {
  const std::string path = run.file("data.json");
  const auto document = read_json_file(real_file_system(), path, ErrorCode::kCorrupt);
  if (!document && document.error().code == ErrorCode::kNotFound) return Unit{};
  if (!document) return fail(document.error());
  if (run.untouched(job)) return Unit{};
  MOTLEY_TRY(const DataRecord before, record_from_json(*document));
  for (size_t i = 0; i < std::max(before.size(), now.size()); ++i) {
    if (i < before.size() && i < now.size() && before[i] == now[i]) continue;
    const DataFile& differs = i < now.size() ? now[i] : before[i];
    return fail(ErrorCode::kInvalidSpec,
                "data.text has changed since run " + run.title() + " was started: " + differs.path +
                    " is another; put it back, --fresh starts a new run, another name keeps both",
                place_of(job, i));
  }
  return Unit{};
}

}  // namespace motley
