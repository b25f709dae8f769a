#include "kernels/visible_devices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace motley {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

const std::vector<std::string> kUuids = {"GPU-aaaa-1", "GPU-aabb-2", "GPU-cccc-3", "MIG-dddd-4"};

TEST(VisibleDevices, WithoutTheVariableAll) {
  EXPECT_THAT(visible_devices(kUuids, std::nullopt), ElementsAre(0, 1, 2, 3));
}

TEST(VisibleDevices, EmptyIsNone) {
  EXPECT_THAT(visible_devices(kUuids, ""), IsEmpty());
  EXPECT_THAT(visible_devices(kUuids, "-1"), IsEmpty());
  EXPECT_THAT(visible_devices(kUuids, "NoDevFiles"), IsEmpty());
}

TEST(VisibleDevices, NumbersInTheirOrder) {
  EXPECT_THAT(visible_devices(kUuids, "2,0"), ElementsAre(2, 0));
  EXPECT_THAT(visible_devices(kUuids, " 1 , 3 "), ElementsAre(1, 3));
}

TEST(VisibleDevices, WhatFollowsSomethingInvalidIsNotSeen) {
  EXPECT_THAT(visible_devices(kUuids, "1,-1,0"), ElementsAre(1));
  EXPECT_THAT(visible_devices(kUuids, "0,4,1"), ElementsAre(0));
  EXPECT_THAT(visible_devices(kUuids, "0,,1"), ElementsAre(0));
  EXPECT_THAT(visible_devices(kUuids, "2,x,1"), ElementsAre(2));
  EXPECT_THAT(visible_devices(kUuids, "2,1x"), ElementsAre(2));
}

TEST(VisibleDevices, UuidsAsFarAsTheyTellApart) {
  EXPECT_THAT(visible_devices(kUuids, "GPU-cccc-3,GPU-aab"), ElementsAre(2, 1));
  EXPECT_THAT(visible_devices(kUuids, "MIG-d"), ElementsAre(3));
  EXPECT_THAT(visible_devices(kUuids, "GPU-aa,0"), IsEmpty()) << "it may mean two";
  EXPECT_THAT(visible_devices(kUuids, "0,GPU-ffff"), ElementsAre(0));
}

TEST(VisibleDevices, ADeviceNamedTwiceLeavesNone) {
  EXPECT_THAT(visible_devices(kUuids, "0,1,0"), IsEmpty());
  EXPECT_THAT(visible_devices(kUuids, "1,GPU-aabb"), IsEmpty());
}

}  // namespace
}  // namespace motley
