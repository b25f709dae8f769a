#include "worker/train/engine_state.h"

#include <algorithm>

namespace motley {
namespace {

constexpr Engine::State kStates[] = {Engine::State::kWeight, Engine::State::kAdamM,
                                     Engine::State::kAdamV};

const char* prefix_of(Engine::State which) {
  switch (which) {
    case Engine::State::kWeight:
      return "weight/";
    case Engine::State::kAdamM:
      return "adam_m/";
    case Engine::State::kAdamV:
      return "adam_v/";
  }
  return "";
}

/// Tensors that other plans may divide across their rows are stored in about kPieces pieces, if
/// these are not tiny. Of others a part is whole rows, and little else is read by blocks.
int64_t piece_of(const LogicalTensor& tensor) {
  constexpr int64_t kPieces = 48;
  constexpr int64_t kLeastElements = 4096;
  if (tensor.split == Split::kNone || tensor.split == Split::kFirst || tensor.split_dimension == 0)
    return 0;
  const int64_t units = tensor.shape[static_cast<size_t>(tensor.split_dimension)];
  const int64_t unit_elements = tensor.elements() / units;
  return std::max((units + kPieces - 1) / kPieces,
                  (kLeastElements + unit_elements - 1) / unit_elements);
}

void reach_through(Engine& engine, Engine::State which, Bytes begin, StateView* view) {
  view->read_far = [&engine, which, begin](int64_t offset, std::span<std::byte> into) {
    return engine.read_state(which, begin + Bytes(offset), into);
  };
  view->write_far = [&engine, which, begin](int64_t offset, std::span<const std::byte> from) {
    return engine.write_state(which, begin + Bytes(offset), from);
  };
}

/// All but where it lies.
StateView view_of(const FlatTensor& held, const std::string& prefix, const char* dtype) {
  StateView view;
  view.name = prefix + held.tensor.name;
  view.dtype = dtype;
  view.shape = held.tensor.shape;
  view.slice = held.slice;
  view.cut_dimension = held.tensor.split_dimension;
  view.piece = piece_of(held.tensor);
  return view;
}

std::span<std::byte> part_of(std::span<std::byte> flat, const FlatTensor& held, size_t element) {
  return flat.subspan(static_cast<size_t>(held.offset) * element,
                      static_cast<size_t>(held.elements()) * element);
}

}  // namespace

Result<std::vector<StateView>> state_views(Engine& engine, Engine::State which) {
  std::span<std::byte> flat;
  const bool in_reach = engine.state_in_reach(which);
  if (in_reach) {
    MOTLEY_TRY(flat, engine.state(which));
  }
  const int element = engine.element_bytes();
  std::vector<StateView> views;
  for (const FlatTensor& held : engine.tensors(which)) {
    StateView view = view_of(held, prefix_of(which), element == 8 ? "F64" : "F32");
    if (in_reach)
      view.data = part_of(flat, held, static_cast<size_t>(element));
    else
      reach_through(engine, which, Bytes(held.offset * element), &view);
    views.push_back(std::move(view));
  }
  return views;
}

std::vector<StateView> residual_views(Engine& engine, std::span<float> flat) {
  std::vector<StateView> views;
  if (flat.empty()) return views;
  for (const FlatTensor& held : engine.tensors(Engine::State::kWeight)) {
    views.push_back(view_of(held, kResidualPrefix, "F32"));
    views.back().data = part_of(std::as_writable_bytes(flat), held, sizeof(float));
  }
  return views;
}

Result<std::vector<StateView>> all_state_views(Engine& engine) {
  std::vector<StateView> all;
  for (const auto which : kStates) {
    MOTLEY_TRY(auto views, state_views(engine, which));
    all.insert(all.end(), views.begin(), views.end());
  }
  return all;
}

Result<Unit> state_written(Engine& engine) {
  for (const auto which : kStates) MOTLEY_TRY_VOID(engine.state_written(which));
  return Unit{};
}

}  // namespace motley
