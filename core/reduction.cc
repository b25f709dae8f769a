#include "core/reduction.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <unordered_map>
#include <utility>

#include "core/check.h"
#include "core/chunk_sizes.h"
#include "core/hash.h"
#include "core/plan.h"

namespace motley {
namespace {

/// How finely shares are kept: chunks are rooted in a pattern of about this length.
constexpr int kPattern = 64;

/// Elements that are close together: no backward pass says more often what is final.
constexpr int64_t kClose = 256 << 10;

std::vector<IslandPart> parts_of(const ReductionClass& one, const Islands& islands) {
  std::vector<IslandPart> all(static_cast<size_t>(islands.count()));
  const auto part = [&](int rank) -> IslandPart& {
    return all[static_cast<size_t>(islands.of_rank[static_cast<size_t>(rank)])];
  };
  for (const int rank : one.contributors) part(rank).contributors.push_back(rank);
  for (const int rank : one.receivers) part(rank).receivers.push_back(rank);
  std::vector<IslandPart> present;
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i].contributors.empty() && all[i].receivers.empty()) continue;
    all[i].island = static_cast<int>(i);
    all[i].leaders = all[i].contributors.empty() ? all[i].receivers : all[i].contributors;
    present.push_back(std::move(all[i]));
  }
  return present;
}

/// Whose number comes next so that each has had its share of all so far: the order in which roots
/// alternate as evenly as their shares allow.
std::vector<int> interleaved(const std::vector<double>& shares) {
  std::vector<int> pattern;
  std::vector<double> had(shares.size(), 0);
  for (int i = 1; i <= kPattern; ++i) {
    size_t most_behind = 0;
    for (size_t k = 1; k < shares.size(); ++k)
      if (shares[k] * i - had[k] > shares[most_behind] * i - had[most_behind]) most_behind = k;
    had[most_behind] += 1;
    pattern.push_back(static_cast<int>(most_behind));
  }
  return pattern;
}

std::vector<double> bandwidths(const ReductionPart& part, const Islands& islands) {
  std::vector<double> of_parts;
  for (const IslandPart& one : part.islands)
    of_parts.push_back(islands.bytes_per_second[static_cast<size_t>(one.island)]);
  return of_parts;
}

/// Whether to send to everybody at once, in one latency, or to a root and back in two.
bool direct_is_faster(const ReductionPart& part, const Islands& islands, int64_t bytes) {
  const bool all_do_all =
      std::all_of(part.islands.begin(), part.islands.end(),
                  [](const IslandPart& one) { return one.contributes() && one.receives(); });
  if (!all_do_all) return false;
  const std::vector<double> speed = bandwidths(part, islands);
  const std::vector<double> share = root_shares(speed);
  const auto others = static_cast<double>(speed.size()) - 1;
  const auto size = static_cast<double>(bytes);
  double direct = 0;
  double rooted = 0;
  for (size_t i = 0; i < speed.size(); ++i) {
    direct = std::max(direct, size * others / speed[i]);
    rooted = std::max(rooted, size * (1 + (others - 1) * share[i]) / speed[i]);
  }
  return direct <= rooted + islands.latency_seconds;
}

/// Which of the class's islands the pinned owner is in; it is its only leader then.
int pin_owner(ReductionPart* part, const Islands& islands, int owner) {
  const int island = islands.of_rank[static_cast<size_t>(owner)];
  for (size_t i = 0; i < part->islands.size(); ++i) {
    if (part->islands[i].island != island) continue;
    part->islands[i].leaders = {owner};
    return static_cast<int>(i);
  }
  MOTLEY_CHECK(false, "the owner of a class is one of its ranks");
  return 0;
}

/// What the options say of a class that crosses links: off where all of them are fast.
CodecSpec codec_of(const ReductionClass& one, const Islands& islands, int element_bytes,
                   const LinkCompression& compression) {
  if (element_bytes != sizeof(float) || !encodes_spans(compression.codec.kind)) return {};
  std::vector<int> ranks = one.contributors;
  ranks.insert(ranks.end(), one.receivers.begin(), one.receivers.end());
  return crosses_slow_link(ranks, islands, compression) ? compression.codec : CodecSpec{};
}

/// Of the model, as far as the parts know it.
int64_t close_in(const ReductionPlan& plan) {
  int64_t end = 0;
  for (const ReductionPart& part : plan.parts)
    if (part.elements > 0) end = std::max(end, part.place(part.chunks() - 1) + part.chunk_elements);
  return std::max(kClose, end / rounds_over_model(std::ssize(plan.parts)));
}

}  // namespace

bool ReductionPart::encodes(int which, int64_t c) const {
  if (!compressed()) return false;
  if (direct() || root(c) != which) return islands[static_cast<size_t>(which)].contributes();
  for (int other = 0; other < static_cast<int>(islands.size()); ++other)
    if (other != which && islands[static_cast<size_t>(other)].receives()) return true;
  return false;
}

int ReductionPart::first_encoder(int64_t c) const {
  int which = 0;
  while (!encodes(which, c)) ++which;
  return which;
}

