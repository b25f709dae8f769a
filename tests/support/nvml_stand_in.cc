// A libnvidia-ml.so.1 for tests: the GPUs are those of the JSON file that MOTLEY_NVML_STAND_IN
// names,
//
//   {"driver": "580.65", "gpus": [{"name": …, "uuid": …, "bus_id": …, "memory": …, "free": …,
//   "capability": [9, 0],
//     "numbers": {"clock": 1200, "power": 250000, …}, "throttle": 8, "xids": [79]}]}
//
// What a GPU does not list is "not supported", as on cards and drivers that do not tell it.

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

namespace {

constexpr int kSuccess = 0, kNotSupported = 3, kDriverNotLoaded = 9, kTimeout = 10;
using Handle = void*;
using nlohmann::json;

json machine;

const json& gpu(Handle device) { return *static_cast<const json*>(device); }

int text(const json& object, const char* key, char* to, unsigned length) {
  if (!object.contains(key)) return kNotSupported;
  std::strncpy(to, object[key].get<std::string>().c_str(), length);
  return kSuccess;
}

int number(Handle device, const char* key, unsigned* to) {
  const json& numbers = gpu(device).value("numbers", json::object());
  if (!numbers.contains(key)) return kNotSupported;
  *to = numbers[key].get<unsigned>();
  return kSuccess;
}

struct PciInfo {
  char bus_id_legacy[16];
  unsigned numbers[5];
  char bus_id[32];
};
struct MemoryInfo {
  unsigned long long total, free, used;
};
struct EventData {
  Handle device;
  unsigned long long type, data;
  unsigned instances[2];
};

}  // namespace

extern "C" {

int nvmlInit_v2() {
  const char* path = std::getenv("MOTLEY_NVML_STAND_IN");
  if (path == nullptr) return kDriverNotLoaded;
  std::ifstream file(path);
  machine = json::parse(file, nullptr, false);
  return machine.is_object() ? kSuccess : kDriverNotLoaded;
}
int nvmlShutdown() { return kSuccess; }
int nvmlSystemGetDriverVersion(char* to, unsigned length) {
  return text(machine, "driver", to, length);
}
int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = static_cast<unsigned>(machine["gpus"].size());
  return kSuccess;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, Handle* device) {
  *device = &machine["gpus"][index];
  return gpu(*device).contains("uuid") ? kSuccess : kNotSupported;
}
int nvmlDeviceGetName(Handle device, char* to, unsigned length) {
  return text(gpu(device), "name", to, length);
}
int nvmlDeviceGetUUID(Handle device, char* to, unsigned length) {
  return text(gpu(device), "uuid", to, length);
}
int nvmlDeviceGetPciInfo_v3(Handle device, PciInfo* to) {
  return text(gpu(device), "bus_id", to->bus_id, sizeof to->bus_id);
}
int nvmlDeviceGetMemoryInfo(Handle device, MemoryInfo* to) {
  if (!gpu(device).contains("memory")) return kNotSupported;
  to->total = gpu(device)["memory"];
  to->free = gpu(device)["free"];
  return kSuccess;
}
int nvmlDeviceGetCudaComputeCapability(Handle device, int* major, int* minor) {
  if (!gpu(device).contains("capability")) return kNotSupported;
  *major = gpu(device)["capability"][0];
  *minor = gpu(device)["capability"][1];
  return kSuccess;
}
int nvmlDeviceGetClockInfo(Handle device, unsigned, unsigned* to) {
  return number(device, "clock", to);
}
int nvmlDeviceGetMaxClockInfo(Handle device, unsigned, unsigned* to) {
  return number(device, "most_clock", to);
}
int nvmlDeviceGetTemperature(Handle device, unsigned, unsigned* to) {
  return number(device, "temperature", to);
}
int nvmlDeviceGetUtilizationRates(Handle device, unsigned* to) {
  return number(device, "utilisation", to);
}
int nvmlDeviceGetPowerUsage(Handle device, unsigned* to) { return number(device, "power", to); }
int nvmlDeviceGetEnforcedPowerLimit(Handle device, unsigned* to) {
  return number(device, "power_limit", to);
}
int nvmlDeviceGetCurrPcieLinkWidth(Handle device, unsigned* to) {
  return number(device, "width", to);
}
int nvmlDeviceGetMaxPcieLinkWidth(Handle device, unsigned* to) {
  return number(device, "most_width", to);
}
int nvmlDeviceGetCurrPcieLinkGeneration(Handle device, unsigned* to) {
  return number(device, "generation", to);
}
int nvmlDeviceGetMaxPcieLinkGeneration(Handle device, unsigned* to) {
  return number(device, "most_generation", to);
}
int nvmlDeviceGetCurrentClocksThrottleReasons(Handle device, unsigned long long* to) {
  if (!gpu(device).contains("throttle")) return kNotSupported;
  *to = gpu(device)["throttle"];
  return kSuccess;
}
int nvmlEventSetCreate(Handle* set) {
  *set = &machine;
  return kSuccess;
}
int nvmlDeviceRegisterEvents(Handle, unsigned long long, Handle) { return kSuccess; }
int nvmlEventSetWait_v2(Handle, EventData* to, unsigned) {
  for (json& device : machine["gpus"]) {
    json xids = device.value("xids", json::array());
    if (xids.empty()) continue;
    *to = {&device, 8, xids[0].get<unsigned long long>(), {}};
    xids.erase(0);
    device["xids"] = xids;
    return kSuccess;
  }
  return kTimeout;
}
int nvmlEventSetFree(Handle) { return kSuccess; }
}
