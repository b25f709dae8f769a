// login, logout, whoami: services on other machines, and who one is to them.

#include <termios.h>
#include <unistd.h>

#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>

#include "scheduler/cli/service_command.h"
#include "scheduler/service/certificates.h"

namespace motley {
namespace {

/// What is typed meanwhile is not shown; on a terminal.
class WithoutEcho {
 public:
  WithoutEcho() : terminal_(::tcgetattr(STDIN_FILENO, &before_) == 0) {
    if (!terminal_) return;
    termios silent = before_;
    silent.c_lflag &= ~static_cast<tcflag_t>(ECHO);
    ::tcsetattr(STDIN_FILENO, TCSAFLUSH, &silent);
    std::fprintf(stderr, "token (it is not shown): ");
  }
  WithoutEcho(const WithoutEcho&) = delete;
  ~WithoutEcho() {
    if (!terminal_) return;
    ::tcsetattr(STDIN_FILENO, TCSAFLUSH, &before_);
    std::fprintf(stderr, "\n");
  }

 private:
  termios before_{};
  const bool terminal_;
};

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
    if (!file_.empty()) return read_token_file(file_);
    const WithoutEcho quiet;
    std::string text;
    std::getline(std::cin, text);
    return token_in(text);
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

class WhoamiCommand final : public Command {
 public:
  void declare(CommandLine& line) override {
    line.flag("--json", "one JSON object", &json_);
    declare_service(line, &service_);
  }

  Result<int> run() override {
    MOTLEY_TRY(const ServiceClient client, client_of(service_));
    MOTLEY_TRY(const nlohmann::json who, client.get("/v1/whoami"));
    if (json_)
      std::printf("%s\n", who.dump().c_str());
    else
      std::printf("%s (%s)\n", who.value("user", "").c_str(), who.value("role", "").c_str());
    return 0;
  }

 private:
  ServiceChoice service_;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> make_login_command() { return std::make_unique<LoginCommand>(); }
std::unique_ptr<Command> make_logout_command() { return std::make_unique<LogoutCommand>(); }
std::unique_ptr<Command> make_whoami_command() { return std::make_unique<WhoamiCommand>(); }

}  // namespace motley
