/* Costs: how long each unit takes, from which programs are simulated, stages balanced
 * and the schedule `auto` built. Computed from FLOPs and bytes, or measured. They decide
 * where and when work is done; no number depends on them.
 */
#ifndef WEFT_COSTS_H
#define WEFT_COSTS_H

#include <weft/plan.h>

typedef struct wf_costs wf_costs;

/* Of one microbatch; microseconds. */
typedef struct wf_unit_cost {
    const char *name; /* borrowed */
    double forward_us;
    double backward_us;        /* gradient of what goes in */
    double weight_us;          /* gradient of the weights */
    double backward_weight_us; /* both at once */
    double recompute_us;       /* of the forward, what a program does again before the backward */
} wf_unit_cost;

typedef struct wf_rates {
    double message_us;         /* of a transfer, beside its bytes */
    double copy_us_per_byte;   /* transfers, loads, packing */
    double update_us_per_byte; /* optimizer, sums of gradients */
    double host_us_per_byte;   /* from the device to the host's memory, or back */
    double disk_us_per_byte;   /* to a file, or back */
} wf_rates;

#ifdef __cplusplus
extern "C" {
#endif

WF_API int wf_costs_n_units(const wf_costs *costs);
/* Out of range: zeros. */
WF_API wf_unit_cost wf_costs_unit(const wf_costs *costs, int unit);
WF_API wf_rates wf_costs_rates(const wf_costs *costs);
WF_API int wf_costs_is_measured(const wf_costs *costs);
WF_API void wf_costs_destroy(wf_costs *costs); /* NULL is allowed */

/* From now on programs of `plan` are built from these costs instead of computed ones.
 * The plan keeps a copy. */
WF_API WF_NODISCARD wf_status wf_plan_use_costs(wf_plan *plan, const wf_costs *costs);

#ifdef __cplusplus
}
#endif
#endif
