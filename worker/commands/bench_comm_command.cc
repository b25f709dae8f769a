#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "core/log.h"
#include "core/spec/names.h"
#include "core/units.h"
#include "worker/commands/commands.h"
#include "worker/profiler/sum_bench.h"
#include "worker/train/world.h"

namespace motley {
namespace {

struct BenchCommLine {
  std::vector<std::string> sizes = {"1KiB", "16KiB", "256KiB", "1MiB", "4MiB", "16MiB", "64MiB"};
  std::string level, codec = "off";
  int repetitions = 0;
  int ranks = 0;
  bool json = false;
};

Result<std::vector<int64_t>> sizes_in(const std::vector<std::string>& texts) {
  std::vector<int64_t> sizes;
  for (const std::string& text : texts) {
    const auto size = parse_bytes(text);
    if (!size) return fail(ErrorCode::kUsage, "--sizes: " + size.error().message);
    if (*size < Bytes(4) || *size > Bytes(int64_t{16} << 30))
      return fail(ErrorCode::kUsage, "--sizes: " + text + " is not between 4 bytes and 16GiB");
    sizes.push_back(size->value() / 4 * 4);
  }
  return sizes;
}

/// What each rank moves a second if it were a ring: comparable over numbers of ranks.
double bus_factor(int ranks) { return 2.0 * (ranks - 1) / ranks; }

nlohmann::json to_json(const SumTimes& row) {
  const double rate = static_cast<double>(row.bytes.value()) / row.seconds;
  return {{"level", row.level},
          {"ranks", row.ranks},
          {"bytes", row.bytes.value()},
          {"seconds", row.seconds},
          {"algbw_bytes_per_second", rate},
          {"busbw_bytes_per_second", rate * bus_factor(row.ranks)},
          {"errors", row.errors}};
}

void print_rows(const std::vector<SumTimes>& rows) {
  std::printf("%-8s %6s %12s %12s %9s %12s %10s %10s %7s\n", "level", "ranks", "size (B)", "count",
              "type", "time (us)", "algbw GB/s", "busbw GB/s", "#wrong");
  for (const SumTimes& row : rows) {
    const double rate = static_cast<double>(row.bytes.value()) / row.seconds * 1e-9;
    std::printf("%-8s %6d %12lld %12lld %9s %12.1f %10.3f %10.3f %7lld\n", row.level.c_str(),
                row.ranks, static_cast<long long>(row.bytes.value()),
                static_cast<long long>(row.bytes.value() / 4), "float32", row.seconds * 1e6, rate,
                rate * bus_factor(row.ranks), static_cast<long long>(row.errors));
  }
}

Result<Unit> bench(const BenchCommLine& line, Communicator& world) {
  SumBenchOptions options{.sizes = {}, .repetitions = line.repetitions, .level = line.level};
  options.codec.kind = *from_spec_name<CodecKind>(line.codec);
  MOTLEY_TRY(options.sizes, sizes_in(line.sizes));
  MOTLEY_TRY(const auto hosts, world.all_gather(system_host_name()));
  MOTLEY_TRY(const std::vector<SumTimes> rows, bench_sums(world, hosts, options));
  if (rows.empty())
    return fail(ErrorCode::kUsage,
                world.size() == 1 ? "one rank has nobody to sum with: start several with mpirun"
                                  : "there is no level '" + line.level + "' among these ranks");
  if (world.rank() != 0) return Unit{};
  if (line.json) {
    nlohmann::json document = {{"bench_comm", 1}, {"rows", nlohmann::json::array()}};
    for (const SumTimes& row : rows) document["rows"].push_back(to_json(row));
    std::printf("%s\n", document.dump().c_str());
  } else {
    print_rows(rows);
  }
  for (const SumTimes& row : rows)
    if (row.errors > 0) return fail(ErrorCode::kRunFailed, "there were wrong sums");
  return Unit{};
}

Result<Unit> run_bench_comm(const BenchCommLine& line) {
  if (line.ranks > 0)
    return run_in_threads(line.ranks, [&](Communicator& world) { return bench(line, world); });
  MOTLEY_TRY(auto world, open_world());
  configure_log("rank " + std::to_string(world->rank()));
  const auto done = bench(line, *world);
  if (!done) leave_world(std::move(world), done.error());
  return Unit{};
}

}  // namespace

void add_bench_comm_command(CLI::App& app, Result<Unit>* outcome) {
  auto* command = app.add_subcommand(
      "bench-comm", "How long sums over ranks take (under mpirun), with their results checked");
  auto line = std::make_shared<BenchCommLine>();
  command->add_option("--sizes", line->sizes, "Of each sum, as 1MiB,64MiB")
      ->delimiter(',')
      ->capture_default_str();
  command->add_option("--level", line->level, "Only this one: host, across or world")
      ->check(CLI::IsMember({"host", "across", "world"}));
  command
      ->add_option("--compress", line->codec,
                   "Of what crosses links between hosts; what it keeps back is checked at the end")
      ->check(CLI::IsMember({"off", "fp16", "bf16", "int8", "sign", "top_k"}))
      ->capture_default_str();
  command->add_option("--repetitions", line->repetitions, "Of each size; default: about a second")
      ->check(CLI::PositiveNumber);
  command
      ->add_option("--ranks", line->ranks,
                   "So many ranks as threads of this process, instead of under mpirun")
      ->check(CLI::PositiveNumber);
  command->add_flag("--json", line->json, "One object (core/FORMATS.md)");
  command->callback([=] { *outcome = run_bench_comm(*line); });
}

}  // namespace motley
