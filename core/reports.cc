#include "core/reports.h"

#include <nlohmann/json.hpp>

#include "core/json_fields.h"
#include "core/log.h"

namespace motley {
namespace {

using nlohmann::json;

const char* name_of_outcome(Outcome outcome) {
  switch (outcome) {
    case Outcome::kFinished:
      return "finished";
    case Outcome::kStopped:
      return "stopped";
    case Outcome::kFailed:
      return "failed";
  }
  return "failed";
}

/// Runs `read` on the parsed object; the library's exceptions end here.
template <class Report, class Read>
Result<Report> parse(const char* what, const std::string& text, Read read) {
  MOTLEY_TRY(const json document, parse_json(text));
  try {
    Report report;
    read(document, &report);
    return report;
  } catch (const std::exception& error) {
    return fail(ErrorCode::kCorrupt, std::string("malformed ") + what + ": " + error.what());
  }
}

}  // namespace

std::string not_saved_text(const SavedReport& report) {
  return "checkpoint of step " + std::to_string(report.step) +
         " not saved, training goes on: " + report.error;
}

std::string skipped_text(const SkippedReport& report) {
  const std::string checkpoint =
      (report.host.empty() ? "checkpoint" : "the copy on host " + report.host + " of checkpoint") +
      (" of step " + std::to_string(report.step));
  const std::string why = " (" + one_line(report.why) + "): ";
  if (!report.damaged) return checkpoint + " cannot be read" + why + "skipped";
  if (report.set_aside.empty())
    return checkpoint + " is damaged" + why + "skipped; it could not be set aside";
  return checkpoint + " is damaged" + why + "set aside as " + report.set_aside;
}

std::string to_json_text(const Hello& hello) {
  return json{{"rank", hello.rank}, {"host", hello.host}, {"pid", hello.pid}, {"key", hello.key}}
      .dump();
}

std::string to_json_text(const PhaseReport& report) {
  return json{{"rank", report.rank},
              {"phase", report.phase},
              {"detail", report.detail},
              {"step", report.step}}
      .dump();
}

std::string to_json_text(const Heartbeat& heartbeat) {
  return json{
      {"rank", heartbeat.rank}, {"progress", heartbeat.progress}, {"waiting", heartbeat.waiting}}
      .dump();
}

std::string to_json_text(const SavedReport& report) {
  return json{{"step", report.step},
              {"error", report.error},
              {"directory", report.directory},
              {"bytes", report.bytes.value()},
              {"seconds", report.seconds}}
      .dump(-1, ' ', false, json::error_handler_t::replace);
}

std::string to_json_text(const SkippedReport& report) {
  return json{{"step", report.step}, {"directory", report.directory},
              {"host", report.host}, {"damaged", report.damaged},
              {"why", report.why},   {"set_aside", report.set_aside}}
      .dump(-1, ' ', false, json::error_handler_t::replace);
}

std::string to_json_text(const EvaluatedReport& report) {
  return json{{"step", report.step}, {"loss", report.loss}}.dump();
}

std::string to_json_text(const DoneReport& report) {
  return json{{"rank", report.rank},
              {"outcome", name_of_outcome(report.outcome)},
              {"code", name_of(report.code)},
              {"message", report.message},
              {"weights_xxh3", report.weights_xxh3}}
      // A message may quote anything, also bytes that are no UTF-8.
      .dump(-1, ' ', false, json::error_handler_t::replace);
}

Result<Hello> hello_from_text(const std::string& text) {
  return parse<Hello>("hello", text, [](const json& from, Hello* to) {
    from.at("rank").get_to(to->rank);
    from.at("host").get_to(to->host);
    from.at("pid").get_to(to->pid);
    from.at("key").get_to(to->key);
  });
}

Result<PhaseReport> phase_report_from_text(const std::string& text) {
  return parse<PhaseReport>("phase report", text, [](const json& from, PhaseReport* to) {
    from.at("rank").get_to(to->rank);
    from.at("phase").get_to(to->phase);
    to->detail = from.value("detail", "");
    to->step = from.value("step", int64_t{0});
  });
}

Result<Heartbeat> heartbeat_from_text(const std::string& text) {
  return parse<Heartbeat>("heartbeat", text, [](const json& from, Heartbeat* to) {
    from.at("rank").get_to(to->rank);
    from.at("progress").get_to(to->progress);
    to->waiting = from.value("waiting", false);
  });
}

Result<SavedReport> saved_report_from_text(const std::string& text) {
  return parse<SavedReport>("save report", text, [](const json& from, SavedReport* to) {
    from.at("step").get_to(to->step);
    to->error = from.value("error", "");
    from.at("directory").get_to(to->directory);
    to->bytes = Bytes(from.at("bytes").get<int64_t>());
    from.at("seconds").get_to(to->seconds);
  });
}

Result<SkippedReport> skipped_report_from_text(const std::string& text) {
  return parse<SkippedReport>("skip report", text, [](const json& from, SkippedReport* to) {
    from.at("step").get_to(to->step);
    from.at("directory").get_to(to->directory);
    to->host = from.value("host", "");
    from.at("damaged").get_to(to->damaged);
    from.at("why").get_to(to->why);
    to->set_aside = from.value("set_aside", "");
  });
}

Result<EvaluatedReport> evaluated_report_from_text(const std::string& text) {
  return parse<EvaluatedReport>("evaluation report", text,
                                [](const json& from, EvaluatedReport* to) {
                                  from.at("step").get_to(to->step);
                                  from.at("loss").get_to(to->loss);
                                });
}

Result<DoneReport> done_report_from_text(const std::string& text) {
  return parse<DoneReport>("final report", text, [](const json& from, DoneReport* to) {
    from.at("rank").get_to(to->rank);
    const auto outcome = from.at("outcome").get<std::string>();
    to->outcome = outcome == "finished"  ? Outcome::kFinished
                  : outcome == "stopped" ? Outcome::kStopped
                                         : Outcome::kFailed;
    to->code = error_code_of_name(from.at("code").get<std::string>());
    from.at("message").get_to(to->message);
    to->weights_xxh3 = from.value("weights_xxh3", "");
  });
}

}  // namespace motley
