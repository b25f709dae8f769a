#include "core/nvml.h"

#include <dlfcn.h>

#include <array>

namespace motley {
namespace {

constexpr const char* kNvmlLibrary = "libnvidia-ml.so.1";
constexpr int kSuccess = 0;
constexpr unsigned kTextLength = 96;  // NVML's longest: names, UUIDs of MIG devices
constexpr unsigned kSmClock = 1;
constexpr unsigned kCoreTemperature = 0;
constexpr unsigned long long kXidCriticalError = 8;

using Handle = void*;

struct PciInfo {
  char bus_id_legacy[16];
  unsigned domain, bus, device, device_id, subsystem_id;
  char bus_id[32];
};
struct MemoryInfo {
  unsigned long long total, free, used;
};
struct Utilisation {
  unsigned gpu, memory;  // percent
};
struct EventData {
  Handle device;
  unsigned long long type, data;
  unsigned gpu_instance, compute_instance;
};

struct ThrottleReason {
  unsigned long long bit;
  const char* words;
};
constexpr ThrottleReason kThrottleReasons[] = {{0x4, "power cap"},
                                               {0x8, "hardware slowdown"},
                                               {0x10, "sync boost"},
                                               {0x20, "temperature (software)"},
                                               {0x40, "temperature (hardware)"},
                                               {0x80, "power brake"}};

std::vector<std::string> throttle_words(unsigned long long reasons) {
  std::vector<std::string> words;
  for (const ThrottleReason& reason : kThrottleReasons)
    if ((reasons & reason.bit) != 0) words.emplace_back(reason.words);
  return words;
}

/// A function of the library; calling one that an old driver lacks fails.
template <class... Args>
class Function {
 public:
  void find(void* library, const char* name) {
    function_ = reinterpret_cast<int (*)(Args...)>(dlsym(library, name));
  }
  explicit operator bool() const { return function_ != nullptr; }
  bool operator()(Args... args) const {
    return function_ != nullptr && function_(args...) == kSuccess;
  }

 private:
  int (*function_)(Args...) = nullptr;
};

using Number = Function<Handle, unsigned*>;
using NumberOfKind = Function<Handle, unsigned, unsigned*>;
using Text = Function<Handle, char*, unsigned>;

std::optional<int> value(const Number& number, Handle device) {
  unsigned found = 0;
  return number(device, &found) ? std::optional(static_cast<int>(found)) : std::nullopt;
}
std::optional<int> value(const NumberOfKind& number, Handle device, unsigned kind) {
  unsigned found = 0;
  return number(device, kind, &found) ? std::optional(static_cast<int>(found)) : std::nullopt;
}
std::optional<double> watts(const Number& milliwatts, Handle device) {
  const auto found = value(milliwatts, device);
  return found ? std::optional(*found / 1000.0) : std::nullopt;
}
std::string value(const Text& text, Handle device) {
  std::array<char, kTextLength> found{};
  return text(device, found.data(), kTextLength) ? found.data() : "";
}

}  // namespace

struct Nvml::Api {
  explicit Api(void* opened) : library(opened) {
    init.find(library, "nvmlInit_v2");
    shutdown.find(library, "nvmlShutdown");
    driver_version.find(library, "nvmlSystemGetDriverVersion");
    count.find(library, "nvmlDeviceGetCount_v2");
    handle.find(library, "nvmlDeviceGetHandleByIndex_v2");
    name.find(library, "nvmlDeviceGetName");
    uuid.find(library, "nvmlDeviceGetUUID");
    pci.find(library, "nvmlDeviceGetPciInfo_v3");
    memory.find(library, "nvmlDeviceGetMemoryInfo");
    capability.find(library, "nvmlDeviceGetCudaComputeCapability");
    clock.find(library, "nvmlDeviceGetClockInfo");
    most_clock.find(library, "nvmlDeviceGetMaxClockInfo");
    temperature.find(library, "nvmlDeviceGetTemperature");
    utilisation.find(library, "nvmlDeviceGetUtilizationRates");
    power.find(library, "nvmlDeviceGetPowerUsage");
    power_limit.find(library, "nvmlDeviceGetEnforcedPowerLimit");
    width.find(library, "nvmlDeviceGetCurrPcieLinkWidth");
    most_width.find(library, "nvmlDeviceGetMaxPcieLinkWidth");
    generation.find(library, "nvmlDeviceGetCurrPcieLinkGeneration");
    most_generation.find(library, "nvmlDeviceGetMaxPcieLinkGeneration");
    throttle_reasons.find(library, "nvmlDeviceGetCurrentClocksThrottleReasons");
    create_events.find(library, "nvmlEventSetCreate");
    register_events.find(library, "nvmlDeviceRegisterEvents");
    wait_events.find(library, "nvmlEventSetWait_v2");
    free_events.find(library, "nvmlEventSetFree");
  }
  ~Api() { dlclose(library); }

