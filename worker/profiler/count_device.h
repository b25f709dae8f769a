#pragma once
// What measure_device() would measure, counted: work in place of seconds, and no hardware.

#include "core/work_table.h"

namespace motley {

/// Of the model and of the layers of it that fit a device of this memory.
WorkTable count_device(const JobSpec& job, const WorkDevice& device);

}  // namespace motley
