#include "tests/oracle/oracle_case.h"

#include <fstream>
#include <nlohmann/json.hpp>

#include "core/philox.h"
#include "core/spec/names.h"

namespace motley::testing {
namespace {

constexpr uint64_t kSeed = 20;

template <class T>
void write(const std::string& path, const std::vector<T>& values) {
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(values.data()),
             static_cast<std::streamsize>(values.size() * sizeof(T)));
}

nlohmann::json description(const OracleCase& test, const std::vector<double>& losses) {
  nlohmann::json json;
  json["model"] = {{"layers", test.model.layers},
                   {"heads", test.model.heads},
                   {"width", test.model.width},
                   {"context", test.model.context},
                   {"vocab", test.model.vocab}};
  json["samples"] = test.samples;
  json["precision"] = spec_name(test.precision);
  json["losses"] = losses;
  json["optimizer"] = {
      {"lr", test.optimizer.lr},        {"beta1", test.optimizer.beta1},
      {"beta2", test.optimizer.beta2},  {"eps", test.optimizer.eps},
      {"clip", test.optimizer.clip},    {"weight_decay", test.optimizer.weight_decay},
      {"warmup", test.schedule.warmup}, {"min_lr", test.schedule.min_lr}};
  for (const LogicalTensor& tensor : logical_tensors(test.model))
    json["tensors"].push_back({{"name", tensor.name}, {"shape", tensor.shape}});
  return json;
}

}  // namespace

float oracle_weight(const LogicalTensor& tensor, int64_t index) {
  const float centre = tensor.init == Init::kOnes ? 1.0F : 0.0F;
  return centre + 0.1F * random_normal(kSeed, RandomUse::kInit, 0, static_cast<uint64_t>(index));
}

void write_case(const OracleCase& test, const OracleResult& result, const std::string& folder) {
  write(folder + "/weights.f32", result.weights);
  write(folder + "/gradients.f32", result.gradients);
  write(folder + "/tokens.i32", result.tokens);
  std::ofstream(folder + "/case.json") << description(test, result.losses).dump(1);
}

}  // namespace motley::testing
