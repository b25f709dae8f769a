#include "scheduler/service/attempt_files.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "core/spec/json.h"
#include "tests/support/temporary_directory.h"
#include "tests/unit/scheduler/service/fake_service.h"

namespace motley {
namespace {

using testing::fleet_of;
using testing::job_on;

TEST(AttemptFiles, OnlyOneProcessGetsAnAttempt) {
  const testing::TemporaryDirectory directory;
  const AttemptFiles files(directory.path() + "/1");
  AttemptOrder order{{7, Epoch(2)}, job_on(1), fleet_of({"a"})};
  order.log_limit = Bytes(4096);
  order.from = "/jobs/6/motley/runs/job/1";
  order.job.service.resumes = {6, 40};
  ASSERT_TRUE(files.write_order(order));
  const auto read = files.order();
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->id, order.id);
  EXPECT_EQ(to_json(read->job), to_json(order.job));
  EXPECT_EQ(read->fleet.devices.size(), 1u);
  EXPECT_EQ(read->log_limit, order.log_limit);
  EXPECT_EQ(read->from, order.from);
  EXPECT_EQ(read->job.service.resumes, order.job.service.resumes);

  EXPECT_FALSE(files.begun()->has_value());
  const ProcessIdentity self = *identity_of(::getpid());
  EXPECT_TRUE(*files.claim({self, 40}));
  EXPECT_FALSE(*files.claim({{1, 2, "other"}, 0}));
  EXPECT_EQ((*files.begun())->process, self);
  EXPECT_EQ((*files.begun())->saved_step, 40);

  EXPECT_EQ(files.stop(), StopWhy::kNone);
  ASSERT_TRUE(files.write_stop(StopWhy::kTimeLimit));
  EXPECT_EQ(files.stop(), StopWhy::kTimeLimit);

  EXPECT_FALSE(files.ended()->has_value());
  ASSERT_TRUE(files.write_end({1, "rank 1 died", true, false}));
  EXPECT_EQ((*files.ended())->cause, "rank 1 died");
  EXPECT_FALSE((*files.ended())->hopeless);
  EXPECT_FALSE((*files.ended())->blameless);
}

TEST(ProcessIdentity, IsMoreThanANumber) {
  ProcessIdentity self = *identity_of(::getpid());
  EXPECT_TRUE(watch_process(self).valid());
  EXPECT_GE(age_of(self), Nanos(0));
  self.start_ticks += 1;
  EXPECT_FALSE(watch_process(self).valid());
  EXPECT_FALSE(identity_of(0).has_value());
}

}  // namespace
}  // namespace motley
