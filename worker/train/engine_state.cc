#include "worker/train/engine_state.h"

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

}  // namespace

Result<std::vector<StateView>> state_views(Engine& engine, Engine::State which) {
  MOTLEY_TRY(const std::span<std::byte> flat, engine.state(which));
  const auto element = static_cast<size_t>(engine.element_bytes());
  std::vector<StateView> views;
  for (const FlatTensor& held : engine.tensors(which)) {
    StateView view;
    view.name = prefix_of(which) + held.tensor.name;
    view.dtype = element == 8 ? "F64" : "F32";
    view.shape = held.tensor.shape;
    view.slice = held.slice;
    view.data = flat.subspan(static_cast<size_t>(held.offset) * element,
                             static_cast<size_t>(held.elements()) * element);
    views.push_back(std::move(view));
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

Result<Unit> refresh_state(Engine& engine) {
  for (const auto which : kStates) MOTLEY_TRY_VOID(engine.state(which));
  return Unit{};
}

Result<Unit> state_written(Engine& engine) {
  for (const auto which : kStates) MOTLEY_TRY_VOID(engine.state_written(which));
  return Unit{};
}

}  // namespace motley
