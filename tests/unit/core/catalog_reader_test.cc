#include "core/spec/catalog_reader.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "tests/support/paths.h"

namespace motley {
namespace {

const std::string kAssume = R"(assume:
  product_efficiency: 0.5
  bandwidth_efficiency: 0.75
  operation_overhead: 4us
  host_bandwidth: 20GB/s
  through_host: {bandwidth: 8GB/s, latency: 30us}
  between_hosts: {bandwidth: 10Gbit/s}
)";

std::string device_text(const std::string& type, const std::string& more) {
  return "  - {type: " + type + ", bandwidth: 900GB/s, link: {bandwidth: 24GB/s}, " + more + "}\n";
}
const std::string kFigures = "memory: 16GB, tflops: {fp32: 15.7, fp16: 125}";

std::string refusal_of_catalog(const std::string& text) {
  const auto catalog = parse_catalog(text, "devices.yaml");
  return catalog ? "no error" : catalog.error().to_string();
}

TEST(CatalogReader, ReadsEveryKey) {
  const auto catalog =
      parse_catalog("version: 1\n" + kAssume + "devices:\n" +
                        device_text("V100-16GB", "aliases: [V100], " + kFigures) +
                        device_text("P100", "capability: 6.1, price: 0.25, " + kFigures),
                    "devices.yaml");
  ASSERT_TRUE(catalog) << catalog.error().to_string();
  EXPECT_EQ(catalog->source, "devices.yaml");
  EXPECT_DOUBLE_EQ(catalog->assume.product_efficiency, 0.5);
  EXPECT_DOUBLE_EQ(catalog->assume.bandwidth_efficiency, 0.75);
  EXPECT_EQ(catalog->assume.operation_overhead, Nanos(4000));
  EXPECT_DOUBLE_EQ(catalog->assume.host_bytes_per_second, 20e9);
  EXPECT_EQ(catalog->assume.through_host.latency, Nanos(30'000));
  EXPECT_DOUBLE_EQ(catalog->assume.between_hosts.bytes_per_second, 1.25e9);
  ASSERT_EQ(catalog->devices.size(), 2U);
  EXPECT_DOUBLE_EQ(catalog->devices[1].compute_capability, 6.1);
  EXPECT_DOUBLE_EQ(catalog->devices[1].price_per_hour, 0.25);
  const CatalogDevice& device = catalog->devices[0];
  EXPECT_EQ(device.type, "V100-16GB");
  EXPECT_EQ(device.aliases, std::vector<std::string>{"V100"});
  EXPECT_EQ(device.memory, Bytes(16'000'000'000));
  EXPECT_DOUBLE_EQ(device.bytes_per_second, 900e9);
  EXPECT_DOUBLE_EQ(device.tflops.in(Precision::kFp32), 15.7);
  EXPECT_DOUBLE_EQ(device.tflops.in(Precision::kFp16), 125);
  EXPECT_DOUBLE_EQ(device.tflops.in(Precision::kBf16), 0);
  EXPECT_DOUBLE_EQ(device.link.bytes_per_second, 24e9);
  EXPECT_EQ(device.compute_capability, 0);
  EXPECT_EQ(device.price_per_hour, 0);
}

TEST(CatalogReader, RefusesWithTheWordsPlace) {
  const std::string begin = kAssume + "devices:\n";  // 8 lines
  // Columns count from 1.
  const auto place = [&](const std::string& line, const std::string& word) {
    return "devices.yaml:9:" + std::to_string(line.find(word) + 1) + ": ";
  };
  const std::string misspelt = device_text("V100", kFigures + ", memori: 3GB");
  EXPECT_EQ(refusal_of_catalog(begin + misspelt),
            place(misspelt, "memori:") + "unknown key 'memori' (did you mean 'memory'?)");
  const std::string negative = device_text("V100", "memory: 16GB, tflops: {fp32: -3}");
  EXPECT_EQ(refusal_of_catalog(begin + negative).rfind(place(negative, "-3") + "'fp32': ", 0), 0U)
      << refusal_of_catalog(begin + negative);
  for (const char* more : {"memory: -16GB, tflops: {fp32: 1}", "memory: 0GB, tflops: {fp32: 1}",
                           "memory: 16GB, tflops: {}", "memory: 16GB", "tflops: {fp32: 1}"})
    EXPECT_EQ(refusal_of_catalog(begin + device_text("V100", more)).rfind("devices.yaml:9:", 0), 0U)
        << more << ": " << refusal_of_catalog(begin + device_text("V100", more));
  EXPECT_NE(refusal_of_catalog(begin + device_text("V100", kFigures) +
                               device_text("T4", "aliases: [V100], " + kFigures))
                .find("devices.yaml:10:12: the name 'V100' is given twice"),
            std::string::npos);
  EXPECT_NE(
      refusal_of_catalog("devices:\n" + device_text("V100", kFigures)).find("'assume' is missing"),
      std::string::npos);
  EXPECT_NE(refusal_of_catalog(kAssume).find("'devices' is missing"), std::string::npos);
}

DeviceSpec device_named(const std::string& type, std::optional<Bytes> memory = {}) {
  DeviceSpec device;
  device.id = "a1/0";
  device.type = type;
  device.memory = memory;
  return device;
}

TEST(Catalog, OfTheProgramIsTheFile) {
  std::ifstream file(testing::source_dir() / "configs" / "devices.yaml");
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_EQ(built_in_catalog_text(), text.str());
  const auto catalog = built_in_catalog();
  ASSERT_TRUE(catalog) << catalog.error().to_string();
  EXPECT_GE(catalog->devices.size(), 20U);
  for (const CatalogDevice& device : catalog->devices) {
    // Half precision is never slower than full (Pascal's, which sums in fp16, is none), more memory
    // bandwidth than a link's.
    const bool pascal = device.compute_capability > 0 && device.compute_capability < 7;
    EXPECT_TRUE(pascal ? device.tflops.fp16 == 0 : device.tflops.fp16 >= device.tflops.fp32)
        << device.type;
    EXPECT_GT(device.bytes_per_second, device.link.bytes_per_second) << device.type;
    EXPECT_GT(device.link.latency, Nanos(0)) << device.type;
  }
}

TEST(Catalog, FindsWhatATypeMeans) {
  const auto catalog = built_in_catalog();
  ASSERT_TRUE(catalog);
  const auto type_of = [&](const DeviceSpec& device) -> std::string {
    const auto found = find_figures(*catalog, device);
    return found ? (*found)->type : found.error().message;
  };
  EXPECT_EQ(type_of(device_named("RTX3090")), "RTX3090");
  EXPECT_EQ(type_of(device_named("rtx3090")), "RTX3090");
  EXPECT_EQ(type_of(device_named("rtx-3090")), "RTX3090");
  EXPECT_EQ(type_of(device_named("NVIDIA GeForce RTX 3090")), "RTX3090");
  EXPECT_EQ(type_of(device_named("NVIDIA A100-SXM4-40GB")), "A100-40GB");
  EXPECT_EQ(type_of(device_named("NVIDIA GeForce RTX 3060 Ti")), "RTX3060Ti");
  EXPECT_EQ(type_of(device_named("NVIDIA GeForce RTX 4070 Ti SUPER")), "RTX4070Ti-SUPER");
  EXPECT_EQ(type_of(device_named("NVIDIA GeForce RTX 4070 SUPER")), "RTX4070-SUPER");
  EXPECT_EQ(type_of(device_named("NVIDIA GeForce RTX 3080 Ti")), "RTX3080Ti");
  EXPECT_EQ(type_of(device_named("NVIDIA GeForce RTX 3090 Ti")), "RTX3090Ti");
  EXPECT_EQ(type_of(device_named("NVIDIA GeForce RTX 4080 SUPER")), "RTX4080-SUPER");
  EXPECT_EQ(type_of(device_named("NVIDIA RTX A5000")), "A5000");
  EXPECT_EQ(type_of(device_named("NVIDIA A10")), "A10");
  EXPECT_EQ(type_of(device_named("Tesla P100-PCIE-16GB")), "P100-PCIe");
  EXPECT_EQ(type_of(device_named("GTX1080")), "GTX1080");
  EXPECT_EQ(type_of(device_named("A100-80GB-PCIe")), "A100-80GB-PCIe");
  EXPECT_EQ(type_of(device_named("V100", Bytes(32'000'000'000))), "V100-32GB");
  EXPECT_EQ(type_of(device_named("A100", Bytes(39'000'000'000))), "A100-40GB");
  EXPECT_EQ(type_of(device_named("A100", Bytes(85'000'000'000))), "A100-80GB");
  EXPECT_EQ(type_of(device_named("A100")),
            "device a1/0: a 'A100' may be A100-40GB, A100-80GB or A100-80GB-PCIe: say which, or "
            "give its memory");
  EXPECT_NE(type_of(device_named("RTX3O90")).find("did you mean 'RTX3090'?"), std::string::npos);
  EXPECT_NE(type_of(device_named("abacus")).find("it knows GTX1070"), std::string::npos);
}

TEST(Catalog, TypesThatAJobAdmitsMustBeKnown) {
  const auto catalog = built_in_catalog();
  ASSERT_TRUE(catalog);
  const auto said_of = [&](std::vector<std::string> types) {
    JobSpec job;
    job.devices.types = std::move(types);
    job.places["resources.devices.types.1"] = {"job.yaml", 4, 30};
    const Result<Unit> known = check_types_known(*catalog, job);
    return known ? "known" : known.error().to_string();
  };
  EXPECT_EQ(said_of({}), "known");
  EXPECT_EQ(said_of({"t4", "A100", "NVIDIA A10", "NVIDIA-A100-SXM4-40GB"}), "known");
  EXPECT_EQ(said_of({"T4", "RTX3O90"}),
            "job.yaml:4:30: 'types': configs/devices.yaml has no figures of 'RTX3O90' (did you "
            "mean 'RTX3090'?)");
  EXPECT_NE(said_of({"T4", "abacus"}).find("'abacus' (it knows GTX1070"), std::string::npos);
}

TEST(Catalog, APartOfANameIsNone) {
  const auto built_in = built_in_catalog();
  ASSERT_TRUE(built_in);
  for (const char* type :
       {"RTX2080", "RTX-2080", "NVIDIA GeForce RTX 2080", "NVIDIA GeForce RTX 2080 SUPER",
        "NVIDIA GeForce RTX 2070 with Max-Q Design", "RTX3080-Max-Q",
        "NVIDIA GeForce GTX 1070 Max-Q", "RTX-3060-Laptop-GPU",
        "NVIDIA GeForce RTX 4090 Laptop GPU", "NVIDIA GeForce RTX 4090 D", "rtx3080ti-laptop",
        "RTX3090-egpu", "A100-80GB-lab2", "NVIDIA-A100"}) {
    const auto found = find_figures(*built_in, device_named(type));
    ASSERT_FALSE(found) << type << ": " << (*found)->type;
    EXPECT_EQ(found.error().code, ErrorCode::kInvalidSpec);
    EXPECT_NE(found.error().message.find("has no figures of '" + std::string(type) + "' ("),
              std::string::npos)
        << found.error().message;
  }
  // Each name means its own entry, or the nearest in memory of those that share it.
  for (const CatalogDevice& entry : built_in->devices) {
    std::vector<std::string> names = entry.aliases;
    names.push_back(entry.type);
    for (const std::string& name : names) {
      const auto found = find_figures(*built_in, device_named(name, entry.memory));
      ASSERT_TRUE(found) << name;
      EXPECT_EQ((*found)->memory, entry.memory) << name;
      EXPECT_TRUE(name != entry.type || (*found)->type == entry.type) << name;
    }
  }
}

TEST(Catalog, OnesOwnMayHaveAnyName) {
  const auto own = parse_catalog(
      kAssume + "devices:\n" + device_text("RTX-3060-Laptop-GPU", kFigures), "devices.yaml");
  ASSERT_TRUE(own) << own.error().to_string();
  EXPECT_TRUE(find_figures(*own, device_named("RTX 3060 Laptop GPU")));
  EXPECT_FALSE(find_figures(*own, device_named("rtx-3060-laptop")));
  EXPECT_FALSE(find_figures(*own, device_named("RTX 3060")));
  EXPECT_EQ(refusal_of_catalog(kAssume + "devices:\n" +
                               device_text("one", "aliases: [both, both], " + kFigures)),
            "devices.yaml:9:12: the name 'both' is given twice");
  EXPECT_EQ(refusal_of_catalog(kAssume + "devices:\n" +
                               device_text("one", "aliases: [both], " + kFigures) +
                               device_text("two", "aliases: [both], " + kFigures)),
            "no error");
}

}  // namespace
}  // namespace motley
