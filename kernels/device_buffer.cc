// Also part of the CUDA module, whose devices hand out buffers.
#include <utility>

#include "kernels/device.h"

namespace motley {

DeviceBuffer::DeviceBuffer(void* data, Bytes size, std::function<void(void*)> release)
    : data_(data), size_(size), release_(std::move(release)) {}

DeviceBuffer::DeviceBuffer(DeviceBuffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, Bytes(0))),
      release_(std::move(other.release_)) {}

DeviceBuffer& DeviceBuffer::operator=(DeviceBuffer&& other) noexcept {
  DeviceBuffer old(std::move(*this));  // what was held is freed when this goes
  data_ = std::exchange(other.data_, nullptr);
  size_ = std::exchange(other.size_, Bytes(0));
  release_ = std::move(other.release_);
  return *this;
}

DeviceBuffer::~DeviceBuffer() {
  if (data_ != nullptr) release_(data_);
}

}  // namespace motley
