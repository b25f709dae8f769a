// The job service's decisions, and whole traces of jobs in virtual time.
//
//   tests/bench/run.sh service [--json] [--case DIR]
//
// --case: a folder with jobs.tsv and throughputs.json, planned on 8 V100, 16 P100 and 24 K80.

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <random>
#include <string>
#include <thread>

#include "core/clock.h"
#include "scheduler/simulate/trace_simulation.h"
#include "scheduler/store/group_commit.h"
#include "scheduler/store/job_store.h"
#include "tests/bench/rows.h"
#include "tests/bench/service_http.h"
#include "tests/bench/service_restart.h"
#include "tests/support/temporary_directory.h"
#include "tests/unit/scheduler/service/fake_service.h"

namespace motley {
namespace {

constexpr unsigned kSeed = 20261124;
constexpr int kTypes = 4;

/// Pools of about equal sizes.
std::vector<Pool> pools_of(int devices) {
  std::vector<Pool> pools;
  for (int type = 0; type < kTypes; ++type)
    pools.push_back({"type-" + std::to_string(type), devices / kTypes});
  return pools;
}

/// 1, 2, 4 or 8 devices, each type of its own speed for each job.
TraceJob random_job(std::mt19937& random, int number, const std::vector<Pool>& pools) {
  std::uniform_real_distribution<double> unit(0, 1);
  TraceJob job;
  job.name = job.owner = "job-" + std::to_string(number);
  const int most = std::min(8, pools[0].devices);
  do job.least = 1 << random() % 4;
  while (job.least > most);
  job.most = job.most_of_each = job.least;
  job.mix = random() % 2 == 0;
  job.work = 3600 * (0.1 + 10 * unit(random) * unit(random));
  for (const Pool& pool : pools)
    job.speeds[pool.type][job.least] = job.least * (0.2 + unit(random));
  return job;
}

JobView view_of(const TraceJob& job, int64_t id, const std::vector<Pool>& pools) {
  JobView view;
  view.id = id;
  view.owner = job.owner;
  view.submitted = static_cast<double>(id);
  view.work_left = job.work;
  view.switch_seconds = 30;
  view.speeds = SpeedTable(pools.size());
  PoolCounts limit;
  for (size_t pool = 0; pool < pools.size(); ++pool) {
    view.speeds.add(pool, job.least, job.speeds.at(pools[pool].type).at(job.least));
    limit.push_back(pools[pool].devices);
  }
  view.any_of = {{job.least, job.most, std::move(limit), job.mix}};
  return view;
}

/// The median of five, of jobs of which those run that an earlier decision let run.
double decision_seconds(Policy& policy, int jobs, int devices) {
  std::mt19937 random(kSeed);
  QueueView view{1e6, pools_of(devices), {}};
  for (int i = 0; i < jobs; ++i)
    view.jobs.push_back(view_of(random_job(random, i, view.pools), i, view.pools));
  for (const Placement& placement : schedule(policy, view).run)
    view.jobs[placement.job].held = placement.devices;
  std::vector<double> seconds;
  for (int i = 0; i < 5; ++i) {
    const Nanos before = steady_clock().now();
    schedule(policy, view);
    seconds.push_back(seconds_of(steady_clock().now() - before));
  }
  std::nth_element(seconds.begin(), seconds.begin() + 2, seconds.end());
  return seconds[2];
}

/// The slowest of all policies.
double slowest_decision_seconds(int jobs, int devices) {
  double slowest = 0;
  for (const std::string_view name : policy_names())
    slowest = std::max(slowest, decision_seconds(**make_policy(name), jobs, devices));
  return slowest;
}

/// Of a coordinator, with all that it looks up and keeps: the median of five requests, each of
/// which leads to one.
double coordinator_decision_seconds(int jobs, int devices) {
  std::mt19937 random(kSeed);
  std::vector<std::string> types;
  for (int i = 0; i < devices; ++i) types.push_back(i % 2 == 0 ? "a" : "b");
  testing::FakeService service(testing::fleet_of(types), "fair_share");
  for (int i = 0; i < jobs; ++i)
    service.coordinator().submit(
        {{testing::job_on(1 << random() % 4)}, "owner-" + std::to_string(random() % 20), "", false},
        [](const Result<int64_t>&) {});
  service.run();
  std::vector<double> seconds;
  for (int i = 0; i < 5; ++i) {
    const Nanos before = steady_clock().now();
    (void)service.ask(jobs - i, JobRequest::kHold);
    seconds.push_back(seconds_of(steady_clock().now() - before));
  }
  std::nth_element(seconds.begin(), seconds.begin() + 2, seconds.end());
  return seconds[2];
}

/// Poisson arrivals at about what the devices can do.
double simulation_seconds(int jobs, int devices) {
  std::mt19937 random(kSeed);
  const std::vector<Pool> pools = pools_of(devices);
  std::exponential_distribution<double> pause(devices / (4.0 * 3600 * 3));
  std::vector<TraceJob> trace;
  double now = 0;
  for (int i = 0; i < jobs; ++i) {
    trace.push_back(random_job(random, i, pools));
    trace.back().arrival_seconds = now += pause(random);
  }
  double slowest = 0;
  for (const std::string_view name : policy_names()) {
    const Nanos before = steady_clock().now();
    const auto outcome = simulate_trace(trace, pools, **make_policy(name), {}, steady_clock());
    if (!outcome) return kUnknownSeconds;
    slowest = std::max(slowest, seconds_of(steady_clock().now() - before));
  }
  return slowest;
}

/// Clients that each wait for the acknowledgement of a submission before they make the next one.
double submissions_per_second(const std::string& path, int clients) {
  constexpr double kSeconds = 3;
  auto database = Database::open(path, Database::Mode::kWrite);
  if (!database || !migrate(*database)) return 0;
  GroupCommit commits(std::move(*database));
  std::atomic<int64_t> acknowledged{0};
  const Nanos begin = steady_clock().now(), end = begin + nanos_of_seconds(kSeconds);
  std::vector<std::thread> threads;
  for (int client = 0; client < clients; ++client)
    threads.emplace_back([&, client] {
      StoredJob job;
      job.name = job.owner = job.queue = "bench";
      job.spec = std::string(1500, 'x');
      for (int i = 0; steady_clock().now() < end; ++i) {
        job.key = std::to_string(client) + "-" + std::to_string(i);
        const auto done = commits.write([&](Database& store) -> Result<Unit> {
          MOTLEY_TRY(const int64_t id, add_jobs(store, {job}));
          return add_event(store, id, 1, "submitted");
        });
        if (done) ++acknowledged;
      }
    });
  for (std::thread& thread : threads) thread.join();
  return static_cast<double>(acknowledged) / seconds_of(steady_clock().now() - begin);
}

/// So many jobs, finished but for the newest ones.
Result<Unit> fill(const std::string& path, int jobs, int unfinished) {
  MOTLEY_TRY(const Database database, Database::open(path, Database::Mode::kWrite));
  MOTLEY_TRY_VOID(migrate(database));
  return database.execute(
      "BEGIN; WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < " +
      std::to_string(jobs) +
      ") INSERT INTO jobs (name, owner, queue, priority, spec, submitted, finished, state, epoch, "
      "stop, held, unfinished, restarts, in_vain, back_off, cause) SELECT 'job', 'ana', 'default', "
      "50, hex(zeroblob(500)), i, iif(i > " +
      std::to_string(jobs - unfinished) + ", 0, i), iif(i > " + std::to_string(jobs - unfinished) +
      ", 1, 7), 1, 0, 0, 0, 0, 0, 0, '' "
      "FROM n; INSERT INTO labels SELECT 'team', 'vision', id FROM jobs; COMMIT");
}

/// Each filter, with many jobs that it admits, few and none, alone and with another one.
std::vector<JobQuery> page_queries() {
  std::vector<JobQuery> queries;
  for (const JobFilter which : {JobFilter::kUnfinished, JobFilter::kFinished, JobFilter::kAll})
    for (const char* name : {"", "job", "other"})
      for (const char* label : {"", "team", "team=vision", "team=text"}) {
        queries.push_back({.which = which, .name = name, .label = label});
        queries.push_back({.which = which, .name = name, .queue = "default", .label = label});
        queries.push_back({.which = which, .name = name, .queue = "other", .label = label});
        queries.push_back(
            {.which = which, .state = JobState::kRunning, .name = name, .label = label});
        queries.push_back(
            {.which = which, .state = JobState::kSucceeded, .name = name, .label = label});
      }
  return queries;
}

/// The slowest of first and second pages.
double page_seconds(const std::string& path) {
  const auto database = Database::open(path, Database::Mode::kRead);
  if (!database) return kUnknownSeconds;
  constexpr int kPage = 200;
  double slowest = 0;
  for (const JobQuery& query : page_queries()) {
    int64_t next = INT64_MAX;
    for (int page = 0; page < 2 && next > 0; ++page) {
      const Nanos before = steady_clock().now();
      const auto jobs = list_jobs(*database, query, next, kPage);
      if (!jobs) return kUnknownSeconds;
      slowest = std::max(slowest, seconds_of(steady_clock().now() - before));
      next = jobs->next;
    }
  }
  return slowest;
}

class Bench {
 public:
  explicit Bench(bool json) : json_(json) {}

