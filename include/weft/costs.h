/* Costs: the time that each unit of a model takes.
 *
 * The planner uses costs to simulate programs, to balance stages and to build the schedule `auto`.
 * Costs are computed from FLOPs and bytes, or measured. They decide where and when work is done,
 * and never affect a result.
 */
#ifndef WEFT_COSTS_H
#define WEFT_COSTS_H

#include <weft/plan.h>

typedef struct wf_costs wf_costs;

/* Times of one unit for one microbatch, in microseconds. */
typedef struct wf_unit_cost {
    const char *name; /* borrowed */
    double forward_us;
    double backward_us;        /* gradient of the unit's input */
    double weight_us;          /* gradient of the weights */
    double backward_weight_us; /* both at once */
    double recompute_us;       /* the part of the forward that is recomputed before the backward */
    double recompute_scale;    /* of its measured time to its share of forward_us; 0: unknown */
} wf_unit_cost;

typedef struct wf_rates {
    double message_us;         /* fixed cost of a transfer, without its bytes */
    double copy_us_per_byte;   /* transfers and loads */
    double pack_us_per_byte;   /* weights into the kernels' layouts */
    double update_us_per_byte; /* optimizer */
    double sum_us_per_byte;    /* sums of gradients within a rank */
    double tie_us_per_byte;    /* sums of gradients of a tensor that several units use */
    double reduce_us_per_byte; /* sums over ranks; half of the bytes read and written */
    double host_us_per_byte;   /* between device and host memory, either direction */
    double disk_us_per_byte;   /* to or from a file */
} wf_rates;

#ifdef __cplusplus
extern "C" {
#endif

/* The number of units; the costs of one unit, zeros if `unit` is out of range; the rates; and
 * whether the costs are measured rather than computed. */
WF_API int wf_costs_n_units(const wf_costs *costs);
WF_API wf_unit_cost wf_costs_unit(const wf_costs *costs, int unit);
WF_API wf_rates wf_costs_rates(const wf_costs *costs);
WF_API int wf_costs_is_measured(const wf_costs *costs);
WF_API void wf_costs_destroy(wf_costs *costs); /* NULL is allowed */

/* Replaces the times of a unit, but not its name; out of range: nothing. Replaces the rates. */
WF_API void wf_costs_set_unit(wf_costs *costs, int unit, wf_unit_cost times);
WF_API void wf_costs_set_rates(wf_costs *costs, wf_rates rates);

/* Times while another rank works at the same time, as cores share caches and memory. `costs` are
 * then the times of a rank alone. Keeps a copy. Errors: INVALID_ARG (of another model),
 * NO_MEMORY. */
WF_API WF_NODISCARD wf_status wf_costs_set_crowded(wf_costs *costs, const wf_costs *crowded);

/* Makes later programs of `plan` use these costs instead of computed ones. The plan keeps a copy.
 * Errors: NO_MEMORY. Whether the costs match the model is checked when a program is created. */
WF_API WF_NODISCARD wf_status wf_plan_use_costs(wf_plan *plan, const wf_costs *costs);

#ifdef __cplusplus
}
#endif
#endif
