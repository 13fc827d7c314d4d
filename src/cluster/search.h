/* The search for plans, within bounds. Private. */
#ifndef WFI_CLUSTER_SEARCH_H
#define WFI_CLUSTER_SEARCH_H

#include "cluster/predict.h"

typedef enum wfi_axis_use { WFI_UNUSED, WFI_ANY_SIZE, WFI_USED } wfi_axis_use;

/* Plans among which a search chooses. */
typedef struct wfi_bounds {
    const char *strategy;
    wfi_axis_use dp, pp, tp, offload;
    unsigned zero; /* bit k: zero=k */
    bool has_root; /* dataparallel */
} wfi_bounds;

typedef struct wfi_found {
    wfi_case c;
    wf_prediction prediction;
} wfi_found;

/* Calls `take` with each case within the bounds, simple ones first, until that fails. */
typedef wf_status (*wfi_take)(void *self, const wfi_case *c);
wf_status wfi_each_case(wfi_predictor *p, const wfi_bounds *bounds, wfi_take take, void *self);

/* Keeps the best of each mesh, at most n, the best first; or, if nothing fits, the one that lacks
 * the fewest bytes. found_out[n]. */
wf_status wfi_search(wfi_predictor *p, const wfi_bounds *bounds, int n, wfi_found *found_out,
                     int *n_out);
/* Returns whether a is better by more than a tie. */
bool wfi_is_better(const wf_prediction *a, const wf_prediction *b);

#endif