  void decisions() {
    struct Size {
      int jobs, devices;
      double limit;
    };
    for (const auto& [jobs, devices, limit] :
         {Size{160, 64, 0.010}, Size{2048, 1536, 0.2}, Size{10000, 4096, 1.0}})
      add({.name = std::to_string(jobs) + "x" + std::to_string(devices),
           .metric = "decision_seconds",
           .unit = "s",
           .better = "lower",
           .ours = slowest_decision_seconds(jobs, devices),
           .limit = limit});
    add({.name = "coordinator/10000x4096",
         .metric = "decision_seconds",
         .unit = "s",
         .better = "lower",
         .ours = coordinator_decision_seconds(10000, 4096),
         .limit = 1.0});
    add({.name = "simulator/896x108",
         .metric = "simulation_seconds",
         .unit = "s",
         .better = "lower",
         .ours = simulation_seconds(896, 108),
         .limit = 1.0});
  }

  /// The store alone: what answers over HTTP comes on top.
  Result<Unit> store() {
    const testing::TemporaryDirectory directory;
    constexpr int kFinished = 1'000'000, kPending = 100'000, kClients = 32;
    add({.name = "store, 32 clients",
         .metric = "durable_submits_per_second",
         .unit = "1/s",
         .better = "higher",
         .ours = submissions_per_second(directory.path() + "/empty.db", kClients),
         .limit = 2000});
    const std::string full = directory.path() + "/full.db";
    MOTLEY_TRY_VOID(fill(full, kFinished + kPending, kPending));
    add({.name = "store, 1.1 million jobs",
         .metric = "page_of_200_seconds",
         .unit = "s",
         .better = "lower",
         .ours = page_seconds(full),
         .limit = 0.05});
    return Unit{};
  }

