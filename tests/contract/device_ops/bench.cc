#include "tests/contract/device_ops/bench.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/check.h"
#include "core/spec/names.h"
#include "tests/support/new_seeds.h"
#include "tests/support/test_device.h"
#include "worker/engine/elements.h"

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

constexpr double kMostFp16 = 65504;
constexpr double kSmallestFp16 = 0x1p-24;  // below the smallest normal one all are multiples of it

double largest_magnitude(const Values& values) {
  double largest = 0;
  for (const double value : values) largest = std::max(largest, std::abs(value));
  return largest;
}

/// Calls visit(operand, read, written).
template <class Visit>
class OperandVisitor {
 public:
  explicit OperandVisitor(const Visit& visit) : visit_(visit) {}
  void read(const Operand& operand) { visit_(operand, true, false); }
  void update(const Operand& operand) { visit_(operand, true, true); }
  void write(const Operand& operand) { visit_(operand, false, true); }

 private:
  const Visit& visit_;
};

}  // namespace

Random::Random(uint32_t stream) {
  std::seed_seq seeds{seed_of_this_run(), stream};
  generator_.seed(seeds);
}

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
Address Bench::poisoned_workspace(const AttentionForwardArgs& shape) {
  return poisoned(attention_workspace_elements(shape, device_.kind(), device_.threads()));
}
Address Bench::poisoned_workspace(const MatmulArgs& shape) {
  return poisoned(matmul_workspace_elements(shape, device_.kind(), device_.precision()));
}
Address Bench::poisoned_workspace(int64_t rows, int64_t width, int64_t vocab) {
  return poisoned(embedding_workspace_elements(device_.kind(), rows, width, vocab));
}
Address Bench::zeros(int64_t bytes) {
  return upload(std::vector<std::byte>(static_cast<size_t>(bytes)));
}

void Bench::run(const OpCall& call) {
  if (is_reduced(device_.precision())) return run_reduced(call);
  if (is_reduced(operands_)) round_operands(call);
  execute(device_, call);
  const auto done = device_.synchronize();
  ASSERT_TRUE(done.has_value()) << done.error().to_string();
}

Address Bench::put(std::vector<ParameterRun> runs, int64_t* blocks) {
  *blocks = 0;
  for (ParameterRun& run : runs) {
    run.first_block = *blocks;
    *blocks += blocks_of_run(run.count);
  }
  const auto bytes = std::as_bytes(std::span(runs));
  return upload({bytes.begin(), bytes.end()});
}

std::vector<std::byte> Bench::bytes_at(Address address, int64_t size) {
  std::vector<std::byte> bytes(static_cast<size_t>(size));
  MOTLEY_CHECK(device_.copy_out(bytes, address.as<void>()).has_value(), "copy from the device");
  return bytes;
}

std::vector<std::byte> Bench::rounded(Address address, int64_t count) {
  auto stored = bytes_at(address, count * device_.element_bytes());
  const Elements numbers(stored, full_precision(device_.precision()));
  std::vector<std::byte> bits(static_cast<size_t>(count) * 2);
  Elements reduced(bits, operands_);
  for (int64_t i = 0; i < count; ++i) reduced.set(i, numbers.get(i));
  return bits;
}

/// On buffers of the reduced operands' own.
void Bench::run_reduced(const OpCall& call) {
  struct Converted {
    Address wide, reduced;
    int64_t count = 0;
    bool written = false;
  };
  std::vector<Converted> converted;
  const auto convert = [&](const Operand& operand, bool read, bool written) {
    if (operand.type != ElementType::kReduced || operand.address.null()) return;
    const Address wide = operand.address;
    auto known = std::find_if(converted.begin(), converted.end(),
                              [&](const Converted& other) { return other.wide == wide; });
    if (known == converted.end()) {
      const std::vector<std::byte> nan(static_cast<size_t>(operand.count) * 2, std::byte{0xff});
      const Address place = upload(read ? rounded(wide, operand.count) : nan);
      known = converted.insert(converted.end(), {wide, place, operand.count, false});
    }
    known->written |= written;
    operand.address = known->reduced;
  };
  OpCall reduced = call;
  std::visit([&](auto& args) { args.operands(OperandVisitor(convert)); }, reduced);
  execute(device_, reduced);
  const auto done = device_.synchronize();
  ASSERT_TRUE(done.has_value()) << done.error().to_string();
  for (const Converted& operand : converted) {
    if (!operand.written) continue;
    auto bits = bytes_at(operand.reduced, operand.count * 2);
    const Elements numbers(bits, operands_);
    std::vector<float> wide(static_cast<size_t>(operand.count));
    for (int64_t i = 0; i < operand.count; ++i)
      wide[static_cast<size_t>(i)] = static_cast<float>(numbers.get(i));
    MOTLEY_CHECK(
        device_.copy_in(operand.wide.as<void>(), std::as_bytes(std::span(wide))).has_value(),
        "copy to the device");
  }
}

