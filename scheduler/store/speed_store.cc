#include "scheduler/store/speed_store.h"

#include <utility>

namespace motley {
namespace {

constexpr const char* kSpeedColumns =
    "SELECT workload, traits, type, samples_per_second, job, name, measured FROM speeds ";

Result<std::vector<StoredSpeed>> speeds_of(Statement asked) {
  return all_rows(std::move(asked), [](const Statement& row) {
    return StoredSpeed{.workload = row.text(0),
                       .traits = row.text(1),
                       .type = row.text(2),
                       .samples_per_second = row.real(3),
                       .job = row.integer(4),
                       .name = row.text(5),
                       .measured = row.integer(6)};
  });
}

}  // namespace

Result<Unit> save_speed(const Database& database, const StoredSpeed& speed) {
  MOTLEY_TRY(Statement insert,
             database.prepare("INSERT OR REPLACE INTO speeds (workload, traits, type, "
                              "samples_per_second, job, name, measured) "
                              "VALUES (?, ?, ?, ?, ?, ?, ?)"));
  insert.bind(std::string_view(speed.workload))
      .bind(std::string_view(speed.traits))
      .bind(std::string_view(speed.type))
      .bind_real(speed.samples_per_second)
      .bind(speed.job)
      .bind(std::string_view(speed.name))
      .bind(speed.measured);
  return insert.run();
}

Result<std::vector<StoredSpeed>> list_speeds(const Database& database,
                                             const std::string& workload) {
  MOTLEY_TRY(Statement asked,
             database.prepare(std::string(kSpeedColumns) + "WHERE workload = ? ORDER BY traits"));
  asked.bind(std::string_view(workload));
  return speeds_of(std::move(asked));
}

Result<std::vector<StoredSpeed>> newest_speeds(const Database& database, int most) {
  MOTLEY_TRY(Statement asked,
             database.prepare(std::string(kSpeedColumns) + "ORDER BY measured DESC LIMIT ?"));
  asked.bind(int64_t{most});
  return speeds_of(std::move(asked));
}

Result<Unit> remove_speeds(const Database& database, int64_t time) {
  MOTLEY_TRY(Statement remove, database.prepare("DELETE FROM speeds WHERE measured < ?"));
  remove.bind(time);
  return remove.run();
}

}  // namespace motley
