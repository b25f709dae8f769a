#pragma once
// What the benchmarks share: the clock they measure by, and the rows that --json prints.

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace motley {

/// CPU time of this thread: what a neighbour's load does not count in.
double thread_seconds();

/// [--json] [CASE]: whether JSON is wanted, and the only case, or "".
std::pair<bool, std::string> bench_arguments(int argc, char** argv);

struct Row {
  std::string name;  ///< of the case
  const char* metric;
  const char* unit;
  const char* better;  ///< "higher" | "lower"
  double ours;
  std::optional<double> limit = std::nullopt;
  std::map<std::string, double> peers = {};
  const char* kind = "measured";  ///< or simulated
};

/// Rows of what was measured here.
class Rows {
 public:
  explicit Rows(const char* bench) : bench_(bench) {}
  void add(const Row& row);
  bool empty() const { return lines_.empty(); }
  /// To stdout, as a list.
  void print() const;

 private:
  const char* bench_;
  std::vector<std::string> lines_;
};

}  // namespace motley
