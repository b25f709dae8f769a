#pragma once
// The service's HTTP API, `/v1/…` (core/FORMATS.md): which request is answered by whom. No socket;
// what it needs of the coordinator is asked on the coordinator's thread.

#include <string>

#include "scheduler/service/coordinator.h"
#include "scheduler/service/http_message.h"
#include "scheduler/service/service_directory.h"

namespace motley {

class Api {
 public:
  /// All outlive it. `owner` is whom jobs belong to: there is one user.
  Api(Coordinator& coordinator, const Database& kept, const ServiceDirectory& directory,
      std::string owner)
      : coordinator_(coordinator), kept_(kept), directory_(directory), owner_(std::move(owner)) {}

  /// An HttpHandler.
  void handle(HttpRequest request, const HttpReply& reply);
  /// Shown by /metrics and /v1/fleet.
  void set_policy(std::string name) { policy_ = std::move(name); }

 private:
  struct Route;
  static const std::vector<Route>& routes();
  void answer(const Route& route, const HttpRequest& request, const HttpReply& reply, int64_t job);

  void list(const HttpRequest& request, const HttpReply& reply);
  void submit(const HttpRequest& request, const HttpReply& reply);
  void show(const HttpRequest& request, const HttpReply& reply, int64_t job);
  void why(const HttpRequest& request, const HttpReply& reply, int64_t job);
  void logs(const HttpRequest& request, const HttpReply& reply, int64_t job);
  void ask(JobRequest what, const HttpReply& reply, int64_t job);
  void events(const HttpRequest& request, const HttpReply& reply);
  void fleet(const HttpRequest& request, const HttpReply& reply);
  void metrics(const HttpRequest& request, const HttpReply& reply);
  void healthz(const HttpRequest& request, const HttpReply& reply);
  void readyz(const HttpRequest& request, const HttpReply& reply);
  HttpResponse job_response(int64_t job, int status) const;

  Coordinator& coordinator_;
  const Database& kept_;
  const ServiceDirectory& directory_;
  std::string owner_;
  std::string policy_;
};

}  // namespace motley
