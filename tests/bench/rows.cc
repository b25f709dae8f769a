#include "tests/bench/rows.h"

#include <time.h>

#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>

namespace motley {

double thread_seconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

std::pair<bool, std::string> bench_arguments(int argc, char** argv) {
  const bool json = argc > 1 && std::strcmp(argv[1], "--json") == 0;
  return {json, argc > (json ? 2 : 1) ? argv[argc - 1] : ""};
}

void Rows::add(const Row& row) {
  nlohmann::json line = {{"bench", bench_},      {"case", row.name},
                         {"metric", row.metric}, {"unit", row.unit},
                         {"better", row.better}, {"ours", row.ours},
                         {"limit", nullptr},     {"peers", nlohmann::json::object()},
                         {"kind", row.kind}};
  if (row.limit) line["limit"] = *row.limit;
  for (const auto& [peer, value] : row.peers) line["peers"][peer] = value;
  lines_.push_back(line.dump());
}

void Rows::print() const {
  for (size_t i = 0; i < lines_.size(); ++i)
    std::printf("%s\n%s", i == 0 ? "[" : ",", lines_[i].c_str());
  std::printf("%s\n]\n", lines_.empty() ? "[" : "");
}

}  // namespace motley
