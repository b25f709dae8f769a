#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <utility>

#include "comm/link_probe.h"
#include "core/holdings.h"
#include "core/rank_memory.h"
#include "core/spec/device_identity.h"
#include "core/spec/names.h"
#include "core/spec/precisions.h"
#include "core/spec/profile_key.h"
#include "worker/profiler/busy_sums.h"
#include "worker/profiler/profiler.h"
#include "worker/train/island_sum.h"
#include "worker/train/slice_exchange.h"

namespace motley {
namespace {

constexpr int kReductionRepetitions = 5;
constexpr double kReductionSeconds = 0.1;  ///< of a repetition, where devices are not paced
constexpr double kMostSums = 30;

/// One replica on each of the fleet's first devices, slices dealt evenly: the plan of a
/// data-parallel job.
Plan replicas_on(int ranks, const FleetSpec& fleet, const JobSpec& job) {
  Plan plan;
  plan.numerics = job.train.numerics;
  for (int rank = 0; rank < ranks; ++rank) {
    ReplicaPlan replica;
    replica.stages = {whole_model(job.model)};
    replica.stages[0].ranks = {Rank(rank)};
    const DeviceSpec& device = fleet.devices[static_cast<size_t>(rank)];
    plan.ranks.push_back({device.id, device.host, device.type});
    plan.replicas.push_back(replica);
  }
  plan.owners = even_ownership(plan, job.model);
  return plan;
}

/// More than this takes no part in measuring a reduction; what is left out takes as long in
/// proportion.
constexpr Bytes kMostReduced{64 << 20};

/// The model, or one as wide with fewer layers and words (or, beyond that, narrower), whose
/// gradient takes at most `most`.
ModelSpec small_enough(ModelSpec model, Bytes most, int element_bytes) {
  const auto too_large = [&] { return parameter_count(model) * element_bytes > most.value(); };
  while (too_large() && model.layers > 1) model.layers /= 2;
  while (too_large() && model.vocab > 1) model.vocab /= 2;
  while (too_large() && model.context > 1) model.context /= 2;
  while (too_large() && model.width > 1) {
    model.heads = 1;
    model.width /= 2;
  }
  return model;
}

/// Memory like that of the gradient an engine sums: on the device, and as the host sees it.
class GradientBuffer {
 public:
  /// `at_host`: whether the host asks for it.
  static Result<std::unique_ptr<GradientBuffer>> allocate(const JobSpec& job, Device& device,
                                                          bool at_host, MemoryAccount& account) {
    std::unique_ptr<GradientBuffer> buffer(new GradientBuffer(job, device));
    MOTLEY_TRY(buffer->memory_,
               SharedMemory::allocate(device, Bytes(buffer->count_ * bytes_of(buffer->element_)),
                                      account));
    if (!at_host) return buffer;
    MOTLEY_TRY_VOID(buffer->memory_.have_view());
    std::ranges::fill(buffer->memory_.host(), std::byte{0});
    MOTLEY_TRY_VOID(buffer->memory_.enqueue_push());
    MOTLEY_TRY_VOID(device.synchronize());
    if (!buffer->memory_.in_place())
      buffer->staged_.emplace(device, buffer->memory_,
                              static_cast<int>(bytes_of(buffer->element_)));
    return buffer;
  }

  /// As Engine::staged_gradients().
  GradientSpans at_host() {
    const std::span<std::byte> view = memory_.host();
    GradientSpans spans;
    if (element_ == SumType::kInt64)
      spans.fixed = all_of<int64_t>(view);
    else if (element_ == SumType::kFloat64)
      spans.doubles = all_of<double>(view);
    else
      spans.floats = all_of<float>(view);
    if (!staged_) return spans;
    staged_->begin();
    spans.staged = &*staged_;
    staging_ = true;
    return spans;
  }
  /// As Engine::device_gradients().
  DeviceArray on_device() {
    if (std::exchange(staging_, false)) staged_->end();
    return {memory_.device(), count_, element_};
  }
  Bytes size() const { return memory_.size(); }

 private:
  GradientBuffer(const JobSpec& job, const Device& device)
      : count_(parameter_count(job.model)),
        element_(job.train.numerics == Numerics::kExact     ? SumType::kInt64
                 : device.element_bytes() == sizeof(double) ? SumType::kFloat64
                                                            : SumType::kFloat32) {}
  template <class T>
  static std::span<T> all_of(std::span<std::byte> view) {
    return {reinterpret_cast<T*>(view.data()), view.size() / sizeof(T)};
  }

