#include "worker/profiler/busy_sums.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <vector>

#include "core/median.h"
#include "kernels/op_table.h"

namespace motley {
namespace {

constexpr int64_t kWidth = 256;  // of a product: what one thread computes of it (matmul_cpu.cc)
constexpr int kRepetitions = 3;
constexpr double kAloneSeconds = 0.1;
constexpr double kParts = 1 << 20;
constexpr double kAskedEvery = 1.0 / 32;  // of a sum: asking takes time, too

/// Products of a few milliseconds, again and again, on all of a device's threads.
class Products {
 public:
  static Result<Products> on(Device& device, int threads) {
    const Bytes matrix(threads * kWidth * kWidth * device.element_bytes());
    MOTLEY_TRY(DeviceBuffer factor, device.allocate(matrix));
    MOTLEY_TRY(DeviceBuffer product, device.allocate(matrix));
    std::memset(factor.data(), 0, static_cast<size_t>(matrix.value()));
    return Products(device, std::move(factor), std::move(product), threads);
  }

  Result<Unit> compute_one() {
    execute(device_, call_);
    return device_.synchronize();
  }

 private:
  Products(Device& device, DeviceBuffer factor, DeviceBuffer product, int threads)
      : device_(device),
        factor_(std::move(factor)),
        product_(std::move(product)),
        call_(MatmulArgs{.a = Address::of(factor_.data()),
                         .b = Address::of(factor_.data()),
                         .c = Address::of(product_.data()),
                         .m = threads * kWidth,
                         .n = kWidth,
                         .k = kWidth}) {}

  Device& device_;
  DeviceBuffer factor_, product_;
  OpCall call_;
};

/// Of one product, nothing beside it.
Result<double> seconds_alone(Products& products, const std::function<double()>& now) {
  MOTLEY_TRY_VOID(products.compute_one());  // memory is first touched
  const double start = now();
  int64_t count = 0;
  do {
    MOTLEY_TRY_VOID(products.compute_one());
    ++count;
  } while (now() - start < kAloneSeconds);
  return (now() - start) / static_cast<double>(count);
}

}  // namespace

Result<double> measure_busy_share(Device& device, int threads, const TimedSum& sum,
                                  Communicator& ranks, const std::function<double()>& now) {
  MOTLEY_TRY(Products products, Products::on(device, threads));
  std::vector<double> shares;
  for (int i = 0; i < kRepetitions; ++i) {
    MOTLEY_TRY_VOID(ranks.barrier());
    MOTLEY_TRY(const double alone, seconds_alone(products, now));
    MOTLEY_TRY_VOID(ranks.barrier());
    const double start = now();
    MOTLEY_TRY_VOID(sum.slices.begin_sum(sum.gradients));
    sum.slices.is_final({0, sum.elements});
    double computed = 0, asked = start;
    for (bool over = false; !over;) {
      MOTLEY_TRY_VOID(products.compute_one());
      computed += alone;
      if (now() - asked < sum.seconds * kAskedEvery) continue;
      MOTLEY_TRY(over, sum.slices.is_summed());
      asked = now();
    }
    const double elapsed = now() - start;
    MOTLEY_TRY_VOID(sum.slices.finish_sum());
    shares.push_back(std::clamp(1 - computed / elapsed, 0.0, 1.0));
  }
  // In whole parts, as ranks compare them.
  auto most = static_cast<int64_t>(*median(std::move(shares)) * kParts);
  MOTLEY_TRY_VOID(ranks.all_reduce_max(std::span(&most, 1)));
  return static_cast<double>(most) / kParts;
}

}  // namespace motley
