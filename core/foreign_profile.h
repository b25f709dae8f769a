#pragma once
// A profile that brings its model with it: layers given by their sizes and by what they took
// elsewhere, on types of devices rather than on devices. Format: core/FORMATS.md, "foreign
// profile", a superset of how measurements of other planners are published.

#include <map>
#include <string>
#include <variant>
#include <vector>

#include "core/file_system.h"
#include "core/result.h"
#include "core/units.h"

namespace motley {

/// Sizes by degree of tensor parallelism: of one device's part. All have those of degree 1.
struct ForeignLayer {
  std::map<int, double> parameters;
  std::map<int, double> activation_bytes_per_sample;
  double output_bytes_per_sample = 0;
};

/// Seconds of each layer on a device's part of it.
struct ForeignTimes {
  int micro_batch = 0;
  int tensor = 1;
  std::vector<double> forward_seconds, backward_seconds, update_seconds;
};

struct ForeignDevice {
  Bytes memory{0};
  double price_per_hour = 0;  ///< 0: not given
  std::vector<ForeignTimes> profiles;

  /// Null where nothing was measured there.
  const ForeignTimes* find(int micro_batch, int tensor) const;
};

struct ForeignLine {
  double latency_seconds = 0;
  double bytes_per_second = 0;

  bool operator==(const ForeignLine&) const = default;
};

/// Between a stage on so many devices of one type and one on so many of another.
struct ForeignLink {
  /// Bandwidth in 1e9 bytes a second over log2(bytes / 1e6), highest power first.
  using Polynomial = std::vector<double>;
  /// Seconds by bytes; straight lines between, in proportion to the last beyond.
  using Table = std::map<double, double>;

  std::string from, to;
  int from_devices = 1, to_devices = 1;
  std::variant<ForeignLine, Polynomial, Table> speed;

  double seconds(double bytes) const;
  /// False where a polynomial has left its range and its bandwidth is not above 0.
  bool carries(double bytes) const;
  /// Whether no byte of a smaller message takes less than one of a larger, of messages between two
  /// sizes: of a polynomial, as far as many sizes between show.
  bool favours_large(double least_bytes, double most_bytes) const;
};

struct ForeignProfile {
  std::string name;
  int global_batch = 0;                      ///< samples; 0: not given
  double optimizer_bytes_per_parameter = 0;  ///< weights, gradients and state
  double gradient_bytes_per_parameter = 4;   ///< that are summed over replicas
  std::vector<ForeignLayer> layers;
  std::map<std::string, ForeignDevice> devices;  ///< by type
  std::vector<ForeignLink> links;

  /// As it was given, else as the other way was; null where neither was.
  const ForeignLink* link(const std::string& from, int from_devices, const std::string& to,
                          int to_devices) const;
};

/// kNotFound; kInvalidSpec with file, line and column. Of members it does not know notes alone are
/// left aside.
Result<ForeignProfile> read_foreign_profile(FileSystem& fs, const std::string& path);

}  // namespace motley
