#include "worker/checkpoint/shard_layout.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "core/check.h"

namespace motley {
namespace {

/// "norm.gain" of "weight/norm.gain".
std::string_view logical_name(const StateView& view) {
  return std::string_view(view.name).substr(view.name.find('/') + 1);
}

/// The pieces a view's slice is stored in.
std::vector<Slice> pieces_of(const StateView& view, const Slice& owned) {
  const auto d = static_cast<size_t>(view.cut_dimension);
  if (view.piece == 0) return {owned};
  std::vector<Slice> pieces;
  const int64_t end = owned.start[d] + owned.extent[d];
  for (int64_t begin = owned.start[d]; begin < end;) {
    Slice piece = owned;
    piece.start[d] = begin;
    piece.extent[d] = std::min(end, (begin / view.piece + 1) * view.piece) - begin;
    begin += piece.extent[d];
    pieces.push_back(std::move(piece));
  }
  return pieces;
}

/// Every owned slice with the views that hold it: a weight and its moments are views of their own.
Result<std::vector<ShardEntry>> owned_entries(const std::vector<StateView>& views,
                                              const std::vector<Ownership>& owners, Rank rank) {
  std::vector<ShardEntry> entries;
  for (const Ownership& ownership : owners) {
    if (ownership.owner != rank) continue;
    const size_t before = entries.size();
    for (size_t v = 0; v < views.size(); ++v) {
      if (logical_name(views[v]) != ownership.tensor) continue;
      if (!contains(views[v].slice, ownership.slice)) continue;
      for (const Slice& piece : pieces_of(views[v], ownership.slice))
        entries.push_back({.view = v,
                           .slice = piece,
                           .bytes = piece.elements() * element_bytes(views[v].dtype),
                           .block_bytes = hash_block_bytes(views[v].shape, views[v].dtype),
                           .runs = copy_runs(views[v].slice, piece)});
    }
    if (entries.size() == before)
      return fail(ErrorCode::kInvalidSpec, "plan: rank " + std::to_string(rank.value()) +
                                               " owns a slice of " + ownership.tensor +
                                               " that it does not hold");
  }
  // Wide elements first, so that all are aligned; then as the state lies in memory.
  std::stable_sort(entries.begin(), entries.end(), [&](const ShardEntry& a, const ShardEntry& b) {
    const int64_t width_a = element_bytes(views[a.view].dtype);
    const int64_t width_b = element_bytes(views[b.view].dtype);
    return width_a != width_b ? width_a > width_b : a.view < b.view;
  });
  return entries;
}

std::string safetensors_header(const std::vector<StateView>& views,
                               const std::vector<ShardEntry>& entries) {
  nlohmann::json header = {{"__metadata__", {{"format", "pt"}}}};
  int64_t begin = 0;
  for (const ShardEntry& entry : entries) {
    const StateView& view = views[entry.view];
    const bool fresh = header
                           .emplace(shard_key(view.name, view.shape, entry.slice),
                                    nlohmann::json{{"dtype", view.dtype},
                                                   {"shape", entry.slice.extent},
                                                   {"data_offsets", {begin, begin + entry.bytes}}})
                           .second;
    MOTLEY_CHECK(fresh, view.name);
    begin += entry.bytes;
  }
  std::string json = header.dump();
  json.append((8 - json.size() % 8) % 8, ' ');
  std::string text;
  for (uint64_t length = json.size(); text.size() < 8; length >>= 8)
    text += static_cast<char>(length & 0xff);
  return text + json;
}

/// All ranks' state, supposing that the others keep the same kinds of it as this one.
int64_t bytes_of_all(const std::vector<StateView>& views, const std::vector<Ownership>& owners) {
  std::map<std::string_view, int64_t> width_of_kind;  // "weight", "adam_m", …
  for (const StateView& view : views)
    width_of_kind[std::string_view(view.name).substr(0, view.name.find('/'))] =
        element_bytes(view.dtype);
  int64_t elements = 0, width = 0;
  for (const Ownership& ownership : owners) elements += ownership.slice.elements();
  for (const auto& [kind, bytes] : width_of_kind) width += bytes;
  return elements * width;
}

}  // namespace

std::string shard_key(const std::string& tensor, const std::vector<int64_t>& shape,
                      const Slice& slice) {
  if (slice == whole(shape)) return tensor;
  std::string key = tensor;
  for (size_t d = 0; d < slice.start.size(); ++d)
    key += (d == 0 ? "@" : ",") + std::to_string(slice.start[d]);
  return key;
}

Result<ShardLayout> lay_out_shard(const std::vector<StateView>& views,
                                  const std::vector<Ownership>& owners, Rank rank) {
  for (const StateView& view : views) {
    MOTLEY_CHECK(contains(whole(view.shape), view.slice), view.name);
    MOTLEY_CHECK_EQ(view.read_far ? view.bytes() : static_cast<int64_t>(view.data.size()),
                    view.slice.elements() * element_bytes(view.dtype));
  }
  ShardLayout layout;
  MOTLEY_TRY(layout.entries, owned_entries(views, owners, rank));
  layout.header = safetensors_header(views, layout.entries);
  layout.bytes = static_cast<int64_t>(layout.header.size());
  for (ShardEntry& entry : layout.entries) {
    entry.offset = layout.bytes;
    layout.bytes += entry.bytes;
  }
  layout.checkpoint_bytes = bytes_of_all(views, owners);
  return layout;
}

}  // namespace motley
