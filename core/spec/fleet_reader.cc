#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "core/spec/reader.h"
#include "core/spec/yaml_keys.h"

namespace motley {
namespace {

struct PaceDraft : PaceSpec {
  std::optional<Bytes> memory;
};
struct DeviceDraft : DeviceSpec {
  std::optional<PaceDraft> pace;
};
struct NodeDraft {
  std::string host;
  std::optional<int> slots;
  std::vector<DeviceDraft> devices;
};
struct ClockDraft {
  PaceClock clock = PaceClock::kSleep;
  double flops = 0;
};
struct LinkDraft : LinkSpec {
  std::vector<std::string> hosts;
};
struct FleetDraft {
  int version = 1;
  std::optional<ClockDraft> pace;
  std::vector<NodeDraft> nodes;
  std::vector<LinkDraft> links;
};

bool is_host(std::string_view text) {
  return !text.empty() && text.size() <= 253 && text.front() != '-' && text.front() != '.' &&
         is_plain_name(text);
}
constexpr const char* kHost = "a host name of letters, digits, '.', '_' and '-'";

bool is_label(std::string_view text) {
  return !text.empty() && text.size() <= 64 && one_line(text) == text;
}

/// A measure above zero.
template <class T>
Result<T> above_zero(const YamlNode& node, const std::string& expects,
                     Result<T> (*parse)(std::string_view)) {
  MOTLEY_TRY(const T value, to_measure(node, expects, parse));
  if (value <= T{0}) return fail_expected(node, expects + " above 0");
  return value;
}

template <class Spec, class Member, class T>
YamlKey<Spec> positive(std::string_view name, Member Spec::*member, std::string expects,
                       Result<T> (*parse)(std::string_view)) {
  return converted(name, expects, member, [expects, parse](const YamlNode& node) {
    return above_zero<T>(node, expects, parse);
  });
}

const YamlKeys<ClockDraft>& clock_keys() {
  static const YamlKeys<ClockDraft> keys = {
      word("clock", &ClockDraft::clock),
      number("flops", &ClockDraft::flops, {.low = 0, .high = 1e18, .above_low = true}).required(),
  };
  return keys;
}

const YamlKeys<PaceDraft>& pace_keys() {
  using Draft = PaceDraft;
  static const YamlKeys<Draft> keys = {
      number("speed", &Draft::speed, {.low = 0, .high = 1e6, .above_low = true}).required(),
      positive("memory", &Draft::memory, "a size such as 2GB", parse_bytes),
      measure("overhead", &Draft::overhead, "a duration such as 200us", parse_duration),
      number("half_batch", &Draft::half_batch, {.low = 0, .high = 1e6}),
  };
  return keys;
}

const YamlKeys<ShareSpec>& share_keys() {
  static const YamlKeys<ShareSpec> keys = {
      integer("sms", &ShareSpec::sms, {1, 1024}).required(),
  };
  return keys;
}

const YamlKeys<DeviceDraft>& device_keys() {
  using Draft = DeviceDraft;
  static const YamlKeys<Draft> keys = {
      word("kind", &Draft::kind),
      text("type", &Draft::type, "a name of up to 64 characters", is_label),
      text("uuid", &Draft::uuid, "a UUID such as GPU-5d1c...", is_label),
      integer("threads", &Draft::threads, {1, 1024}),
      positive("memory", &Draft::memory, "a size such as 40GB", parse_bytes),
      number("price", &Draft::price_per_hour, {.low = 0, .high = 1e9}),
      section("paced", &Draft::pace, pace_keys),
      section("share", &Draft::share, share_keys),
  };
  return keys;
}

const YamlKeys<NodeDraft>& node_keys() {
  static const YamlKeys<NodeDraft> keys = {
      text("host", &NodeDraft::host, kHost, is_host).required(),
      integer("slots", &NodeDraft::slots, {1, 1'000'000}),
      sections("devices", &NodeDraft::devices, device_keys).required(),
  };
  return keys;
}

Result<std::vector<std::string>> to_hosts(const YamlNode& node) {
  const std::string expects = "a list of two hosts";
  MOTLEY_TRY(const auto elements, to_list(node, expects));
  if (elements.size() != 2) return fail_expected(node, expects);
  return std::vector<std::string>{elements[0]->text, elements[1]->text};
}

const YamlKeys<LinkDraft>& link_keys() {
  using Draft = LinkDraft;
  static const YamlKeys<Draft> keys = {
      converted("between", "a list of two hosts", &Draft::hosts, to_hosts).required(),
      positive("bandwidth", &Draft::bytes_per_second, "a bandwidth such as 1.2GB/s",
               parse_bandwidth)
          .required(),
      measure("latency", &Draft::latency, "a duration such as 60us", parse_duration),
  };
  return keys;
}

const YamlKeys<FleetDraft>& fleet_keys() {
  static const YamlKeys<FleetDraft> keys = {
      integer("version", &FleetDraft::version, {1, 1}),
      section("pace", &FleetDraft::pace, clock_keys),
      sections("nodes", &FleetDraft::nodes, node_keys).required(),
      sections("links", &FleetDraft::links, link_keys),
  };
  return keys;
}

/// Where the parts of a fleet stand, for errors that concern more than one key.
const YamlNode& item_at(const YamlNode& list_owner, std::string_view list, size_t index) {
  return list_owner.find(list)->items[index];
}
const YamlNode& member_or_self(const YamlNode& node, std::string_view key) {
  const YamlNode* member = node.find(key);
  return member ? *member : node;
}

Result<Unit> check_device(const DeviceDraft& device, const FleetDraft& fleet,
                          const YamlNode& place) {
  if (device.pace && device.kind == DeviceKind::kCuda)
    return fail_at(member_or_self(place, "paced"),
                   "only devices of kind cpu can be paced (add kind: cpu)");
  if (device.pace && !fleet.pace)
    return fail_at(member_or_self(place, "paced"),
                   "a paced device needs 'pace: {flops: ...}' at the top of the fleet: what speed "
                   "1 means");
  if (device.pace && device.pace->memory && device.memory)
    return fail_at(member_or_self(place, "memory"),
                   "'memory' is given twice (here and under paced)");
  if (place.find("threads") && device.kind == DeviceKind::kCuda)
    return fail_at(member_or_self(place, "threads"), "'threads' is only for kind cpu");
  if (!device.uuid.empty() && device.kind != DeviceKind::kCuda)
    return fail_at(member_or_self(place, "uuid"), "'uuid' is only for kind cuda");
  if (device.share && device.kind != DeviceKind::kCuda)
    return fail_at(member_or_self(place, "share"),
                   "'share' is only for kind cuda: of a CPU give 'threads', or pace it");
  return Unit{};
}

DeviceSpec finish_device(DeviceDraft draft, const std::string& host, size_t index) {
  DeviceSpec device = draft;
  device.host = host;
  device.id = host + "/" + std::to_string(index);
  if (device.type.empty()) device.type = spec_name(device.kind);
  if (draft.pace) {
    device.paced = *draft.pace;
    if (draft.pace->memory) device.memory = draft.pace->memory;
  }
  return device;
}

/// What the file says of memory, in its own words and place.
void note_memory(const YamlNode& device, DeviceSpec& spec) {
  const YamlNode* paced = device.find("paced");
  const YamlNode* memory = device.find("memory");
  if (!memory && paced) memory = paced->find("memory");
  if (!memory) return;
  spec.memory_written = memory->text;
  spec.memory_place = memory->place();
}

/// Multiprocessors that have been shared out of each GPU of a node, by UUID; of one that a device
/// has for itself, nothing. Without a UUID it is the first GPU.
using SharedOut = std::map<std::string, std::optional<int>>;

Result<Unit> take_gpu(const YamlNode& place, SharedOut* gpus, DeviceSpec& device) {
  if (device.uuid.empty() && !device.share) return Unit{};
  const auto [gpu, is_new] =
      gpus->try_emplace(device.uuid, device.share ? std::optional(0) : std::nullopt);
  std::optional<int>& taken = gpu->second;
  if (!is_new && (!taken || !device.share))
    return fail_at(
        member_or_self(place, "uuid"),
        "this uuid is listed twice (devices on one GPU need a 'share: {sms: ...}' each)");
  if (!device.share) return Unit{};
  device.share->first = *taken;
  *taken += device.share->sms;
  return Unit{};
}

Result<Unit> finish_node(const NodeDraft& node, const FleetDraft& draft, const YamlNode& place,
                         FleetSpec& fleet) {
  if (node.slots && static_cast<size_t>(*node.slots) < node.devices.size())
    return fail_at(member_or_self(place, "slots"), "'slots' is " + std::to_string(*node.slots) +
                                                       " but " + node.host + " has " +
                                                       std::to_string(node.devices.size()) +
                                                       " devices (each needs a slot for its rank)");
  SharedOut gpus;
  for (size_t i = 0; i < node.devices.size(); ++i) {
    const YamlNode& at = item_at(place, "devices", i);
    MOTLEY_TRY_VOID(check_device(node.devices[i], draft, at));
    fleet.devices.push_back(finish_device(node.devices[i], node.host, i));
    fleet.devices.back().place = member_or_self(at, "kind").place();
    MOTLEY_TRY_VOID(take_gpu(at, &gpus, fleet.devices.back()));
    note_memory(at, fleet.devices.back());
  }
  return Unit{};
}

Result<Unit> finish_links(const std::map<std::string, size_t>& hosts, const FleetDraft& draft,
                          const YamlTree& tree, FleetSpec& fleet) {
  std::set<std::pair<std::string, std::string>> known;
  for (size_t i = 0; i < draft.links.size(); ++i) {
    LinkSpec link = draft.links[i];
    const YamlNode& between = *item_at(tree.root, "links", i).find("between");
    for (size_t end = 0; end < 2; ++end) {
      const std::string& host = draft.links[i].hosts[end];
      if (!hosts.contains(host))
        return fail_at(between.items[end], "no node has the host '" + one_line(host) + "'");
      link.between[end] = host;
    }
    if (!known.insert(std::minmax(link.between[0], link.between[1])).second)
      return fail_at(between, "the link between " + link.between[0] + " and " + link.between[1] +
                                  " is listed twice (it is the same in both directions)");
    fleet.links.push_back(std::move(link));
  }
  return Unit{};
}

Result<FleetSpec> finish_fleet(const FleetDraft& draft, const YamlTree& tree,
                               const std::string& source) {
  FleetSpec fleet;
  fleet.source = source;
  if (draft.pace) {
    fleet.clock = draft.pace->clock;
    fleet.pace_flops = draft.pace->flops;
  }
  std::map<std::string, size_t> hosts;
  for (size_t i = 0; i < draft.nodes.size(); ++i) {
    const NodeDraft& node = draft.nodes[i];
    const YamlNode& place = item_at(tree.root, "nodes", i);
    if (!hosts.emplace(node.host, i).second)
      return fail_at(*place.find("host"), "host '" + node.host +
                                              "' is listed twice (put all its devices into one "
                                              "node)");
    MOTLEY_TRY_VOID(finish_node(node, draft, place, fleet));
  }
  MOTLEY_TRY_VOID(finish_links(hosts, draft, tree, fleet));
  return fleet;
}

}  // namespace

Result<FleetSpec> parse_fleet(std::string_view text, const std::string& source) {
  MOTLEY_TRY(const YamlTree tree, parse_yaml(text, source, kFleetLimits));
  FleetDraft draft;
  MOTLEY_TRY_VOID(read_mapping(tree.root, fleet_keys(), draft));
  return finish_fleet(draft, tree, source);
}

Result<FleetSpec> read_fleet(const std::string& path) {
  MOTLEY_TRY(const std::string text, read_yaml_file(path, kFleetLimits.bytes));
  return parse_fleet(text, path);
}

}  // namespace motley
