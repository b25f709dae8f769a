#pragma once
// The engine: one stage's programs bound to a device's memory.

#include <array>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "worker/engine/engine.h"
#include "worker/engine/exact.h"
#include "worker/engine/exchange.h"
#include "worker/engine/memory_plan.h"
#include "worker/engine/updater.h"

namespace motley {

class StageEngine final : public Engine {
 public:
  StageEngine(Device& device, const EngineOptions& options);
  StageEngine(const StageEngine&) = delete;
  StageEngine& operator=(const StageEngine&) = delete;

  Result<Unit> set_up();

  void begin_step() override;
  Result<Unit> put_samples(int slot, const MicroBatchInput& input) override;
  Result<Unit> forward(int slot, int samples) override;
  Result<Unit> forward_first(int slot, int samples, const WeightsNeeded& before_use) override;
  Result<Unit> backward(int slot, int samples) override;
  Result<Unit> backward_last(int slot, int samples, const GradientsFinal& on_final) override;
  Result<Unit> evaluate(int samples) override;
  Result<std::span<std::byte>> pull(int slot, Boundary boundary, int samples) override;
  std::span<std::byte> view(int slot, Boundary boundary, int samples) override;
  Result<Unit> push(int slot, Boundary boundary, int samples) override;
  Result<std::vector<float>> logits(std::span<const int32_t> inputs, int samples) override;
  Result<LossSums> sums() override;

  using Engine::gradients;
  Result<GradientSpans> gradients(std::span<const ParameterRange> parts) override;
  Result<GradientSpans> staged_gradients() override;
  int64_t held_elements() const override { return parameters_.elements(); }
  Result<DeviceArray> device_gradients() override;
  Result<double> gradient_norm(int64_t tokens, Communicator& world) override;
  Result<Unit> update(int64_t step, double lr, int64_t tokens, double clip_factor) override;
  void hold_second_moment_after(int64_t step) override { updater_->hold_second_moment_after(step); }
  int64_t steps_held() const override { return updater_->steps_held(); }
  void set_steps_held(int64_t steps) override { updater_->set_steps_held(steps); }
  int64_t updated_elements() const override;

  int exact_exponent() const override { return exponent_; }
  void set_exact_exponent(int exponent) override;
  int next_exact_exponent(bool overflowed) const override;
  void set_loss_scale_exponent(int exponent) override;

  const std::vector<FlatTensor>& tensors(State which) const override;
  Result<std::span<std::byte>> state(State which) override;
  Result<Unit> read_state(State which, Bytes offset, std::span<std::byte> into) override;
  Result<Unit> write_state(State which, Bytes offset, std::span<const std::byte> from) override;
  Result<Unit> state_written(State which) override;
  bool state_in_reach(State which) const override;
  Precision precision() const override { return stage_.precision; }
  Work flops(int samples) const override { return programs_.at(samples).work; }
  double evaluation_flops() const override { return evaluation_.work.forward; }
  MemoryPoint memory() const override;

 private:
  /// Operations until ranks sum over the group, or until gradients are final that somebody may be
  /// told of meanwhile.
  struct Stretch {
    std::vector<ParameterRange> needs = {};  ///< weights that no earlier stretch uses
    std::unique_ptr<Recording> calls;
    double flops = 0;  ///< before a sum: since the last one
    std::variant<std::monostate, GroupSum, GroupGather> after;
    std::vector<ParameterRange> final_gradients = {};  ///< no later stretch uses them
  };
  /// The same of a pass that is not recorded yet.
  struct NeededBefore {
    size_t instruction = 0;
    ParameterRange range;
  };
  struct FinalAfter {
    size_t instruction = 0;
    ParameterRange range;
  };
  using Pass = std::vector<Stretch>;
  struct LayerCall {
    OpCall call;
    LayerIndex layer = 0;
  };
  /// A program ready to run, once for each slot.
  struct BoundProgram {
    std::vector<Pass> forward, backward;  ///< [slot]
    Engine::Work work;
  };

  Result<Unit> allocate();
  Result<Unit> initialise();
  Result<Unit> initialise_tensor(const FlatTensor& flat, int tensor_number);
  void initialise_row(const FlatTensor& flat, int tensor_number, int64_t row,
                      std::span<std::byte> into) const;
  BoundProgram bind_to_slots(const Program& program, int slots) const;
  std::vector<NeededBefore> needs_of_forward(const Program& program) const;
  std::vector<FinalAfter> finals_of_backward(const Program& program) const;
  Pass record(std::span<const Instruction> instructions, std::span<const NeededBefore> needs,
              std::span<const FinalAfter> finals) const;
  void enqueue(const std::vector<LayerCall>& calls) const;

  Result<Unit> run_backward(int slot, int samples, const GradientsFinal* on_final);
  Result<Unit> run_forward(int slot, int samples, const WeightsNeeded* before_use);
  Result<Unit> run(const Pass& pass, const WeightsNeeded* before_use = nullptr,
                   const GradientsFinal* on_final = nullptr);
  void report(const Stretch& stretch, const GradientsFinal& on_final);
  Result<Unit> sum_over_group(const GroupSum& sum, double flops);
  Result<Unit> gather_over_group(const GroupGather& gather, double flops);
  /// The group's sum of `count` elements on the device, through host memory where need be.
  Result<Unit> sum_elements(std::byte* data, int64_t count, double flops);
  Result<Unit> have_staged_gradients();
  GradientSpans gradient_spans();
  Result<Unit> push_gradients();
  /// Of a state that lies on the device.
  SharedMemory& memory_of(State which);
  bool in_host(State which) const { return which != State::kWeight && updater_->in_host(); }
  void unscale_gradients(const ParameterRange& range);
  void round_weights();
  bool exact() const { return options_.numerics == Numerics::kExact; }

  Device& device_;
  EngineOptions options_;
  int exponent_ = kFirstExactExponent;
  int loss_scale_exponent_ = 0;
  bool scales_changed_ = true;  // since programs were told
  StageSpec stage_;
  std::vector<std::string> layer_names_;
  int largest_;  // micro-batch
  ParameterLayout parameters_;
  ExchangeLayout exchange_layout_;
  UpdateLayout update_layout_;
  MemoryPlan plan_;

  MemoryAccount own_account_;  // where nobody else keeps one
  SharedMemory weights_, gradients_;
  std::optional<StagedView> staged_;  ///< of gradients_, while that is not in place
  bool staging_gradients_ = false;    ///< what it was given back is still to be waited for
  std::optional<Exchange> exchange_;
  std::optional<Updater> updater_;
  MemoryCharge other_charge_;
  DeviceBuffer rounded_;                  // the weights in reduced precision
  DeviceBuffer arena_;                    // activations, then what each slot keeps
  std::map<int, BoundProgram> programs_;  // by micro-batch
  BoundProgram evaluation_;               // of the largest
  Bytes logits_{0};                       // their place in the arena after evaluation_
  PinnedMemory staging_;                  // for group sums that are not in place
  std::optional<MemoryWindow> window_;

  std::vector<ParameterRange> exposed_;  // of the gradients: the host may have changed its view
  std::array<bool, 3> views_given_{};    // by State: the host may have changed its view
  bool gradients_scaled_ = false;        // as the loss is, but for what was reported as final
  bool gradients_final_ = false;         // since begin_step()
  bool weights_changed_ = true;          // since they were rounded
};

}  // namespace motley
