// Job files: what is read can be written and read again.

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/check.h"
#include "core/spec/json.h"
#include "core/spec/reader.h"
#include "tests/fuzz/fuzz_target.h"

namespace motley::testing {

void fuzz_one(std::string_view input) {
  const char choice = take_choice(&input);
  std::vector<Override> overrides;
  // "=path value" and a line's end before the job: an override.
  if (choice == '=') {
    const std::string_view line = input.substr(0, input.find('\n'));
    input.remove_prefix(std::min(input.size(), line.size() + 1));
    const size_t space = line.find(' ');
    overrides.push_back({std::string(line.substr(0, space)),
                         std::string(space == line.npos ? "" : line.substr(space + 1))});
  }
  const JobParts parts = choice == 'm' ? JobParts::kWithoutModel : JobParts::kWithoutData;
  const auto job = parse_job(input, "job.yaml", "/nowhere", overrides, parts);
  if (!job || parts == JobParts::kWithoutModel) return;  // half a job is not written
  const nlohmann::json written = to_json(*job);
  const auto again = job_from_json(nlohmann::json::parse(written.dump()));
  MOTLEY_CHECK(again.has_value(), "a job that was written cannot be read");
  MOTLEY_CHECK(to_json(*again) == written, "it is read as another one");
}

std::vector<std::string> fuzz_seeds() {
  std::vector<std::string> seeds;
  for (const std::string& text : repository_texts("configs/jobs", ".yaml")) {
    seeds.push_back("d" + text);
    seeds.push_back("m" + text);
    seeds.push_back("=train.steps 7\n" + text);
  }
  // Each key that there is, of the format's own description.
  const std::string formats = repository_text("core/FORMATS.md");
  for (size_t at = formats.find("```yaml\n"); at != formats.npos;
       at = formats.find("```yaml\n", at + 1))
    seeds.push_back("d" + formats.substr(at + 8, formats.find("\n```", at) - at - 7));
  return seeds;
}

}  // namespace motley::testing
