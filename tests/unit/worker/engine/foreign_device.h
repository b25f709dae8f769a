#pragma once
// A device whose memory host code may not touch, as a GPU's: what an engine must not assume shows
// on any machine. It computes as the float64 reference does.

#include <cstring>
#include <string>

#include "kernels/device.h"
#include "kernels/reference/reference_device.h"

namespace motley::testing {

class ForeignDevice final : public Device {
 public:
  DeviceKind kind() const override { return DeviceKind::kReference; }
  Precision precision() const override { return Precision::kFp64; }
  const OpTable& ops() const override { return reference_.ops(); }
  int threads() const override { return 1; }
  std::string arithmetic_class() const override { return reference_.arithmetic_class(); }
  std::string name() const override { return "foreign"; }

  /// Fresh memory is full of NaN: whatever is read before it is written shows.
  Bytes available_memory() override { return Bytes(1 << 30); }
  Result<DeviceBuffer> allocate(Bytes size) override {
    allocated_ += size;
    auto buffer = reference_.allocate(size);
    if (buffer) std::memset(buffer->data(), 0xFF, static_cast<size_t>(size.value()));
    return buffer;
  }
  Result<DeviceBuffer> allocate_pinned(Bytes size) override {
    return reference_.allocate_pinned(size);
  }
  Result<DeviceBuffer> allocate_managed(Bytes size) override {
    return reference_.allocate_managed(size);
  }
  Result<Unit> copy_in(void* device, std::span<const std::byte> host) override {
    return reference_.copy_in(device, host);
  }
  Result<Unit> copy_out(std::span<std::byte> host, const void* device) override {
    return reference_.copy_out(host, device);
  }
  Result<Unit> synchronize() override { return Unit{}; }
  bool host_accessible() const override { return false; }
  /// Kernels of the reference may call it; the engine may not.
  void parallel_for(int64_t count,
                    const std::function<void(int64_t index, int thread)>& body) override {
    reference_.parallel_for(count, body);
  }
  int64_t allocation_count() const override { return reference_.allocation_count(); }

  /// "(forward(block 0))": the ranges that were opened and closed.
  void begin_range(const char* name) override { ranges_ += std::string("(") + name; }
  void end_range() override { ranges_ += ")"; }

  Bytes allocated() const { return allocated_; }
  const std::string& ranges() const { return ranges_; }

 private:
  ReferenceDevice reference_;
  Bytes allocated_{0};
  std::string ranges_;
};

}  // namespace motley::testing
