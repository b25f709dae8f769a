#pragma once
// The checks of communicator_contract.h that concern posted sends.

#include "core/result.h"

namespace motley {
class Communicator;
}

namespace motley::testing {

Result<Unit> posted_messages_arrive_in_order(Communicator& comm);
Result<Unit> posts_of_any_size_go_around_a_ring(Communicator& comm);
Result<Unit> all_pairs_post_at_once(Communicator& comm);
Result<Unit> posts_stay_open_across_collectives(Communicator& comm);
Result<Unit> posts_stay_open_across_groups(Communicator& comm);
Result<Unit> ids_of_posts_are_used_again(Communicator& comm);
Result<Unit> posts_count_their_bytes(Communicator& comm);

}  // namespace motley::testing
