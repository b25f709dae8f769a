#pragma once
// Tokens by which people and machines are known over the network: never the secret itself, only its
// SHA-256. Changes and questions as in job_store.h.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/result.h"
#include "scheduler/store/database.h"

namespace motley {

struct StoredToken {
  int64_t id = 0;
  std::string user;
  std::string role;   ///< a name
  std::string label;  ///< for people
  std::string hash;
  int64_t created = 0;    ///< nanoseconds since 1970, as the others
  int64_t expires = 0;    ///< 0: never
  int64_t revoked = 0;    ///< 0: not
  std::string node = {};  ///< that it speaks for; empty: for none yet
};

/// Its number.
Result<int64_t> add_token(const Database& database, const StoredToken& token);
/// Once: the first time stays. kNotFound where there is no such token.
Result<Unit> revoke_token(const Database& database, int64_t id, int64_t now);

/// Once: it speaks for that node from then on.
Result<Unit> bind_token(const Database& database, int64_t id, const std::string& node);

Result<std::optional<StoredToken>> find_token(const Database& database, int64_t id);
/// All, by number.
Result<std::vector<StoredToken>> list_tokens(const Database& database);

}  // namespace motley
