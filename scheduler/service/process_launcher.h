#pragma once
// Attempts as processes of their own (`motley attempt`), in sessions of their own: they outlive the
// coordinator that started them, and the next one finds them by their records.

#include <memory>

#include "scheduler/service/attempt_launcher.h"
#include "scheduler/service/service_directory.h"

namespace boost::asio {
class io_context;
}

namespace motley {

/// Of the thread that runs `context`, which must be the main one: a child's fate must not hang on a
/// thread. Context and directory outlive it; attempts go on when it goes. `socket`: where the
/// coordinator answers them.
std::unique_ptr<AttemptLauncher> make_process_launcher(boost::asio::io_context& context,
                                                       const ServiceDirectory& directory,
                                                       const std::string& socket,
                                                       AttemptLauncher::OnOver on_over,
                                                       AttemptLauncher::OnGone on_gone);

}  // namespace motley
