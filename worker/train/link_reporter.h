#pragma once
// A rank's account of itself as frames to its runner.

#include "worker/train/control_link.h"
#include "worker/train/reporter.h"

namespace motley {

class LinkReporter final : public Reporter {
 public:
  /// Borrows the link.
  LinkReporter(ControlLink& link, int rank) : link_(link), rank_(rank) {}

  void progress() override { link_.progress(); }
  void phase(const std::string& phase, int64_t step) override {
    link_.progress();
    link_.send(MessageType::kPhase, to_json_text(PhaseReport{rank_, phase, "", step}));
  }
  Result<Unit> begin_after(int64_t) override { return Unit{}; }  // the runner's side cuts
  void step(const StepReport& report) override {
    link_.send(MessageType::kStep, to_json_text(report));
  }
  void saved(const SavedReport& report) override {
    link_.send(MessageType::kSaved, to_json_text(report));
  }
  void skipped(const SkippedReport& report) override {
    link_.send(MessageType::kSkipped, to_json_text(report));
  }
  void evaluated(const EvaluatedReport& report) override {
    link_.send(MessageType::kEvaluated, to_json_text(report));
  }

 private:
  ControlLink& link_;
  const int rank_;
};

}  // namespace motley
