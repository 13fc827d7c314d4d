/* The cost of each unit. Private. */
#pragma once

#include "graph/graph.h"

#include <weft/costs.h>

struct wf_costs {
    wf_context *ctx;
    int32_t n_units;
    wf_unit_cost *units; /* names are owned */
    wf_rates rates;
    bool is_measured;
    bool shares_cores; /* the streams of a rank share its cores, as on CPUs */
    wf_costs *crowded; /* while another rank works, too; NULL: the same. Owned */
};

/* Operations that take time by their bytes. */
typedef enum wfi_rate {
    WFI_RATE_COPY,
    WFI_RATE_PACK,
    WFI_RATE_UPDATE,
    WFI_RATE_SUM,
    WFI_RATE_TIE,
    WFI_RATE_REDUCE,
    WFI_RATE_HOST,
    WFI_RATE_DISK,
    WFI_N_RATES
} wfi_rate;
static inline double *wfi_rate_of(wf_rates *rates, wfi_rate rate) {
    double *const us_per_byte[] = {&rates->copy_us_per_byte,   &rates->pack_us_per_byte,
                                   &rates->update_us_per_byte, &rates->sum_us_per_byte,
                                   &rates->tie_us_per_byte,    &rates->reduce_us_per_byte,
                                   &rates->host_us_per_byte,   &rates->disk_us_per_byte};
    return us_per_byte[rate];
}

/* All zero, to be filled. */
wf_status wfi_costs_create(wf_context *ctx, const wf_graph *g, wf_costs **costs_out);
/* From FLOPs and bytes; only ratios mean something. */
wf_status wfi_costs_compute(const wf_graph *g, wf_costs **costs_out);
wf_status wfi_costs_copy(wf_context *ctx, const wf_costs *costs, wf_costs **copy_out);
/* A copy for a graph of the same model, of which units of rows may be joined or apart. Errors:
 * INVALID_ARG: the costs are of another model's units. */
wf_status wfi_costs_suit(wf_context *ctx, const wf_costs *costs, const wf_graph *g,
                         wf_costs **suited_out);
/* The share of a unit's forward that is computed again is not measured: that of other costs. */
double wfi_costs_recompute(const wf_costs *costs, const wf_costs *of, int32_t unit);
/* A time that was not measured (NAN) is derived: both gradients take as long as one after the
 * other; the sum of both is divided as computed costs are. */
wf_status wfi_costs_complete(const wf_graph *g, wf_costs *costs);
