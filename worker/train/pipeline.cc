#include "worker/train/pipeline.h"

#include <algorithm>

#include "core/holdings.h"
#include "worker/engine/elements.h"

namespace motley {
namespace {

/// Each rank of a stage gets what the other stage sends from one rank of it, in turn; it is whole
/// at every rank of a stage.
int sender_for(const StagePlan& senders, int member) {
  const auto count = static_cast<int>(senders.ranks.size());
  return senders.ranks[static_cast<size_t>(member % count)].value();
}

std::vector<int> receivers_of(const StagePlan& receivers, int senders, int member) {
  std::vector<int> ranks;
  for (size_t i = 0; i < receivers.ranks.size(); ++i)
    if (static_cast<int>(i) % senders == member) ranks.push_back(receivers.ranks[i].value());
  return ranks;
}

}  // namespace

Pipeline::Pipeline(const Attempt& attempt, RankParts& parts, Communicator& world,
                   std::function<void()> on_progress)
    : attempt_(attempt), parts_(parts), world_(world), on_progress_(std::move(on_progress)) {
  const Role role = role_of(attempt.plan, Rank(world.rank()));
  const auto& stages = attempt.plan.replicas[static_cast<size_t>(role.replica)].stages;
  const auto here = static_cast<size_t>(role.stage);
  const auto members = static_cast<int>(stages[here].ranks.size());
  if (here > 0) {
    input_from_ = sender_for(stages[here - 1], role.member);
    d_input_to_ = receivers_of(stages[here - 1], members, role.member);
    previous_ = stages[here - 1].precision;
  }
  if (here + 1 < stages.size()) {
    gradient_from_ = sender_for(stages[here + 1], role.member);
    output_to_ = receivers_of(stages[here + 1], members, role.member);
    next_ = stages[here + 1].precision;
  }
  const auto micro_batches = static_cast<int>(parts.share.micro_batches.size());
  schedule_ = one_forward_one_backward(static_cast<int>(stages.size()), role.stage, micro_batches);
  slots_.resize(static_cast<size_t>(parts.share.in_flight));
  const auto sample = static_cast<size_t>(attempt.job.model.context + 1);
  tokens_.resize(static_cast<size_t>(parts.share.largest()) * sample);
}

// --- a step

Result<Unit> Pipeline::train(int64_t step, const PassHooks& hooks) {
  parts_.engine->begin_step();
  for (const PipelineAction& action : schedule_) {
    const SampleRange& range = parts_.share.micro_batches[static_cast<size_t>(action.micro_batch)];
    const int slot = action.micro_batch % parts_.share.in_flight;
    parts_.sections.work_on(action.backward ? TraceKind::kBackward : TraceKind::kForward,
                            action.micro_batch);
    const bool first = &action == &schedule_.front();  // which is a forward pass
    const bool last = &action == &schedule_.back();    // which is a backward pass
    if (last && hooks.before_last_backward) MOTLEY_TRY_VOID(hooks.before_last_backward());
    if (action.backward)
      MOTLEY_TRY_VOID(backward(slot, range, last && hooks.on_final ? &hooks.on_final : nullptr));
    else
      MOTLEY_TRY_VOID(
          forward(slot, step, range, first && hooks.before_use ? &hooks.before_use : nullptr));
    if (first && hooks.after_first_forward) MOTLEY_TRY_VOID(hooks.after_first_forward());
    on_progress_();
  }
  return settle_all();
}

Result<Unit> Pipeline::put(int slot, int64_t step, const SampleRange& range) {
  MicroBatchInput input{
      .tokens = {}, .samples = range.count, .step = step, .first_sample = range.first};
  if (!has_previous() || !has_next()) {
    const auto sample = static_cast<size_t>(attempt_.job.model.context + 1);
    const auto tokens = std::span(tokens_).first(static_cast<size_t>(range.count) * sample);
    if (step > 0)
      parts_.corpus.train_samples(attempt_.job.train.seed,
                                  (step - 1) * attempt_.plan.global_batch + range.first,
                                  range.count, tokens);
    else
      parts_.corpus.eval_samples(range.first, range.count, tokens);
    input.tokens = tokens;
  }
  return parts_.engine->put_samples(slot, input);
}

Result<Unit> Pipeline::forward(int slot, int64_t step, const SampleRange& range,
                               const WeightsNeeded* first) {
  MOTLEY_TRY_VOID(put(slot, step, range));
  if (has_previous()) MOTLEY_TRY_VOID(receive(slot, Boundary::kInput, range.count, input_from_));
  // Beside the receiving, so that nothing parts the last stage's forward and backward pass.
  Slot& sent = slots_[static_cast<size_t>(slot)];
  MOTLEY_TRY_VOID(settle(&sent.output));
  MOTLEY_TRY_VOID(settle(&sent.d_input));
  if (parts_.group) parts_.group->set_samples(range.count);
  MOTLEY_TRY_VOID(first ? parts_.engine->forward_first(slot, range.count, *first)
                        : parts_.engine->forward(slot, range.count));
  charge(parts_.engine->flops(range.count).forward, range.count);
  return send(slot, Boundary::kOutput, range.count, output_to_, &sent.output);
}

Result<Unit> Pipeline::backward(int slot, const SampleRange& range, const GradientsFinal* last) {
  // The gradient arrives where the output was, which has long been received.
  MOTLEY_TRY_VOID(settle(&slots_[static_cast<size_t>(slot)].output));
  if (has_next())
    MOTLEY_TRY_VOID(receive(slot, Boundary::kOutputGradient, range.count, gradient_from_));
  if (parts_.group) parts_.group->set_samples(range.count);
  MOTLEY_TRY_VOID(last ? parts_.engine->backward_last(slot, range.count, *last)
                       : parts_.engine->backward(slot, range.count));
  charge(parts_.engine->flops(range.count).backward, range.count);
  return send(slot, Boundary::kInputGradient, range.count, d_input_to_,
              &slots_[static_cast<size_t>(slot)].d_input);
}

/// A program's work, less what its sums over the group have charged: nothing less than none, to
/// which shares of an evaluation may round.
void Pipeline::charge(double flops, int samples) {
  const double charged = parts_.group ? parts_.group->take_charged() : 0;
  parts_.sections.charge(std::max(0.0, flops - charged), samples);
}

// --- evaluation

Result<Unit> Pipeline::evaluate() {
  parts_.engine->begin_step();
  int piece = 0;
  for (const SampleRange& range : parts_.share.evaluation) {
    parts_.sections.work_on(TraceKind::kEvaluate, piece++);
    MOTLEY_TRY_VOID(evaluate_piece(range));
    on_progress_();
  }
  return settle_all();
}

Result<Unit> Pipeline::evaluate_piece(const SampleRange& range) {
  MOTLEY_TRY_VOID(put(0, 0, range));
  if (has_previous()) MOTLEY_TRY_VOID(receive(0, Boundary::kInput, range.count, input_from_));
  Sent& sent = slots_[0].output;
  MOTLEY_TRY_VOID(settle(&sent));
  const int largest = parts_.share.largest();
  if (parts_.group) parts_.group->set_samples(range.count, largest);
  MOTLEY_TRY_VOID(parts_.engine->evaluate(range.count));
  charge(parts_.engine->evaluation_flops() * range.count / largest, range.count);
  return send(0, Boundary::kOutput, range.count, output_to_, &sent);
}

// --- neighbours

Precision Pipeline::beyond(Boundary boundary) const {
  const bool before = boundary == Boundary::kInput || boundary == Boundary::kInputGradient;
  return before ? previous_ : next_;
}

Result<Unit> Pipeline::receive(int slot, Boundary boundary, int samples, int from) {
  parts_.sections.close();
  if (announced()) {
    int64_t stamp = 0;
    MOTLEY_TRY_VOID(world_.receive(std::as_writable_bytes(std::span(&stamp, 1)), from));
    parts_.pacer.catch_up(Nanos(stamp));
    parts_.sections.mark_wait(TraceKind::kReceive);
  }
  const Precision here = parts_.engine->precision();
  const Precision message = carried(beyond(boundary), here);
  const std::span<std::byte> view = parts_.engine->view(slot, boundary, samples);
  const size_t bytes = view.size() / static_cast<size_t>(reduced_bytes(here)) *
                       static_cast<size_t>(reduced_bytes(message));
  MOTLEY_TRY_VOID(world_.receive(view.last(bytes), from));
  if (message != here) convert_in_place(view, message, here);
  MOTLEY_TRY_VOID(parts_.engine->push(slot, boundary, samples));
  parts_.sections.mark(TraceKind::kReceive);
  parts_.sections.open();
  return Unit{};
}

Result<Unit> Pipeline::send(int slot, Boundary boundary, int samples, const std::vector<int>& to,
                            Sent* sent) {
  if (to.empty()) return Unit{};
  // Waits for a device that computes on its own: that is work, not sending.
  MOTLEY_TRY(std::span<std::byte> data, parts_.engine->pull(slot, boundary, samples));
  parts_.sections.close();
  const Precision here = parts_.engine->precision();
  const Precision message = carried(here, beyond(boundary));
  if (message != here) data = convert_in_place(data, here, message);
  sent->stamp = parts_.pacer.logical_time().value();
  for (const int rank : to) {
    if (announced()) {
      MOTLEY_TRY(const SendId id, world_.post(std::as_bytes(std::span(&sent->stamp, 1)), rank));
      sent->ids.push_back(id);
    }
    MOTLEY_TRY(const SendId id, world_.post(data, rank));
    sent->ids.push_back(id);
  }
  parts_.sections.mark(TraceKind::kSend);
  parts_.sections.open();
  return Unit{};
}

/// Before what was sent is written over.
Result<Unit> Pipeline::settle(Sent* sent) {
  if (sent->ids.empty()) return Unit{};
  parts_.sections.close();
  for (const SendId id : sent->ids) MOTLEY_TRY_VOID(world_.complete(id));
  sent->ids.clear();
  parts_.sections.mark_wait(TraceKind::kSend);
  parts_.sections.open();
  return Unit{};
}

Result<Unit> Pipeline::settle_all() {
  for (Slot& slot : slots_) {
    MOTLEY_TRY_VOID(settle(&slot.output));
    MOTLEY_TRY_VOID(settle(&slot.d_input));
  }
  return Unit{};
}

}  // namespace motley
