// Whether cuDNN itself takes our graphs, for GPUs that are only described: asked of the real
// library, without a GPU. Its engines want a driver's library to be there, which may be the
// toolkit's stub.

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "kernels/cuda/cudnn_attention_graphs.h"
#include "kernels/cuda/cudnn_plan.h"
#include "tests/support/require.h"

namespace motley::cudnn {
namespace {

constexpr int64_t kWorkspace = int64_t{256} << 20;

struct Gpu {
  int capability, multiprocessors, shared_kibibytes;
};

/// As cuDNN writes one (kDeviceJson). What a support check does not read is about right.
std::string described(const Gpu& gpu) {
  const nlohmann::json device{
      {"maxGridSize", {2147483647, 65535, 65535}},
      {"maxBlockSize", {1024, 1024, 64}},
      {"regsPerBlock", 65536},
      {"multiProcessorCount", gpu.multiprocessors},
      {"warpSize", 32},
      {"maxSharedMemoryPerBlock", 48 << 10},
      {"maxSharedMemoryPerBlockOptin", gpu.shared_kibibytes << 10},
      {"reservedSharedMemoryPerBlock", 1024},
      {"maxRegistersPerSM", 65536},
      {"maxCtasPerSM", gpu.capability == 80 || gpu.capability >= 90 ? 32 : 16},
      {"maxThreadsPerBlock", 1024},
      {"maxThreadsPerSM", gpu.capability < 80 ? 1024 : 2048},
      {"pciDeviceId", 0},
      {"isTccDriver", 0},
      {"supportCoopLaunch", 1},
      {"smClockRateKHz", 1500000},
      {"memClockRateKHz", 1500000},
      {"l2CacheSize", 40 << 20},
      {"deviceName", "described"},
      {"deviceVer", gpu.capability * 10},
      {"driverVer", 13000},
      {"cudaDeviceId", 0},
      {"totalGlobalMem", int64_t{24} << 30}};
  return device.dump();
}

class CudnnSupport : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto opened = Library::open("libcudnn.so.9");
    if (!opened) MOTLEY_SKIP_WITHOUT("cudnn", opened.error().message);
    if (dlopen("libcuda.so.1", RTLD_NOW) == nullptr)
      MOTLEY_SKIP_WITHOUT("cudnn", "neither a driver nor a toolkit's stub of one");
    library_ = *opened;
  }

  /// Why there is no engine for a graph; empty: there is one.
  template <class MakeGraph>
  std::string refusal(const Gpu& gpu, const MakeGraph& make_graph) const {
    Descriptors descriptors(*library_);
    const Descriptor graph = make_graph(descriptors);
    if (!descriptors.good()) return "the graph: " + descriptors.refusal();
    const auto engines = usable_engines(descriptors, graph, {nullptr, described(gpu)}, kWorkspace);
    if (!descriptors.good()) return "the device: " + descriptors.refusal();
    return engines.empty() ? "no engine" : "";
  }
  /// Of either direction; empty: none.
  std::string refusal(const Gpu& gpu, const AttentionShape& shape) const {
    const std::string forward =
        refusal(gpu, [&](Descriptors& d) { return attention_forward_graph(d, shape, nullptr); });
    if (!forward.empty()) return "forward: " + forward;
    const std::string backward = refusal(gpu, [&](Descriptors& d) {
      return attention_backward_graph(d, attention_slice(shape, kWorkspace), nullptr);
    });
    return backward.empty() ? "" : "backward: " + backward;
  }

  const Library* library_ = nullptr;
};

AttentionShape shape(int64_t context, int64_t head_dim, DataType type) {
  return {8, context, 12, head_dim, 12, type};
}

TEST_F(CudnnSupport, EachGpuFromSm80OnHasEnginesForBothDirections) {
  constexpr Gpu kA100{80, 108, 163}, kH100{90, 132, 227};
  for (const Gpu& gpu : {kA100, kH100})
    for (const DataType type : {DataType::kBfloat16, DataType::kHalf})
      for (const int64_t head_dim : {64, 128})
        EXPECT_EQ(refusal(gpu, shape(1024, head_dim, type)), "")
            << "sm_" << gpu.capability << ", heads of " << head_dim;
  for (const int64_t context : {1, 100, 1023})
    EXPECT_EQ(refusal(kH100, shape(context, 64, DataType::kBfloat16)), "") << context;
  const AttentionShape largest_preset{16, 1024, 25, 64, 25, DataType::kBfloat16};
  EXPECT_EQ(refusal(kH100, largest_preset), "");
}

// Those whose engines come and go with cuDNN's version: cuDNN 9.19 has some for all.
TEST_F(CudnnSupport, TellsWhichOtherGpusItServes) {
  for (const Gpu& gpu :
       {Gpu{86, 82, 99}, Gpu{89, 128, 99}, Gpu{100, 148, 227}, Gpu{120, 170, 99}}) {
    const std::string why = refusal(gpu, shape(1024, 64, DataType::kBfloat16));
    const std::string found = why.empty() ? "served" : why;
    std::printf("cuDNN %s, sm_%d: %s\n", library_->version_text().c_str(), gpu.capability,
                found.c_str());
    RecordProperty("sm_" + std::to_string(gpu.capability), found);
  }
}

TEST_F(CudnnSupport, OlderGpusAndOddHeadsAreLeftToOurKernels) {
  EXPECT_EQ(refusal(Gpu{75, 40, 64}, shape(1024, 64, DataType::kHalf)), "forward: no engine");
  EXPECT_EQ(refusal(Gpu{80, 108, 163}, shape(1024, 20, DataType::kBfloat16)), "forward: no engine");
}

}  // namespace
}  // namespace motley::cudnn
