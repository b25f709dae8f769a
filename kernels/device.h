#pragma once
// A device as the engine sees it: memory, operations, one stream, and copies beside it. The seam
// behind which CPU, the float64 reference and CUDA stand.

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/ids.h"
#include "core/nvml.h"
#include "core/precision.h"
#include "core/result.h"
#include "core/spec/fleet_spec.h"
#include "kernels/op_table.h"

namespace motley {

/// Memory of a device; freed with it. Move-only. 64-byte aligned.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  DeviceBuffer(void* data, Bytes size, std::function<void(void*)> release);
  DeviceBuffer(DeviceBuffer&& other) noexcept;
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept;
  ~DeviceBuffer();

  void* data() const { return data_; }
  Bytes size() const { return size_; }

 private:
  void* data_ = nullptr;
  Bytes size_{0};
  std::function<void(void*)> release_;
};

/// A place in a device's stream that the host can wait for. The device outlives it. This one is of
/// a device that computes at the call.
class StreamMark {
 public:
  virtual ~StreamMark() = default;
  /// Moves it behind everything enqueued so far.
  virtual void set() {}
  /// Until the device has passed it; at once where it was never set. kDeviceLost when it will not.
  virtual Result<Unit> wait() { return Unit{}; }
  /// What is enqueued from here on waits for it, as it is set now; the host does not. Not within
  /// what a Recording calls for.
  virtual void hold_stream() {}
};

/// Operations that are enqueued together again and again, with the same operands. The device
/// outlives it. This one calls for them one by one.
class Recording {
 public:
  explicit Recording(std::function<void()> enqueue) : enqueue_(std::move(enqueue)) {}
  virtual ~Recording() = default;
  virtual void replay() { enqueue_(); }

 protected:
  void enqueue() const { enqueue_(); }

 private:
  std::function<void()> enqueue_;
};

/// One thread drives a device. Allocation is counted; inside a training step there is none.
class Device {
 public:
  virtual ~Device() = default;

  virtual DeviceKind kind() const = 0;
  /// What it computes in; never kAuto.
  virtual Precision precision() const = 0;
  /// Of operands in full precision: 4 (float) or 8 (double).
  int element_bytes() const { return full_bytes(precision()); }
  virtual const OpTable& ops() const = 0;
  /// Threads a kernel may use (its bits never depend on it).
  virtual int threads() const = 0;
  /// Hardware and library, as far as they decide bits: `exact` holds within one class.
  virtual std::string arithmetic_class() const = 0;
  /// Human name, e.g. the CPU model.
  virtual std::string name() const = 0;