/// As they would arrive on a device in reduced precision.
void Bench::round_operands(const OpCall& call) {
  const auto round = [&](const Operand& operand, bool read, bool) {
    if (operand.type != ElementType::kReduced || operand.address.null() || !read) return;
    auto bits = rounded(operand.address, operand.count);
    const Elements numbers(bits, operands_);
    std::vector<double> wide(static_cast<size_t>(operand.count));
    for (int64_t i = 0; i < operand.count; ++i) wide[static_cast<size_t>(i)] = numbers.get(i);
    MOTLEY_CHECK(
        device_.copy_in(operand.address.as<void>(), std::as_bytes(std::span(wide))).has_value(),
        "copy to the device");
  };
  OpCall visited = call;
  std::visit([&](auto& args) { args.operands(OperandVisitor(round)); }, visited);
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

std::vector<DeviceCase> reduced_device_cases() {
  std::vector<DeviceCase> cases;
  for (const Precision precision : {Precision::kBf16, Precision::kFp16}) {
    DeviceSpec spec;
    spec.kind = test_device();
    spec.threads = 2;
    cases.push_back({spec_name(spec.kind) + "_" + spec_name(precision), spec, precision});
  }
  return cases;
}

double rounding_of(Precision precision) {
  if (!is_reduced(precision)) return 0;
  return precision == Precision::kBf16 ? 0x1p-8 : 0x1p-11;
}

std::unique_ptr<Device> open_case(const DeviceCase& device_case) {
  auto device = open_device(device_case.spec, device_case.precision);
  MOTLEY_CHECK(device.has_value(), device.error().to_string());
  return std::move(*device);
}

Device& reference_device() {
  static const std::unique_ptr<Device> device = open_case(device_cases().back());
  return *device;
}

void expect_as_reference(Device& device, double tolerance, double least, const Trial& trial) {
  Bench tested(device), reference(reference_device(), device.precision());
  const std::vector<Address> actual_at = trial(tested), expected_at = trial(reference);
  ASSERT_EQ(actual_at.size(), expected_at.size());
  for (size_t output = 0; output < expected_at.size(); ++output) {
    const Values actual = tested.get(actual_at[output]);
    const Values expected = reference.get(expected_at[output]);
    ASSERT_EQ(actual.size(), expected.size());
    const double subnormal = device.precision() == Precision::kFp16 ? kSmallestFp16 : 0;
    const double most = device.precision() == Precision::kFp16 ? kMostFp16 : HUGE_VAL;
    const double scale = std::max(least, largest_magnitude(expected));
    const double allowed = tolerance * std::min(scale, most) + subnormal;
    for (size_t i = 0; i < expected.size(); ++i) {
      if (std::abs(expected[i]) > most - allowed && std::isinf(actual[i])) continue;  // in fp16
      ASSERT_TRUE(std::abs(actual[i] - expected[i]) <= allowed)  // false for NaN
          << "output " << output << " element " << i << " is " << actual[i] << ", not "
          << expected[i] << " (allowed difference " << allowed << ")";
    }
  }
}

std::vector<std::vector<std::byte>> bits_of(Device& device, const Trial& trial, int64_t offset) {
  Bench bench(device, offset);
  std::vector<std::vector<std::byte>> bits;
  for (const Address output : trial(bench)) bits.push_back(bench.bytes(output));
  return bits;
}

}  // namespace motley::testing
