/* Updates of parameters. Private to src/lower. */
#pragma once

#include "lower/emit.h"

/* Whether the unit is updated as soon as its gradient is summed, so that the gradient and
 * the fetched state are freed early. */
bool wfi_is_updated_early(const wf_program *p, int32_t unit);
/* Those of the finished units before `end`. */
wf_status wfi_lower_early_updates(wfi_lowering *l, int32_t end);
/* All others. */
wf_status wfi_lower_updates(wfi_lowering *l);