  bool complete() const { return init && shutdown && count && handle && name && uuid; }
  std::vector<Handle> devices() const;
  GpuStatus status(Handle device) const;

  void* library;
  Handle events = nullptr;
  Function<> init, shutdown;
  Function<char*, unsigned> driver_version;
  Function<unsigned*> count;
  Function<unsigned, Handle*> handle;
  Text name, uuid;
  Function<Handle, PciInfo*> pci;
  Function<Handle, MemoryInfo*> memory;
  Function<Handle, int*, int*> capability;
  Function<Handle, Utilisation*> utilisation;
  NumberOfKind clock, most_clock, temperature;
  Number power, power_limit, width, most_width, generation, most_generation;
  Function<Handle, unsigned long long*> throttle_reasons;
  Function<Handle*> create_events;
  Function<Handle, unsigned long long, Handle> register_events;
  Function<Handle, EventData*, unsigned> wait_events;
  Function<Handle> free_events;
};

std::vector<Handle> Nvml::Api::devices() const {
  unsigned found = 0;
  std::vector<Handle> devices;
  if (!count(&found)) return devices;
  for (unsigned index = 0; index < found; ++index) {
    Handle device = nullptr;
    if (handle(index, &device)) devices.push_back(device);
  }
  return devices;
}

GpuStatus Nvml::Api::status(Handle device) const {
  GpuStatus status;
  status.name = value(name, device);
  status.uuid = value(uuid, device);
  PciInfo place{};
  if (pci(device, &place)) status.bus_id = place.bus_id;
  MemoryInfo bytes{};
  if (memory(device, &bytes)) {
    status.memory = Bytes(static_cast<int64_t>(bytes.total));
    status.free_memory = Bytes(static_cast<int64_t>(bytes.free));
  }
  int major = 0, minor = 0;
  if (capability(device, &major, &minor)) status.compute_capability = 10 * major + minor;
  status.sm_clock = value(clock, device, kSmClock);
  status.most_sm_clock = value(most_clock, device, kSmClock);
  status.temperature = value(temperature, device, kCoreTemperature);
  Utilisation rates{};
  if (utilisation(device, &rates)) status.utilisation = static_cast<int>(rates.gpu);
  status.power = watts(power, device);
  status.power_limit = watts(power_limit, device);
  status.pcie_width = value(width, device);
  status.most_pcie_width = value(most_width, device);
  status.pcie_generation = value(generation, device);
  status.most_pcie_generation = value(most_generation, device);
  unsigned long long reasons = 0;
  if (throttle_reasons(device, &reasons)) status.throttled_by = throttle_words(reasons);
  return status;
}

Result<std::unique_ptr<Nvml>> Nvml::open() {
  void* library = dlopen(kNvmlLibrary, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr)
    return fail(ErrorCode::kUnsupported,
                std::string("no NVIDIA driver: ") + kNvmlLibrary + " is not on this machine");
  auto api = std::make_unique<Api>(library);
  if (!api->complete() || !api->init())
    return fail(ErrorCode::kUnsupported, std::string(kNvmlLibrary) +
                                             " does not start (try nvidia-smi): the driver is not "
                                             "loaded, or is another version than its library");
  std::unique_ptr<Nvml> nvml(new Nvml(std::move(api)));
  nvml->watch_xids();
  return nvml;
}

Nvml::Nvml(std::unique_ptr<Api> api) : api_(std::move(api)) {}

Nvml::~Nvml() {
  if (api_->events != nullptr) api_->free_events(api_->events);
  api_->shutdown();
}

/// A driver without events, or a card that has none, reports no faults.
void Nvml::watch_xids() {
  if (!api_->create_events(&api_->events)) return;
  for (const Handle device : api_->devices())
    api_->register_events(device, kXidCriticalError, api_->events);
}

std::string Nvml::driver_version() const {
  std::array<char, kTextLength> version{};
  return api_->driver_version(version.data(), kTextLength) ? version.data() : "";
}

std::vector<GpuStatus> Nvml::gpus() const {
  std::vector<GpuStatus> found;
  for (const Handle device : api_->devices()) found.push_back(api_->status(device));
  return found;
}

std::vector<XidEvent> Nvml::new_xids(unsigned patience_ms) {
  std::vector<XidEvent> found;
  EventData event{};
  while (api_->events != nullptr &&
         api_->wait_events(api_->events, &event, std::exchange(patience_ms, 0)))
    if (event.type == kXidCriticalError)
      found.push_back({value(api_->uuid, event.device), static_cast<int64_t>(event.data)});
  return found;
}

}  // namespace motley
