#include "worker/engine/updater.h"

#include <algorithm>
#include <cmath>

#include "worker/engine/exact.h"

namespace motley {

// --- layout

UpdateLayout::UpdateLayout(const EngineOptions& options, const ParameterLayout& parameters) {
  for (const FlatTensor& held : parameters.tensors()) {
    if (!options.shard_optimizer) {
      tensors.push_back(held);
      updated.push_back({held.offset, held.offset, held.elements(), held.tensor.decay});
    }
    if (!options.owned) {
      if (held.counted) owned.push_back({held.offset, held.offset, held.elements(), false});
      continue;
    }
    for (const Ownership& ownership : *options.owned)
      if (ownership.tensor == held.tensor.name) add(held, ownership.slice, options.shard_optimizer);
  }
  if (!options.shard_optimizer) {
    elements = parameters.elements();
  } else {
    updated = owned;
  }
}

/// An owned slice of a held tensor; `keep`: its state is kept here.
void UpdateLayout::add(const FlatTensor& held, const Slice& slice, bool keep) {
  for (const CopyRun& run : copy_runs(slice, held.slice))
    owned.push_back(
        {held.offset + run.to_offset, elements + run.from_offset, run.count, held.tensor.decay});
  if (!keep) return;
  FlatTensor kept = held;
  kept.slice = slice;
  kept.offset = elements;
  elements += kept.elements();
  tensors.push_back(std::move(kept));
}

// --- memory

Placement placement_of(const EngineOptions& options) {
  return options.managed_memory ? Placement::kManaged : Placement::kDevice;
}

namespace {

/// Of two moments.
Bytes half_of(Bytes both) { return Bytes(both.value() / 2); }

}  // namespace

Updater::Memory Updater::memory(const EngineOptions& options, const UpdateLayout& layout,
                                int element_bytes) {
  Memory memory;
  (options.host_optimizer ? memory.host_state : memory.state) =
      Bytes(2 * layout.elements * element_bytes);
  memory.managed = options.managed_memory;
  memory.squares = Bytes(static_cast<int64_t>(layout.owned.size() * sizeof(double)));
  int64_t longest = 0;
  for (const UpdateRun& run : layout.updated) longest = std::max(longest, run.count);
  const int buffers =
      (options.numerics == Numerics::kExact ? 1 : 0) + (options.host_optimizer ? 2 : 0);
  memory.scratch = Bytes(std::min(longest, kUpdateChunk) * element_bytes * buffers);
  return memory;
}

Updater::Updater(Device& device, const EngineOptions& options, UpdateLayout layout,
                 SharedMemory& weights, SharedMemory& gradients, std::byte* scratch)
    : device_(&device),
      optimizer_(options.optimizer),
      layout_(std::move(layout)),
      exact_(options.numerics == Numerics::kExact),
      in_host_(options.host_optimizer),
      weights_(&weights),
      gradients_(&gradients),
      scratch_(scratch) {}

Result<Updater> Updater::create(Device& device, const EngineOptions& options, UpdateLayout layout,
                                SharedMemory& weights, SharedMemory& gradients,
                                std::byte* scratch) {
  const Memory needed = memory(options, layout, device.element_bytes());
  MemoryAccount& account = *options.account;
  Updater updater(device, options, std::move(layout), weights, gradients, scratch);
  MOTLEY_TRY(updater.squares_, SharedMemory::allocate(device, needed.squares, account));
  if (updater.in_host_) {
    for (PinnedMemory* moment : {&updater.host_first_, &updater.host_second_}) {
      MOTLEY_TRY(*moment, PinnedMemory::allocate(device, half_of(needed.host_state), account));
    }
    return updater;
  }
  for (SharedMemory* moment : {&updater.first_, &updater.second_}) {
    MOTLEY_TRY(*moment, SharedMemory::allocate(device, half_of(needed.state), account,
                                               placement_of(options)));
    execute(device,
            ZeroArgs{.out = Address::of(moment->device()), .bytes = moment->size().value()});
  }
  return updater;
}

// --- norm

Result<double> Updater::norm(Communicator& world, int exponent) {
  return exact() ? exact_norm(world, exponent) : fast_norm(world);
}

Result<double> Updater::fast_norm(Communicator& world) {
  const int bytes = device_->element_bytes();
  for (size_t i = 0; i < layout_.owned.size(); ++i)
    execute(*device_, SquareSumArgs{.x = Address::of(gradients_->device() +
                                                     layout_.owned[i].parameter * bytes),
                                    .out = Address::of(squares_.device() + i * sizeof(double)),
                                    .count = layout_.owned[i].count});
  MOTLEY_TRY(const std::span<std::byte> view, squares_.pull());
  double sum = 0;
  for (const double square :
       values<double>(view, Bytes(0), static_cast<int64_t>(layout_.owned.size())))
    sum += square;
  MOTLEY_TRY_VOID(world.all_reduce_sum(std::span(&sum, 1)));
  return std::sqrt(sum);
}

Result<double> Updater::exact_norm(Communicator& world, int exponent) {
  MOTLEY_TRY(const std::span<std::byte> view, gradients_->pull());
  const auto run_of = [&](const UpdateRun& run) {
    return values<const int64_t>(view, Bytes(run.parameter * 8), run.count);
  };
  uint64_t largest = 0;
  for (const UpdateRun& run : layout_.owned)
    largest = std::max(largest, largest_magnitude(*device_, run_of(run)));
  MOTLEY_TRY(largest_gradient_, largest_of_all(world, largest));
  SquareTotal total;
  for (const UpdateRun& run : layout_.owned)
    total += squares_of(*device_, run_of(run), largest_gradient_);
  MOTLEY_TRY_VOID(total.sum_over(world));
  return std::ldexp(total.root(largest_gradient_), -exponent);
}

// --- update

Result<Unit> Updater::update(int64_t step, double lr, double gradient_scale, int exponent) {
  AdamwArgs args;
  args.lr = lr;
  args.beta1 = optimizer_.beta1;
  args.beta2 = optimizer_.beta2;
  args.eps = optimizer_.eps;
  args.gradient_scale = gradient_scale;
  args.correction1 = 1 - std::pow(optimizer_.beta1, static_cast<double>(step));
  args.correction2 = 1 - std::pow(optimizer_.beta2, static_cast<double>(step));
  for (const UpdateRun& run : layout_.updated) {
    args.weight_decay = run.decay ? optimizer_.weight_decay : 0;
    // Without scratch a run is taken at once.
    const int64_t chunk = exact() || in_host_ ? kUpdateChunk : run.count;
    for (int64_t first = 0; first < run.count; first += chunk)
      MOTLEY_TRY_VOID(update_chunk(args,
                                   {.parameter = run.parameter + first,
                                    .state = run.state + first,
                                    .count = std::min(chunk, run.count - first)},
                                   exponent));
  }
  return device_->synchronize();
}

Result<Unit> Updater::update_chunk(AdamwArgs args, const UpdateRun& run, int exponent) {
  const int64_t bytes = device_->element_bytes();
  const int64_t size = run.count * bytes;
  std::byte* scratch = scratch_;
  const auto take = [&] { return std::exchange(scratch, scratch + size); };
  args.count = run.count;
  args.parameter = Address::of(weights_->device() + run.parameter * bytes);
  args.gradient = Address::of(gradients_->device() + run.parameter * bytes);
  if (exact()) {
    args.gradient = Address::of(take());
    execute(*device_, FromFixedArgs{.acc = Address::of(gradients_->device() + run.parameter * 8),
                                    .out = args.gradient,
                                    .count = run.count,
                                    .exponent = exponent});
  }
  if (!in_host_) {
    args.m = Address::of(first_.device() + run.state * bytes);
    args.v = Address::of(second_.device() + run.state * bytes);
    execute(*device_, args);
    return Unit{};
  }
  std::byte* moments[2] = {take(), take()};
  const std::span<std::byte> host[2] = {
      host_first_.bytes().subspan(static_cast<size_t>(run.state * bytes),
                                  static_cast<size_t>(size)),
      host_second_.bytes().subspan(static_cast<size_t>(run.state * bytes),
                                   static_cast<size_t>(size))};
  for (int i = 0; i < 2; ++i) MOTLEY_TRY_VOID(device_->copy_in(moments[i], host[i]));
  args.m = Address::of(moments[0]);
  args.v = Address::of(moments[1]);
  execute(*device_, args);
  MOTLEY_TRY_VOID(device_->synchronize());
  for (int i = 0; i < 2; ++i) MOTLEY_TRY_VOID(device_->copy_out(host[i], moments[i]));
  return Unit{};
}

// --- state

Result<std::span<std::byte>> Updater::state(bool second) {
  if (in_host_) return (second ? host_second_ : host_first_).bytes();
  return (second ? second_ : first_).pull();
}

Result<Unit> Updater::state_written(bool second) {
  if (in_host_) return Unit{};
  return (second ? second_ : first_).push();
}

}  // namespace motley
