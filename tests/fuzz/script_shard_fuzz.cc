// The safetensors file that a script has written, of which a checkpoint is to be made: it is
// refused, or found whole afterwards.

#include <cstring>

#include "core/check.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/support/fault_file_system.h"
#include "worker/bridge/script_checkpoint.h"

namespace motley::testing {
namespace {

const std::string kTemporary = "/checkpoints/.tmp-step-00000010.e1";

}  // namespace

void fuzz_one(std::string_view input) {
  FaultFileSystem fs;
  MOTLEY_CHECK(fs.make_directories(kTemporary).has_value(), "no directory");
  const auto file = fs.create(kTemporary + "/s0000.safetensors");
  MOTLEY_CHECK(file && (*file)->append(std::as_bytes(std::span(input))) && (*file)->sync() &&
                   (*file)->close(),
               "no file");
  const Tell nobody = [](const std::string&) {};
  const auto saved = commit_script(fs, kTemporary, {}, 2, nobody);
  const auto found = newest_whole(fs, "/checkpoints", nobody);
  MOTLEY_CHECK(found.has_value(), "a checkpoint was made that is not whole");
  MOTLEY_CHECK_EQ(*found, saved.value_or(""));
}

std::vector<std::string> fuzz_seeds() {
  const std::string header =
      R"({"__metadata__":{"format":"pt"},"w":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]},"script":{"dtype":"U8","shape":[3],"data_offsets":[8,11]}})";
  std::string length(8, '\0');
  const uint64_t bytes = header.size();
  std::memcpy(length.data(), &bytes, sizeof bytes);
  return {length + header + "12345678abc"};
}

}  // namespace motley::testing
