#include "scheduler/store/node_store.h"

#include <utility>

namespace motley {

Result<Unit> save_node(const Database& database, const StoredNode& node) {
  MOTLEY_TRY(Statement insert,
             database.prepare("INSERT OR REPLACE INTO nodes (name, session, fleet, labels, lost, "
                              "cause, draining, reason, drain_left, changed) "
                              "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"));
  insert.bind(std::string_view(node.name))
      .bind(std::string_view(node.session))
      .bind(std::string_view(node.fleet))
      .bind(std::string_view(node.labels))
      .bind(int64_t{node.lost})
      .bind(std::string_view(node.cause))
      .bind(int64_t{node.draining})
      .bind(std::string_view(node.reason))
      .bind(node.drain_left.value())
      .bind(node.changed);
  return insert.run();
}

Result<Unit> remove_node(const Database& database, const std::string& name) {
  MOTLEY_TRY(Statement remove, database.prepare("DELETE FROM nodes WHERE name = ?"));
  remove.bind(std::string_view(name));
  return remove.run();
}

Result<std::vector<StoredNode>> list_nodes(const Database& database) {
  MOTLEY_TRY(Statement asked,
             database.prepare("SELECT name, session, fleet, labels, lost, cause, draining, reason, "
                              "drain_left, changed FROM nodes ORDER BY name"));
  return all_rows(std::move(asked), [](const Statement& row) {
    return StoredNode{.name = row.text(0),
                      .session = row.text(1),
                      .fleet = row.text(2),
                      .labels = row.text(3),
                      .lost = row.integer(4) != 0,
                      .cause = row.text(5),
                      .draining = row.integer(6) != 0,
                      .reason = row.text(7),
                      .drain_left = Nanos(row.integer(8)),
                      .changed = row.integer(9)};
  });
}

}  // namespace motley
