#include "kernels/visible_devices.h"

#include <algorithm>
#include <charconv>
#include <numeric>
#include <sstream>

namespace motley {
namespace {

constexpr int kNone = -1;

std::string without_blanks(const std::string& text) {
  const auto first = text.find_first_not_of(" \t");
  return first == std::string::npos ? ""
                                    : text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

/// The only UUID that begins with `prefix`.
int by_uuid(const std::vector<std::string>& uuids, const std::string& prefix) {
  int found = kNone;
  for (size_t i = 0; i < uuids.size(); ++i) {
    if (uuids[i].compare(0, prefix.size(), prefix) != 0) continue;
    if (found != kNone) return kNone;
    found = static_cast<int>(i);
  }
  return found;
}

int by_number(size_t devices, const std::string& word) {
  int number = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
  const bool whole = error == std::errc() && end == word.data() + word.size();
  return whole && number >= 0 && static_cast<size_t>(number) < devices ? number : kNone;
}

int index_of(const std::vector<std::string>& uuids, const std::string& word) {
  const bool named = word.rfind("GPU-", 0) == 0 || word.rfind("MIG-", 0) == 0;
  return named ? by_uuid(uuids, word) : by_number(uuids.size(), word);
}

}  // namespace

std::vector<int> visible_devices(const std::vector<std::string>& uuids,
                                 const std::optional<std::string>& variable) {
  std::vector<int> visible;
  if (!variable) {
    visible.resize(uuids.size());
    std::iota(visible.begin(), visible.end(), 0);
    return visible;
  }
  std::istringstream words(*variable);
  for (std::string word; std::getline(words, word, ',');) {
    const int index = index_of(uuids, without_blanks(word));
    if (index == kNone) break;
    if (std::find(visible.begin(), visible.end(), index) != visible.end()) return {};
    visible.push_back(index);
  }
  return visible;
}

}  // namespace motley
