#include "core/debug_env.h"

#include <gtest/gtest.h>

#include <map>

#include "core/clock.h"
#include "core/log.h"

namespace motley {
namespace {

EnvLookup environment(const std::map<std::string, std::string>& values) {
  return [values](const char* name) -> const char* {
    const auto found = values.find(name);
    return found == values.end() ? nullptr : found->second.c_str();
  };
}

TEST(DebugEnv, ReadsWhatIsSet) {
  const DebugEnv none = read_debug_env(environment({}));
  EXPECT_EQ(none.failpoint, "");
  const DebugEnv some =
      read_debug_env(environment({{"MOTLEY_FAILPOINT", "x:1"}, {"MOTLEY_WORKER", "/opt/w"}}));
  EXPECT_EQ(some.failpoint, "x:1");
  EXPECT_EQ(some.worker_path, "/opt/w");
}

TEST(DebugEnv, SettingsNameTheirOrigin) {
  const auto settings = read_debug_env_settings(environment({{"MOTLEY_WORKER", "/opt/w"}}));
  ASSERT_EQ(settings.size(), 7u);
  for (const EnvSetting& setting : settings) {
    const bool given = setting.name == "MOTLEY_WORKER";
    EXPECT_EQ(setting.origin, given ? "environment" : "default") << setting.name;
    EXPECT_EQ(setting.value, given ? "/opt/w" : "") << setting.name;
  }
}

TEST(DebugEnv, PlacesFollowTheXdgSpecification) {
  EXPECT_EQ(xdg_directory(environment({{"XDG_STATE_HOME", "/s"}, {"HOME", "/h"}}), "XDG_STATE_HOME",
                          ".local/state"),
            "/s/motley");
  EXPECT_EQ(xdg_directory(environment({{"HOME", "/h"}}), "XDG_STATE_HOME", ".local/state"),
            "/h/.local/state/motley");
  EXPECT_EQ(xdg_directory(environment({{"XDG_CACHE_HOME", "relative"}, {"HOME", "/h"}}),
                          "XDG_CACHE_HOME", ".cache"),
            "/h/.cache/motley");
}

TEST(Failpoints, AreArmedByNameRankAndCount) {
  Failpoints points("die:2, :1,save:*:3,hang");
  EXPECT_TRUE(points.reached("die", 2));
  EXPECT_TRUE(points.reached("die", 2));
  EXPECT_FALSE(points.reached("die", 1));
  EXPECT_TRUE(points.reached("hang", 7));
  EXPECT_FALSE(points.reached("other", 0));
  EXPECT_FALSE(points.reached("save", 0));
  EXPECT_FALSE(points.reached("save", 1));
  EXPECT_TRUE(points.reached("save", 0));  // the third call of all ranks
  EXPECT_FALSE(points.reached("save", 0));
}

TEST(Failpoints, MalformedEntriesArmNothing) {
  for (const char* text :
       {"", ":", ",", "a:x", "a:-1", "a:1:0", "a:1:x", ":1:1", "a:99999999999"}) {
    Failpoints points(text);
    EXPECT_FALSE(points.reached("a", 1)) << text;
    EXPECT_FALSE(points.reached("", 1)) << text;
  }
}

TEST(Clock, ManualClockMovesOnlyForward) {
  ManualClock clock;
  clock.advance(Nanos(5));
  clock.sleep_until(Nanos(3));
  EXPECT_EQ(clock.now(), Nanos(5));
  clock.sleep_until(Nanos(9));
  EXPECT_EQ(clock.now(), Nanos(9));
}

TEST(Clock, SteadyClockNeverGoesBack) {
  Nanos last = steady_clock().now();
  for (int i = 0; i < 1000; ++i) {
    const Nanos now = steady_clock().now();
    ASSERT_GE(now, last);
    last = now;
  }
  steady_clock().sleep_until(last);  // gone by: returns
}

TEST(Log, OneRecordIsOneLine) {
  EXPECT_EQ(one_line("a\nb\tc\x1b[31m\r\x7f"), "a\\nb c\\x1b[31m\\x0d\\x7f");
  EXPECT_EQ(one_line("Grüße"), "Grüße");
}

}  // namespace
}  // namespace motley
