/* The plan as data. Private. */
#ifndef WFI_PLAN_H
#define WFI_PLAN_H

#include "comm/algorithm/allreduce.h"
#include "graph/graph.h"
#include "plan/costs.h"
#include "plan/schedule/schedule.h"

#include <weft/plan.h>
#include <weft/recipe.h>

/* More would not be wrong, only useless on any machine this runs on. */
#define WFI_MAX_AXIS 4096

/* As a cut: balanced by costs, whatever the model marks. */
#define WFI_CUT_BALANCED "balanced"

/* Units that are spread over replicas, while all else lives on rank 0. */
typedef struct wfi_spread {
    char *unit; /* "layer3": it and "layer3.0", ...; NULL: the whole model but the loss */
    int n;      /* replicas, ranks 0 to n - 1 */
    /* DataParallel: parameters and all state live on rank 0; the others get a copy of the
     * parameters in each step. Otherwise each replica has its own, as with dp. */
    bool is_rooted;
    int position; /* in the plan's text */
} wfi_spread;

struct wf_plan {
    wf_context *ctx;
    int dp, pp; /* with spreads, dp is the largest of them */
    wfi_spread *spreads;
    int n_spreads;
    int output; /* with a spread of the whole model: the loss's rank */
    const wfi_schedule *schedule;
    int hold; /* most microbatches a stage may hold, for auto; 0 = not given */
    const wfi_allreduce *allreduce;
    size_t bucket_bytes; /* of gradients that are reduced together */
    bool overlaps;       /* reductions begin while backward runs */
    bool is_order_free;  /* sums over replicas may be made in another order than one rank's */
    char *cut;           /* "A+B" as given, or NULL */
    char *text;          /* canonical */
    wf_costs *costs;     /* NULL: computed from the graph */
};

/* How many buffers of a parameter's size the optimizer keeps. */
int wfi_recipe_n_states(const wf_recipe *recipe);

/* A copy that the caller destroys. */
wf_status wfi_plan_copy(const wf_plan *plan, wf_plan **plan_out);

/* Adds what is not by default in how gradients are summed: ",allreduce=tree,bucket=25MiB". */
void wfi_plan_reduction_text(const wf_plan *plan, wfi_text *text);

/* Writes the spread of each unit, or -1. Errors: INVALID_ARG: no such unit, or a unit that is in
 * two spreads. */
wf_status wfi_plan_find_spreads(const wf_plan *plan, const wf_graph *g, int32_t *spread_out);
/* How many replicas a spread has in a step of n_micro microbatches: a replica without one has
 * nothing to do. */
int wfi_spread_width(const wfi_spread *spread, int64_t n_micro);

/* Which unit begins each stage: first_unit_out[pp + 1], the last one n_units.
 * `costs` are those of the graph's units; a replica takes n_micro microbatches. Errors:
 * INVALID_ARG: more stages than units, an unknown or disordered cut. */
wf_status wfi_plan_stages(const wf_plan *plan, const wf_graph *g, const wf_costs *costs,
                          int n_micro, int32_t *first_unit_out);

/* The plan's costs, or computed ones; a copy that the caller destroys. Errors: INVALID_ARG:
 * they are of another model. */
wf_status wfi_plan_costs(const wf_plan *plan, const wf_graph *g, wf_costs **costs_out);

#endif
