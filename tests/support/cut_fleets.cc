#include "tests/support/cut_fleets.h"

#include "tests/support/layered_case.h"

namespace motley::testing {
namespace {

/// Of the quickest card, one sample through a block of the smaller model.
constexpr double kBlockSeconds = 0.0008;

struct UnlikeCard {
  const char* type;
  double slower;
  int64_t memory_mib;
};
/// From a small card of ten years ago to a large one of today.
constexpr UnlikeCard kUnlike[] = {
    {"a", 1, 24 * 1024},  {"b", 1.5, 16 * 1024}, {"c", 1.9, 12 * 1024}, {"d", 2.6, 11 * 1024},
    {"e", 3.7, 8 * 1024}, {"f", 4.4, 8 * 1024},  {"g", 5.5, 6 * 1024},  {"h", 8.3, 4 * 1024}};

LayeredDevice card_of(const UnlikeCard& card, int host, double work, double memory) {
  const double block = kBlockSeconds * work * card.slower;
  return {.host = "host" + std::to_string(host),
          .type = card.type,
          .per_sample = block,
          .fixed = 0.15 * block,
          .overhead = 20e-6,
          .update = 6 * block,
          .memory_mib = static_cast<int64_t>(memory * static_cast<double>(card.memory_mib)),
          .sharing = true};
}

void link_hosts(int hosts, PlanningCase* problem) {
  const auto host = [](int number) { return "host" + std::to_string(number); };
  for (int a = 0; a < hosts; ++a)
    for (int b = a; b < hosts; ++b)
      problem->add_link(host(a), host(b), a == b ? 30e-6 : 50e-6, a == b ? 8e9 : 1.25e9);
}

/// Cards of kUnlike in turn, `copies` of each, so many on a host.
PlanningCase fleet_of(const ModelSpec& model, int batch, const std::vector<int>& cards, int copies,
                      int of_a_host, double memory) {
  PlanningCase problem(batch);
  problem.job.model = model;
  const double work = 1.0 * model.width * model.width / (768 * 768);
  int devices = 0;
  for (int copy = 0; copy < copies; ++copy)
    for (const int card : cards)
      add_layered(card_of(kUnlike[card], devices++ / of_a_host, work, memory), &problem);
  link_hosts((devices + of_a_host - 1) / of_a_host, &problem);
  return problem;
}

/// One sample short of whole grains, bit-exact sums.
PlanningCase exact_and_short() {
  PlanningCase problem = fleet_of(kSmallGpt2, 31, {0, 2, 5}, 1, 4, 0.16);
  problem.job.train.numerics = Numerics::kExact;
  problem.job.train.grain = 2;
  return problem;
}

PlanningCase only_three_devices() {
  PlanningCase problem = fleet_of(kSmallGpt2, 48, {1, 2, 3, 4, 5}, 1, 8, 0.2);
  problem.job.devices.count = CountRange{1, 3};
  return problem;
}

PlanningCase without_links() {
  PlanningCase problem = fleet_of(kSmallGpt2, 64, {0, 2, 4, 6, 7}, 1, 8, 0.3);
  problem.profile.links.clear();
  return problem;
}

struct Copies {
  int of_cards;
  int of_a_host;  ///< cards on one
};

CutFleet of(const std::string& name, const ModelSpec& model, int batch,
            const std::vector<int>& cards, const Copies& copies, double memory) {
  return {name,
          [=] { return fleet_of(model, batch, cards, copies.of_cards, copies.of_a_host, memory); }};
}

}  // namespace

const std::vector<CutFleet>& cut_fleets() {
  static const std::vector<int> all{0, 1, 2, 3, 4, 5, 6, 7};
  static const std::vector<CutFleet> fleets{
      {"3-exact-and-short", exact_and_short},
      {"5-only-three", only_three_devices},
      {"5-without-links", without_links},
      of("2-hold", kSmallGpt2, 16, {1, 3}, {1, 8}, 1),
      of("4", kSmallGpt2, 32, {0, 3, 4, 7}, {1, 4}, 0.16),
      of("6-large", kLargeGpt2, 64, {0, 0, 1, 1, 2, 3}, {1, 3}, 1),
      of("8", kSmallGpt2, 64, all, {1, 8}, 0.5),
      of("8-none-holds", kSmallGpt2, 64, all, {1, 8}, 0.16),
      of("8-large", kLargeGpt2, 64, all, {1, 8}, 1),
      of("8-two-hosts", kSmallGpt2, 64, all, {1, 4}, 0.16),
      of("8-two-types", kSmallGpt2, 64, {1, 4}, {4, 8}, 0.16),
      of("8-three-types", kLargeGpt2, 128, {0, 0, 3, 5}, {2, 4}, 1),
      of("64", kSmallGpt2, 1024, {1, 4}, {32, 8}, 0.16),
      of("64-three-types", kSmallGpt2, 1024, {0, 2, 2, 5}, {16, 8}, 0.16),
      of("64-large", kLargeGpt2, 512, {0, 0, 2, 3}, {16, 4}, 1),
  };
  return fleets;
}

const std::vector<CutFleet>& large_cut_fleets() {
  static const std::vector<CutFleet> fleets{
      of("64-alike", kSmallGpt2, 1024, {1}, {64, 8}, 0.16),
      of("256", kSmallGpt2, 4096, {1, 4}, {128, 8}, 0.16),
      of("256-three-types", kSmallGpt2, 4096, {0, 2, 2, 5}, {64, 8}, 0.16),
      of("1024", kSmallGpt2, 16384, {1, 4}, {512, 8}, 0.16),
      of("1024-three-types", kSmallGpt2, 16384, {0, 2, 2, 5}, {256, 8}, 0.16),
  };
  return fleets;
}

}  // namespace motley::testing