  /// The service as it is started, over its socket.
  Result<Unit> served() {
    MOTLEY_TRY(const ServedFigures figures, measure_served());
    add({.name = "served, 32 clients",
         .metric = "durable_submits_per_second",
         .unit = "1/s",
         .better = "higher",
         .ours = figures.durable_submits_per_second,
         .limit = 2000});
    add({.name = "served, 32 clients",
         .metric = "reads_per_second",
         .unit = "1/s",
         .better = "higher",
         .ours = figures.reads_per_second,
         .limit = 15000});
    add({.name = "served, free fleet",
         .metric = "submit_to_first_line_seconds",
         .unit = "s",
         .better = "lower",
         .ours = figures.first_line_seconds,
         .limit = 0.5});
    return Unit{};
  }

  Result<Unit> restarted() {
    MOTLEY_TRY(const std::vector<RestartFigures> all, measure_restarts());
    for (const RestartFigures& figures : all) add(figures);
    return Unit{};
  }

  Result<Unit> published(const std::string& folder) {
    MOTLEY_TRY(std::vector<TraceJob> trace,
               read_trace(folder + "/jobs.tsv", folder + "/throughputs.json"));
    const std::vector<Pool> pools = {{"v100", 8}, {"p100", 16}, {"k80", 24}};
    MOTLEY_TRY(const TraceOutcome apart, outcome_of(trace, pools));
    for (TraceJob& job : trace) let_mix(&job);
    MOTLEY_TRY(const TraceOutcome mixed, outcome_of(trace, pools));
    constexpr double kHour = 3600;
    add({.name = "gavel96",
         .metric = "mean_completion_hours",
         .unit = "h",
         .better = "lower",
         .ours = apart.mean_completion() / kHour,
         .limit = 4.0,
         .peers = {{"gavel", 4.16}, {"fifo", 9.97}},
         .kind = "simulated"});
    add({.name = "gavel96",
         .metric = "makespan_hours",
         .unit = "h",
         .better = "lower",
         .ours = apart.makespan / kHour,
         .limit = 17.6,
         .peers = {{"gavel", 17.7}},
         .kind = "simulated"});
    add(of_mixed("mean_completion_ratio", mixed.mean_completion() / apart.mean_completion()));
    add(of_mixed("p99_completion_ratio",
                 mixed.completion_quantile(0.99) / apart.completion_quantile(0.99)));
    return Unit{};
  }

