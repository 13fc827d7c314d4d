/* A strategy is a row: where each tensor of a unit lives along `dp` between steps. Private.
 *
 * Lowering knows no strategy. Where an instruction needs a tensor in another placement than its
 * row's, lowering moves it (program/where.h).
 */
#pragma once

#include "plan/placement.h"

typedef struct wfi_strategy {
    const char *name;        /* as a key of the plan; of a whole plan: with its value */
    wfi_placement parameter; /* a replica that computes wants it REPLICATE */
    wfi_placement gradient;  /* PARTIAL after backward, then this */
    wfi_placement state;  /* the optimizer's: its owner updates the same part of the parameters */
    wfi_placement buffer; /* running statistics; no SHARD */
    bool frees_gradient;  /* after the sum only the part that `gradient` places is kept */
} wfi_strategy;

extern const wfi_strategy wfi_strategy_dp, wfi_strategy_dataparallel, wfi_strategy_zero1,
    wfi_strategy_zero2, wfi_strategy_zero3;

/* Those of a model or a unit, as a key with a number of ranks, NULL-terminated. */
extern const wfi_strategy *const wfi_strategies[];
/* Those of a whole plan, along its `dp`: zero=1, 2, 3. */
#define WFI_N_ZERO 3
extern const wfi_strategy *const wfi_zero_strategies[WFI_N_ZERO];
/* Of the former; NULL if there is none of that name. */
const wfi_strategy *wfi_strategy_find(const char *name);

/* Whether a replica with a part of the state has the tensors to update that part, and keeps it.
 * Errors: UNSUPPORTED. */
wf_status wfi_strategy_check(wf_context *ctx, const wfi_strategy *strategy);
