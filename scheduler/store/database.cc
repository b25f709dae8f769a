#include "scheduler/store/database.h"

#include <sqlite3.h>

#include <functional>
#include <map>
#include <utility>

namespace motley {
namespace {

ErrorCode code_of(int status) {
  switch (status & 0xff) {
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return ErrorCode::kCorrupt;
    case SQLITE_PERM:
    case SQLITE_READONLY:
    case SQLITE_AUTH:
      return ErrorCode::kNotPermitted;
    case SQLITE_CONSTRAINT:
    case SQLITE_MISUSE:
    case SQLITE_RANGE:
      return ErrorCode::kInternal;
    default:
      return ErrorCode::kIo;
  }
}

constexpr const char* kPutBack = "; put a copy made by `motley backup` in its place";

Error error_of(sqlite3* database, int status) {
  const char* path = sqlite3_db_filename(database, "main");
  std::string text =
      "database " + std::string(path == nullptr ? "" : path) + ": " + sqlite3_errmsg(database);
  if (code_of(status) == ErrorCode::kCorrupt) text += kPutBack;
  return {code_of(status), std::move(text), {}};
}

constexpr int kBusyMilliseconds = 5000;

}  // namespace

/// Statements that nobody uses just now, by their text: most are asked for again and again, and
/// reading SQL costs more than many an answer.
class StatementCache {
 public:
  ~StatementCache() {
    for (const auto& [sql, statement] : idle_) sqlite3_finalize(statement);
  }

  sqlite3_stmt* take(std::string_view sql) {
    const auto found = idle_.find(sql);
    if (found == idle_.end()) return nullptr;
    sqlite3_stmt* statement = found->second;
    idle_.erase(found);
    return statement;
  }

  void give_back(sqlite3_stmt* statement) {
    sqlite3_reset(statement);
    sqlite3_clear_bindings(statement);
    if (idle_.size() < kMost)
      idle_.emplace(sqlite3_sql(statement), statement);
    else
      sqlite3_finalize(statement);
  }

 private:
  static constexpr size_t kMost = 32;
  std::multimap<std::string, sqlite3_stmt*, std::less<>> idle_;
};

Database::Database(sqlite3* database)
    : database_(database), cache_(std::make_shared<StatementCache>()) {}

void Statement::GiveBack::operator()(sqlite3_stmt* statement) const { cache->give_back(statement); }

void Database::Close::operator()(sqlite3* database) const { sqlite3_close_v2(database); }

Error Statement::error() const {
  sqlite3* database = sqlite3_db_handle(statement_.get());
  return error_of(database, fault_ != SQLITE_OK ? fault_ : sqlite3_errcode(database));
}

Statement& Statement::bind(int64_t value) {
  const int status = sqlite3_bind_int64(statement_.get(), ++bound_, value);
  if (fault_ == SQLITE_OK) fault_ = status;
  return *this;
}

Statement& Statement::bind_real(double value) {
  const int status = sqlite3_bind_double(statement_.get(), ++bound_, value);
  if (fault_ == SQLITE_OK) fault_ = status;
  return *this;
}

Statement& Statement::bind(std::string_view value) {
  const int status = sqlite3_bind_text64(statement_.get(), ++bound_, value.data(), value.size(),
                                         SQLITE_TRANSIENT, SQLITE_UTF8);
  if (fault_ == SQLITE_OK) fault_ = status;
  return *this;
}

Statement& Statement::bind(const std::optional<std::string>& value) {
  if (value) return bind(std::string_view(*value));
  ++bound_;  // what is not bound is NULL
  return *this;
}

Result<bool> Statement::step() {
  if (fault_ != SQLITE_OK) return fail(error());
  const int status = sqlite3_step(statement_.get());
  if (status == SQLITE_ROW) return true;
  if (status == SQLITE_DONE) return false;
  return fail(error_of(sqlite3_db_handle(statement_.get()), status));
}

Result<Unit> Statement::run() {
  MOTLEY_TRY_VOID(step());
  return Unit{};
}

void Statement::reset() {
  sqlite3_reset(statement_.get());
  sqlite3_clear_bindings(statement_.get());
  bound_ = 0;
  fault_ = SQLITE_OK;
}

int64_t Statement::integer(int column) const {
  return sqlite3_column_int64(statement_.get(), column);
}

double Statement::real(int column) const { return sqlite3_column_double(statement_.get(), column); }

std::string Statement::text(int column) const {
  const auto* text = reinterpret_cast<const char*>(sqlite3_column_text(statement_.get(), column));
  if (text == nullptr) return {};
  return {text, static_cast<size_t>(sqlite3_column_bytes(statement_.get(), column))};
}

Result<Database> Database::open(const std::string& path, Mode mode) {
  const int flags =
      SQLITE_OPEN_NOMUTEX |
      (mode == Mode::kRead ? SQLITE_OPEN_READONLY : SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE);
  sqlite3* opened = nullptr;
  const int status = sqlite3_open_v2(path.c_str(), &opened, flags, nullptr);
  Database database(opened);
  if (status != SQLITE_OK) return fail(code_of(status), path + ": " + sqlite3_errstr(status));
  sqlite3_busy_timeout(opened, kBusyMilliseconds);
  sqlite3_extended_result_codes(opened, 1);
  if (mode == Mode::kRead) return database;
  MOTLEY_TRY_VOID(
      database.execute("PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; "
                       "PRAGMA foreign_keys=ON; PRAGMA trusted_schema=OFF"));
  MOTLEY_TRY(Statement check, database.prepare("PRAGMA quick_check(1)"));
  MOTLEY_TRY(const bool answered, check.step());
  if (!answered || check.text(0) != "ok")
    return fail(ErrorCode::kCorrupt, path + " is damaged: " + check.text(0) + kPutBack);
  return database;
}

Result<Statement> Database::prepare(std::string_view sql) const {
  sqlite3_stmt* statement = cache_->take(sql);
  if (statement != nullptr) return Statement(statement, cache_);
  const int status = sqlite3_prepare_v2(database_.get(), sql.data(), static_cast<int>(sql.size()),
                                        &statement, nullptr);
  if (status != SQLITE_OK) return fail(error_of(database_.get(), status));
  return Statement(statement, cache_);
}

Result<Unit> Database::execute(const std::string& sql) const {
  const int status = sqlite3_exec(database_.get(), sql.c_str(), nullptr, nullptr, nullptr);
  if (status != SQLITE_OK) return fail(error_of(database_.get(), status));
  return Unit{};
}

bool Database::in_transaction() const { return sqlite3_get_autocommit(database_.get()) == 0; }

int64_t Database::changes() const { return sqlite3_changes64(database_.get()); }

int64_t Database::last_id() const { return sqlite3_last_insert_rowid(database_.get()); }

Result<Unit> Database::back_up(const std::string& path) const {
  MOTLEY_TRY(Database copy, open(path, Mode::kWrite));
  sqlite3_backup* backup =
      sqlite3_backup_init(copy.database_.get(), "main", database_.get(), "main");
  if (backup == nullptr)
    return fail(error_of(copy.database_.get(), sqlite3_errcode(copy.database_.get())));
  sqlite3_backup_step(backup, -1);
  const int status = sqlite3_backup_finish(backup);
  if (status != SQLITE_OK) return fail(error_of(copy.database_.get(), status));
  return Unit{};
}

}  // namespace motley