  /// What is free now; of a CPU what the operating system can give to all processes.
  virtual Bytes available_memory() = 0;
  /// kOutOfMemory when the device has no such memory left. Contents undefined.
  virtual Result<DeviceBuffer> allocate(Bytes size) = 0;
  /// Host memory that copies to and from this device reach without a bounce buffer; the host reads
  /// and writes it. Counted as any allocation; the device must outlive it. kOutOfMemory when the
  /// system grants no such amount. Contents undefined.
  virtual Result<DeviceBuffer> allocate_pinned(Bytes size) = 0;
  /// Memory that the device computes with and the system moves between device and host as either
  /// needs it, so that there may be more of it than the device holds; once synchronize() has
  /// returned the host reads and writes it, too. kUnsupported where there is none. Contents
  /// undefined.
  virtual Result<DeviceBuffer> allocate_managed(Bytes size) = 0;
  /// Memory for the operations themselves (scratch_bytes): once it is reserved they allocate none.
  virtual Result<Unit> reserve_scratch(Bytes /*size*/) { return Unit{}; }
  virtual Result<Unit> copy_in(void* device, std::span<const std::byte> host) = 0;
  virtual Result<Unit> copy_out(std::span<std::byte> host, const void* device) = 0;
  /// The same without waiting: `host`, best of allocate_pinned, stays as it is, or is not looked
  /// at, until the stream has passed a mark set afterwards, or synchronize(). A device that
  /// computes at the call is through at once.
  virtual Result<Unit> enqueue_copy_in(void* device, std::span<const std::byte> host) {
    return copy_in(device, host);
  }
  virtual Result<Unit> enqueue_copy_out(std::span<std::byte> host, const void* device) {
    return copy_out(host, device);
  }
  /// The same beside the stream, which goes on meanwhile: the copy begins when the stream has
  /// passed `after`, as it is set now, and what was copied beside it before in that direction is
  /// through; `done` is set behind it. The stream finds what is copied in, and may overwrite what
  /// is copied out, from done.hold_stream() on; the host may touch `host` after done.wait(). A
  /// device with nothing beside its stream copies in its order.
  virtual Result<Unit> copy_in_beside(void* device, std::span<const std::byte> host,
                                      StreamMark& /*after*/, StreamMark& done) {
    Result<Unit> copied = enqueue_copy_in(device, host);
    done.set();
    return copied;
  }
  virtual Result<Unit> copy_out_beside(std::span<std::byte> host, const void* device,
                                       StreamMark& /*after*/, StreamMark& done) {
    Result<Unit> copied = enqueue_copy_out(host, device);
    done.set();
    return copied;
  }
  virtual std::unique_ptr<StreamMark> make_mark() { return std::make_unique<StreamMark>(); }
  /// `enqueue` calls for operations on this device, the same at every call, and does nothing else:
  /// it neither waits, copies to or from the host, nor allocates. It may be called at any replay().
  virtual std::unique_ptr<Recording> record(std::function<void()> enqueue) {
    return std::make_unique<Recording>(std::move(enqueue));
  }
  /// Waits for everything enqueued, also beside the stream; the first fault since the last call.
  virtual Result<Unit> synchronize() = 0;
  /// Whether everything enqueued is done, without waiting; kDeviceLost after a fault.
  virtual Result<bool> idle() { return true; }
  /// The queue that operations go through, for libraries that enqueue their own: CUDA's stream;
  /// null where calls compute at once.
  virtual void* native_stream() { return nullptr; }
  /// What is enqueued until end_range() is shown under this name by profilers of the device. They
  /// nest; without a profiler they cost next to nothing. Use WorkRange.
  virtual void begin_range(const char* /*name*/) {}
  virtual void end_range() {}
  /// Whether host code may read and write device addresses directly (CPU kinds).
  virtual bool host_accessible() const = 0;

  /// Calls body(index, thread) for index in [0, count) from up to threads() threads; thread <
  /// threads(). CPU kinds only; work is cut by shape alone so that bits do not depend on the number
  /// of threads.
  virtual void parallel_for(int64_t count,
                            const std::function<void(int64_t index, int thread)>& body) = 0;

  /// Allocations ever made: a counter for the test that a step makes none.
  virtual int64_t allocation_count() const = 0;
};

/// A stretch of work with a name, as long as this lives.
class WorkRange {
 public:
  /// Copies the name.
  WorkRange(Device& device, const char* name) : device_(device) { device_.begin_range(name); }
  ~WorkRange() { device_.end_range(); }
  WorkRange(const WorkRange&) = delete;
  WorkRange& operator=(const WorkRange&) = delete;

 private:
  Device& device_;
};

/// kNoDevice with what is missing where there is none of that kind to be used; kUnsupported when
/// this CPU cannot run what was built, or the device does not compute in `precision`. kAuto: what
/// it is best at.
Result<std::unique_ptr<Device>> open_device(const DeviceSpec& spec,
                                            Precision precision = Precision::kAuto);

/// A device found on this machine, for `motley-worker devices`.
struct FoundDevice {
  DeviceKind kind = DeviceKind::kCpu;
  std::string name;
  std::string uuid;
  std::string bus_id;
  Bytes memory{0};
  Bytes free_memory{0};
  std::string capability;  ///< "sm_90", or the CPU's instruction set
  int cores = 0;
  int cuda_index = -1;  ///< of a GPU, as this process counts
  std::string unfit;    ///< of a GPU: why this build cannot compute on it; empty: it can
  std::optional<GpuStatus> status;  ///< of a GPU whose driver tells it
};
/// CPU first, then the GPUs that this process may use, by PCI bus id. `note` says in one line why
/// there is no GPU to compute on when there is none.
std::vector<FoundDevice> discover_devices(std::string* note);

}  // namespace motley