  const int64_t count_;
  const SumType element_;
  SharedMemory memory_;
  std::optional<StagedView>
      staged_;  ///< brings it to the host and back, while that is not in place
  bool staging_ = false;
};

/// How many sums make a repetition, the same on all ranks: as many as last long enough for what
/// now and then stops a device (ProfilerOptions::least_repetition_seconds). Of paced devices one.
Result<int64_t> sums_of_repetition(double seconds_of_one, const Pacer& pacer,
                                   Communicator& communicator) {
  const double wished = pacer.paced() ? 1 : std::ceil(kReductionSeconds / seconds_of_one);
  auto count = static_cast<int64_t>(std::clamp(wished, 1.0, kMostSums));
  MOTLEY_TRY_VOID(communicator.all_reduce_max(std::span(&count, 1)));
  return count;
}

/// Of `sum_once`, which all ranks do together, the median over repetitions and their spread.
Result<Unit> time_sums(Communicator& communicator, Pacer& pacer,
                       const std::function<Result<Unit>()>& sum_once, ReductionPoint* point) {
  std::vector<double> seconds;
  int64_t count = 1;
  for (int i = 0; i <= kReductionRepetitions; ++i) {
    MOTLEY_TRY_VOID(communicator.barrier());
    const double start = pacer.now();
    for (int64_t sum = 0; sum < count; ++sum) MOTLEY_TRY_VOID(sum_once());
    MOTLEY_TRY_VOID(pacer.meet(communicator));
    const double one = (pacer.now() - start) / static_cast<double>(count);
    if (i > 0) {
      seconds.push_back(one);
    } else {  // which warms up
      MOTLEY_TRY(count, sums_of_repetition(one, pacer, communicator));
    }
  }
  std::sort(seconds.begin(), seconds.end());
  point->seconds = seconds[kReductionRepetitions / 2];
  if (point->seconds > 0) point->spread = (seconds.back() - seconds.front()) / point->seconds;
  return Unit{};
}

/// Whether these ranks sum gradients while others are still computed, over links that let computing
/// go on; on the virtual clock neither takes any time.
bool sum_beside_computing(int ranks, FleetSpec fleet) {
  fleet.devices.resize(static_cast<size_t>(ranks));
  return !fleet.single_host() && fleet.clock != PaceClock::kVirtual &&
         std::all_of(fleet.devices.begin(), fleet.devices.end(), computes_beside_sums);
}

/// What a step takes to sum the job's gradient, as a plan of replicas on the first devices of the
/// fleet goes about it: like GPUs among themselves, the rest through host memory, a GPU's way there
/// and back with it.
Result<ReductionPoint> measure_reduction(const JobSpec& job, const FleetSpec& fleet, Device& device,
                                         Communicator& first, Pacer& pacer) {
  const Plan plan = replicas_on(first.size(), fleet, job);
  MOTLEY_TRY(OpenIslands open, open_islands(device_islands(plan, fleet), first, device));
  MemoryAccount account;
  MOTLEY_TRY(
      const auto slices,
      SliceExchange::open(plan, job.model, first,
                          {gradient_element_bytes(job.train.numerics, device.element_bytes()),
                           device.element_bytes()},
                          account, open.islands));
  std::unique_ptr<IslandSum> island;
  if (open.devices) {
    MOTLEY_TRY(island, IslandSum::open(std::move(open), false, *slices));
  }
  MOTLEY_TRY(const auto gradient,
             GradientBuffer::allocate(job, device, slices->has_gradients(), account));
  const IslandGradients gradients{.on_device = [&] { return gradient->on_device(); },
                                  .at_host = [&] { return gradient->at_host(); }};
  ReductionPoint point;
  point.ranks = first.size();
  point.bytes = gradient->size();
  const auto sum_once = [&]() -> Result<Unit> {
    if (island) return island->sum(gradients);
    MOTLEY_TRY_VOID(slices->sum(gradient->at_host()));
    gradient->on_device();  // behind what the host has given back
    return device.synchronize();
  };
  MOTLEY_TRY_VOID(time_sums(first, pacer, sum_once, &point));
  if (island) MOTLEY_TRY_VOID(island->close());
  if (sum_beside_computing(first.size(), fleet)) {
    const TimedSum sum{*slices, gradient->at_host(), parameter_count(job.model), point.seconds};
    MOTLEY_TRY(point.busy_share,
               measure_busy_share(device, fleet.devices[static_cast<size_t>(first.rank())].threads,
                                  sum, first, [&] { return pacer.now(); }));
  }
  return point;
}

/// The same over the first 2, 3, … ranks: a plan may leave devices out.
Result<std::vector<ReductionPoint>> measure_reductions(JobSpec job, const FleetSpec& fleet,
                                                       Bytes most, Device& device,
                                                       Communicator& world, Pacer& pacer) {
  const int element_bytes = gradient_element_bytes(job.train.numerics, device.element_bytes());
  const Bytes whole(parameter_count(job.model) * element_bytes);
  job.model = small_enough(job.model, most, element_bytes);
  std::vector<ReductionPoint> points;
  for (int ranks = 2; ranks <= world.size(); ranks = ranks < 4 ? ranks + 1 : ranks * 2) {
    ReductionPoint point;
    if (world.rank() < ranks) {
      std::vector<int> first(static_cast<size_t>(ranks));
      std::iota(first.begin(), first.end(), 0);
      const auto group = world.group(first);
      MOTLEY_TRY(point, measure_reduction(job, fleet, device, *group, pacer));
    }
    points.push_back(point);
    MOTLEY_TRY_VOID(world.barrier());
  }
  if (points.back().ranks != world.size()) {
    MOTLEY_TRY(const ReductionPoint all, measure_reduction(job, fleet, device, world, pacer));
    points.push_back(all);
  }
  for (ReductionPoint& point : points) {
    point.seconds *= static_cast<double>(whole.value()) / static_cast<double>(point.bytes.value());
    point.bytes = whole;
    FleetSpec leading = fleet;
    leading.devices.resize(static_cast<size_t>(point.ranks));
    point.hosts = leading.hosts();
  }
  return points;
}

/// Within hosts and between them; on the virtual clock they turn out to take no time.
Result<std::vector<LinkProfile>> measure_links(const FleetSpec& fleet, Communicator& communicator,
                                               const Pacer& pacer) {
  std::vector<std::string> hosts;
  for (const DeviceSpec& device : fleet.devices) hosts.push_back(device.host);
  return probe_links(communicator, hosts, [&] { return pacer.now(); });
}

/// In each of the device's precisions; the fastest, the first of equals.
Result<DeviceProfile> measure_fastest(const JobSpec& job, const RankDevice& own,
                                      const ProfilerProgress& progress) {
  std::optional<DeviceProfile> fastest;
  ProfilerOptions options;
  // A pace says of each section what it takes, however short.
  if (!own.pacer.paced())
    options.least_repetition_seconds = options.share_of_point(options.seconds_per_point);
  for (const auto& device : own.devices) {
    const std::string in = own.devices.size() > 1 ? " in " + spec_name(device->precision()) : "";
    MOTLEY_TRY(DeviceProfile found, measure_device(job, *device, own.memory_limit, own.pacer,
                                                   options, [&](const std::string& what) {
                                                     progress(what.empty() ? what : what + in);
                                                   }));
    found.precision = device->precision();
    if (!fastest || found.best_speed() > fastest->best_speed()) fastest = std::move(found);
  }
  return std::move(*fastest);
}

/// The profiles of all ranks, by rank; the first error of any rank on every rank.
Result<std::vector<DeviceProfile>> exchange(const Result<DeviceProfile>& mine,
                                            const FleetSpec& fleet, Communicator& communicator) {
  nlohmann::json message;
  if (mine) {
    Profile one;
    one.devices.push_back(*mine);
    message["profile"] = to_json(one);
  } else {
    message["error"] = mine.error().message;
    message["code"] = name_of(mine.error().code);
  }
  MOTLEY_TRY(const std::vector<std::string> all, communicator.all_gather(message.dump()));
  std::vector<DeviceProfile> devices;
  for (size_t rank = 0; rank < all.size(); ++rank) {
    const auto other = nlohmann::json::parse(all[rank]);
    if (other.contains("error"))
      return fail(error_code_of_name(other["code"].get<std::string>()),
                  "measuring " + fleet.devices[rank].id + ": " + other["error"].get<std::string>());
    MOTLEY_TRY(Profile profile, profile_from_json(other["profile"]));
    devices.push_back(std::move(profile.devices.front()));
  }
  return devices;
}

}  // namespace

Result<Profile> measure_fleet(const JobSpec& job, const FleetSpec& fleet, RankDevice own,
                              Communicator& communicator, const ProfilerProgress& progress) {
  MOTLEY_TRY_VOID(check_precisions(fleet, job));
  const DeviceSpec& spec = fleet.devices[static_cast<size_t>(communicator.rank())];
  auto mine = measure_fastest(job, own, progress);
  if (mine) {
    mine->device = spec.id;
    mine->type = spec.type;
    mine->identity = device_identity(fleet, spec, this_machine());
    mine->evidence = evidence_of(spec);
  }
  Profile profile;
  profile.code_version = code_version();
  profile.job_key = profile_job_key(job);
  profile.job = profile_job(job);
  MOTLEY_TRY(profile.devices, exchange(mine, fleet, communicator));
  MOTLEY_TRY_VOID(own.pacer.meet(communicator));
  if (communicator.size() == 1) return profile;

  progress("links");
  MOTLEY_TRY(profile.links, measure_links(fleet, communicator, own.pacer));
  progress("reduction");
  // What is measured with must fit beside whatever else the smallest device holds.
  Bytes most = kMostReduced;
  for (const DeviceProfile& device : profile.devices)
    most = std::min(most, Bytes(device.memory_limit.value() / 4));
  MOTLEY_TRY(profile.reductions,
             measure_reductions(job, fleet, most, *own.devices.front(), communicator, own.pacer));

  // Every rank timed its own share of the waiting: rank 0's account stands for all.
  std::string text = to_json(profile).dump();
  MOTLEY_TRY_VOID(communicator.broadcast(text, 0));
  return profile_from_json(nlohmann::json::parse(text));
}

}  // namespace motley
