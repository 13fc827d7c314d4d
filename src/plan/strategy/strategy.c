#include "plan/strategy/strategy.h"

#include <stddef.h>
#include <string.h>

/* Placements of parameter, gradient, state and buffer; then whether the gradient is freed. */

/* Distributed data parallel: every replica has all of the unit and makes the same update from the
 * same summed gradient. */
const wfi_strategy wfi_strategy_dp = {"dp",          WFI_REPLICATE, WFI_REPLICATE,
                                      WFI_REPLICATE, WFI_REPLICATE, false};
/* The first replica has the unit and updates it; in each step the others get a copy of its
 * parameters and give back their gradients. */
const wfi_strategy wfi_strategy_dataparallel = {"dataparallel", WFI_AT, WFI_AT,
                                                WFI_AT,         WFI_AT, false};
/* ZeRO stage 1 (Rajbhandari et al., 2020): every replica has all parameters and a slice of the
 * optimizer's state; it updates that slice, and all gather the new parameters. */
const wfi_strategy wfi_strategy_zero1 = {"zero=1",  WFI_REPLICATE, WFI_SHARD,
                                         WFI_SHARD, WFI_REPLICATE, false};
/* ZeRO stage 2: the same as stage 1, and of a gradient that is summed only the slice is kept. */
const wfi_strategy wfi_strategy_zero2 = {"zero=2",  WFI_REPLICATE, WFI_SHARD,
                                         WFI_SHARD, WFI_REPLICATE, true};
/* ZeRO stage 3, also known as FSDP: of everything a replica keeps a slice. A unit's parameters are
 * gathered before they are used, and freed after. */
const wfi_strategy wfi_strategy_zero3 = {"zero=3",  WFI_SHARD,     WFI_SHARD,
                                         WFI_SHARD, WFI_REPLICATE, true};

const wfi_strategy *const wfi_strategies[] = {&wfi_strategy_dp, &wfi_strategy_dataparallel, NULL};
const wfi_strategy *const wfi_zero_strategies[] = {&wfi_strategy_zero1, &wfi_strategy_zero2,
                                                   &wfi_strategy_zero3};

/* A replica with a part of the state also has that part of a tensor with this placement. */
static bool is_with_state(const wfi_strategy *s, wfi_placement placement) {
    return placement == WFI_REPLICATE || (placement == s->state && placement != WFI_PARTIAL);
}

wf_status wfi_strategy_check(wf_context *ctx, const wfi_strategy *s) {
    bool has_buffer = s->buffer == WFI_REPLICATE || s->buffer == WFI_AT;
    if (is_with_state(s, s->parameter) && is_with_state(s, s->gradient) &&
        is_with_state(s, s->state) && has_buffer)
        return WF_OK;
    return wfi_fail(
        ctx, WF_UNSUPPORTED,
        "strategy %s: a replica updates the part of a unit whose optimizer state it has, "
        "so place parameters and gradients as the state, or replicate them; running "
        "statistics are the first replica's, or replicated",
        s->name);
}

const wfi_strategy *wfi_strategy_find(const char *name) {
    for (int i = 0; wfi_strategies[i]; i++)
        if (!strcmp(wfi_strategies[i]->name, name)) return wfi_strategies[i];
    return NULL;
}