  void print() const {
    if (json_) rows_.print();
  }

 private:
  static Result<TraceOutcome> outcome_of(const std::vector<TraceJob>& trace,
                                         const std::vector<Pool>& pools) {
    return simulate_trace(trace, pools, **make_policy("shortest_remaining"), {}, steady_clock());
  }

  static Row of_mixed(const char* metric, double ratio) {
    return {.name = "gavel96 mixed",
            .metric = metric,
            .unit = "",
            .better = "lower",
            .ours = ratio,
            .limit = 0.95,
            .kind = "simulated"};
  }

  void add(const RestartFigures& figures) {
    const std::string name = "restarted, " + std::to_string(figures.waiting) + " wait";
    const bool few = figures.waiting == 0;
    add({.name = name,
         .metric = "serving_again_seconds",
         .unit = "s",
         .better = "lower",
         .ours = figures.serving_again_seconds,
         .limit = few ? std::optional(2.0) : std::nullopt});
    add({.name = name,
         .metric = "undisturbed_jobs",
         .unit = "",
         .better = "higher",
         .ours = static_cast<double>(figures.undisturbed),
         .limit = figures.running});
    add({.name = name,
         .metric = "memory_bytes",
         .unit = "B",
         .better = "lower",
         .ours = figures.memory_bytes,
         .limit = 500e6});
  }

  void add(const Row& row) {
    if (!json_)
      std::printf("%-20s %-24s %10.4f %-2s limit %.4f\n", row.name.c_str(), row.metric, row.ours,
                  row.unit, row.limit.value_or(0));
    rows_.add(row);
  }

  const bool json_;
  Rows rows_{"service"};
};

int run(bool json, const std::string& folder) {
  Bench bench(json);
  bench.decisions();
  Result<Unit> done = bench.served();
  if (done) done = bench.store();
  if (done) done = bench.restarted();
  if (done && !folder.empty()) done = bench.published(folder);
  if (!done) {
    std::fprintf(stderr, "service: %s\n", done.error().to_string().c_str());
    return exit_code(done.error().code);
  }
  bench.print();
  return 0;
}

}  // namespace
}  // namespace motley

int main(int argc, char** argv) {
  bool json = false;
  std::string folder;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--json") == 0)
      json = true;
    else if (std::strcmp(argv[i], "--case") == 0 && i + 1 < argc)
      folder = argv[++i];
    else
      return std::fprintf(stderr, "usage: tests/bench/run.sh service [--json] [--case DIR]\n"), 2;
  }
  return motley::run(json, folder);
}
