#include "worker/train/trace_files.h"

#include <string>

#include "core/run_layout.h"

namespace motley {
namespace {

Result<Unit> write_text_of(const Attempt& attempt, Rank rank, const std::string& text,
                           FileSystem& fs) {
  const std::string directory = attempt_directory(attempt.run_dir, attempt.epoch);
  MOTLEY_TRY_VOID(fs.make_directories(directory));
  return write_text_durably(fs, trace_path(directory, rank), text);
}

Result<Unit> send_text(Communicator& world, const std::string& text) {
  const auto size = static_cast<int64_t>(text.size());
  MOTLEY_TRY_VOID(world.send(std::as_bytes(std::span(&size, 1)), 0));
  return world.send(std::as_bytes(std::span(text)), 0);
}

Result<std::string> receive_text(Communicator& world, int from) {
  int64_t size = 0;
  MOTLEY_TRY_VOID(world.receive(std::as_writable_bytes(std::span(&size, 1)), from));
  std::string text(static_cast<size_t>(size), '\0');
  MOTLEY_TRY_VOID(world.receive(std::as_writable_bytes(std::span(text)), from));
  return text;
}

}  // namespace

Result<Unit> write_trace(const Attempt& attempt, Rank rank, const Trace& trace, FileSystem& fs) {
  return write_text_of(attempt, rank, trace.to_json(attempt.plan, rank), fs);
}

Result<Unit> collect_traces(const Attempt& attempt, Communicator& world, const Storage& storage,
                            const Trace& trace, FileSystem& fs) {
  const int self = world.rank();
  if (!storage.with_root(self)) return send_text(world, trace.to_json(attempt.plan, Rank(self)));
  Result<Unit> written = Unit{};
  for (int rank = 1; rank < world.size() && self == 0; ++rank) {
    if (storage.with_root(rank)) continue;
    MOTLEY_TRY(const std::string text, receive_text(world, rank));
    // All are received, whether or not they can be kept.
    if (written) written = write_text_of(attempt, Rank(rank), text, fs);
  }
  return written;
}

}  // namespace motley
