#include "tests/contract/device_ops/bench.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "core/check.h"
#include "tests/support/test_device.h"

namespace motley::testing {
namespace {

template <class T, class From>
std::vector<std::byte> as_bytes_of(const std::vector<From>& values) {
  std::vector<T> converted(values.begin(), values.end());
  std::vector<std::byte> bytes(converted.size() * sizeof(T));
  if (!bytes.empty()) std::memcpy(bytes.data(), converted.data(), bytes.size());
  return bytes;
}

template <class To, class T>
std::vector<To> from_bytes_of(const std::vector<std::byte>& bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  if (!bytes.empty()) std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
  return std::vector<To>(values.begin(), values.end());
}

double largest_magnitude(const Values& values) {
  double largest = 0;
  for (const double value : values) largest = std::max(largest, std::abs(value));
  return largest;
}

}  // namespace

Values Random::normal(int64_t count, double deviation) {
  std::normal_distribution<float> normal(0, static_cast<float>(deviation));
  Values values(static_cast<size_t>(count));
  for (double& value : values) value = normal(generator_);
  return values;
}

std::vector<int32_t> Random::integers(int64_t count, int32_t end) {
  std::uniform_int_distribution<int32_t> uniform(0, end - 1);
  std::vector<int32_t> values(static_cast<size_t>(count));
  for (int32_t& value : values) value = uniform(generator_);
  return values;
}

Address Bench::upload(std::vector<std::byte> bytes) {
  auto buffer = device_.allocate(Bytes(static_cast<int64_t>(bytes.size()) + offset_));
  MOTLEY_CHECK(buffer.has_value(), "allocation");
  MOTLEY_CHECK(device_.copy_in(start_of(*buffer), bytes).has_value(), "copy to the device");
  buffers_.push_back(std::move(*buffer));
  return Address::of(start_of(buffers_.back()));
}

Address Bench::put(const Values& values) {
  return upload(device_.element_bytes() == 8 ? as_bytes_of<double>(values)
                                             : as_bytes_of<float>(values));
}
Address Bench::put(const std::vector<int32_t>& values) {
  return upload(as_bytes_of<int32_t>(values));
}
Address Bench::put(const std::vector<int64_t>& values) {
  return upload(as_bytes_of<int64_t>(values));
}
Address Bench::poisoned(int64_t count) {
  return put(Values(static_cast<size_t>(count), std::numeric_limits<double>::quiet_NaN()));
}
Address Bench::poisoned_workspace(int64_t context, int64_t head_dim) {
  return poisoned(attention_workspace_elements(context, head_dim, device_.threads()));
}
Address Bench::zeros(int64_t bytes) {
  return upload(std::vector<std::byte>(static_cast<size_t>(bytes)));
}

void Bench::run(const OpCall& call) {
  execute(device_, call);
  const auto done = device_.synchronize();
  ASSERT_TRUE(done.has_value()) << done.error().to_string();
}

char* Bench::start_of(const DeviceBuffer& buffer) const {
  return static_cast<char*>(buffer.data()) + offset_;
}

const DeviceBuffer& Bench::buffer_at(Address address) const {
  for (const DeviceBuffer& buffer : buffers_)
    if (start_of(buffer) == address.as<char>()) return buffer;
  MOTLEY_CHECK(false, "address of no operand");
  return buffers_.front();
}

std::vector<std::byte> Bench::bytes(Address address) {
  const DeviceBuffer& buffer = buffer_at(address);
  std::vector<std::byte> bytes(static_cast<size_t>(buffer.size().value() - offset_));
  MOTLEY_CHECK(device_.copy_out(bytes, start_of(buffer)).has_value(), "copy from the device");
  return bytes;
}

Values Bench::get(Address address) {
  return device_.element_bytes() == 8 ? from_bytes_of<double, double>(bytes(address))
                                      : from_bytes_of<double, float>(bytes(address));
}
std::vector<int64_t> Bench::get_int64(Address address) {
  return from_bytes_of<int64_t, int64_t>(bytes(address));
}
double Bench::get_double(Address address) {
  return from_bytes_of<double, double>(bytes(address)).at(0);
}

std::ostream& operator<<(std::ostream& out, const DeviceCase& device_case) {
  return out << device_case.name;
}

std::vector<DeviceCase> device_cases() {
  const auto device = [](DeviceKind kind, int threads) {
    DeviceSpec spec;
    spec.kind = kind;
    spec.threads = threads;
    return spec;
  };
  const DeviceCase reference{"reference", device(DeviceKind::kReference, 1)};
  if (test_device() == DeviceKind::kCuda)
    return {{"cuda", device(DeviceKind::kCuda, 1)}, reference};
  return {{"cpu1", device(DeviceKind::kCpu, 1)}, {"cpu3", device(DeviceKind::kCpu, 3)}, reference};
}

std::unique_ptr<Device> open_case(const DeviceCase& device_case) {
  auto device = open_device(device_case.spec);
  MOTLEY_CHECK(device.has_value(), device.error().to_string());
  return std::move(*device);
}

Device& reference_device() {
  static const std::unique_ptr<Device> device = open_case(device_cases().back());
  return *device;
}

void expect_as_reference(Device& device, double tolerance, const Trial& trial) {
  Bench tested(device), reference(reference_device());
  const std::vector<Address> actual_at = trial(tested), expected_at = trial(reference);
  ASSERT_EQ(actual_at.size(), expected_at.size());
  for (size_t output = 0; output < expected_at.size(); ++output) {
    const Values actual = tested.get(actual_at[output]);
    const Values expected = reference.get(expected_at[output]);
    ASSERT_EQ(actual.size(), expected.size());
    const double allowed = tolerance * largest_magnitude(expected);
    for (size_t i = 0; i < expected.size(); ++i)
      ASSERT_TRUE(std::abs(actual[i] - expected[i]) <= allowed)  // false for NaN
          << "output " << output << " element " << i << " is " << actual[i] << ", not "
          << expected[i] << " (allowed difference " << allowed << ")";
  }
}

std::vector<std::vector<std::byte>> bits_of(Device& device, const Trial& trial, int64_t offset) {
  Bench bench(device, offset);
  std::vector<std::vector<std::byte>> bits;
  for (const Address output : trial(bench)) bits.push_back(bench.bytes(output));
  return bits;
}

}  // namespace motley::testing
