// Between a fuzzer and libFuzzer. `fuzz_NAME --seeds DIR` writes its seeds there and ends.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "core/check.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/support/paths.h"

namespace motley::testing {
namespace {

std::string text_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  MOTLEY_CHECK(file.good(), "cannot read " + path.string());
  return {std::istreambuf_iterator<char>(file), {}};
}

void write_seeds(const std::filesystem::path& directory) {
  std::filesystem::create_directories(directory);
  int number = 0;
  for (const std::string& seed : fuzz_seeds())
    std::ofstream(directory / ("seed-" + std::to_string(number++)), std::ios::binary) << seed;
}

}  // namespace

std::string repository_text(const std::string& path) { return text_of(source_dir() / path); }

std::vector<std::string> repository_texts(const std::string& folder, const std::string& ending) {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(source_dir() / folder))
    if (entry.path().string().ends_with(ending)) paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  std::vector<std::string> texts;
  for (const auto& path : paths) texts.push_back(text_of(path));
  return texts;
}

char take_choice(std::string_view* input) {
  if (input->empty()) return 0;
  const char choice = input->front();
  input->remove_prefix(1);
  return choice;
}

}  // namespace motley::testing

/// Bounds on memory, which any input must keep to.
extern "C" const char* __asan_default_options() {
  return "max_allocation_size_mb=1024:hard_rss_limit_mb=3072";
}

extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  if (*argc != 3 || std::strcmp((*argv)[1], "--seeds") != 0) return 0;
  motley::testing::write_seeds((*argv)[2]);
  std::exit(0);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  motley::testing::fuzz_one({reinterpret_cast<const char*>(data), size});
  return 0;
}
