#pragma once
// A rank's time line as its pacer tells it: sections of work, cut by communications. What they are
// spent on goes to a trace, where there is one.

#include <utility>
#include <vector>

#include "worker/train/pacer.h"
#include "worker/train/trace.h"

namespace motley {

class Sections {
 public:
  explicit Sections(Pacer& pacer) : pacer_(pacer) {}

  /// Null: none. Borrowed.
  void trace_to(Trace* trace) { trace_ = trace; }
  /// What charge() is for from now on.
  void work_on(TraceKind kind, int micro_batch = -1) {
    kind_ = kind;
    micro_batch_ = micro_batch;
  }

  /// Work for the section under way.
  void charge(double flops, int samples) {
    pacer_.charge(flops, samples);
    if (trace_) pieces_.push_back({kind_, micro_batch_, pacer_.section_seconds()});
  }
  /// Before a communication: waits the section out.
  void close() {
    worked_ += pacer_.end_section();
    closed_ = pacer_.now();
    if (trace_) trace_work();
  }
  /// Between close() and open(): that is what the time since close(), or since the last of these
  /// calls, went on.
  void mark(TraceKind kind) { mark(kind, false); }
  void mark_wait(TraceKind kind) { mark(kind, true); }
  /// Between close() and open(), where a collective of `ranks` begins: waits for the last of them
  /// where somebody wants to know, a logical clock or a trace. Otherwise the collective waits.
  Result<Unit> meet(TraceKind kind, Communicator& ranks) {
    if (pacer_.virtual_clock())
      MOTLEY_TRY_VOID(pacer_.meet(ranks));
    else if (trace_)
      MOTLEY_TRY_VOID(ranks.barrier());
    mark_wait(kind);
    return Unit{};
  }
  void end_step() {
    if (trace_) trace_->end_step(pacer_.now());
  }
  /// After a communication, and before the first section.
  void open() {
    waited_ += closed_ >= 0 ? pacer_.now() - std::exchange(closed_, -1) : 0;
    pacer_.begin_section();
    if (trace_) opened_ = pacer_.now();
  }
  /// Seconds of closed sections since the last call.
  double take_worked() { return std::exchange(worked_, 0); }
  /// Seconds between them: communicating and waiting.
  double take_waited() { return std::exchange(waited_, 0); }

  Pacer& pacer() { return pacer_; }

 private:
  struct Piece {
    TraceKind kind;
    int micro_batch;
    double until;  ///< in seconds since the section was opened
  };

  void mark(TraceKind kind, bool waiting) {
    if (trace_) marked_ = trace_->add(kind, micro_batch_, marked_, pacer_.now(), waiting);
  }
  /// Pieces one after the other; the last ends when the section does, which an overrun may delay.
  void trace_work() {
    marked_ = pacer_.now();
    double begin = opened_;
    for (size_t i = 0; i < pieces_.size(); ++i) {
      const double end = i + 1 < pieces_.size() ? opened_ + pieces_[i].until : marked_;
      begin = trace_->add(pieces_[i].kind, pieces_[i].micro_batch, begin, end);
    }
    pieces_.clear();
  }

  Pacer& pacer_;
  double worked_ = 0;
  double waited_ = 0;
  double closed_ = -1;  ///< when, on the pacer's clock; negative: one is open

  Trace* trace_ = nullptr;
  TraceKind kind_ = TraceKind::kForward;
  int micro_batch_ = -1;
  double opened_ = 0, marked_ = 0;  ///< on the pacer's clock
  std::vector<Piece> pieces_;       ///< of the section under way
};

}  // namespace motley
