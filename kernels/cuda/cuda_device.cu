#include <nvtx3/nvToolsExt.h>

#include <algorithm>
#include <mutex>

#include "core/check.h"
#include "core/debug_env.h"
#include "core/log.h"
#include "core/spec/names.h"
#include "core/units.h"
#include "kernels/cuda/cuda_device.cuh"
#include "kernels/cuda/cuda_ops.h"

namespace motley::cuda {
namespace {

/// The driver reports a fault a moment after the call that meets it.
constexpr unsigned kXidPatienceMs = 200;

ErrorCode code_of(cudaError_t status) {
  return status == cudaErrorMemoryAllocation ? ErrorCode::kOutOfMemory : ErrorCode::kDeviceLost;
}

nvtxDomainHandle_t ranges() {
  static const nvtxDomainHandle_t domain = nvtxDomainCreateA("motley");
  return domain;
}

Error lost(const std::string& device, const char* what, cudaError_t status) {
  return {code_of(status), device + ": " + what + ": " + cudaGetErrorString(status), {}};
}

/// Of GPUs: the first whose tensor cores have it.
int first_capability(Precision precision) {
  if (precision == Precision::kFp8) return 89;
  return precision == Precision::kBf16 || precision == Precision::kTf32 ? 80 : 0;
}

/// kUnsupported where the GPU has it not.
Result<Unit> check_precision(const cudaDeviceProp& gpu, Precision precision) {
  const int capability = capability_of(gpu), first = first_capability(precision);
  if (capability >= first) return Unit{};
  const char* instead = capability < 80 ? "fp16" : "bf16";
  return fail(ErrorCode::kUnsupported,
              std::string(gpu.name) + " (sm_" + std::to_string(capability) + ") has no " +
                  spec_name(precision) + ", which comes with sm_" + std::to_string(first) +
                  "; train in " + (precision == Precision::kTf32 ? "fp32" : instead) + " on it");
}

/// Pages stay on the device while there is room.
cudaError_t prefer_device(const void* data, size_t size, int ordinal) {
#if CUDART_VERSION >= 13000
  return cudaMemAdvise(data, size, cudaMemAdviseSetPreferredLocation,
                       cudaMemLocation{cudaMemLocationTypeDevice, ordinal});
#else
  return cudaMemAdvise(data, size, cudaMemAdviseSetPreferredLocation, ordinal);
#endif
}

/// Empty: none is to be opened.
std::string cudnn_library() {
  const std::string& given = debug_env().cudnn;
  if (!given.empty()) return given == "none" ? "" : given;
#ifdef __CUDACC__
  return "libcudnn.so.9";
#else  // compiled for the CPU (tests/support/cuda_on_host): there is no GPU that it could use
  return "";
#endif
}

/// Bytes for the gradients of scores, which cuDNN's deterministic backward keeps: enough for about
/// as many heads as fill the GPU, hardly any of its memory.
size_t attention_workspace(size_t gpu_memory) {
  return std::min(size_t{256} << 20, gpu_memory / 128);
}

/// An event, on the device's stream or on one of copies.
class CudaMark final : public StreamMark {
 public:
  explicit CudaMark(CudaDevice& gpu) : gpu_(gpu) {
    gpu_.check(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "event");
  }
  CudaMark(const CudaMark&) = delete;
  CudaMark& operator=(const CudaMark&) = delete;
  ~CudaMark() override {
    if (event_ != nullptr) cudaEventDestroy(event_);
  }

  void set() override { set_on(gpu_.stream()); }
  void set_on(cudaStream_t stream) { gpu_.check(cudaEventRecord(event_, stream), "event"); }
  void hold_stream() override { hold(gpu_.stream()); }
  void hold(cudaStream_t stream) { gpu_.check(cudaStreamWaitEvent(stream, event_, 0), "event"); }
  Result<Unit> wait() override {
    const cudaError_t status = cudaEventSynchronize(event_);
    if (status != cudaSuccess) return fail(lost(gpu_.name(), "kernel", status));
    return Unit{};
  }

