#include "kernels/multiprocessor_share.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace motley {
namespace {

// Of 132 multiprocessors 4 are in no group of 8.
const MultiprocessorGroups kH200{
    .gpu = "NVIDIA H200", .multiprocessors = 132, .groups = 16, .group_size = 8};

std::string refusal(int sms, int first) {
  const auto groups = groups_of({.sms = sms, .first = first}, kH200);
  return groups ? "none" : groups.error().to_string();
}

TEST(MultiprocessorShare, IsTheNextWholeGroups) {
  EXPECT_EQ(*groups_of({.sms = 64}, kH200), (GroupRange{0, 8}));
  EXPECT_EQ(*groups_of({.sms = 32, .first = 64}, kH200), (GroupRange{8, 4}));
  EXPECT_EQ(*groups_of({.sms = 8, .first = 120}, kH200), (GroupRange{15, 1}));
  EXPECT_EQ(*groups_of({.sms = 128}, kH200), (GroupRange{0, 16}));
}

TEST(MultiprocessorShare, SaysWhatTheCardHasAndWhatIsNearest) {
  EXPECT_EQ(refusal(30, 0),
            "a share of 30 multiprocessors cannot be: NVIDIA H200 has 132, dealt out in 16 groups "
            "of 8; nearest: 24 or 32");
  EXPECT_EQ(refusal(4, 0),
            "a share of 4 multiprocessors cannot be: NVIDIA H200 has 132, dealt out in 16 groups "
            "of 8; nearest: 8");
  EXPECT_EQ(refusal(132, 0),
            "a share of 132 multiprocessors cannot be: NVIDIA H200 has 132, dealt out in 16 groups "
            "of 8; nearest: 128");
  EXPECT_EQ(refusal(64, 96),
            "a share of 64 multiprocessors cannot be: NVIDIA H200 has 132, dealt out in 16 groups "
            "of 8, 32 left; nearest: 32");
  EXPECT_EQ(refusal(8, 128),
            "a share of 8 multiprocessors finds none left: the shares before it have 128, and "
            "NVIDIA H200 has 132, dealt out in 16 groups of 8");
  EXPECT_EQ(groups_of({.sms = 30}, kH200).error().code, ErrorCode::kInvalidSpec);
}

RC_GTEST_PROP(MultiprocessorShare, SharesInOrderFitWithoutGapsAndNearestOnesAreAccepted, ()) {
  const MultiprocessorGroups gpu{.gpu = "card",
                                 .multiprocessors = 200,
                                 .groups = *rc::gen::inRange(1, 20),
                                 .group_size = *rc::gen::element(2, 4, 8)};
  int first = 0, group = 0;
  while (group < gpu.groups) {
    const int count = *rc::gen::inRange(1, gpu.groups - group + 1);
    const auto range = groups_of({.sms = count * gpu.group_size, .first = first}, gpu);
    RC_ASSERT(range.has_value());
    RC_ASSERT(*range == (GroupRange{group, count}));
    first += count * gpu.group_size;
    group += count;
  }
  RC_ASSERT(!groups_of({.sms = gpu.group_size, .first = first}, gpu));
}

}  // namespace
}  // namespace motley
