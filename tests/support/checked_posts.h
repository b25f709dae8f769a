#pragma once
// What a user of Communicator::post() owes it, checked whoever is quicker.

#include <cstddef>
#include <memory>

#include "comm/communicator.h"

namespace motley::testing {

enum class Posts {
  kPosted,    ///< as Communicator says
  kBlocking,  ///< complete only when received: what a rendezvous would make of plain sends
};

/// `inner`, borrowed, whose complete() ends with kInternal when the data of that send was changed
/// while it was open. `most_open` becomes the most sends that were open at once. Groups made of it
/// are the inner ones.
std::unique_ptr<Communicator> checked_posts(Communicator& inner, size_t* most_open,
                                            Posts posts = Posts::kPosted);

}  // namespace motley::testing
