#include "scheduler/runner/line_writer.h"

#include <unistd.h>

#include <boost/asio/buffer.hpp>
#include <boost/asio/write.hpp>

namespace motley {

namespace asio = boost::asio;
using boost::system::error_code;

LineWriter::LineWriter(asio::io_context& context) : out_(context) {
  error_code error;
  out_.assign(::dup(STDOUT_FILENO), error);
  broken_ = static_cast<bool>(error);  // not a pipe, terminal or socket: nobody listens
}

void LineWriter::put(const RunnerLine& line) {
  if (broken_) return;
  lines_.push_back(to_text(line) + "\n");
  if (lines_.size() == 1) write();
}

void LineWriter::write() {
  asio::async_write(out_, asio::buffer(lines_.front()), [this](error_code error, size_t) {
    broken_ = static_cast<bool>(error);
    if (broken_) return lines_.clear();
    lines_.pop_front();
    if (!lines_.empty()) write();
  });
}

}  // namespace motley
