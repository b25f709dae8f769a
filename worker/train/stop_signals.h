#pragma once
// Signals as wishes, for ranks that no runner speaks for (CONVENTIONS.md, Signals).

#include "worker/train/control_link.h"

namespace motley {

/// From now on SIGTERM, SIGUSR1 and SIGINT ask `wishes`, which must live as long as the process, to
/// stop; a second SIGINT ends at once. SIGPIPE is ignored.
void stop_on_signals(ControlWishes* wishes);

/// Ends this process when the one that started it ends: a killed mpirun leaves no rank behind.
void die_with_parent();

}  // namespace motley
