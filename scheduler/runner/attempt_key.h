#pragma once
// The secret of one attempt: who knows it may speak for its ranks.

#include <string>
#include <utility>

#include "core/result.h"

namespace motley {

class AttemptKey {
 public:
  /// 256 random bits. kIo when the system has none.
  static Result<AttemptKey> generate();
  /// One that was generated before.
  static AttemptKey from_text(std::string text) { return AttemptKey(std::move(text)); }

  /// Writes it to a new file that only its owner may read; kIo when there is one already.
  Result<Unit> write(const std::string& path) const;
  /// Takes the same time wherever the two differ.
  bool matches(const std::string& offered) const;
  const std::string& text() const { return text_; }

 private:
  explicit AttemptKey(std::string text) : text_(std::move(text)) {}

  std::string text_;
};

}  // namespace motley
