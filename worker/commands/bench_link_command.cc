#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "core/clock.h"
#include "core/or_null.h"
#include "core/units.h"
#include "kernels/device.h"
#include "kernels/pcie.h"
#include "worker/commands/commands.h"
#include "worker/profiler/host_link.h"

namespace motley {
namespace {

constexpr Bytes kLeastCopy{1'000'000};
constexpr Bytes kMostCopy{int64_t{16} << 30};

Result<Bytes> copy_size(const std::string& text) {
  const auto size = parse_bytes(text);
  if (!size) return fail(ErrorCode::kUsage, "--size: " + size.error().message);
  if (*size < kLeastCopy || *size > kMostCopy)
    return fail(ErrorCode::kUsage, "--size: " + text + " is not between 1MB and 16GiB");
  return *size;
}

const char* kind_word(DeviceKind kind) { return kind == DeviceKind::kCuda ? "cuda" : "cpu"; }

/// What the driver says of a GPU now, while its link has not fallen asleep again.
std::optional<GpuStatus> status_now(const std::string& uuid) {
  const auto nvml = Nvml::open();
  if (!nvml) return std::nullopt;
  for (GpuStatus& status : (*nvml)->gpus())
    if (status.uuid == uuid) return std::move(status);
  return std::nullopt;
}

nlohmann::json pcie_json(const GpuStatus& status) {
  const auto rate = status.pcie_generation && status.pcie_width
                        ? pcie_bytes_per_second(*status.pcie_generation, *status.pcie_width)
                        : std::nullopt;
  return {{"width", or_null(status.pcie_width)},
          {"max_width", or_null(status.most_pcie_width)},
          {"generation", or_null(status.pcie_generation)},
          {"max_generation", or_null(status.most_pcie_generation)},
          {"bytes_per_second", or_null(rate)}};
}

Result<HostLink> measure_link_of(const FoundDevice& found, Bytes size) {
  DeviceSpec spec;
  spec.kind = found.kind;
  spec.uuid = found.uuid;
  MOTLEY_TRY(const auto device, open_device(spec));
  return measure_host_link(*device, size, [] { return seconds_of(steady_clock().now()); });
}

/// A device that does not answer keeps none of the others from being measured.
nlohmann::json bench_row(const FoundDevice& found, Bytes size) {
  nlohmann::json row = {{"kind", kind_word(found.kind)},
                        {"name", found.name},
                        {"uuid", found.uuid},
                        {"bus_id", found.bus_id},
                        {"host_link", nullptr},
                        {"pcie", nullptr},
                        {"verdict", nullptr},
                        {"error", nullptr}};
  const auto link = measure_link_of(found, size);
  if (!link) {
    row["error"] = link.error().message;
    return row;
  }
  row["host_link"] = to_json(*link);
  if (found.kind != DeviceKind::kCuda) return row;
  const GpuStatus status = status_now(found.uuid).value_or(GpuStatus());
  row["pcie"] = pcie_json(status);
  row["verdict"] = pcie_verdict(status, std::max(link->to_device, link->to_host));
  return row;
}

void print_link_row(const std::string& name, const std::array<std::string, 5>& cells) {
  std::printf("%-40s %12s %12s %14s %14s %9s\n", name.c_str(), cells[0].c_str(), cells[1].c_str(),
              cells[2].c_str(), cells[3].c_str(), cells[4].c_str());
}

void print_link(const nlohmann::json& row) {
  const std::string name = row["name"].get<std::string>();
  if (!row["error"].is_null()) {
    std::printf("%s\n  %s\n", name.c_str(), row["error"].get<std::string>().c_str());
    return;
  }
  const auto rate = [&](const char* member) {
    char text[32];
    std::snprintf(text, sizeof text, "%.2f GB/s", row["host_link"][member].get<double>() / 1e9);
    return std::string(text);
  };
  print_link_row(
      name, {rate("to_device_bytes_per_second"), rate("to_host_bytes_per_second"),
             rate("pageable_to_device_bytes_per_second"), rate("pageable_to_host_bytes_per_second"),
             format_seconds(row["host_link"]["latency_seconds"].get<double>())});
  if (!row["verdict"].is_null()) std::printf("  %s\n", row["verdict"].get<std::string>().c_str());
}

void print_links(const nlohmann::json& rows, const std::string& note) {
  print_link_row("device", {"to device", "to host", "pageable to", "pageable from", "latency"});
  for (const nlohmann::json& row : rows) print_link(row);
  if (!note.empty()) std::printf("%s\n", note.c_str());
}

Result<Unit> run_bench_link(const std::string& size_text, bool json) {
  MOTLEY_TRY(const Bytes size, copy_size(size_text));
  std::string note;
  const std::vector<FoundDevice> found = discover_devices(&note);
  nlohmann::json rows = nlohmann::json::array();
  for (const FoundDevice& device : found) {
    std::fprintf(stderr, "measuring %s (%zu of %zu)\n", device.name.c_str(), rows.size() + 1,
                 found.size());
    rows.push_back(bench_row(device, size));
  }
  if (json) {
    const nlohmann::json document = {
        {"version", 1}, {"bytes", size.value()}, {"devices", rows}, {"note", note}};
    std::printf("%s\n", document.dump().c_str());
  } else {
    print_links(rows, note);
  }
  if (std::all_of(rows.begin(), rows.end(),
                  [](const auto& row) { return !row["error"].is_null(); }))
    return fail(ErrorCode::kNoDevice, "no device could be measured");
  return Unit{};
}

}  // namespace

void add_bench_link_command(CLI::App& app, Result<Unit>* outcome) {
  auto* command =
      app.add_subcommand("bench-link", "How fast host and devices of this machine copy");
  auto size = std::make_shared<std::string>("256MB");
  auto json = std::make_shared<bool>(false);
  command->add_option("--size", *size, "Of each large copy, 1MB to 16GiB")->capture_default_str();
  command->add_flag("--json", *json, "One object (core/FORMATS.md)");
  command->callback([=] { *outcome = run_bench_link(*size, *json); });
}

}  // namespace motley
