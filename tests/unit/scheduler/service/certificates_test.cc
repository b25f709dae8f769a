#include "scheduler/service/certificates.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "scheduler/service/endpoint.h"
#include "tests/support/temporary_directory.h"

namespace motley {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

constexpr int64_t kNow = 1'800'000'000;
constexpr int64_t kDay = 86'400;

class Certificates : public ::testing::Test {
 protected:
  std::string path() const { return directory_.path() + "/tls"; }
  Certificate made(const std::vector<std::string>& names, int64_t now = kNow) const {
    auto certificate = certificate_in(path(), names, now);
    EXPECT_TRUE(certificate) << certificate.error().message;
    return std::move(*certificate);
  }
  mode_t mode_of(const std::string& name) const {
    struct stat status {};
    EXPECT_EQ(::stat((path() + "/" + name).c_str(), &status), 0) << name;
    return status.st_mode & 0777;
  }
  std::string text_of(const std::string& name) const {
    std::ostringstream text;
    text << std::ifstream(path() + "/" + name).rdbuf();
    return text.str();
  }
  testing::TemporaryDirectory directory_;
};

TEST_F(Certificates, AreMadeOnceAndKept) {
  const Certificate first = made({"localhost", "127.0.0.1", "::1"});
  EXPECT_THAT(first.fingerprint, ::testing::MatchesRegex("sha256:[0-9a-f]{64}"));
  EXPECT_EQ(mode_of("authority.pem"), 0600u);
  EXPECT_EQ(mode_of("server.pem"), 0600u);
  const Certificate again = made({"localhost", "127.0.0.1", "::1"}, kNow + 30 * kDay);
  EXPECT_EQ(again.chain, first.chain);
  EXPECT_EQ(again.key, first.key);
  EXPECT_FALSE(std::filesystem::exists(path() + "/server.pem.tmp"));
}

TEST_F(Certificates, FollowTheNamesAndTheTime) {
  const Certificate first = made({"localhost"});
  const Certificate renamed = made({"localhost", "gpu.example.org"});
  EXPECT_NE(renamed.chain, first.chain);
  EXPECT_EQ(renamed.fingerprint, first.fingerprint);
  EXPECT_NE(made({"localhost"}).chain, renamed.chain);  // fewer names, too
  const Certificate before = made({"localhost"});
  EXPECT_GT(before.renew_at, kNow + 100 * kDay);
  EXPECT_EQ(made({"localhost"}, before.renew_at - 1).chain, before.chain);
  const Certificate later = made({"localhost"}, before.renew_at + 1);
  EXPECT_NE(later.chain, before.chain);
  EXPECT_EQ(later.fingerprint, before.fingerprint);
  EXPECT_GT(later.renew_at, before.renew_at);
}

TEST_F(Certificates, DamageIsNoticed) {
  const Certificate first = made({"localhost"});
  std::ofstream(path() + "/server.pem") << "nothing";
  const Certificate again = made({"localhost"});
  EXPECT_EQ(again.fingerprint, first.fingerprint);
  EXPECT_NE(again.chain, first.chain);
  // The key of another authority beside this one's certificate.
  const std::string authority = text_of("authority.pem");
  std::ofstream(path() + "/authority.pem")
      << authority.substr(0, authority.find("-----BEGIN PRIVATE"))
      << text_of("server.pem").substr(text_of("server.pem").find("-----BEGIN PRIVATE"));
  const auto refused = certificate_in(path(), {"localhost"}, kNow);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kCorrupt);
  EXPECT_THAT(refused.error().message, HasSubstr("authority.pem"));
}

TEST_F(Certificates, OfAnotherAuthorityAreReplaced) {
  const Certificate first = made({"localhost"});
  std::filesystem::remove(path() + "/authority.pem");
  const Certificate second = made({"localhost"});
  EXPECT_NE(second.fingerprint, first.fingerprint);
  EXPECT_NE(second.chain.substr(0, 400), first.chain.substr(0, 400));
}

TEST_F(Certificates, NameTheServer) {
  const auto names = names_of_server("GPU.example.org", {"10.1.2.3", "localhost"});
  EXPECT_THAT(names, Contains("localhost").Times(1));
  EXPECT_THAT(names, Contains("gpu.example.org"));
  EXPECT_THAT(names, Contains("10.1.2.3"));
  EXPECT_THAT(names_of_server("0.0.0.0", {}), ::testing::Not(Contains("0.0.0.0")));
}

TEST(Fingerprints, AreReadAsPeopleTypeThem) {
  const std::string digits(64, 'a');
  EXPECT_EQ(*parse_fingerprint("sha256:" + digits), "sha256:" + digits);
  EXPECT_EQ(*parse_fingerprint(std::string(64, 'A')), "sha256:" + digits);
  std::string colons = "SHA256:";
  for (int i = 0; i < 32; ++i) colons += i == 0 ? "AA" : ":aa";
  EXPECT_EQ(*parse_fingerprint(colons), "sha256:" + digits);
  for (const std::string& wrong : {std::string(), std::string("sha256:"), digits + "a",
                                   "sha1:" + digits, std::string(64, 'g')})
    EXPECT_EQ(parse_fingerprint(wrong).error().code, ErrorCode::kUsage) << wrong;
}

TEST(Endpoints, AreReadStrictly) {
  EXPECT_EQ(parse_endpoint("GPU.example.org:7070")->to_string(), "gpu.example.org:7070");
  EXPECT_EQ(parse_endpoint("[::1]:1")->host, "::1");
  EXPECT_EQ(parse_endpoint("[::1]:1")->to_string(), "[::1]:1");
  EXPECT_EQ(parse_endpoint("0.0.0.0:0")->port, 0);
  for (const char* wrong : {"", "host", "host:", ":7070", "host:70000", "host:-1", "host: 1",
                            "::1:7", "[host]:7", "[::1]", "a/b:7", "a b:7", "host:7x"})
    EXPECT_EQ(parse_endpoint(wrong).error().code, ErrorCode::kUsage) << wrong;
}

}  // namespace
}  // namespace motley
