// The mask of a dropout follows from seed, step, sample, site and element, and from nothing else.

#include <algorithm>
#include <cmath>

#include "core/philox.h"
#include "tests/contract/device_ops/bench.h"

namespace motley::testing {
namespace {

constexpr int64_t kSamples = 7, kElements = 1001;

struct Site {
  uint64_t seed = 77;
  int64_t step = 5, first_sample = 40, site = 9;
  double rate = 0.3;
};

/// Dropout of whole samples, one after the other in `x`.
Values drop(Device& device, const Site& site, const Values& x) {
  Bench bench(device);
  const DropoutArgs args{.x = bench.put(x),
                         .out = bench.poisoned(static_cast<int64_t>(x.size())),
                         .position = bench.put(std::vector<int64_t>{site.step, site.first_sample}),
                         .seed = site.seed,
                         .site = site.site,
                         .rate = site.rate,
                         .samples = static_cast<int64_t>(x.size()) / kElements,
                         .elements_per_sample = kElements};
  bench.run(args);
  return bench.get(args.out);
}

/// 1 where an element is kept, else 0.
Values mask_of(Device& device, const Site& site, int64_t samples = kSamples) {
  Values mask = drop(device, site, Values(static_cast<size_t>(samples * kElements), 1.0));
  for (double& value : mask) value = value != 0 ? 1 : 0;
  return mask;
}

double mean_of_product(const Values& a, const Values& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum / static_cast<double>(a.size());
}

TEST_P(EachDevice, DropoutMaskDoesNotDependOnTheCutOfTheBatch) {
  Random random(31);
  const Values x = random.normal(kSamples * kElements);
  const Values whole = drop(*device_, Site(), x);
  for (const std::vector<int64_t>& cuts :
       {std::vector<int64_t>{0, 3, 7}, {0, 1, 2, 3, 4, 5, 6, 7}, {0, 6, 7}}) {
    Values joined;
    for (size_t i = 0; i + 1 < cuts.size(); ++i) {
      Site site;
      site.first_sample += cuts[i];
      const Values part =
          drop(*device_, site,
               Values(x.begin() + cuts[i] * kElements, x.begin() + cuts[i + 1] * kElements));
      joined.insert(joined.end(), part.begin(), part.end());
    }
    EXPECT_EQ(joined, whole);
  }
}

TEST_P(EachDevice, DropoutKeepsItsShare) {
  constexpr int64_t kMany = 40;
  for (const double rate : {0.0, 0.1, 0.5, 0.9}) {
    Site site;
    site.rate = rate;
    const Values mask = mask_of(*device_, site, kMany);
    const double deviation = std::sqrt(rate * (1 - rate) / static_cast<double>(mask.size()));
    EXPECT_NEAR(mean_of_product(mask, mask), 1 - rate, 5 * deviation) << "rate " << rate;
  }
}

TEST_P(EachDevice, EveryPartOfADropoutsNameGivesAnIndependentMask) {
  std::vector<Site> others(6);
  others[0].seed += 1;
  others[1].seed += uint64_t{1} << 32;
  others[2].step += 1;
  others[3].first_sample += kSamples;
  others[4].site += 1;
  others[5].site += 1 << 16;
  const Values mask = mask_of(*device_, Site());
  const double both = 0.7 * 0.7;
  const double deviation = std::sqrt(both * (1 - both) / static_cast<double>(mask.size()));
  for (const Site& other : others)
    EXPECT_NEAR(mean_of_product(mask, mask_of(*device_, other)), both, 5 * deviation);
}

TEST_P(EachDevice, DropoutDropsTheSameElementsOfTheGradient) {
  Random random(32);
  const Values x = random.normal(kSamples * kElements), d_out = random.normal(kSamples * kElements);
  const Values out = drop(*device_, Site(), x), d_x = drop(*device_, Site(), d_out);
  const double kept = 1 / (1 - Site().rate);
  for (size_t i = 0; i < x.size(); ++i) {
    const double factor = out[i] == 0 ? 0 : kept;
    ASSERT_NEAR(out[i], factor * x[i], 1e-6) << i;
    ASSERT_NEAR(d_x[i], factor * d_out[i], 1e-6) << i;
  }
}

// Another layout of the counter would change every run that is resumed.
TEST_P(EachDevice, DropoutDrawsAreThoseOfTheDocumentedCounter) {
  Site site;
  site.seed = 0x123456789abcdef0;
  site.step = 3'000'000'000;
  site.first_sample = 2'500'000'000;
  const Values mask = mask_of(*device_, site, 2);
  for (uint32_t i = 0; i < mask.size(); ++i) {
    const auto sample = static_cast<uint32_t>(i / kElements);
    const auto element = static_cast<uint32_t>(i % kElements);
    const auto block =
        philox4x32({element / 4, 2'500'000'000U + sample, 3'000'000'000U, 9 * 256 + 3},
                   {0x9abcdef0, 0x12345678});
    ASSERT_EQ(mask[i] != 0, block[element % 4] >= 0.3 * 0x1p32) << i;
  }
}

}  // namespace
}  // namespace motley::testing