int ReductionPart::home_of(int rank) const {
  const auto has = [rank](const std::vector<int>& ranks) {
    return std::binary_search(ranks.begin(), ranks.end(), rank);
  };
  for (size_t i = 0; i < islands.size(); ++i)
    if (has(islands[i].contributors) || has(islands[i].receivers)) return static_cast<int>(i);
  return -1;
}

int64_t rounds_over_model(int64_t parts) {
  constexpr int64_t kMostStretches = 4096;
  constexpr int64_t kMostRounds = 256;
  return std::clamp<int64_t>(kMostStretches / std::max<int64_t>(parts, 1), 1, kMostRounds);
}

int64_t ReductionPart::place(int64_t c) const {
  const int64_t first = c * chunk_elements;
  const auto after = std::partition_point(places.begin(), places.end(),
                                          [&](const ElementPlace& one) { return one.at <= first; });
  return after == places.begin() ? first : std::prev(after)->place + (first - std::prev(after)->at);
}

std::vector<ReductionTurn> ReductionPlan::turns() const {
  struct Key {
    int64_t stretch = 0;  ///< of the model
    int64_t turn = 0;     ///< of its part, there
    ReductionTurn what;
  };
  std::vector<Key> keys;
  const int64_t close = close_in(*this);
  for (size_t number = parts.size(); number-- > 0;) {
    int64_t turn = 0;
    int64_t before = -1;
    for (int64_t c = parts[number].chunks(); c-- > 0;) {
      const int64_t stretch = parts[number].place(c) / close;
      turn = stretch == std::exchange(before, stretch) ? turn + 1 : 0;
      keys.push_back({stretch, turn, {number, c}});
    }
  }
  std::stable_sort(keys.begin(), keys.end(), [](const Key& a, const Key& b) {
    return a.stretch != b.stretch ? a.stretch > b.stretch : a.turn < b.turn;
  });
  std::vector<ReductionTurn> turns;
  turns.reserve(keys.size());
  for (const Key& key : keys) turns.push_back(key.what);
  if (order == ReductionOrder::kFromTheBeginning) std::reverse(turns.begin(), turns.end());
  return turns;
}

int ReductionPart::leader(int which, int64_t c) const {
  const std::vector<int>& turns = islands[static_cast<size_t>(which)].leaders;
  // Shifted after each round of roots, so that a root's work is not always the same rank's.
  const int64_t turn = c + (roots.empty() ? 0 : c / static_cast<int64_t>(islands.size()));
  return turns[static_cast<size_t>(turn) % turns.size()];
}

std::vector<double> root_shares(const std::vector<double>& bytes_per_second) {
  const size_t islands = bytes_per_second.size();
  std::vector<double> shares(islands, 1.0 / static_cast<double>(islands));
  if (islands <= 2) return shares;
  // With time T for one byte of the class an island can carry T·bandwidth bytes, one of which it
  // needs for its own part: (T·bandwidth - 1) / (k-2) of the chunks may be rooted there. The least
  // T at which these make up all chunks, or at which the slowest island does its own part.
  const double per_root = static_cast<double>(islands) - 2;
  const auto room = [&](double time, size_t i) {
    return std::max(0.0, (time * bytes_per_second[i] - 1) / per_root);
  };
  double low = 1 / *std::min_element(bytes_per_second.begin(), bytes_per_second.end());
  const auto rooms = [&](double time) {
    double sum = 0;
    for (size_t i = 0; i < islands; ++i) sum += room(time, i);
    return sum;
  };
  double high = low * static_cast<double>(islands);
  for (int i = 0; i < 100 && rooms(low) < 1; ++i) {
    const double middle = (low + high) / 2;
    (rooms(middle) < 1 ? low : high) = middle;
    if (high - low <= low * 1e-12) break;
  }
  const double time = rooms(low) < 1 ? high : low;
  const double all = rooms(time);
  for (size_t i = 0; i < islands; ++i) shares[i] = room(time, i) / all;
  return shares;
}

Islands islands_of(const std::vector<std::string>& host_of_rank,
                   const std::vector<LinkProfile>& links) {
  Islands islands;
  std::unordered_map<std::string, int> number;
  for (const std::string& host : host_of_rank)
    islands.of_rank.push_back(
        number.try_emplace(host, static_cast<int>(number.size())).first->second);
  islands.bytes_per_second.assign(number.size(), 0);
  double slowest = LinkProfile::kFree;
  for (const LinkProfile& link : links) {
    if (link.between[0] == link.between[1]) continue;
    const auto one = number.find(link.between[0]), other = number.find(link.between[1]);
    if (one == number.end() || other == number.end()) continue;
    slowest = std::min(slowest, link.bytes_per_second);
    islands.latency_seconds = std::max(islands.latency_seconds, link.latency_seconds);
    for (const int island : {one->second, other->second}) {
      double& fastest = islands.bytes_per_second[static_cast<size_t>(island)];
      fastest = std::max(fastest, link.bytes_per_second);
    }
  }
  for (double& speed : islands.bytes_per_second)
    if (speed == 0) speed = slowest;
  return islands;
}

