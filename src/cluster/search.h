/* The search for plans, within bounds. Private. */
#pragma once

#include "cluster/predict.h"

typedef enum wfi_axis_use { WFI_UNUSED, WFI_ANY_SIZE, WFI_USED } wfi_axis_use;

/* Plans among which a search chooses. */
typedef struct wfi_bounds {
    const char *strategy;
    wfi_axis_use dp, pp, tp, offload;
    unsigned zero; /* bit k: zero=k */
    bool has_root; /* dataparallel */
} wfi_bounds;

/* The use of a case: none, or it may be the best; then other buckets are tried, too. Once one
 * suffices, no case that only saves more memory is of use. */
typedef enum wfi_use { WFI_USELESS, WFI_USEFUL, WFI_SUFFICIENT } wfi_use;

/* Calls `take` with each case within the bounds, simple ones first, until that fails. On at most 8
 * devices these are all that a prediction distinguishes, with microbatches of equal size; on more,
 * those that may be the best. *use_out is USELESS before. */
typedef wf_status (*wfi_take)(void *self, const wfi_case *c, wfi_use *use_out);
wf_status wfi_each_case(wfi_predictor *p, const wfi_bounds *bounds, wfi_take take, void *self);

/* Returns whether a is better by more than a tie. */
bool wfi_is_better(const wf_prediction *a, const wf_prediction *b);
