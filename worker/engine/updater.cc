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

// --- tables

UpdateTables::UpdateTables(const UpdateLayout& layout) {
  const auto lay_out = [&](const std::vector<UpdateRun>& runs, int64_t* blocks, int64_t* elements) {
    const Bytes begin = size;
    size += Bytes(static_cast<int64_t>(runs.size() * sizeof(ParameterRun)));
    for (const UpdateRun& run : runs) {
      *blocks += blocks_of_run(run.count);
      *elements += run.count;
      extent = std::max({extent, run.parameter + run.count, run.state + run.count});
    }
    return begin;
  };
  owned = lay_out(layout.owned, &owned_blocks, &owned_elements);
  updated = lay_out(layout.updated, &updated_blocks, &updated_elements);
  parts = size;
  size += Bytes(owned_blocks * static_cast<int64_t>(sizeof(double)));
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
  memory.tables = UpdateTables(layout).size;
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
      scratch_(scratch),
      places_(layout_),
      updates_all_(places_.updated_elements * device.element_bytes() == weights.size().value()) {}

Result<Updater> Updater::create(Device& device, const EngineOptions& options, UpdateLayout layout,
                                SharedMemory& weights, SharedMemory& gradients,
                                std::byte* scratch) {
  const Memory needed = memory(options, layout, device.element_bytes());
  MemoryAccount& account = *options.account;
  Updater updater(device, options, std::move(layout), weights, gradients, scratch);
  MOTLEY_TRY(updater.squares_, SharedMemory::allocate(device, needed.squares, account));
  MOTLEY_TRY_VOID(updater.squares_.have_view());
  MOTLEY_TRY(updater.tables_, SharedMemory::allocate(device, needed.tables, account));
  MOTLEY_TRY_VOID(updater.put_tables());
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

/// The runs as operations read them.
Result<Unit> Updater::put_tables() {
  const auto put = [&](const std::vector<UpdateRun>& runs, Bytes offset) {
    std::vector<ParameterRun> table;
    int64_t blocks = 0;
    for (const UpdateRun& run : runs) {
      table.push_back({.parameter = run.parameter,
                       .state = run.state,
                       .count = run.count,
                       .first_block = blocks,
                       .weight_decay = run.decay ? optimizer_.weight_decay : 0});
      blocks += blocks_of_run(run.count);
    }
    return device_->copy_in(tables_.device() + offset.value(), std::as_bytes(std::span(table)));
  };
  MOTLEY_TRY_VOID(put(layout_.owned, places_.owned));
  return put(layout_.updated, places_.updated);
}

// --- norm

Result<double> Updater::norm(Communicator& world, int exponent, MemoryWindow& window) {
  return exact() ? exact_norm(world, exponent, window) : fast_norm(world);
}

Result<double> Updater::fast_norm(Communicator& world) {
  const auto runs = static_cast<int64_t>(layout_.owned.size());
  if (runs > 0)
    execute(*device_, SquareSumArgs{.x = Address::of(gradients_->device()),
                                    .out = Address::of(squares_.device()),
                                    .count = places_.owned_elements,
                                    .runs = table(places_.owned),
                                    .run_count = runs,
                                    .blocks = places_.owned_blocks,
                                    .parts = table(places_.parts)});
  MOTLEY_TRY(const std::span<std::byte> view, squares_.pull());
  double sum = 0;
  for (const double square : values<double>(view, Bytes(0), runs)) sum += square;
  MOTLEY_TRY_VOID(world.all_reduce_sum(std::span(&sum, 1)));
  return std::sqrt(sum);
}

Result<double> Updater::exact_norm(Communicator& world, int exponent, MemoryWindow& window) {
  const auto over_owned =
      [&](const std::function<void(std::span<const int64_t>)>& body) -> Result<Unit> {
    const auto of_bytes = [&](std::span<const std::byte> piece) {
      body({reinterpret_cast<const int64_t*>(piece.data()), piece.size() / sizeof(int64_t)});
    };
    for (const UpdateRun& run : layout_.owned)
      MOTLEY_TRY_VOID(
          window.each_piece(*gradients_, Bytes(run.parameter * 8), Bytes(run.count * 8), of_bytes));
    return Unit{};
  };
  MOTLEY_TRY_VOID(device_->synchronize());
  uint64_t largest = 0;
  MOTLEY_TRY_VOID(over_owned([&](std::span<const int64_t> piece) {
    largest = std::max(largest, largest_magnitude(*device_, piece));
  }));
  MOTLEY_TRY(largest_gradient_, largest_of_all(world, largest));
  SquareTotal total;
  MOTLEY_TRY_VOID(over_owned([&](std::span<const int64_t> piece) {
    total += squares_of(*device_, piece, largest_gradient_);
  }));
  MOTLEY_TRY_VOID(total.sum_over(world));
  return std::ldexp(total.root(largest_gradient_), -exponent);
}

// --- update

Result<Unit> Updater::update(int64_t step, double lr, double gradient_scale, int exponent,
                             Address rounded) {
  AdamwArgs args;
  args.lr = lr;
  args.beta1 = optimizer_.beta1;
  const bool held = step > held_after_;
  if (held) ++steps_held_;
  args.beta2 = held ? 1 : optimizer_.beta2;
  args.eps = optimizer_.eps;
  args.gradient_scale = gradient_scale;
  args.correction1 = 1 - std::pow(optimizer_.beta1, static_cast<double>(step));
  args.correction2 = 1 - std::pow(optimizer_.beta2, static_cast<double>(step - steps_held_));
  args.rounded = rounded;
  if (exact() || in_host_) return update_chunks(args, exponent);
  args.parameter = Address::of(weights_->device());
  args.gradient = Address::of(gradients_->device());
  args.m = Address::of(first_.device());
  args.v = Address::of(second_.device());
  args.count = places_.updated_elements;
  args.runs = table(places_.updated);
  args.run_count = static_cast<int64_t>(layout_.updated.size());
  args.blocks = places_.updated_blocks;
  args.extent = places_.extent;
  if (args.count > 0) execute(*device_, args);
  return Unit{};
}

/// Where a run needs scratch, which is bounded.
Result<Unit> Updater::update_chunks(AdamwArgs args, int exponent) {
  for (const UpdateRun& run : layout_.updated) {
    args.weight_decay = run.decay ? optimizer_.weight_decay : 0;
    for (int64_t first = 0; first < run.count; first += kUpdateChunk)
      MOTLEY_TRY_VOID(update_chunk(args,
                                   {.parameter = run.parameter + first,
                                    .state = run.state + first,
                                    .count = std::min(kUpdateChunk, run.count - first)},
                                   exponent));
  }
  return Unit{};
}

Result<Unit> Updater::update_chunk(AdamwArgs args, const UpdateRun& run, int exponent) {
  const int64_t bytes = device_->element_bytes();
  const int64_t size = run.count * bytes;
  std::byte* scratch = scratch_;
  const auto take = [&] { return std::exchange(scratch, scratch + size); };
  args.count = run.count;
  args.parameter = Address::of(weights_->device() + run.parameter * bytes);
  if (!args.rounded.null())
    args.rounded = Address::of(args.rounded.as<std::byte>() +
                               run.parameter * reduced_bytes(device_->precision()));
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
  // In the order of the stream, so that the scratch of one chunk serves the next.
  for (int i = 0; i < 2; ++i) MOTLEY_TRY_VOID(device_->enqueue_copy_in(moments[i], host[i]));
  args.m = Address::of(moments[0]);
  args.v = Address::of(moments[1]);
  execute(*device_, args);
  for (int i = 0; i < 2; ++i) MOTLEY_TRY_VOID(device_->enqueue_copy_out(host[i], moments[i]));
  return Unit{};
}

}  // namespace motley
