// Where libFuzzer is not: runs a fuzzer on all files below the directories that are named and on
// mutations of them, the same ones for the same -seed. Of libFuzzer's options it has
// -runs=N, -seed=N and -artifact_prefix=PATH, below which the input at work is kept: one that ends
// the process stays there.

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "core/check.h"
#include "tests/fuzz/fuzz_target.h"

extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv);
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace motley::testing {
namespace {

constexpr size_t kLongestInput = 64 << 10;
constexpr size_t kLongestPiece = 64;

class Mutator {
 public:
  Mutator(std::vector<std::string> inputs, uint64_t seed)
      : inputs_(std::move(inputs)), random_(seed) {}

  std::string next() {
    std::string input = any();
    for (size_t i = 0, count = 1 + below(6); i < count; ++i) mutate(&input);
    if (input.size() > kLongestInput) input.resize(kLongestInput);
    return input;
  }

 private:
  size_t below(size_t limit) { return limit == 0 ? 0 : random_() % limit; }
  const std::string& any() { return inputs_[below(inputs_.size())]; }
  /// Some of an input's bytes, from `at` on.
  size_t length(const std::string& text, size_t at) {
    return std::min(1 + below(kLongestPiece), text.size() - at);
  }

  void mutate(std::string* text) {
    static const std::vector<std::string> kWords = {"0",
                                                    "-1",
                                                    "9223372036854775807",
                                                    "1e308",
                                                    "18446744073709551616",
                                                    "\"",
                                                    "[",
                                                    "]",
                                                    "{",
                                                    "}",
                                                    ":",
                                                    "null",
                                                    "..",
                                                    "\r\n",
                                                    "%",
                                                    "&",
                                                    "*",
                                                    "<<"};
    const size_t at = below(text->size() + 1);
    const size_t there = length(*text, at);
    switch (below(8)) {
      case 0:
        if (at < text->size()) (*text)[at] = static_cast<char>((*text)[at] ^ (1 << below(8)));
        break;
      case 1:
        if (at < text->size()) (*text)[at] = static_cast<char>(random_());
        break;
      case 2:
        text->insert(at, 1, static_cast<char>(random_()));
        break;
      case 3:
        text->erase(at, there);
        break;
      case 4:
        text->insert(below(text->size() + 1), text->substr(at, there));
        break;
      case 5:
        text->insert(at, kWords[below(kWords.size())]);
        break;
      case 6: {
        const std::string& other = any();
        const size_t from = below(other.size() + 1);
        text->replace(at, there, other, from, length(other, from));
        break;
      }
      default:
        text->resize(at);
    }
  }

  const std::vector<std::string> inputs_;
  std::mt19937_64 random_;
};

class Fuzzer {
 public:
  explicit Fuzzer(std::string kept)
      : kept_(std::move(kept)),
        file_(::open(kept_.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644)) {}
  Fuzzer(const Fuzzer&) = delete;
  ~Fuzzer() { ::close(file_); }

  void run(const std::string& input) {
    // A file that is closed each time would be sent to the disk each time.
    MOTLEY_CHECK_EQ(::ftruncate(file_, 0), 0);
    MOTLEY_CHECK_EQ(::pwrite(file_, input.data(), input.size(), 0),
                    static_cast<ssize_t>(input.size()));
    LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(input.data()), input.size());
    ++runs_;
  }
  int done() const {
    std::filesystem::remove(kept_);
    std::printf("%llu inputs, none of which does any harm\n",
                static_cast<unsigned long long>(runs_));
    return 0;
  }

 private:
  const std::string kept_;
  const int file_;
  uint64_t runs_ = 0;
};

struct Options {
  uint64_t runs = 0, seed = 1;
  std::string prefix = "./";
  std::vector<std::string> inputs;
};

std::string value_of(const std::string& argument, const std::string& option) {
  return argument.starts_with(option) ? argument.substr(option.size()) : "";
}

void add_files(const std::string& directory, std::vector<std::string>* inputs) {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(directory))
    if (entry.is_regular_file()) paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  for (const auto& path : paths) {
    std::ifstream file(path, std::ios::binary);
    inputs->emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
}

Options options_of(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (const std::string runs = value_of(argument, "-runs="); !runs.empty())
      options.runs = std::stoull(runs);
    else if (const std::string seed = value_of(argument, "-seed="); !seed.empty())
      options.seed = std::stoull(seed);
    else if (const std::string prefix = value_of(argument, "-artifact_prefix="); !prefix.empty())
      options.prefix = prefix;
    else
      add_files(argument, &options.inputs);
  }
  return options;
}

int run_all(const Options& options) {
  Fuzzer fuzzer(options.prefix + "input");
  for (const std::string& input : options.inputs) fuzzer.run(input);
  Mutator mutator(options.inputs, options.seed);
  for (uint64_t i = options.inputs.size(); i < options.runs; ++i) fuzzer.run(mutator.next());
  return fuzzer.done();
}

}  // namespace
}  // namespace motley::testing

int main(int argc, char** argv) {
  LLVMFuzzerInitialize(&argc, &argv);
  return motley::testing::run_all(motley::testing::options_of(argc, argv));
}
