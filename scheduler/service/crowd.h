#pragma once
// How many connections of one kind there are, and may be.

#include <map>
#include <string>

namespace motley {

/// The Unix socket, whose peer is "", has room of its own: the network cannot fill it.
class Crowd {
 public:
  Crowd(int most_of_peer, int most) : most_of_peer_(most_of_peer), most_(most) {}

  bool has_room(const std::string& peer) const {
    const auto found = of_peer_.find(peer);
    return (peer.empty() || of_network_ < most_) &&
           (found == of_peer_.end() ? 0 : found->second) < most_of_peer_;
  }
  void enter(const std::string& peer) {
    ++of_peer_[peer];
    of_network_ += peer.empty() ? 0 : 1;
  }
  void leave(const std::string& peer) {
    of_network_ -= peer.empty() ? 0 : 1;
    if (--of_peer_[peer] == 0) of_peer_.erase(peer);
  }

 private:
  const int most_of_peer_, most_;
  std::map<std::string, int> of_peer_;
  int of_network_ = 0;
};

}  // namespace motley
