#pragma once
// Who somebody is: over the Unix socket the service's own user, over the network whom a token
// names. On the coordinator's thread.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "scheduler/service/caller.h"
#include "scheduler/service/coordinator.h"
#include "scheduler/service/http_message.h"
#include "scheduler/store/token_store.h"

namespace motley {

/// A token to be made.
struct TokenWish {
  std::string user;
  Role role = Role::kUser;
  std::string label;
  Nanos lasts{0};  ///< 0: for ever
  std::string node =
      {};  ///< of the role node: that it speaks for; empty: the first that joins by it
};

class Access {
 public:
  /// All outlive it. `own_name` is who asks over the Unix socket.
  struct Surroundings {
    const Database& kept;
    ChangeWriter& store;
    std::function<int64_t()> wall_time;  ///< nanoseconds since 1970
    std::string own_name;
  };
  explicit Access(Surroundings surroundings) : around_(std::move(surroundings)) {}

  const std::string& own_name() const { return around_.own_name; }
  /// Role kNobody where the request brings no token; kNotPermitted where the one it brings is not
  /// valid, or not any more.
  Result<Caller> caller_of(const HttpRequest& request) const;
  /// Ends within a second of the token of `caller`.
  std::shared_ptr<EventSource> limited(std::shared_ptr<EventSource> events, Caller caller) const;

  /// `secret` is the whole token, "mtl_7_…": nobody can tell it again.
  using Created = std::function<void(Result<StoredToken> token, std::string secret)>;
  /// Answered when it is on disk, with an event that names who did it (`by`). kUsage: no such name,
  /// or it would last too long.
  void create(const TokenWish& wish, Created done, const std::string& by = {});
  using Revoked = std::function<void(Result<std::vector<StoredToken>> tokens)>;
  /// kNotFound: there is no such token.
  void revoke(int64_t id, Revoked done, const std::string& by = {});
  /// All that are not revoked yet. kNotFound: the user has none.
  void revoke_all_of(const std::string& user, Revoked done, const std::string& by = {});
  using Bound = std::function<void(Result<Unit> bound)>;
  /// A token of the role node that speaks for none yet speaks for this one from now on. Answered
  /// when it is on disk; kNotPermitted where it speaks for another one.
  void bind(const Caller& caller, const std::string& node, Bound done);
  Result<std::vector<StoredToken>> tokens() const { return list_tokens(around_.kept); }
  bool is_valid(const StoredToken& token) const;

 private:
  class LimitedEvents;
  using IsMeant = std::function<bool(const StoredToken& token)>;
  void revoke_those(const IsMeant& meant, const std::string& missing, const std::string& by,
                    Revoked done);
  bool still_valid(const Caller& caller) const;

  const Surroundings around_;
  int64_t revocations_ = 0;
};

/// Whether `caller` may speak for that node: kNotPermitted where the token is another node's.
Result<Unit> check_speaks_for(const Caller& caller, const std::string& node);

}  // namespace motley
