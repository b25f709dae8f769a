#include "scheduler/store/token_store.h"

namespace motley {
namespace {

constexpr const char* kAsk =
    "SELECT id, user, role, label, hash, created, expires, revoked, node FROM tokens ";

StoredToken token_at(const Statement& row) {
  return {.id = row.integer(0),
          .user = row.text(1),
          .role = row.text(2),
          .label = row.text(3),
          .hash = row.text(4),
          .created = row.integer(5),
          .expires = row.integer(6),
          .revoked = row.integer(7),
          .node = row.text(8)};
}

}  // namespace

Result<int64_t> add_token(const Database& database, const StoredToken& token) {
  MOTLEY_TRY(Statement insert,
             database.prepare("INSERT INTO tokens (user, role, label, hash, created, expires, "
                              "node, revoked) VALUES (?, ?, ?, ?, ?, ?, ?, 0)"));
  insert.bind(std::string_view(token.user))
      .bind(std::string_view(token.role))
      .bind(std::string_view(token.label))
      .bind(std::string_view(token.hash))
      .bind(token.created)
      .bind(token.expires)
      .bind(std::string_view(token.node));
  MOTLEY_TRY_VOID(insert.run());
  return database.last_id();
}

Result<Unit> revoke_token(const Database& database, int64_t id, int64_t now) {
  MOTLEY_TRY(const std::optional<StoredToken> token, find_token(database, id));
  if (!token) return fail(ErrorCode::kNotFound, "there is no token " + std::to_string(id));
  MOTLEY_TRY(Statement update,
             database.prepare("UPDATE tokens SET revoked = ? WHERE id = ? AND revoked = 0"));
  update.bind(now).bind(id);
  return update.run();
}

Result<Unit> bind_token(const Database& database, int64_t id, const std::string& node) {
  MOTLEY_TRY(Statement update,
             database.prepare("UPDATE tokens SET node = ? WHERE id = ? AND node = ''"));
  update.bind(std::string_view(node)).bind(id);
  return update.run();
}

Result<std::optional<StoredToken>> find_token(const Database& database, int64_t id) {
  MOTLEY_TRY(Statement asked, database.prepare(std::string(kAsk) + "WHERE id = ?"));
  asked.bind(id);
  MOTLEY_TRY(const bool found, asked.step());
  return found ? std::optional(token_at(asked)) : std::nullopt;
}

Result<std::vector<StoredToken>> list_tokens(const Database& database) {
  MOTLEY_TRY(Statement asked, database.prepare(std::string(kAsk) + "ORDER BY id"));
  return all_rows(std::move(asked), token_at);
}

}  // namespace motley
