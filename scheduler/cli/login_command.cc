// login, logout: services on other machines.

#include <unistd.h>

#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>

#include "core/file_system.h"
#include "scheduler/cli/service_command.h"
#include "scheduler/service/certificates.h"

namespace motley {
namespace {

constexpr Bytes kLargestToken{4096};

std::string without_blanks(const std::string& text) {
  const size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string::npos) return "";
  return text.substr(begin, text.find_last_not_of(" \t\r\n") - begin + 1);
}

class LoginCommand final : public Command {
 public:
  void declare(CommandLine& line) override {
    line.positional("SERVER", "HOST:PORT where the service listens", &server_)
        .option("--fingerprint", "SHA256", "of its authority, as `motley token create` says",
                &fingerprint_)
        .option("--token-file", "FILE", "the token, instead of a line on standard input", &file_);
  }

  /// Only who has shown the fingerprint, and proved to be whom it belongs to, is told the token.
  Result<int> run() override {
    Login login;
    MOTLEY_TRY(login.at, parse_endpoint(server_));
    if (fingerprint_.empty())
      return fail(
          ErrorCode::kUsage,
          "--fingerprint is missing: `motley token create` on the service's machine says it");
    MOTLEY_TRY(const std::string fingerprint, parse_fingerprint(fingerprint_));
    MOTLEY_TRY(login.authority, fetch_authority(login.at, fingerprint));
    MOTLEY_TRY(login.token, read_token());
    MOTLEY_TRY(const nlohmann::json who, ServiceClient({"", login}).get("/v1/whoami"));
    MOTLEY_TRY_VOID(keep_login(login));
    std::fprintf(stderr, "logged in to %s as %s (%s); motley logout %s undoes it\n",
                 login.at.to_string().c_str(), who.value("user", "").c_str(),
                 who.value("role", "").c_str(), login.at.to_string().c_str());
    return 0;
  }

 private:
  Result<std::string> read_token() const {
    std::string text;
    if (!file_.empty()) {
      MOTLEY_TRY(text, read_text(real_file_system(), file_, kLargestToken));
    } else {
      if (::isatty(STDIN_FILENO) != 0) std::fprintf(stderr, "token: ");
      std::getline(std::cin, text);
    }
    std::string token = without_blanks(text);
    if (token.empty()) return fail(ErrorCode::kUsage, "no token was given");
    const bool plain =
        token.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_") == std::string::npos;
    if (!plain) return fail(ErrorCode::kUsage, "that is no token: one begins with mtl_");
    return token;
  }

  std::string server_, fingerprint_, file_;
};

class LogoutCommand final : public Command {
 public:
  void declare(CommandLine& line) override {
    line.positional("SERVER", "HOST:PORT of the service to forget", &server_);
  }

  Result<int> run() override {
    MOTLEY_TRY(const Endpoint at, parse_endpoint(server_));
    MOTLEY_TRY_VOID(forget_login(at));
    std::fprintf(stderr, "forgotten; the token is valid until it is revoked or expires\n");
    return 0;
  }

 private:
  std::string server_;
};

}  // namespace

std::unique_ptr<Command> make_login_command() { return std::make_unique<LoginCommand>(); }
std::unique_ptr<Command> make_logout_command() { return std::make_unique<LogoutCommand>(); }

}  // namespace motley
