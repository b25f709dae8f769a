#include "scheduler/runner/attempt_key.h"

#include <fcntl.h>
#include <sys/random.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "scheduler/launch/child_process.h"

namespace motley {

Result<AttemptKey> AttemptKey::generate() {
  unsigned char bytes[32];
  if (::getrandom(bytes, sizeof bytes, 0) != sizeof bytes)
    return fail(ErrorCode::kIo, std::string("no random numbers: ") + std::strerror(errno));
  std::string text;
  for (const unsigned char byte : bytes) {
    text += "0123456789abcdef"[byte >> 4];
    text += "0123456789abcdef"[byte & 15];
  }
  return AttemptKey(std::move(text));
}

Result<Unit> AttemptKey::write(const std::string& path) const {
  const Fd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file.valid() ||
      ::write(file.get(), text_.data(), text_.size()) != static_cast<ssize_t>(text_.size()))
    return fail(ErrorCode::kIo, "cannot write " + path + ": " + std::strerror(errno));
  return Unit{};
}

bool AttemptKey::matches(const std::string& offered) const {
  unsigned difference = text_.size() != offered.size();
  for (size_t i = 0; i < text_.size() && i < offered.size(); ++i)
    difference |= static_cast<unsigned char>(text_[i]) ^ static_cast<unsigned char>(offered[i]);
  return difference == 0;
}

}  // namespace motley
