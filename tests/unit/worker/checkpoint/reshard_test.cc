// Any slicing to any slicing: what one set of ranks wrote, another set reads back, element by
// element.

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <numeric>

#include "tests/support/fault_file_system.h"
#include "worker/checkpoint/store.h"

namespace motley::testing {
namespace {

const std::string kDirectory = "/checkpoints";

int between(int low, int high) { return *rc::gen::inRange(low, high + 1); }

/// Cuts a box in two, again and again.
std::vector<Slice> random_tiling(const std::vector<int64_t>& shape) {
  std::vector<Slice> tiles{whole(shape)};
  for (int cuts = between(0, 6); cuts > 0; --cuts) {
    Slice& box = tiles[static_cast<size_t>(between(0, static_cast<int>(tiles.size()) - 1))];
    const auto d = static_cast<size_t>(between(0, static_cast<int>(shape.size()) - 1));
    if (box.extent[d] < 2) continue;
    const int64_t cut = between(1, static_cast<int>(box.extent[d]) - 1);
    Slice rest = box;
    rest.start[d] += cut;
    rest.extent[d] -= cut;
    box.extent[d] = cut;
    tiles.push_back(rest);
  }
  return tiles;
}

/// The elements of a slice in row-major order, each the number of its place in the whole tensor:
/// the oracle, by plain counting.
std::vector<float> elements_of(const std::vector<int64_t>& shape, const Slice& slice) {
  std::vector<float> elements;
  const int64_t count = whole(shape).elements();
  for (int64_t number = 0; number < count; ++number) {
    bool inside = true;
    int64_t rest = number;
    for (size_t d = shape.size(); d-- > 0; rest /= shape[d]) {
      const int64_t at = rest % shape[d] - slice.start[d];
      inside = inside && at >= 0 && at < slice.extent[d];
    }
    if (inside) elements.push_back(static_cast<float>(number));
  }
  return elements;
}

struct Tensor {
  std::string name;
  std::vector<int64_t> shape;
};

/// The slices that each rank holds, with memory.
struct Holdings {
  std::vector<std::vector<StateView>> views;  ///< [rank]
  std::vector<Ownership> owners;
  std::vector<std::unique_ptr<std::vector<float>>> memory;

  explicit Holdings(int ranks) : views(static_cast<size_t>(ranks)) {}

  void deal(const Tensor& tensor, bool filled) {
    for (const Slice& tile : random_tiling(tensor.shape)) {
      const int rank = between(0, static_cast<int>(views.size()) - 1);
      memory.push_back(
          std::make_unique<std::vector<float>>(static_cast<size_t>(tile.elements()), -1.0f));
      if (filled) *memory.back() = elements_of(tensor.shape, tile);
      views[static_cast<size_t>(rank)].push_back(
          {"weight/" + tensor.name, "F32", tensor.shape, tile,
           std::as_writable_bytes(std::span(*memory.back()))});
      owners.push_back({tensor.name, tile, Rank(rank)});
    }
  }
};

void save(FileSystem& fs, const Holdings& written) {
  std::vector<ShardReport> reports;
  for (size_t rank = 0; rank < written.views.size(); ++rank) {
    auto writer = ShardWriter::create(fs, kDirectory, Epoch(1), static_cast<int>(rank),
                                      written.views[rank], written.owners);
    RC_ASSERT(writer.has_value());
    RC_ASSERT((*writer)->snapshot(1).has_value());
    (*writer)->wait();
    reports.push_back((*writer)->report());
  }
  Manifest base;
  base.step = 1;
  base.epoch = Epoch(1);
  const auto committed = commit(fs, kDirectory, base, reports);
  if (!committed) RC_FAIL(committed.error().to_string());
}

TEST(Reshard, AnyTilingReadsWhatAnyOtherWrote) {
  EXPECT_TRUE(rc::check([] {
    std::vector<Tensor> tensors;
    for (int t = between(1, 3); t > 0; --t) {
      std::vector<int64_t> shape;
      for (int d = between(1, 4); d > 0; --d) shape.push_back(between(1, 7));
      tensors.push_back({"t" + std::to_string(t), shape});
    }
    Holdings written(between(1, 4)), read(between(1, 4));
    for (const Tensor& tensor : tensors) {
      written.deal(tensor, true);
      read.deal(tensor, false);
    }
    FaultFileSystem fs;
    save(fs, written);
    const auto found = find_checkpoints(fs, kDirectory, nullptr).value();
    RC_ASSERT(found.size() == 1u);
    for (const std::vector<StateView>& views : read.views) {
      const auto loaded = load(fs, kDirectory, found[0], views, nullptr);
      if (!loaded) RC_FAIL(loaded.error().to_string());
      for (const StateView& view : views) {
        const std::vector<float> expected = elements_of(view.shape, view.slice);
        const auto bytes = std::as_bytes(std::span(expected));
        RC_ASSERT(std::equal(bytes.begin(), bytes.end(), view.data.begin(), view.data.end()));
      }
    }
  }));
}

TEST(Reshard, ReadsLittleMoreThanItNeeds) {
  // 24 MiB in rows of 1 MiB, written by two ranks, read by eight: 3 MiB each, in blocks of 48 KiB.
  const std::vector<int64_t> shape{24, 1 << 18};
  std::vector<float> state(24 << 18);
  std::iota(state.begin(), state.end(), 0.0f);
  Holdings written(2);
  for (int rank = 0; rank < 2; ++rank) {
    const Slice half{{12 * rank, 0}, {12, 1 << 18}};
    written.owners.push_back({"t", half, Rank(rank)});
    written.views[static_cast<size_t>(rank)].push_back(
        {"weight/t", "F32", shape, half,
         std::as_writable_bytes(std::span(state))
             .subspan(static_cast<size_t>(rank) * (12 << 20), 12 << 20)});
  }
  FaultFileSystem fs;
  save(fs, written);
  const auto found = find_checkpoints(fs, kDirectory, nullptr).value();
  ASSERT_EQ(found.size(), 1u);
  const auto read = [&](int64_t first_row, int64_t rows) {
    std::vector<float> part(static_cast<size_t>(rows) << 18);
    const StateView view{"weight/t",
                         "F32",
                         shape,
                         {{first_row, 0}, {rows, 1 << 18}},
                         std::as_writable_bytes(std::span(part))};
    int64_t bytes_read = 0;
    EXPECT_TRUE(load(fs, kDirectory, found[0], {view}, &bytes_read));
    EXPECT_TRUE(std::equal(part.begin(), part.end(), state.begin() + (first_row << 18)));
    return static_cast<double>(bytes_read) / (1 << 20);
  };
  EXPECT_NEAR(read(0, 24), 24, 0.01);  // everything, once
  constexpr double kBlock = 48.0 / 1024;
  EXPECT_NEAR(read(4, 8), 171 * kBlock, 0.01);  // to the end of a file
  EXPECT_NEAR(read(5, 1), 22 * kBlock, 0.01);   // a part of two blocks: the blocks
  EXPECT_NEAR(read(11, 2), 44 * kBlock, 0.01);  // a part of two files
}

}  // namespace
}  // namespace motley::testing
