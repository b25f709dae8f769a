#include "core/work_table.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/json_fields.h"

namespace motley {
namespace {

TEST(WorkTable, ComesBackFromJson) {
  WorkTable table;
  table.update_flops = 16;
  table.update_bytes = 1e10 / 3;
  table.layers.push_back(
      {.layer = "block",
       .share = 0.25,
       .recompute = Recompute::kMlp,
       .sum_bytes_per_sample = 7,
       .points = {{4, Bytes(99), {1e9, 2e9, 3e9, 4e9, 5, 6}, {7, 8, 9, 10, 11, 12}}}});
  table.memory = {{1, Bytes(10), Bytes(20)}};
  const nlohmann::json document = to_json(std::vector<WorkTable>{table, WorkTable{}});
  const auto back = work_tables_from_json(nlohmann::json::parse(document.dump()));
  ASSERT_TRUE(back) << back.error().to_string();
  ASSERT_EQ(back->size(), 2U);
  EXPECT_EQ(to_json(*back), document);
  const LayerWork& layer = back->front().layers.front();
  EXPECT_EQ(layer.recompute, Recompute::kMlp);
  EXPECT_EQ(layer.points.front().backward, (PassWork{7, 8, 9, 10, 11, 12}));
  EXPECT_EQ(back->front().memory.front().total(), Bytes(30));
}

TEST(WorkTable, IsRefusedWhereItIsWrong) {
  nlohmann::json document = to_json(std::vector<WorkTable>{WorkTable{}});
  document["devices"][0]["update_flops"] = -1;
  const auto back = work_tables_from_json(document);
  ASSERT_FALSE(back);
  EXPECT_EQ(back.error().message.rfind("/devices/0/update_flops", 0), 0U) << back.error().message;
}

TEST(WorkRequest, ComesBackFromJson) {
  WorkRequest request;
  request.job.name = "job";
  request.job.model = {"gpt", 2, 2, 8, 16, 256};
  request.job.train.global_batch = 4;
  request.job.train.steps = 1;
  request.devices = {{.kind = DeviceKind::kCuda,
                      .precision = Precision::kBf16,
                      .threads = 1,
                      .memory_limit = Bytes(1000)}};
  nlohmann::json document = to_json(request);
  const auto back = work_request_from_json(document);
  ASSERT_TRUE(back) << back.error().to_string();
  EXPECT_EQ(back->devices, request.devices);
  EXPECT_EQ(back->job.model, request.job.model);
  document["devices"][0]["precision"] = "auto";
  EXPECT_FALSE(work_request_from_json(document));
}

}  // namespace
}  // namespace motley
