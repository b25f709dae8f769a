#include "core/spec/glob.h"

#include <algorithm>
#include <filesystem>
#include <span>

namespace motley {
namespace {

namespace fs = std::filesystem;

/// Matches [abc], [a-z], [!x] at the front of `pattern` and takes it off; false when malformed.
bool take_set(std::string_view* pattern, char c, bool* matches) {
  size_t i = 1;
  const bool negated = i < pattern->size() && ((*pattern)[i] == '!' || (*pattern)[i] == '^');
  if (negated) ++i;
  bool found = false;
  for (const size_t first = i; i < pattern->size(); ++i) {
    const char low = (*pattern)[i];
    if (low == ']' && i > first) {
      pattern->remove_prefix(i + 1);
      *matches = found != negated;
      return true;
    }
    char high = low;
    if (i + 2 < pattern->size() && (*pattern)[i + 1] == '-' && (*pattern)[i + 2] != ']') {
      high = (*pattern)[i + 2];
      i += 2;
    }
    found |= low <= c && c <= high;
  }
  return false;
}

/// Takes what matches exactly one character; false when it does not match `c`.
bool take_one(std::string_view* pattern, char c) {
  bool matches = false;
  if (pattern->front() == '[' && take_set(pattern, c, &matches)) return matches;
  matches = pattern->front() == '?' || pattern->front() == c;
  pattern->remove_prefix(1);
  return matches;
}

bool has_wildcard(std::string_view part) { return part.find_first_of("*?[") != part.npos; }

class Walk {
 public:
  explicit Walk(std::vector<std::string>* found) : found_(found) {}
  bool is_too_much() const { return looked_at_ > kMaxGlobFiles; }

  /// Collects the files below `folder` that match the rest of the pattern.
  void descend(const fs::path& folder, std::span<const std::string> parts) {
    if (parts.empty() || is_too_much()) return;
    const std::string& part = parts.front();
    if (part == "**") return descend_all(folder, parts);
    if (!has_wildcard(part)) return visit(folder / part, parts);
    for (const fs::path& entry : entries(folder))
      if (name_matches(part, entry.filename().string())) visit(entry, parts);
  }

 private:
  std::vector<fs::path> entries(const fs::path& folder) {
    std::vector<fs::path> paths;
    std::error_code error;  // an unreadable folder holds nothing
    for (fs::directory_iterator it(folder, error), end; !error && it != end && !is_too_much();
         it.increment(error), ++looked_at_)
      paths.push_back(it->path());
    return paths;
  }

  void visit(const fs::path& path, std::span<const std::string> parts) {
    std::error_code error;
    if (parts.size() > 1) {
      if (fs::is_directory(path, error)) descend(path, parts.subspan(1));
    } else if (fs::is_regular_file(path, error)) {
      found_->push_back(path.lexically_normal().string());
    }
  }

  void descend_all(const fs::path& folder, std::span<const std::string> parts) {
    descend(folder, parts.subspan(1));
    std::error_code error;
    for (const fs::path& entry : entries(folder)) {
      const bool hidden = entry.filename().string().front() == '.';
      if (!hidden && !fs::is_symlink(entry, error) && fs::is_directory(entry, error))
        descend(entry, parts);
    }
  }

  std::vector<std::string>* found_;
  size_t looked_at_ = 0;
};

}  // namespace

bool name_matches(std::string_view pattern, std::string_view name) {
  if (!name.empty() && name.front() == '.' && (pattern.empty() || pattern.front() != '.'))
    return false;
  // On a mismatch go back to the last star and let it take one more character: never exponential.
  std::string_view after_star, star_name;
  bool star = false;
  while (!name.empty() || !pattern.empty()) {
    if (!pattern.empty() && pattern.front() == '*') {
      pattern.remove_prefix(1);
      after_star = pattern;
      star_name = name;
      star = true;
      continue;
    }
    if (!name.empty() && !pattern.empty() && take_one(&pattern, name.front())) {
      name.remove_prefix(1);
      continue;
    }
    if (!star || star_name.empty()) return false;
    star_name.remove_prefix(1);
    name = star_name;
    pattern = after_star;
  }
  return true;
}

Result<std::vector<std::string>> expand_glob(const std::string& base_directory,
                                             const std::string& pattern) {
  const fs::path path = fs::path(base_directory) / pattern;
  std::vector<std::string> parts;
  for (const fs::path& part : path.relative_path())
    if (!(part == "**" && !parts.empty() && parts.back() == "**")) parts.push_back(part.string());
  if (!parts.empty() && parts.back() == "**") parts.push_back("*");
  std::vector<std::string> files;
  Walk walk(&files);
  walk.descend(path.root_path().empty() ? fs::current_path() : path.root_path(), parts);
  if (walk.is_too_much())
    return fail(ErrorCode::kUnsupported,
                "'" + pattern + "' looks at more than " + std::to_string(kMaxGlobFiles) + " files");
  std::sort(files.begin(), files.end());
  files.erase(std::unique(files.begin(), files.end()), files.end());
  return files;
}

}  // namespace motley
