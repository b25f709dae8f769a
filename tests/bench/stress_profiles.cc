#include "tests/bench/stress_profiles.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <utility>

namespace motley {
namespace {

constexpr int kDegrees[] = {1, 2, 4};
constexpr int kMicroBatches[] = {1, 2, 4, 8};
constexpr int kGlobalBatch = 1024;
constexpr double kSecondsOfALayer = 0.008;  ///< of the quickest type, whole, one sample
constexpr double kMemories[] = {16e9, 24e9, 32e9, 48e9, 80e9};

class Maker {
 public:
  explicit Maker(const StressProfile& wanted)
      : wanted_(wanted),
        random_(static_cast<unsigned>(wanted.layers * 31 + wanted.types * 7 + wanted.uneven * 2 +
                                      wanted.tight + wanted.odd * 3)) {}

  ForeignProfile make() {
    profile_.name = "stress";
    profile_.global_batch = kGlobalBatch;
    profile_.optimizer_bytes_per_parameter = 16;
    make_layers();
    double speed = 1;
    for (int type = 0; type < wanted_.types; ++type, speed *= real(1.3, 2.6))
      make_device("card-" + std::to_string(type), speed);
    make_links();
    return std::move(profile_);
  }

 private:
  double real(double least, double most) {
    return std::uniform_real_distribution(least, most)(random_);
  }

  void make_layers() {
    const double parameters = real(8e6, 2.5e7);
    const double activations = wanted_.tight ? real(6e8, 9e8) : real(1e8, 3e8);
    const double output = real(4e6, 1.6e7);
    for (int i = 0; i < wanted_.layers; ++i) {
      const bool embedding = i == 0, head = i + 1 == wanted_.layers;
      const double own = wanted_.uneven ? real(0.4, 1.8) : 1;
      work_.push_back(embedding ? 0.05 : head ? 2 : own);
      ForeignLayer layer;
      for (const int degree : kDegrees) {
        layer.parameters[degree] = parameters * (embedding || head ? 4 : own) / degree;
        layer.activation_bytes_per_sample[degree] =
            embedding ? output : activations * (head ? 2 : own) / std::pow(degree, 0.85);
      }
      layer.output_bytes_per_sample = output * (head ? 40 : wanted_.uneven ? real(0.5, 2) : 1);
      profile_.layers.push_back(std::move(layer));
    }
  }

  /// Memory has nothing to do with speed; small micro-batches and parts of layers are less
  /// efficient, by the type.
  void make_device(const std::string& name, double slower) {
    ForeignDevice device;
    device.memory = Bytes(static_cast<int64_t>(kMemories[random_() % std::size(kMemories)]));
    const double overhead = real(0.05, 0.3), efficiency = real(0.6, 0.95),
                 backward = real(1.8, 2.4);
    const double update = real(0.001, 0.003) * slower;
    std::vector<double> taste;
    for (int i = 0; i < wanted_.layers; ++i)
      taste.push_back(wanted_.odd ? real(0.5, 1.5) : wanted_.uneven ? real(0.85, 1.15) : 1);
    for (const int size : kMicroBatches)
      for (const int degree : kDegrees) {
        ForeignTimes times{size, degree, {}, {}, {}};
        const double scale = kSecondsOfALayer * slower * (overhead + size) *
                             (wanted_.odd ? real(0.8, 1.25) : real(0.97, 1.03)) /
                             std::pow(degree, efficiency);
        for (int i = 0; i < wanted_.layers; ++i) {
          const auto at = static_cast<size_t>(i);
          const double whole = scale * work_[at] * taste[at];
          times.forward_seconds.push_back(whole / (1 + backward));
          times.backward_seconds.push_back(whole * backward / (1 + backward));
          times.update_seconds.push_back(update * (wanted_.odd ? real(0.2, 6) : 1) / degree);
        }
        device.profiles.push_back(std::move(times));
      }
    profile_.devices[name] = std::move(device);
  }

  /// A line, or a polynomial; of parts of a layer, several at once.
  void make_links() {
    for (const auto& [from, unused] : profile_.devices)
      for (const auto& [to, unused_too] : profile_.devices) {
        if (to < from) continue;
        const double pair = real(1, 4);
        const bool line_of_pair = random_() % 2 == 0;
        for (const int a : kDegrees)
          for (const int b : kDegrees) {
            ForeignLink link{from, to, a, b, {}};
            const double all = wanted_.odd ? real(0.3, 16) : pair * std::min(a, b);
            const bool line = wanted_.odd ? random_() % 2 == 0 : line_of_pair;
            if (line)
              link.speed = ForeignLine{5e-5, all * 1e9};
            else
              link.speed = ForeignLink::Polynomial{-0.004 * all, 0.12 * all, all};
            profile_.links.push_back(std::move(link));
          }
      }
  }

  const StressProfile wanted_;
  std::mt19937 random_;
  ForeignProfile profile_;
  std::vector<double> work_;
};

}  // namespace

ForeignProfile stress_profile(const StressProfile& wanted) { return Maker(wanted).make(); }

}  // namespace motley
