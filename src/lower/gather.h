/* Fetches, all-gathers and evictions. Private to src/lower. */
#pragma once

#include "lower/emit.h"

/* A fetch (and an all-gather, if the rank's replica of the stage has a slice) before a use, or an
 * eviction after it. */
typedef struct wfi_gather {
    wfi_name what;             /* the used copy */
    int32_t stage, since, use; /* `since`: the use after which it has gone, or -1 */
} wfi_gather;

/* All of the rank's. */
wf_status wfi_find_gathers(wfi_lowering *l);
/* Emits the gathers for the next use, of that unit, and those ahead of use. */
wf_status wfi_lower_gathers(wfi_lowering *l, int32_t unit);
/* Emits the evictions after the use by that instruction: they wait for earlier evictions. */
wf_status wfi_lower_evicts(wfi_lowering *l, int32_t instruction);
/* Sets the turn of activations that have come back. */
wf_status wfi_find_activation(wfi_lowering *l, wfi_name *name);
/* Those that no use of the rank needs: it brings parts to a forward run of another. */
wf_status wfi_lower_last_gathers(wfi_lowering *l);
