// Fleet files: what is read can be written and read again.

#include <nlohmann/json.hpp>

#include "core/check.h"
#include "core/spec/json.h"
#include "core/spec/reader.h"
#include "tests/fuzz/fuzz_target.h"

namespace motley::testing {

void fuzz_one(std::string_view input) {
  const auto fleet = parse_fleet(input, "fleet.yaml");
  if (!fleet) return;
  const nlohmann::json written = to_json(*fleet);
  const auto again = fleet_from_json(nlohmann::json::parse(written.dump()));
  MOTLEY_CHECK(again.has_value(), "a fleet that was written cannot be read");
  MOTLEY_CHECK(to_json(*again) == written, "it is read as another one");
}

std::vector<std::string> fuzz_seeds() {
  std::vector<std::string> seeds = repository_texts("configs/fleets", ".yaml");
  seeds.push_back(
      "version: 1\nnodes:\n  - host: a1\n    slots: 2\n    devices:\n      - {kind: cuda, type: "
      "A100-40GB, uuid: GPU-1, memory: 40GB, price: 1.2}\n      - {kind: cpu, type: slow, threads: "
      "1}\nlinks: [{between: [a1, a1], bandwidth: 1.2GB/s, latency: 60us}]\n");
  return seeds;
}

}  // namespace motley::testing
