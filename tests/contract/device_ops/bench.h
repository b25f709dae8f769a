#pragma once
// Runs operations on any device with operands given as doubles, to compare one device with another.

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "core/precision.h"
#include "kernels/device.h"

namespace motley::testing {

using Values = std::vector<double>;

/// Values that a float holds exactly, so that every device computes with the same numbers. Others
/// in every run of the program (tests/support/new_seeds.h), the same for the same `stream` in one.
class Random {
 public:
  explicit Random(uint32_t stream);
  Values normal(int64_t count, double deviation = 1);
  std::vector<int32_t> integers(int64_t count, int32_t end);

 private:
  std::mt19937 generator_;
};

/// A device and the buffers of one operation. They are in full precision; what an operation reads
/// and writes in reduced precision is converted while it runs.
class Bench {
 public:
  /// Every operand lies `offset` bytes into a buffer of its own.
  explicit Bench(Device& device, int64_t offset = 0)
      : device_(device), offset_(offset), operands_(device.precision()) {}
  /// A device in full precision on which reduced operands are those of `operands`, before they are
  /// read.
  Bench(Device& device, Precision operands) : device_(device), offset_(0), operands_(operands) {}

  Device& device() { return device_; }
  Address put(const Values& values);
  Address put(const std::vector<int32_t>& values);
  Address put(const std::vector<int64_t>& values);
  /// As operations read a table of them. Sets first_block of each, and `blocks` to the number of
  /// all.
  Address put(std::vector<ParameterRun> runs, int64_t* blocks);
  /// Room for `count` elements, filled with NaN: whoever reads it before writing is found out.
  Address poisoned(int64_t count);
  /// For attention of this shape.
  Address poisoned_workspace(const AttentionForwardArgs& shape);
  Address poisoned_workspace(const MatmulArgs& shape);
  /// Of embedding_workspace_elements().
  Address poisoned_workspace(int64_t rows, int64_t width, int64_t vocab);
  Address zeros(int64_t bytes);

  void run(const OpCall& call);

  Values get(Address address);
  std::vector<int64_t> get_int64(Address address);
  /// Whatever the element type: always double.
  double get_double(Address address);
  /// The stored bytes, to compare bits.
  std::vector<std::byte> bytes(Address address);

 private:
  Address upload(std::vector<std::byte> bytes);
  char* start_of(const DeviceBuffer& buffer) const;
  const DeviceBuffer& buffer_at(Address address) const;
  std::vector<std::byte> bytes_at(Address address, int64_t size);
  /// `count` elements in full precision, rounded to those of `operands_`, as bits of it.
  std::vector<std::byte> rounded(Address address, int64_t count);
  void run_reduced(const OpCall& call);
  void round_operands(const OpCall& call);

  Device& device_;
  const int64_t offset_;
  const Precision operands_;
  std::vector<DeviceBuffer> buffers_;
};

/// The devices every operation is tested on, the reference last.
struct DeviceCase {
  std::string name;
  DeviceSpec spec;
  Precision precision = Precision::kAuto;
};
std::ostream& operator<<(std::ostream& out, const DeviceCase& device_case);
std::vector<DeviceCase> device_cases();
std::vector<DeviceCase> reduced_device_cases();
/// Half a unit in the last place, as a share of the number; 0 in full precision.
double rounding_of(Precision precision);
/// What it adds to a tolerance: an operation that reads what another has written may meet it
/// rounded the other way.
inline double tolerance_of_rounding(Precision precision) { return 2 * rounding_of(precision); }
std::unique_ptr<Device> open_case(const DeviceCase& device_case);
Device& reference_device();

/// Puts operands, runs one or more operations, returns the addresses of what they wrote.
using Trial = std::function<std::vector<Address>(Bench&)>;

/// Runs the trial on `device` and on the reference; every output must agree within
/// tolerance · (largest magnitude of that output, or `least` if that is more).
void expect_as_reference(Device& device, double tolerance, double least, const Trial& trial);

/// The bytes of every output of a trial.
std::vector<std::vector<std::byte>> bits_of(Device& device, const Trial& trial, int64_t offset = 0);

/// A test on each device.
class EachDevice : public ::testing::TestWithParam<DeviceCase> {
 protected:
  void SetUp() override { device_ = open_case(GetParam()); }
  std::unique_ptr<Device> device_;
};

}  // namespace motley::testing
