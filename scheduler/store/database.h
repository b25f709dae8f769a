#pragma once
// SQLite behind results: what of it the store needs. One thread at a time per connection.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/result.h"

struct sqlite3;
struct sqlite3_stmt;

namespace motley {

class StatementCache;

/// One statement with its parameters; at the end of its life it is kept for the next one that asks
/// for the same.
class Statement {
 public:
  Statement(Statement&&) = default;

  /// Parameters count from 1 in the order of these calls; texts are copied.
  Statement& bind(int64_t value);
  Statement& bind(std::string_view value);
  Statement& bind(const std::optional<std::string>& value);  ///< nothing: NULL
  Statement& bind_real(double value);

  /// Whether there is a row, whose columns may then be asked for.
  Result<bool> step();
  /// For statements without rows.
  Result<Unit> run();
  /// Back to the beginning, without parameters.
  void reset();

  int64_t integer(int column) const;
  double real(int column) const;
  std::string text(int column) const;  ///< empty for NULL

 private:
  friend class Database;
  struct GiveBack {
    std::shared_ptr<StatementCache> cache;
    void operator()(sqlite3_stmt* statement) const;
  };
  Statement(sqlite3_stmt* statement, std::shared_ptr<StatementCache> cache)
      : statement_(statement, GiveBack{std::move(cache)}) {}
  Error error() const;

  std::unique_ptr<sqlite3_stmt, GiveBack> statement_;
  int bound_ = 0;
  int fault_ = 0;  ///< of a bind
};

/// What `read` makes of each row there is, in their order.
template <class Read>
auto all_rows(Statement asked, Read read)
    -> Result<std::vector<std::decay_t<decltype(read(asked))>>> {
  std::vector<std::decay_t<decltype(read(asked))>> rows;
  while (true) {
    MOTLEY_TRY(const bool found, asked.step());
    if (!found) return rows;
    rows.push_back(read(asked));
  }
}

class Database {
 public:
  enum class Mode { kWrite, kRead };

  /// WAL, synchronous=FULL: what was committed survives a power cut. kWrite makes the file where it
  /// is missing. kIo; kCorrupt where it is no database, or a damaged one (quick_check).
  static Result<Database> open(const std::string& path, Mode mode);

  Result<Statement> prepare(std::string_view sql) const;
  /// Any number of statements without parameters.
  Result<Unit> execute(const std::string& sql) const;
  bool in_transaction() const;
  /// Rows that the last statement changed.
  int64_t changes() const;
  int64_t last_id() const;
  /// A copy of the whole database as of now, while others write; an existing file is replaced.
  Result<Unit> back_up(const std::string& path) const;

 private:
  struct Close {
    void operator()(sqlite3* database) const;
  };
  explicit Database(sqlite3* database);

  std::unique_ptr<sqlite3, Close> database_;
  std::shared_ptr<StatementCache> cache_;  ///< closed before the database
};

}  // namespace motley
