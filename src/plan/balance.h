/* Stages of equal weight. Private. */
#pragma once

#include "plan/plan.h"

/* Divides the units of `costs`, which are the graph's, into the plan's stages: first so that the
 * heaviest is as light as possible, then, moving border by border, so that a step of n_micro
 * microbatches by the plan's schedule is as short as can be: a pipeline's later stages begin later,
 * so a little less work there ends sooner. Where ranks have several stages, the memory that they
 * hold counts, too. first_unit_out[n_stages + 1]. */
wf_status wfi_balance(const wf_plan *plan, const wf_graph *g, const wf_costs *costs, int n_micro,
                      int32_t *first_unit_out);
