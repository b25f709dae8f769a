#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/spec/reader.h"

namespace motley {
namespace {

using ::testing::ElementsAre;

std::string error_of(const std::string& text) {
  const Result<FleetSpec> fleet = parse_fleet(text, "fleet.yaml");
  return fleet ? "no error" : fleet.error().to_string();
}

TEST(FleetReader, ReadsEveryKey) {
  const Result<FleetSpec> fleet = parse_fleet(R"(version: 1
pace: {clock: virtual, flops: 5.0e9}
nodes:
  - host: a1
    slots: 3
    devices:
      - {type: A100-40GB, uuid: GPU-1, memory: 40GB, price: 1.2}
      - kind: cpu
        type: slow card
        threads: 2
        paced: {speed: 0.37, memory: 2GB, overhead: 200us, half_batch: 0.5}
  - host: r1.lab
    devices: [{kind: reference}]
links: [{between: [a1, r1.lab], bandwidth: 1.2GB/s, latency: 60us}]
)",
                                              "lab.yaml");
  ASSERT_TRUE(fleet) << fleet.error().to_string();
  EXPECT_EQ(fleet->source, "lab.yaml");
  EXPECT_EQ(fleet->clock, PaceClock::kVirtual);
  EXPECT_DOUBLE_EQ(fleet->pace_flops, 5e9);
  ASSERT_EQ(fleet->devices.size(), 3u);
  const DeviceSpec& cuda = fleet->devices[0];
  EXPECT_EQ(cuda.id, "a1/0");
  EXPECT_EQ(cuda.kind, DeviceKind::kCuda);
  EXPECT_EQ(cuda.uuid, "GPU-1");
  EXPECT_EQ(cuda.memory, Bytes(40'000'000'000));
  EXPECT_DOUBLE_EQ(cuda.price_per_hour, 1.2);
  EXPECT_FALSE(cuda.paced);
  const DeviceSpec& paced = fleet->devices[1];
  EXPECT_EQ(paced.id, "a1/1");
  EXPECT_EQ(paced.type, "slow card");
  EXPECT_EQ(paced.threads, 2);
  EXPECT_EQ(paced.memory, Bytes(2'000'000'000));
  EXPECT_EQ(paced.paced, (PaceSpec{0.37, Nanos(200'000), 0.5}));
  const DeviceSpec& reference = fleet->devices[2];
  EXPECT_EQ(reference.id, "r1.lab/0");
  EXPECT_EQ(reference.type, "reference");
  EXPECT_FALSE(reference.memory);
  ASSERT_EQ(fleet->links.size(), 1u);
  EXPECT_EQ(fleet->links[0].between[1], "r1.lab");
  EXPECT_DOUBLE_EQ(fleet->links[0].bytes_per_second, 1.2e9);
  EXPECT_EQ(fleet->links[0].latency, Nanos(60'000));
}

TEST(FleetReader, SharesOfAGpuFollowEachOther) {
  const Result<FleetSpec> fleet = parse_fleet(R"(nodes:
  - host: a1
    devices:
      - {uuid: GPU-1, share: {sms: 64}}
      - {uuid: GPU-2, share: {sms: 16}}
      - {uuid: GPU-1, share: {sms: 32}}
      - {uuid: GPU-3}
      - {share: {sms: 8}}
      - {uuid: GPU-1, share: {sms: 24}}
      - {share: {sms: 16}}
  - host: b1
    devices: [{uuid: GPU-1, share: {sms: 8}}]
)",
                                              "lab.yaml");
  ASSERT_TRUE(fleet) << fleet.error().to_string();
  std::vector<std::optional<ShareSpec>> shares;
  for (const DeviceSpec& device : fleet->devices) shares.push_back(device.share);
  EXPECT_THAT(shares,
              ElementsAre(ShareSpec{64, 0}, ShareSpec{16, 0}, ShareSpec{32, 64}, std::nullopt,
                          ShareSpec{8, 0}, ShareSpec{24, 96}, ShareSpec{16, 8}, ShareSpec{8, 0}));
}

TEST(FleetReader, SaysWhatIsWrongAndWhere) {
  const std::string one = "nodes:\n  - host: a1\n    devices:\n      - {kind: cpu}\n";
  const std::pair<std::string, const char*> cases[] = {
      {"nodes: []\n", "fleet.yaml:1:8: expected a list of nodes, found an empty list"},
      {"version: 1\n", "fleet.yaml:1:1: 'nodes' is missing (a list)"},
      {"nodes: {host: a1}\n", "fleet.yaml:1:8: expected a list of nodes, found a mapping"},
      {"nodes:\n  - devices: [{kind: cpu}]\n",
       "fleet.yaml:2:5: 'host' is missing (a host name of letters, digits, '.', '_' and '-')"},
      {"nodes:\n  - host: a1\n", "fleet.yaml:2:5: 'devices' is missing (a list)"},
      {"nodes:\n  - host: a1\n    devices: []\n",
       "fleet.yaml:3:14: expected a list of devices, found an empty list"},
      {"nodes:\n  - host: a1\n    devices: [a100]\n",
       "fleet.yaml:3:15: expected a mapping of keys, found 'a100'"},
      {"nodes:\n  - host: a1\n    gpus: 4\n",
       "fleet.yaml:3:5: unknown key 'gpus' (allowed here: host, slots, devices)"},
      {"nodes:\n  - host: \"a 1\"\n    devices: [{kind: cpu}]\n",
       "fleet.yaml:2:11: 'host': expected a host name of letters, digits, '.', '_' and '-', found "
       "'a 1'"},
      {"nodes:\n  - host: -oProxyCommand=x\n    devices: [{kind: cpu}]\n",
       "fleet.yaml:2:11: 'host': expected a host name of letters, digits, '.', '_' and '-', found "
       "'-oProxyCommand=x'"},
      {"nodes:\n  - host: a1\n    slots: 1\n    devices: [{kind: cpu}, {kind: cpu}]\n",
       "fleet.yaml:3:12: 'slots' is 1 but a1 has 2 devices (each needs a slot for its rank)"},
      {one + "  - host: a1\n    devices: [{kind: cpu}]\n",
       "fleet.yaml:5:11: host 'a1' is listed twice (put all its devices into one node)"},
      {"nodes:\n  - host: a1\n    devices: [{kind: gpu}]\n",
       "fleet.yaml:3:22: 'kind': expected cpu, cuda or reference, found 'gpu' (did you mean "
       "'cpu'?)"},
      {"nodes:\n  - host: a1\n    devices: [{kind: cpu, memory: 64}]\n",
       "fleet.yaml:3:35: 'memory': '64' has no unit (write a size like 20GB or 16GiB)"},
      {"nodes:\n  - host: a1\n    devices: [{kind: cpu, memory: 0B}]\n",
       "fleet.yaml:3:35: 'memory': expected a size such as 40GB above 0, found '0B'"},
      {"nodes:\n  - host: a1\n    devices: [{kind: cpu, threads: 0}]\n",
       "fleet.yaml:3:36: 'threads': expected an integer from 1 to 1024, found '0'"},
      {"nodes:\n  - host: a1\n    devices: [{threads: 2}]\n",
       "fleet.yaml:3:25: 'threads' is only for kind cpu"},
      {"nodes:\n  - host: a1\n    devices: [{kind: cpu, uuid: GPU-1}]\n",
       "fleet.yaml:3:33: 'uuid' is only for kind cuda"},
      {"nodes:\n  - host: a1\n    devices: [{kind: cpu, paced: {speed: 1}}]\n",
       "fleet.yaml:3:34: a paced device needs 'pace: {flops: ...}' at the top of the fleet: what "
       "speed 1 means"},
      {"pace: {flops: 1e9}\nnodes:\n  - host: a1\n    devices: [{paced: {speed: 1}}]\n",
       "fleet.yaml:4:23: only devices of kind cpu can be paced (add kind: cpu)"},
      {"pace: {flops: 1e9}\nnodes:\n  - host: a1\n    devices: [{kind: cpu, paced: {}}]\n",
       "fleet.yaml:4:34: 'speed' is missing (a number above 0 and at most 1e+06)"},
      {"pace: {flops: 1e9}\nnodes:\n  - host: a1\n    devices: [{kind: cpu, memory: 1GB, paced: "
       "{speed: 1, memory: 1GB}}]\n",
       "fleet.yaml:4:35: 'memory' is given twice (here and under paced)"},
      {"pace: {clock: sleep}\n" + one,
       "fleet.yaml:1:7: 'flops' is missing (a number above 0 and at most 1e+18)"},
      {"pace: {flops: 0}\n" + one,
       "fleet.yaml:1:15: 'flops': expected a number above 0 and at most 1e+18, found '0'"},
      {one + "links: [{between: [a1, b1], bandwidth: 1GB/s}]\n",
       "fleet.yaml:5:24: no node has the host 'b1'"},
      {one + "links: [{between: [a1, a1], bandwidth: 1GB/s}, {between: [a1, a1], bandwidth: "
             "2GB/s}]\n",
       "fleet.yaml:5:58: the link between a1 and a1 is listed twice (it is the same in both "
       "directions)"},
      {one + "links: [{between: [a1], bandwidth: 1GB/s}]\n",
       "fleet.yaml:5:19: 'between': expected a list of two hosts, found a list"},
      {one + "links: [{between: [a1, a1], bandwidth: 10Gb/s}]\n",
       "fleet.yaml:5:40: 'bandwidth': unknown unit 'Gb/s' in '10Gb/s' (did you mean 'GB/s'?)"},
  };
  for (const auto& [text, error] : cases) EXPECT_EQ(error_of(text), error) << text;
}

TEST(FleetReader, SaysWhyDevicesCannotHaveOneGpu) {
  const std::pair<std::string, const char*> cases[] = {
      {"nodes:\n  - host: a1\n    devices: [{uuid: GPU-1}, {uuid: GPU-1}]\n",
       "fleet.yaml:3:37: this uuid is listed twice (devices on one GPU need a 'share: {sms: ...}' "
       "each)"},
      {"nodes:\n  - host: a1\n    devices: [{uuid: GPU-1, share: {sms: 8}}, {uuid: GPU-1}]\n",
       "fleet.yaml:3:54: this uuid is listed twice (devices on one GPU need a 'share: {sms: ...}' "
       "each)"},
      {"nodes:\n  - host: a1\n    devices: [{uuid: GPU-1}, {uuid: GPU-1, share: {sms: 8}}]\n",
       "fleet.yaml:3:37: this uuid is listed twice (devices on one GPU need a 'share: {sms: ...}' "
       "each)"},
      {"nodes:\n  - host: a1\n    devices: [{kind: cpu, share: {sms: 8}}]\n",
       "fleet.yaml:3:34: 'share' is only for kind cuda: of a CPU give 'threads', or pace it"},
      {"nodes:\n  - host: a1\n    devices: [{share: {sm: 8}}]\n",
       "fleet.yaml:3:24: unknown key 'sm' (did you mean 'sms'?)"},
      {"nodes:\n  - host: a1\n    devices: [{shares: {sms: 8}}]\n",
       "fleet.yaml:3:16: unknown key 'shares' (did you mean 'share'?)"},
      {"nodes:\n  - host: a1\n    devices: [{share: {}}]\n",
       "fleet.yaml:3:23: 'sms' is missing (an integer from 1 to 1024)"},
      {"nodes:\n  - host: a1\n    devices: [{share: {sms: 0}}]\n",
       "fleet.yaml:3:29: 'sms': expected an integer from 1 to 1024, found '0'"},
  };
  for (const auto& [text, error] : cases) EXPECT_EQ(error_of(text), error) << text;
}

TEST(FleetReader, ReadsFarMoreDevicesThanAJobHasNodes) {
  std::string text = "nodes:\n";
  for (int i = 0; i < 2000; ++i)
    text += "  - host: n" + std::to_string(i) +
            "\n    devices: [{type: A100}, {type: RTX3090}, {type: T4}, {type: T4}]\n";
  const Result<FleetSpec> fleet = parse_fleet(text, "fleet.yaml");
  ASSERT_TRUE(fleet) << fleet.error().to_string();
  EXPECT_EQ(fleet->devices.size(), 8000u);
  EXPECT_EQ(fleet->devices.back().id, "n1999/3");
}

TEST(FleetReader, NamesTheMissingFile) {
  EXPECT_EQ(read_fleet("nowhere/lab.yaml").error().to_string(),
            "nowhere/lab.yaml: No such file or directory");
}

}  // namespace
}  // namespace motley