 private:
  CudaDevice& gpu_;
  cudaEvent_t event_ = nullptr;
};

/// A CUDA graph. The first replay enqueues plainly, as libraries and the driver set themselves up
/// at first use, which a capture refuses; the second one captures.
class GraphRecording final : public Recording {
 public:
  GraphRecording(CudaDevice& gpu, std::function<void()> enqueue)
      : Recording(std::move(enqueue)), gpu_(gpu) {}
  GraphRecording(const GraphRecording&) = delete;
  GraphRecording& operator=(const GraphRecording&) = delete;
  ~GraphRecording() override {
    if (graph_ != nullptr) cudaGraphExecDestroy(graph_);
  }

  void replay() override {
    if (state_ == State::kWarm) prepare();
    if (state_ == State::kNew) state_ = State::kWarm;
    if (graph_ != nullptr)
      gpu_.check(cudaGraphLaunch(graph_, gpu_.stream()), "graph");
    else
      enqueue();
  }

 private:
  enum class State { kNew, kWarm, kSettled };

  void prepare() {
    state_ = State::kSettled;
    std::string why;
    graph_ = gpu_.capture([this] { enqueue(); }, &why);
    static std::once_flag said;
    if (graph_ == nullptr)
      std::call_once(said, [&] {
        log_warning(gpu_.name() + " does not take a program as one graph (" + why +
                    "): its operations are launched one by one");
      });
  }

