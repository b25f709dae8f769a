#pragma once
// Lines to the process that started the runner. Heavy (Asio): for the .cc files of scheduler/runner
// only.

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <deque>
#include <string>
#include <utility>  // before Asio of Boost 1.74

#include "scheduler/runner/runner_line.h"

namespace motley {

/// Writes to our stdout while its context runs. Never blocks: whoever reads slowly must not stop us
/// from watching the ranks. One thread.
class LineWriter {
 public:
  explicit LineWriter(boost::asio::io_context& context);

  void put(const RunnerLine& line);
  bool empty() const { return lines_.empty(); }  ///< all is written, or nobody listens

 private:
  void write();

  boost::asio::posix::stream_descriptor out_;
  std::deque<std::string> lines_;
  bool broken_ = false;
};

}  // namespace motley
