#include "core/set_aside.h"

#include <algorithm>
#include <utility>

#include "core/log.h"
#include "core/manifest.h"

namespace motley {
namespace {

constexpr std::string_view kSuspect = ".suspect-";
constexpr const char* kWhyName = "/why.txt";
constexpr Bytes kLongestWhy{1 << 16};

std::string why_of(FileSystem& fs, const std::string& directory) {
  const auto text = read_text(fs, directory + kWhyName, kLongestWhy);
  return text ? text->substr(0, text->find('\n')) : "";
}

}  // namespace

std::string suspect_directory_name(std::string_view checkpoint) {
  return std::string(kSuspect).append(checkpoint);
}

Result<std::string> set_aside(FileSystem& fs, const std::string& checkpoints_dir,
                              const std::string& checkpoint, const std::string& why) {
  const std::string path = checkpoints_dir + "/" + checkpoint;
  const std::string name = suspect_directory_name(checkpoint);
  // Best effort: a full disk is no reason to find it again.
  (void)write_text_durably(fs, path + kWhyName, one_line(why) + "\n");
  MOTLEY_TRY_VOID(fs.rename_new(path, checkpoints_dir + "/" + name));
  MOTLEY_TRY_VOID(fs.sync_directory(checkpoints_dir));
  return name;
}

Result<std::vector<SetAside>> set_aside_in(FileSystem& fs, const std::string& checkpoints_dir) {
  std::vector<std::pair<std::pair<Epoch, int64_t>, SetAside>> found;
  const auto names = fs.list(checkpoints_dir);
  if (!names && names.error().code == ErrorCode::kNotFound) return std::vector<SetAside>();
  if (!names) return fail(names.error());
  for (const std::string& name : *names) {
    CheckpointName parsed;
    if (!name.starts_with(kSuspect) ||
        !parse_checkpoint_directory_name(name.substr(kSuspect.size()), &parsed))
      continue;
    const std::string why = why_of(fs, checkpoints_dir + "/" + name);
    found.push_back({{parsed.epoch, parsed.step}, {parsed.step, name, why}});
  }
  std::sort(found.begin(), found.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<SetAside> sorted;
  for (auto& [order, each] : found) sorted.push_back(std::move(each));
  return sorted;
}

}  // namespace motley