  CudaDevice& gpu_;
  State state_ = State::kNew;
  cudaGraphExec_t graph_ = nullptr;
};

}  // namespace

std::string uuid_text(const cudaDeviceProp& properties) {
  // CUDA has no other sign of it.
  const bool part = std::string(properties.name).find(" MIG ") != std::string::npos;
  std::string text = part ? "MIG" : "GPU";
  for (int i = 0; i < 16; ++i) {
    std::array<char, 3> digits{};
    std::snprintf(digits.data(), digits.size(), "%02x",
                  static_cast<unsigned char>(properties.uuid.bytes[i]));
    if (i == 0 || i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += digits.data();
  }
  return text;
}

Result<std::unique_ptr<Device>> CudaDevice::open(int ordinal, Precision precision,
                                                 const std::optional<ShareSpec>& share) {
  cudaDeviceProp properties{};
  if (const auto status = cudaGetDeviceProperties(&properties, ordinal); status != cudaSuccess)
    return fail(lost("GPU " + std::to_string(ordinal), "properties", status));
  MOTLEY_TRY_VOID(check_precision(properties, precision));
  const bool rounds = is_reduced(precision) || precision == Precision::kTf32;
  std::unique_ptr<CudaDevice> device(
      new CudaDevice(ordinal, properties, rounds ? precision : Precision::kFp32, share));
  MOTLEY_TRY_VOID(device->start());
  return device;
}

Result<Unit> CudaDevice::start() {
  const auto step = [&](const char* what, cudaError_t status) -> Result<Unit> {
    if (status != cudaSuccess) return fail(lost(name(), what, status));
    return Unit{};
  };
  MOTLEY_TRY_VOID(step("select", cudaSetDevice(ordinal_)));
  if (share_) {
    MOTLEY_TRY(part_, GreenContext::create(ordinal_, *share_, properties_));
  }
  if (auto nvml = Nvml::open()) nvml_ = std::move(*nvml);
  for (cudaStream_t* stream : {&stream_, &copies_in_, &copies_out_}) {
    MOTLEY_TRY(*stream, create_stream());
  }
  const cudnn::Library* cudnn = cudnn_for_attention();
  const size_t workspace =
      std::max(kWorkspace, cudnn != nullptr ? attention_workspace(properties_.totalGlobalMem) : 0);
  MOTLEY_TRY_VOID(step("workspace", cudaMalloc(&workspace_, workspace)));
  MOTLEY_TRY_VOID(step("workspace", cudaMalloc(&partial_sums_, kPartialSums * sizeof(double))));
  const auto status = products_.start(
      workspace_, kWorkspace,
      {.multiprocessors = share_ ? share_->sms : 0, .tf32 = precision_ == Precision::kTf32});
  if (status != CUBLAS_STATUS_SUCCESS)
    return fail(ErrorCode::kDeviceLost,
                name() + ": cuBLASLt does not start: " + cublasLtGetStatusString(status));
  if (cudnn != nullptr) start_attention(*cudnn, workspace);
  return Unit{};
}

/// Null where our own kernels compute all attention; logs why where cuDNN might have.
const cudnn::Library* CudaDevice::cudnn_for_attention() const {
  const std::string library = cudnn_library();
  if (!is_reduced(precision_) || library.empty()) return nullptr;
  const auto opened = cudnn::Library::open(library.c_str());
  std::string why =
      opened ? cudnn::attention_refusal(**opened, capability()) : opened.error().message;
  if (why.empty() && share_) why = "cuDNN's are made for all multiprocessors";
  if (why.empty()) return *opened;
  log_info(name() + ": attention in our own kernels: " + why);
  return nullptr;
}

// A GPU on which cuDNN does not start can do without.
void CudaDevice::start_attention(const cudnn::Library& library, size_t workspace_size) {
  auto started =
      cudnn::Attention::start(library, stream_, workspace_, static_cast<int64_t>(workspace_size));
  if (started) {
    attention_ = std::move(*started);
    log_info(name() + ": attention through cuDNN " + library.version_text());
  } else {
    log_info(name() + ": attention in our own kernels: " + started.error().message);
  }
}

Result<cudaStream_t> CudaDevice::create_stream() {
  if (part_) return part_->create_stream();
  cudaStream_t stream = nullptr;
  const auto status = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  if (status != cudaSuccess) return fail(lost(name(), "stream", status));
  return stream;
}

CudaDevice::~CudaDevice() {
  // Whatever fails here fails because the device is lost; nothing is left to save.
  const cudaStream_t streams[] = {copies_in_, copies_out_, stream_};
  for (cudaStream_t stream : streams)
    if (stream != nullptr) cudaStreamSynchronize(stream);
  attention_.reset();
  cudaFree(partial_sums_);
  cudaFree(workspace_);
  for (cudaStream_t stream : streams)
    if (stream != nullptr) cudaStreamDestroy(stream);
}

const OpTable& CudaDevice::ops() const { return ops_in(precision_); }

std::string CudaDevice::name() const {
  return properties_.name +
         (share_ ? " (" + std::to_string(share_->sms) + " multiprocessors)" : std::string());
}

std::string CudaDevice::arithmetic_class() const {
  return std::string("cuda:") + properties_.name + ":sm_" + std::to_string(capability()) +
         ":cublas-" + LtMatmul::version() +
         (precision_ == Precision::kFp32 ? "" : ":" + spec_name(precision_)) +
         (attention_ ? ":cudnn-" + attention_->version_text() : "") + ":" +
         std::to_string(multiprocessors()) + "-multiprocessors";
}

Bytes CudaDevice::available_memory() {
  size_t free = 0, total = 0;
  check(cudaMemGetInfo(&free, &total), "free memory");
  return Bytes(static_cast<int64_t>(free));
}

Result<DeviceBuffer> CudaDevice::allocate(Bytes size) {
  ++allocations_;
  if (size.value() == 0) return DeviceBuffer();
  void* data = nullptr;
  const auto status = cudaMalloc(&data, static_cast<size_t>(size.value()));
  if (status == cudaSuccess)
    return DeviceBuffer(data, size, [](void* memory) { cudaFree(memory); });
  cudaGetLastError();  // a refused allocation is no fault of the next launch
  if (status != cudaErrorMemoryAllocation) return fail(lost(name(), "allocation", status));
  size_t free = 0, total = 0;
  cudaMemGetInfo(&free, &total);
  return fail(ErrorCode::kOutOfMemory, name() + " has no " + format_bytes(size) + " left (" +
                                           format_bytes(Bytes(static_cast<int64_t>(free))) +
                                           " of " +
                                           format_bytes(Bytes(static_cast<int64_t>(total))) +
                                           " free): " + cudaGetErrorString(status));
}

Result<DeviceBuffer> CudaDevice::allocate_pinned(Bytes size) {
  ++allocations_;
  if (size.value() == 0) return DeviceBuffer();
  void* data = nullptr;
  const auto status = cudaHostAlloc(&data, static_cast<size_t>(size.value()), cudaHostAllocDefault);
  if (status == cudaSuccess)
    return DeviceBuffer(data, size, [](void* memory) { cudaFreeHost(memory); });
  cudaGetLastError();  // a refused allocation is no fault of the next launch
  if (status != cudaErrorMemoryAllocation) return fail(lost(name(), "pinned memory", status));
  return fail(ErrorCode::kOutOfMemory, name() + ": no " + format_bytes(size) +
                                           " of pinned host memory: " + cudaGetErrorString(status));
}

Result<DeviceBuffer> CudaDevice::allocate_managed(Bytes size) {
  // Without it the host may not touch such memory while any kernel runs, and none is paged in.
  if (properties_.concurrentManagedAccess == 0)
    return fail(ErrorCode::kUnsupported,
                name() + " has no managed memory that the system moves on demand");
  ++allocations_;
  if (size.value() == 0) return DeviceBuffer();
  void* data = nullptr;
  auto status = cudaMallocManaged(&data, static_cast<size_t>(size.value()));
  if (status == cudaSuccess) {
    DeviceBuffer buffer(data, size, [](void* memory) { cudaFree(memory); });
    status = prefer_device(data, static_cast<size_t>(size.value()), ordinal_);
    if (status == cudaSuccess) return buffer;
  }
  cudaGetLastError();  // a refused allocation is no fault of the next launch
  if (status != cudaErrorMemoryAllocation) return fail(lost(name(), "managed memory", status));
  return fail(ErrorCode::kOutOfMemory, name() + ": no " + format_bytes(size) +
                                           " of managed memory: " + cudaGetErrorString(status));
}

Result<Unit> CudaDevice::copy_in(void* device, std::span<const std::byte> host) {
  MOTLEY_TRY_VOID(enqueue_copy_in(device, host));
  return synchronize();
}

Result<Unit> CudaDevice::copy_out(std::span<std::byte> host, const void* device) {
  MOTLEY_TRY_VOID(enqueue_copy_out(host, device));
  return synchronize();
}

Result<Unit> CudaDevice::enqueue_copy_in(void* device, std::span<const std::byte> host) {
  check(cudaMemcpyAsync(device, host.data(), host.size(), cudaMemcpyHostToDevice, stream_),
        "copy to the device");
  return Unit{};
}

Result<Unit> CudaDevice::enqueue_copy_out(std::span<std::byte> host, const void* device) {
  check(cudaMemcpyAsync(host.data(), device, host.size(), cudaMemcpyDeviceToHost, stream_),
        "copy from the device");
  return Unit{};
}

void CudaDevice::copy_beside(cudaStream_t copies, void* to, const void* from, size_t size,
                             StreamMark& after, StreamMark& done) {
  static_cast<CudaMark&>(after).hold(copies);
  check(cudaMemcpyAsync(to, from, size, cudaMemcpyDefault, copies), "copy beside the stream");
  static_cast<CudaMark&>(done).set_on(copies);
}

Result<Unit> CudaDevice::copy_in_beside(void* device, std::span<const std::byte> host,
                                        StreamMark& after, StreamMark& done) {
  copy_beside(copies_in_, device, host.data(), host.size(), after, done);
  return Unit{};
}

Result<Unit> CudaDevice::copy_out_beside(std::span<std::byte> host, const void* device,
                                         StreamMark& after, StreamMark& done) {
  copy_beside(copies_out_, host.data(), device, host.size(), after, done);
  return Unit{};
}

std::unique_ptr<StreamMark> CudaDevice::make_mark() { return std::make_unique<CudaMark>(*this); }

std::unique_ptr<Recording> CudaDevice::record(std::function<void()> enqueue) {
  return std::make_unique<GraphRecording>(*this, std::move(enqueue));
}

cudaGraphExec_t CudaDevice::capture(const std::function<void()>& enqueue, std::string* why) {
  const std::string before = std::exchange(fault_, {});
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  // Of this thread alone: other ranks of the process allocate when they please.
  check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "begin");
  if (fault_.empty()) {
    enqueue();
    check(cudaStreamEndCapture(stream_, &graph), "end");
  }
  if (fault_.empty()) check(cudaGraphInstantiate(&executable, graph, 0), "instantiate");
  if (graph != nullptr) cudaGraphDestroy(graph);
  if (!fault_.empty()) {
    *why = fault_;
    cudaGetLastError();  // the next launch is not to blame
    if (executable != nullptr) cudaGraphExecDestroy(executable);
    executable = nullptr;
  }
  fault_ = before;
  return executable;
}

Result<Unit> CudaDevice::synchronize() {
  check(cudaStreamSynchronize(stream_), "kernel");
  check(cudaStreamSynchronize(copies_in_), "copy to the device");
  check(cudaStreamSynchronize(copies_out_), "copy from the device");
  if (fault_.empty()) return Unit{};
  return fail(take_fault());
}

Result<bool> CudaDevice::idle() {
  for (cudaStream_t stream : {stream_, copies_in_, copies_out_}) {
    const auto status = cudaStreamQuery(stream);
    if (status == cudaErrorNotReady) {
      cudaGetLastError();  // an answer, no fault of the next launch
      return false;
    }
    check(status, "kernel");
  }
  if (fault_.empty()) return true;
  return fail(take_fault());
}

void CudaDevice::begin_range(const char* name) {
  nvtxEventAttributes_t range{};
  range.version = NVTX_VERSION;
  range.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  range.messageType = NVTX_MESSAGE_TYPE_ASCII;
  range.message.ascii = name;
  nvtxDomainRangePushEx(ranges(), &range);
}

void CudaDevice::end_range() { nvtxDomainRangePop(ranges()); }

void CudaDevice::parallel_for(int64_t, const std::function<void(int64_t, int)>&) {
  MOTLEY_CHECK(false, "parallel_for on a GPU, whose memory the host cannot reach");
}

void CudaDevice::note_fault(const char* what, const char* reason, ErrorCode code) {
  if (!fault_.empty()) return;
  fault_ = name() + ": " + what + ": " + reason;
  fault_code_ = code;
}

/// With what the driver says of it, which tells a broken card from a broken kernel.
Error CudaDevice::take_fault() {
  std::string text = std::exchange(fault_, {});
  if (nvml_ != nullptr && fault_code_ == ErrorCode::kDeviceLost)
    for (const XidEvent& event : nvml_->new_xids(kXidPatienceMs))
      if (event.uuid == uuid_text(properties_)) text += ", Xid " + std::to_string(event.xid);
  return {fault_code_, text, {}};
}

void CudaDevice::check(cudaError_t status, const char* what) {
  if (status != cudaSuccess) note_fault(what, cudaGetErrorString(status), code_of(status));
}

void CudaDevice::check(cublasStatus_t status, const char* what) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  note_fault(
      what, cublasLtGetStatusString(status),
      status == CUBLAS_STATUS_ALLOC_FAILED ? ErrorCode::kOutOfMemory : ErrorCode::kDeviceLost);
}

void CudaDevice::check_cudnn(const std::string& fault, const char* what) {
  if (!fault.empty()) note_fault(what, fault.c_str(), ErrorCode::kDeviceLost);
}

}  // namespace motley::cuda