bool crosses_slow_link(const std::vector<int>& ranks, const Islands& islands,
                       const LinkCompression& compression) {
  if (!compression.on()) return false;
  std::set<int> homes;
  for (const int rank : ranks) homes.insert(islands.of_rank[static_cast<size_t>(rank)]);
  return homes.size() > 1 && std::any_of(homes.begin(), homes.end(), [&](int home) {
           return islands.bytes_per_second[static_cast<size_t>(home)] <
                  compression.below_bytes_per_second;
         });
}

Islands islands_of(const Plan& plan) {
  std::vector<std::string> hosts;
  for (const RankPlacement& rank : plan.ranks) hosts.push_back(rank.host);
  return islands_of(hosts, plan.links);
}

ReductionPlan plan_reduction(const std::vector<ReductionClass>& classes, const Islands& islands,
                             int element_bytes, const ReductionOptions& options) {
  ReductionPlan plan{.element_bytes = element_bytes, .order = options.order, .parts = {}};
  for (const ReductionClass& one : classes) {
    MOTLEY_CHECK(!one.contributors.empty() && !one.receivers.empty(), "a class without ranks");
    ReductionPart part;
    part.islands = parts_of(one, islands);
    part.elements = one.elements;
    part.places = one.places;
    if (one.owner) {
      part.roots = {pin_owner(&part, islands, *one.owner)};
    } else if (part.islands.size() > 1) {
      if (!direct_is_faster(part, islands, one.elements * element_bytes))
        part.roots = interleaved(root_shares(bandwidths(part, islands)));
    }
    part.codec = codec_of(one, islands, element_bytes, options.compression);
    part.chunk_elements = chunk_elements(one.elements, element_bytes,
                                         spread_of(part.islands, islands), options, part.codec);
    plan.parts.push_back(std::move(part));
  }
  return plan;
}

std::string ReductionPlan::hash() const {
  Xxh3Stream stream;
  const auto number = [&](int64_t value) { stream.add(&value, sizeof value); };
  const auto ranks = [&](const std::vector<int>& some) {
    number(static_cast<int64_t>(some.size()));
    for (const int rank : some) number(rank);
  };
  number(element_bytes);
  number(static_cast<int64_t>(order));
  for (const ReductionPart& part : parts) {
    number(part.elements);
    number(part.chunk_elements);
    ranks(part.roots);
    const std::string codec = to_text(part.codec);
    stream.add(codec.data(), codec.size());
    for (const ElementPlace& one : part.places) {
      number(one.at);
      number(one.place);
    }
    for (const IslandPart& one : part.islands) {
      number(one.island);
      ranks(one.contributors);
      ranks(one.receivers);
      ranks(one.leaders);
    }
  }
  return stream.hex();
}

Bytes ReductionPlan::link_bytes(int island) const {
  int64_t out = 0;
  int64_t in = 0;
  for (const ReductionPart& part : parts) {
    const auto mine = std::find_if(part.islands.begin(), part.islands.end(),
                                   [&](const IslandPart& one) { return one.island == island; });
    if (mine == part.islands.end() || part.islands.size() == 1) continue;
    const auto which = static_cast<int>(mine - part.islands.begin());
    const int64_t others = static_cast<int64_t>(part.islands.size()) - 1;
    for (int64_t c = 0; c < part.chunks(); ++c) {
      const int64_t bytes = wire_bytes(part, part.elements_of(c));
      if (part.direct()) {
        out += bytes * others;
        in += bytes * others;
      } else if (part.root(c) == which) {
        for (const IslandPart& one : part.islands) {
          if (one.island == island) continue;
          in += one.contributes() ? bytes : 1;
          out += one.receives() ? bytes : 1;
        }
      } else {
        out += mine->contributes() ? bytes : 1;
        in += mine->receives() ? bytes : 1;
      }
    }
  }
  return Bytes(std::max(out, in));
}

bool ReductionPlan::compressed() const {
  return std::any_of(parts.begin(), parts.end(),
                     [](const ReductionPart& part) { return part.compressed(); });
}

int64_t ReductionPlan::wire_bytes(const ReductionPart& part, int64_t elements) const {
  return part.compressed() ? encoded_bytes(part.codec, elements) : elements * element_bytes;
}

std::vector<EncodedChunk> chunks_encoded(const ReductionPlan& plan, int rank) {
  std::vector<EncodedChunk> encoded;
  for (size_t i = 0; i < plan.parts.size(); ++i) {
    const ReductionPart& part = plan.parts[i];
    const int home = part.compressed() ? part.home_of(rank) : -1;
    if (home < 0) continue;
    for (int64_t c = 0; c < part.chunks(); ++c)
      if (part.leader(home, c) == rank && part.encodes(home, c))
        encoded.push_back({i, c, c * part.chunk_elements, part.elements_of(c)});
  }
  return encoded;
}

}  // namespace motley
