/* A strategy is a row: where each thing of a unit lives along `dp` between steps. Private.
 *
 * Lowering knows no strategy. Where an instruction wants a thing in another placement than its
 * row's, lowering emits the change (plan/placement.h).
 */
#ifndef WFI_STRATEGY_H
#define WFI_STRATEGY_H

#include "plan/placement.h"

typedef struct wfi_strategy {
    const char *name;        /* as a key of the plan */
    wfi_placement parameter; /* a replica that computes wants it REPLICATE */
    wfi_placement gradient;  /* PARTIAL after backward, then this */
    wfi_placement state;  /* the optimizer's: who has a part of it updates that of the parameters */
    wfi_placement buffer; /* running statistics; no SHARD */
} wfi_strategy;

extern const wfi_strategy wfi_strategy_dp, wfi_strategy_dataparallel;

/* All of them, NULL-terminated. */
extern const wfi_strategy *const wfi_strategies[];
/* NULL if there is none of that name. */
const wfi_strategy *wfi_strategy_find(const char *name);

#endif
