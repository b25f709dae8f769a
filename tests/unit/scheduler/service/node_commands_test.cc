#include "scheduler/service/node_commands.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace motley {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class NodeCommandsTest : public ::testing::Test {
 protected:
  NodeCommandsTest() {
    all_ = std::make_shared<NodeCommands>(
        clock_, [this](AttemptId, const std::string&) { return may_run_; });
    all_->start(command_);
  }
  void tell(int number, const std::string& stream, const std::string& text, int status = 0) {
    all_->told("n1", {{"c1", number, stream, text, status}});
  }

  ManualClock clock_;
  bool may_run_ = true;
  NodeCommand command_{"c1", {7, Epoch(2)}, "n1", "echo", "in", "secret"};
  std::shared_ptr<NodeCommands> all_;
};

TEST_F(NodeCommandsTest, AnAgentIsToldEachCommandOnceAndNoKey) {
  const auto orders = NodeCommands::orders(all_, "n1");
  const std::string text = orders->next();
  EXPECT_THAT(text, HasSubstr("event: start\n"));
  EXPECT_THAT(text, HasSubstr("\"command\":\"echo\""));
  EXPECT_EQ(text.find("secret"), std::string::npos);
  EXPECT_EQ(orders->next(), "");
  EXPECT_EQ(NodeCommands::orders(all_, "n2")->next(), "");
  // Another connection, after a break.
  EXPECT_THAT(NodeCommands::orders(all_, "n1")->next(), HasSubstr("event: start\n"));
}

TEST_F(NodeCommandsTest, WhoWaitsReadsAllToTheEndWhateverComesTwice) {
  const auto output = NodeCommands::output(all_, "c1");
  tell(0, "out", "one");
  tell(0, "out", "one");
  tell(2, "err", "too early");
  tell(1, "err", "two");
  all_->told("n2", {{"c1", 2, "out", "of another node", 0}});
  const std::string text = output->next();
  EXPECT_THAT(text, HasSubstr("\"text\":\"one\""));
  EXPECT_THAT(text, HasSubstr("\"text\":\"two\""));
  EXPECT_EQ(text.find("too early"), std::string::npos);
  EXPECT_EQ(text.find("another"), std::string::npos);
  EXPECT_EQ(all_->settle("n1").received.at("c1"), 2);
  tell(2, "end", "", 3);
  EXPECT_THAT(output->next(), HasSubstr("\"status\":3"));
  EXPECT_TRUE(output->over());
  EXPECT_THAT(NodeCommands::output(all_, "c1")->next(), HasSubstr("\"text\":\"one\""));
}

TEST_F(NodeCommandsTest, ACommandThatNobodyReadsIsUnwanted) {
  auto output = NodeCommands::output(all_, "c1");
  clock_.advance(nanos_of_seconds(100));
  EXPECT_THAT(all_->settle("n1").unwanted, IsEmpty());
  output.reset();
  EXPECT_THAT(all_->settle("n1").unwanted, IsEmpty());  // it may come again
  clock_.advance(nanos_of_seconds(4));
  EXPECT_THAT(all_->settle("n1").unwanted, ElementsAre("c1"));
  EXPECT_TRUE(all_->knows("c1"));  // until its agent has ended it
  tell(0, "end", "", 137);
  all_->settle("n1");
  EXPECT_FALSE(all_->knows("c1"));
}

TEST_F(NodeCommandsTest, WithItsNodeACommandIsOver) {
  const auto output = NodeCommands::output(all_, "c1");
  may_run_ = false;
  EXPECT_THAT(output->next(), HasSubstr("\"status\":255"));
  EXPECT_TRUE(output->over());
}

}  // namespace
}  // namespace motley
