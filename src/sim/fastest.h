/* The search for the fastest plan. Private to src/sim. */
#pragma once

#include "sim/search.h"

/* Finds the fastest plan of the recipe. *is_sure_out: no plan of the search space was left out to
 * save time. Errors: NO_MEMORY. */
wf_status wfi_search_fastest(wfi_search *s, bool *is_sure_out);
