#include "scheduler/store/usage_store.h"

#include <algorithm>
#include <cmath>
#include <optional>

namespace motley {

double worth_after(double worth, Nanos age) {
  return worth * std::exp2(-std::max(0.0, seconds_of(age) / seconds_of(kUsageHalfLife)));
}

Result<Unit> add_usage(const Database& database, const std::string& owner, double worth,
                       int64_t now) {
  MOTLEY_TRY(Statement asked, database.prepare("SELECT worth, at FROM usage WHERE owner = ?"));
  asked.bind(std::string_view(owner));
  MOTLEY_TRY(const bool known, asked.step());
  if (known) worth += worth_after(asked.real(0), Nanos(now - asked.integer(1)));
  MOTLEY_TRY(Statement insert, database.prepare("INSERT INTO usage (owner, worth, at) VALUES (?, "
                                                "?, ?) ON CONFLICT (owner) DO UPDATE SET worth = "
                                                "excluded.worth, at = excluded.at"));
  insert.bind(std::string_view(owner)).bind_real(worth).bind(now);
  return insert.run();
}

Result<std::vector<StoredUsage>> list_usage(const Database& database) {
  MOTLEY_TRY(Statement asked, database.prepare("SELECT owner, worth, at FROM usage"));
  return all_rows(std::move(asked), [](const Statement& row) {
    return StoredUsage{row.text(0), row.real(1), row.integer(2)};
  });
}

}  // namespace motley
