#pragma once
// The service's HTTP API, `/v1/…` (core/FORMATS.md): which request is answered by whom. No socket;
// what it needs of the coordinator is asked on the coordinator's thread.

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "scheduler/service/access.h"
#include "scheduler/service/coordinator.h"
#include "scheduler/service/fleet_view.h"
#include "scheduler/service/http_message.h"
#include "scheduler/service/node_api.h"
#include "scheduler/service/retention.h"
#include "scheduler/service/service_directory.h"

namespace motley {

class Api {
 public:
  /// All outlive it.
  Api(Coordinator& coordinator, Retention& retention, const Database& kept,
      const ServiceDirectory& directory, Access& access)
      : coordinator_(coordinator),
        retention_(retention),
        kept_(kept),
        directory_(directory),
        access_(access),
        nodes_(coordinator, directory, access) {}

  /// An HttpHandler.
  void handle(HttpRequest request, const HttpReply& reply);
  /// What drivers tell of the coordinator's own GPUs; asked on the coordinator's thread.
  void set_gauges(std::function<std::vector<DeviceGauge>()> gauges) { gauges_ = std::move(gauges); }
  /// An HttpGate: what handle() would answer to `head` whatever body it brings.
  std::optional<HttpResponse> refusal_of(HttpRequest head) const;
  /// Shown by /metrics and /v1/fleet.
  void set_policy(std::string name) { policy_ = std::move(name); }
  /// The highest that tokens of the role user may give a job.
  void set_user_priority(int priority) { user_priority_ = priority; }
  /// Where others may reach the service, which whoever gets a token is told.
  struct Door {
    std::string address;      ///< "host:port"
    std::string fingerprint;  ///< "sha256:…", of the authority
  };
  void set_door(Door door) { door_ = std::move(door); }

  /// What there is: for those who describe or test all of it.
  struct RouteView {
    Role least;
    std::string method;
    std::string path;  ///< "/v1/jobs/{id}/why"
    std::string parameters;
    bool of_owner;
  };
  static std::vector<RouteView> all_routes();

 private:
  /// A path of fixed parts, one of which may be a number or a name.
  struct Route {
    using Answer = void (*)(Api&, const HttpRequest&, const HttpReply&, int64_t number);
    Role least;  ///< of those it is open to
    std::string_view method;
    std::string_view before;  ///< the number, or all of the path
    std::string_view after;   ///< the number
    bool has_number = false;
    std::string_view parameters;  ///< their names, a space between two
    Answer answer;
    bool of_owner = false;  ///< open to who owns the job, and to administrators
    bool has_name = false;  ///< instead of a number
  };
  static const std::vector<Route>& routes();
  static std::vector<Route> job_routes();
  static std::vector<Route> node_routes();
  template <JobRequest kWhat>
  static Route request_route(std::string_view after);
  static Route node_route(Role least, std::string_view method, std::string_view what,
                          std::string_view parameters, Route::Answer answer);
  struct Found {
    const Route* route = nullptr;
    int64_t number = 0;
  };
  /// Who asks for what; an answer where that is nothing, or nothing for them.
  std::optional<HttpResponse> find(HttpRequest* request, Found* found) const;

  void list(const HttpRequest& request, const HttpReply& reply);
  void submit(const HttpRequest& request, const HttpReply& reply);
  void add(Submission submission, const Caller& caller, const HttpReply& reply);
  void show(const HttpRequest& request, const HttpReply& reply, int64_t job);
  void why(const HttpRequest& request, const HttpReply& reply, int64_t job);
  void progress(const HttpReply& reply, int64_t job);
  void logs(const HttpRequest& request, const HttpReply& reply, int64_t job);
  void update(const HttpRequest& request, const HttpReply& reply, int64_t job);
  void ask(JobRequest what, const HttpRequest& request, const HttpReply& reply, int64_t job);
  void resume(const HttpRequest& request, const HttpReply& reply, int64_t job);
  Result<Submission> resumption_of(const HttpRequest& request, int64_t job) const;
  void remove(const HttpReply& reply, int64_t job);
  void events(const HttpRequest& request, const HttpReply& reply);
  Result<int64_t> first_event(const HttpRequest& request, int64_t job) const;
  FleetView look_at_fleet() const;
  void devices(const HttpReply& reply);
  void fleet(const HttpRequest& request, const HttpReply& reply);
  void profiles(const HttpRequest& request, const HttpReply& reply);
  void metrics(const HttpRequest& request, const HttpReply& reply);
  void healthz(const HttpRequest& request, const HttpReply& reply);
  void readyz(const HttpRequest& request, const HttpReply& reply);
  HttpResponse job_response(int64_t job, const Caller& caller, int status) const;

  /// Nothing where it is.
  std::optional<HttpResponse> not_permitted(const Route& route, const HttpRequest& request,
                                            int64_t job) const;
  /// kNotPermitted where that is above what the caller may give a job.
  Result<Unit> check_priority(const Caller& caller, int priority) const;
  Result<Unit> check_priority(const Caller& caller, int64_t job,
                              const std::vector<Override>& changes) const;
  static HttpResponse unauthorised(const HttpRequest& request, const Error& error);
  void create_token(const HttpRequest& request, const HttpReply& reply);
  void list_tokens(const HttpRequest& request, const HttpReply& reply);
  void revoke_token(const HttpRequest& request, const HttpReply& reply, int64_t token);
  void revoke_tokens(const HttpRequest& request, const HttpReply& reply);
  void whoami(const HttpRequest& request, const HttpReply& reply);
  nlohmann::json token_json(const StoredToken& token) const;
  nlohmann::json tokens_json(const std::vector<StoredToken>& tokens) const;

  Coordinator& coordinator_;
  Retention& retention_;
  const Database& kept_;
  const ServiceDirectory& directory_;
  Access& access_;
  std::string policy_;
  int user_priority_ = ServiceSpec::kMostPriority;
  Door door_;
  std::function<std::vector<DeviceGauge>()> gauges_;
  NodeApi nodes_;
};

}  // namespace motley
