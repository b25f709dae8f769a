#pragma once
// All forms of search behind one question.

#include "planner/costs/layer_memory.h"
#include "planner/plain/search.h"

namespace motley {

/// That of search_pinned() where the job pins replicas, else that of search_unpinned().
Result<Plan> search_all_forms(const PlanRequest& request, const MemoryCounter& counter);

/// The plan of plan_search(), or that of search_pipelines() where nothing else fits or where it is
/// clearly quicker, by 2 %: predictions of cut plans are less certain. Where none could be,
/// pipelines are not looked for. What is cut is refined (planner/pipelines/refine_cuts.h). Blocks
/// are computed again, optimizer state is sharded or lies in host memory by the same rule, of up to
/// 64 devices where a plan was found that would be quicker were memory free (sharded alone, of up
/// to eight), and clearly so than with fewer of these ways; two of them only where nothing fits
/// otherwise or of up to eight devices. Of nine to 64 devices, and where blocks are computed again,
/// devices are left out as long as that is quicker (of more than eight whole types); of cut plans
/// over several hosts, of up to eight devices, hosts. Of more than eight devices request.previous,
/// mended, instead where that is good enough, or no slower than what is found
/// (planner/mend_plan.h). What lost is among `rejected`. Errors are those of plan_search(); where a
/// pipeline was tried in vain, too, that is said.
Result<Plan> search_unpinned(const PlanRequest& request, const MemoryCounter& counter);

}  // namespace motley
