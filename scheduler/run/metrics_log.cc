#include "scheduler/run/metrics_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/json_fields.h"

namespace motley {
namespace {

using nlohmann::json;

tl::unexpected<Error> cannot_write(const std::string& path) {
  return fail(ErrorCode::kIo, "cannot write " + path + ": " + std::strerror(errno));
}

std::string hex_of(uint64_t bits) {
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(bits));
  return text;
}

/// JSON has no number that is not finite.
json number(double value) { return std::isfinite(value) ? json(value) : json(nullptr); }

double number_of(const json& from, const char* name) {
  const auto found = from.find(name);
  return found != from.end() && found->is_number() ? found->get<double>() : std::nan("");
}

bool parse_row(const std::string& line, MetricsRow* row) {
  const json from = parse_json(line).value_or(json());
  if (!from.is_object() || !from.contains("step") || !from["step"].is_number_integer())
    return false;
  row->step = from["step"].get<int64_t>();
  row->loss = number_of(from, "loss");
  row->loss_bits = from.value("loss_bits", "");
  row->step_seconds = number_of(from, "step_seconds");
  row->special = from.value("special", false);
  row->epoch = Epoch(from.value("epoch", 0));
  row->paced = {from.value("sections", int64_t{0}), from.value("overruns", int64_t{0})};
  const double eval_loss = number_of(from, "eval_loss");
  if (!std::isnan(eval_loss)) row->eval_loss = eval_loss;
  return true;
}

/// Bytes of the complete lines before the first that is malformed or of `step` or later.
int64_t bytes_before(const std::string& path, int64_t step) {
  std::ifstream file(path, std::ios::binary);
  int64_t bytes = 0;
  for (std::string line; std::getline(file, line) && !file.eof();) {
    MetricsRow row;
    if (!parse_row(line, &row) || row.step >= step) break;
    bytes += static_cast<int64_t>(line.size()) + 1;
  }
  return bytes;
}

}  // namespace

std::vector<MetricsRow> read_metrics(const std::string& path) {
  std::vector<MetricsRow> rows;
  std::ifstream file(path, std::ios::binary);
  for (std::string line; std::getline(file, line) && !file.eof();) {
    MetricsRow row;
    if (parse_row(line, &row)) rows.push_back(std::move(row));
  }
  return rows;
}

std::string metrics_until(const std::string& path, int64_t step) {
  std::string text(static_cast<size_t>(bytes_before(path, step + 1)), '\0');
  std::ifstream(path, std::ios::binary)
      .read(text.data(), static_cast<std::streamsize>(text.size()));
  return text;
}

Result<Unit> MetricsLog::open_before(int64_t step) {
  end_ = bytes_before(path_, step);
  file_ = Fd(::open(path_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
  if (!file_.valid() || ::ftruncate(file_.get(), end_) != 0) return cannot_write(path_);
  return Unit{};
}

Result<Unit> MetricsLog::add(const StepReport& report, double unix_seconds,
                             const SectionCount& paced) {
  if (!file_.valid()) MOTLEY_TRY_VOID(open_before(report.step));
  const std::string line = json{{"step", report.step},
                                {"time", unix_seconds},
                                {"loss", number(report.loss)},
                                {"loss_bits", hex_of(report.loss_bits)},
                                {"gradient_norm", number(report.gradient_norm)},
                                {"learning_rate", report.learning_rate},
                                {"step_seconds", report.step_seconds},
                                {"special", report.special},
                                {"sections", paced.sections},
                                {"overruns", paced.overruns},
                                {"epoch", epoch_.value()}}
                               .dump() +
                           "\n";
  if (::pwrite(file_.get(), line.data(), line.size(), end_) != static_cast<ssize_t>(line.size()))
    return cannot_write(path_);
  end_ += static_cast<int64_t>(line.size());
  last_step_ = report.step;
  return Unit{};
}

Result<Unit> MetricsLog::add_evaluation(int64_t step, double loss) {
  if (!file_.valid() || step != last_step_) return Unit{};
  // In place of the closing brace and the line's end.
  const std::string tail = ",\"eval_loss\":" + number(loss).dump() + "}\n";
  if (::pwrite(file_.get(), tail.data(), tail.size(), end_ - 2) !=
      static_cast<ssize_t>(tail.size()))
    return cannot_write(path_);
  end_ += static_cast<int64_t>(tail.size()) - 2;
  last_step_ = -1;
  return Unit{};
}

}  // namespace motley
