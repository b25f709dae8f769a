#include "core/slices.h"

#include <algorithm>
#include <map>

#include "core/check.h"

namespace motley {
namespace {

/// Beyond this check_tiles refuses: a hostile manifest must not make it use memory without bound.
constexpr size_t kMaxCorners = size_t{1} << 24;
constexpr size_t kMaxDimensions = 8;

std::string bracketed(const std::vector<int64_t>& numbers) {
  std::string text = "[";
  for (size_t i = 0; i < numbers.size(); ++i) text += (i ? ", " : "") + std::to_string(numbers[i]);
  return text + "]";
}

using Corners = std::map<std::vector<int64_t>, int64_t>;

/// Adds the signed corners of a box: `sign` at its start, and each step to an end flips the sign.
void add_corners(const Slice& box, int64_t sign, Corners* corners) {
  const size_t dimensions = box.start.size();
  for (size_t ends = 0; ends < size_t{1} << dimensions; ++ends) {
    std::vector<int64_t> corner = box.start;
    int64_t corner_sign = sign;
    for (size_t d = 0; d < dimensions; ++d) {
      if (!(ends >> d & 1)) continue;
      corner[d] += box.extent[d];
      corner_sign = -corner_sign;
    }
    const auto at = corners->try_emplace(std::move(corner), 0).first;
    at->second += corner_sign;
    if (at->second == 0) corners->erase(at);
  }
}

}  // namespace

int64_t Slice::elements() const {
  int64_t product = 1;
  for (const int64_t n : extent) product *= n;
  return product;
}

Slice whole(const std::vector<int64_t>& shape) {
  return {std::vector<int64_t>(shape.size(), 0), shape};
}

std::optional<int64_t> checked_product(const std::vector<int64_t>& factors) {
  int64_t product = 1;
  for (const int64_t factor : factors) {
    if (factor < 1 || __builtin_mul_overflow(product, factor, &product)) return std::nullopt;
  }
  return product;
}

bool contains(const Slice& all, const Slice& part) {
  const size_t dimensions = all.start.size();
  if (part.start.size() != dimensions || part.extent.size() != dimensions) return false;
  for (size_t d = 0; d < dimensions; ++d) {
    // Differences of numbers >= 0 cannot overflow, sums could.
    if (part.start[d] < all.start[d] || part.extent[d] < 1) return false;
    if (part.extent[d] > all.extent[d]) return false;
    if (part.start[d] - all.start[d] > all.extent[d] - part.extent[d]) return false;
  }
  return true;
}

bool intersect(const Slice& a, const Slice& b, Slice* common) {
  MOTLEY_CHECK_EQ(a.start.size(), b.start.size());
  common->start.resize(a.start.size());
  common->extent.resize(a.start.size());
  for (size_t d = 0; d < a.start.size(); ++d) {
    const int64_t begin = std::max(a.start[d], b.start[d]);
    const int64_t end = std::min(a.start[d] + a.extent[d], b.start[d] + b.extent[d]);
    if (begin >= end) return false;
    common->start[d] = begin;
    common->extent[d] = end - begin;
  }
  return true;
}

std::vector<CopyRun> copy_runs(const Slice& from, const Slice& to) {
  return copy_runs(from, to, from);
}

std::vector<CopyRun> copy_runs(const Slice& from, const Slice& to, const Slice& box) {
  Slice both, common;
  if (!intersect(from, to, &both) || !intersect(both, box, &common)) return {};
  const size_t dimensions = common.start.size();

  // A run spans the last dimensions as long as both slices hold them from edge to edge.
  size_t outer = dimensions;
  int64_t run = 1;
  while (outer > 0) {
    --outer;
    run *= common.extent[outer];
    if (common.extent[outer] != from.extent[outer] || common.extent[outer] != to.extent[outer])
      break;
  }

  std::vector<int64_t> index = common.start;
  const auto offset_in = [&index](const Slice& slice) {
    int64_t offset = 0;
    for (size_t d = 0; d < index.size(); ++d)
      offset = offset * slice.extent[d] + (index[d] - slice.start[d]);
    return offset;
  };
  std::vector<CopyRun> runs;
  runs.reserve(static_cast<size_t>(common.elements() / run));
  while (true) {
    runs.push_back({offset_in(from), offset_in(to), run});
    size_t d = outer;
    while (d > 0 && ++index[d - 1] == common.start[d - 1] + common.extent[d - 1]) {
      index[d - 1] = common.start[d - 1];
      --d;
    }
    if (d == 0) return runs;
  }
}

Result<Unit> check_tiles(const std::string& tensor, const std::vector<int64_t>& shape,
                         const std::vector<Slice>& slices) {
  if (shape.size() > kMaxDimensions || !checked_product(shape))
    return fail(ErrorCode::kInvalidSpec, tensor + ": impossible shape " + bracketed(shape));
  if (slices.size() > kMaxCorners >> shape.size())
    return fail(ErrorCode::kInvalidSpec,
                tensor + ": too many slices (" + std::to_string(slices.size()) + ")");
  const Slice all = whole(shape);
  // A box is determined by its signed corners (they are the mixed differences of its indicator), so
  // boxes tile `all` exactly when their corners and those of `all` cancel. Where they do not, the
  // lexicographically first one left is where coverage first differs from one.
  Corners corners;
  add_corners(all, -1, &corners);
  for (const Slice& slice : slices) {
    if (!contains(all, slice))
      return fail(ErrorCode::kInvalidSpec, tensor + ": slice at " + bracketed(slice.start) +
                                               " of extent " + bracketed(slice.extent) +
                                               " leaves the shape " + bracketed(shape));
    add_corners(slice, 1, &corners);
  }
  if (corners.empty()) return Unit{};
  const auto& [place, excess] = *corners.begin();
  return fail(ErrorCode::kInvalidSpec,
              tensor + (excess < 0 ? ": no slice covers " : ": two slices cover ") +
                  bracketed(place) + " of shape " + bracketed(shape));
}

}  // namespace motley
