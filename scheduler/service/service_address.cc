#include "scheduler/service/service_address.h"

#include <fcntl.h>
#include <sys/file.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "core/debug_env.h"
#include "core/file_system.h"
#include "core/json_fields.h"
#include "scheduler/launch/child_process.h"
#include "scheduler/service/private_file.h"
#include "scheduler/service/service_directory.h"

namespace motley {
namespace {

using nlohmann::json;

constexpr int kVersion = 1;
constexpr Bytes kLargestLogins{1 << 20};

Result<Login> login_of(JsonFields& fields) {
  std::string server;
  Login login;
  fields.read("server", server).read("authority", login.authority).read("token", login.token);
  MOTLEY_TRY_VOID(fields.done());
  MOTLEY_TRY(login.at, parse_endpoint(server));
  return login;
}

Result<std::vector<Login>> logins_in(const std::string& text) {
  MOTLEY_TRY(const json document, parse_json(text));
  std::vector<Login> logins;
  std::optional<Error> fault;
  JsonFields fields(document);
  fields.read_version(kVersion).each("logins", [&](JsonFields& each) {
    auto login = login_of(each);
    if (login)
      logins.push_back(std::move(*login));
    else if (!fault)
      fault = login.error();
  });
  MOTLEY_TRY_VOID(fields.done());
  if (fault) return fail(*fault);
  return logins;
}

/// Nobody else changes them while it lives.
Result<Fd> lock_logins() {
  const std::string directory = parent_directory(login_file());
  MOTLEY_TRY_VOID(real_file_system().make_directories(directory));
  Fd lock(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!lock.valid() || ::flock(lock.get(), LOCK_EX) != 0)
    return fail(ErrorCode::kIo, "cannot lock " + directory + ": " + std::strerror(errno));
  return lock;
}

Result<Unit> write_logins(const std::vector<Login>& logins) {
  json document = {{"version", kVersion}, {"logins", json::array()}};
  for (const Login& login : logins)
    document["logins"].push_back(
        {{"server", login.at.to_string()}, {"authority", login.authority}, {"token", login.token}});
  return write_private_file(login_file(), document.dump(1) + "\n");
}

void drop(const Endpoint& at, std::vector<Login>* logins) {
  std::erase_if(*logins, [&](const Login& each) { return each.at.to_string() == at.to_string(); });
}

Result<ServiceAddress> logged_in_at(const std::string& server) {
  MOTLEY_TRY(const Endpoint at, parse_endpoint(server));
  MOTLEY_TRY(const std::vector<Login> logins, read_logins());
  for (const Login& login : logins)
    if (login.at.to_string() == at.to_string()) return ServiceAddress{"", login};
  return fail(ErrorCode::kNotFound, "nobody has logged in to " + at.to_string() +
                                        " from here: motley login " + at.to_string() +
                                        " --fingerprint sha256:…");
}

}  // namespace

std::string ServiceAddress::to_string() const { return login ? login->at.to_string() : socket; }

Result<ServiceAddress> find_service(const ServiceChoice& choice) {
  if (!choice.socket.empty() && !choice.server.empty())
    return fail(ErrorCode::kUsage, "--socket and --server exclude each other");
  if (!choice.socket.empty()) return ServiceAddress{choice.socket, std::nullopt};
  if (!choice.server.empty()) return logged_in_at(choice.server);
  if (!debug_env().server.empty()) return logged_in_at(debug_env().server);
  if (!debug_env().socket.empty()) return ServiceAddress{debug_env().socket, std::nullopt};
  MOTLEY_TRY(const std::vector<Login> logins, read_logins());
  if (!logins.empty()) return ServiceAddress{"", logins.back()};
  return ServiceAddress{default_socket(), std::nullopt};
}

std::string login_file() { return config_directory() + "/logins.json"; }

Result<std::vector<Login>> read_logins() {
  if (!real_file_system().exists(login_file())) return std::vector<Login>();
  MOTLEY_TRY(const std::string text, read_text(real_file_system(), login_file(), kLargestLogins));
  auto logins = logins_in(text);
  if (!logins)
    return fail(ErrorCode::kCorrupt,
                login_file() + ": " + logins.error().to_string() + "; remove it and log in again");
  return logins;
}

Result<Unit> keep_login(const Login& login) {
  MOTLEY_TRY(const Fd lock, lock_logins());
  MOTLEY_TRY(std::vector<Login> logins, read_logins());
  drop(login.at, &logins);
  logins.push_back(login);
  return write_logins(logins);
}

Result<Unit> forget_login(const Endpoint& at) {
  MOTLEY_TRY(const Fd lock, lock_logins());
  MOTLEY_TRY(std::vector<Login> logins, read_logins());
  const size_t before = logins.size();
  drop(at, &logins);
  if (logins.size() == before)
    return fail(ErrorCode::kNotFound, "nobody has logged in to " + at.to_string() + " from here");
  return write_logins(logins);
}

}  // namespace motley
