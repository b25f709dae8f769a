#include "tests/bench/planner_case.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "planner/grid/grid_plan_json.h"
#include "planner/grid/grid_search.h"
#include "tests/bench/published_costs.h"
#include "tests/bench/rows.h"

namespace motley {
namespace {

using nlohmann::json;

constexpr int kUsage = 2;

[[noreturn]] void refuse(const std::string& what) {
  std::fprintf(stderr,
               "%s\nusage: run.sh planner --case FILE --cluster TYPE=N[,TYPE=N]... [--cluster "
               "...] [--plan FILE] [--json]\n",
               what.c_str());
  std::exit(kUsage);
}

/// The judge's hosts.
constexpr int kDevicesOfJudgedHosts = 4;
constexpr int kMostDevices = 1'000'000;

std::vector<GridType> read_cluster(const std::string& text, const ForeignProfile& profile) {
  std::vector<GridType> cluster;
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) {
    const size_t equals = part.rfind('=');
    int count = 0;
    const char* const end = part.data() + part.size();
    if (equals == std::string::npos || equals == 0 ||
        std::from_chars(part.data() + equals + 1, end, count) !=
            std::from_chars_result{end, std::errc()} ||
        count < 1 || count > kMostDevices)
      refuse("--cluster: '" + part + "' is not TYPE=N, N up to a million");
    const std::string name = part.substr(0, equals);
    if (std::any_of(cluster.begin(), cluster.end(),
                    [&](const GridType& other) { return other.name == name; }))
      refuse("--cluster names '" + name + "' twice");
    cluster.push_back({name});
    GridType& type = cluster.back();
    type.on_hosts.assign(static_cast<size_t>(count / kDevicesOfJudgedHosts), kDevicesOfJudgedHosts);
    if (count % kDevicesOfJudgedHosts > 0) type.on_hosts.push_back(count % kDevicesOfJudgedHosts);
    if (!profile.devices.contains(cluster.back().name))
      refuse("--cluster: the case has no device of type '" + cluster.back().name + "'");
    type.memory = profile.devices.at(type.name).memory;
  }
  if (cluster.empty() || text.back() == ',') refuse("--cluster: '" + text + "' ends too early");
  return cluster;
}

void print_plan(const GridPlan& plan, const std::vector<GridType>& cluster) {
  for (const GridReplicas& replicas : replicas_of(plan)) {
    std::printf("  %d replicas, micro-batch %d:", replicas.count, plan.micro_batch);
    for (size_t s = 0; s < plan.stages.size(); ++s)
      std::printf("  %dx %s [%d..%d]", replicas.configs[s].degree,
                  cluster[static_cast<size_t>(replicas.configs[s].type)].name.c_str(),
                  plan.stages[s].first, plan.stages[s].end - 1);
    std::printf("\n");
  }
}

/// Of opt350-a100-v100.json "opt350".
std::string case_of(const std::string& file) {
  const std::string stem = std::filesystem::path(file).stem().string();
  return stem.substr(0, stem.find('-'));
}

/// opt350/32+96
std::string case_name(const std::string& file, const std::vector<GridType>& cluster) {
  std::string counts;
  for (const GridType& type : cluster)
    counts += (counts.empty() ? "" : "+") + std::to_string(type.devices());
  return case_of(file) + "/" + counts;
}

/// What is promised of so many devices.
double gap_limit(const std::vector<GridType>& cluster) {
  int64_t devices = 0;
  for (const GridType& type : cluster) devices += type.devices();
  return devices <= 64 ? 0 : devices <= 1024 ? 0.01 : 0.03;
}

/// build/bench/plans/opt350-32xA100-40-96xV100-16.json where no other place is asked for.
std::filesystem::path plan_path(const CaseRequest& request, const std::vector<GridType>& cluster) {
  if (!request.plan.empty()) return request.plan;
  std::string name = case_of(request.file);
  for (const GridType& type : cluster)
    name += "-" + std::to_string(type.devices()) + "x" + type.name;
  const std::filesystem::path folder = "build/bench/plans";
  std::error_code ignored;
  std::filesystem::create_directories(folder, ignored);
  return folder / (name + ".json");
}

bool write_plan(const std::filesystem::path& path, const nlohmann::json& plan) {
  std::ofstream out(path);
  out << plan.dump(2) << "\n";
  std::fprintf(stderr, out.flush() ? "plan: %s\n" : "cannot write %s\n", path.c_str());
  return static_cast<bool>(out);
}

bool plan_cluster(const CaseRequest& request, const ForeignProfile& profile,
                  const std::vector<GridType>& cluster, Rows* rows) {
  const std::string name = case_name(request.file, cluster);
  const PublishedCosts costs(profile, cluster);
  const double start = thread_seconds();
  const Result<GridResult> found = search_grid(costs, costs.groups());
  const double seconds = thread_seconds() - start;
  if (!found) {
    std::fprintf(stderr, "%s: %s\n", name.c_str(), found.error().message.c_str());
    return false;
  }
  const double scored = costs.step_seconds(found->plan);
  rows->add({name, "iterations_per_second", "1/s", "higher", 1 / scored, {}, {}, "simulated"});
  rows->add({name, "plan_seconds", "s", "lower", seconds});
  rows->add(
      {name, "gap", "ratio", "lower", found->search.gap(), gap_limit(cluster), {}, "simulated"});
  if (!request.json) {
    std::printf("%-18s %.4f iterations/s   gap %.2g   %.3f s   %lld nodes\n", name.c_str(),
                1 / scored, found->search.gap(), seconds,
                static_cast<long long>(found->search.nodes));
    print_plan(found->plan, cluster);
    std::fflush(stdout);
  }
  json document = to_json(found->plan, cluster);
  document["iterations_per_second"] = 1 / scored;
  document["search"] = to_json(found->search, grid_space(costs, costs.groups(), found->search));
  return write_plan(plan_path(request, cluster), document);
}

}  // namespace

std::optional<CaseRequest> case_arguments(int argc, char** argv) {
  CaseRequest request;
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  if (std::find(arguments.begin(), arguments.end(), "--case") == arguments.end()) return {};
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i] == "--json") {
      request.json = true;
      continue;
    }
    if (i + 1 == arguments.size()) refuse("'" + arguments[i] + "' lacks its value");
    const std::string& value = arguments[i + 1];
    if (arguments[i] == "--case")
      request.file = value;
    else if (arguments[i] == "--cluster")
      request.clusters.push_back(value);
    else if (arguments[i] == "--plan")
      request.plan = value;
    else
      refuse("unknown option '" + arguments[i] + "'");
    ++i;
  }
  if (request.clusters.empty()) refuse("--cluster is missing");
  if (!request.plan.empty() && request.clusters.size() > 1) refuse("--plan is for one --cluster");
  return request;
}

int plan_case(const CaseRequest& request) {
  const Result<ForeignProfile> profile = read_foreign_profile(real_file_system(), request.file);
  if (!profile) {
    std::fprintf(stderr, "%s\n", profile.error().to_string().c_str());
    return 1;
  }
  if (profile->global_batch == 0) refuse(request.file + ": has no global_batch");
  Rows rows("planner");
  for (const std::string& text : request.clusters)
    if (!plan_cluster(request, *profile, read_cluster(text, *profile), &rows)) return 1;
  if (request.json) rows.print();
  return 0;
}

}  // namespace motley
