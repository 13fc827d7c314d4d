/* Tuning: finds the fastest kernel of a library for each node of a model on this machine.
 *
 *     wf_tuning_create(ctx, model, &recipe, plan, NULL, NULL, &tuning);
 *     for (int i = 0; i < wf_tuning_n_shapes(tuning); i++) wf_tuning_measure(tuning, i, 5);
 *
 * Timing chooses once, and the choice becomes part of the recipe: put the results of
 * wf_tuning_shape into its field `tuned`, as "SHAPE=WAY" joined by "+". After that, shapes and
 * recipe alone decide about kernels, and the same recipe gives the same bits under every plan.
 */
#ifndef WEFT_TUNE_H
#define WEFT_TUNE_H

#include <weft/model.h>
#include <weft/recipe.h>

typedef struct wf_tuning wf_tuning;

/* A shape: nodes with the same op, operands and attributes for which several kernels exist,
 * numbered from 0. */
typedef struct wf_tuned_shape {
    const char *shape; /* borrowed */
    int n_nodes;       /* in a microbatch */
    int n_ways;
    int usual;  /* the default kernel, used without a table */
    int chosen; /* the fastest kernel, or the usual one if nearly as fast; -1: not measured */
} wf_tuned_shape;

/* One kernel for a shape. The time is that of one node in microseconds, with its share of packing
 * parameters: CPU time of one thread on a CPU, else wall time; the minimum over all rounds. */
typedef struct wf_tuned_way {
    const char *name; /* borrowed */
    double time_us;   /* 0: not measured */
    int is_wrong;     /* 1: its result differs from the usual one's, so it is never chosen */
} wf_tuned_way;

#ifdef __cplusplus
extern "C" {
#endif

/* Finds the shapes of a training step's microbatches, and their kernels on the first device of the
 * plan's kind (wf_plan_use_devices). The recipe's `tuned` is ignored. `model` may be destroyed
 * afterwards. If `stop` is not NULL, any thread may call it from time to time. If it returns
 * nonzero, this function or wf_tuning_measure returns INTERRUPTED after the running kernel; the
 * tuning can then only be destroyed. Errors: INVALID_ARG (the plan's devices are of several kinds),
 * INTERRUPTED, DEVICE, those of wf_program_create. */
WF_API WF_NODISCARD wf_status wf_tuning_create(wf_context *ctx, const wf_model *model,
                                               const wf_recipe *recipe, const wf_plan *plan,
                                               int (*stop)(void *argument), void *argument,
                                               wf_tuning **tuning_out);
WF_API void wf_tuning_destroy(wf_tuning *tuning); /* NULL is allowed */

/* The number of shapes. */
WF_API int wf_tuning_n_shapes(const wf_tuning *tuning);
/* Runs all kernels of a shape on random numbers: once untimed, then in `n_rounds` >= 1 rounds,
 * every other one in reverse order. Errors: INVALID_ARG (shape or n_rounds out of range),
 * NO_MEMORY, DEVICE, INTERRUPTED. */
WF_API WF_NODISCARD wf_status wf_tuning_measure(wf_tuning *tuning, int shape, int64_t n_rounds);
/* A shape, or one of its kernels. Out of range: zeros. */
WF_API wf_tuned_shape wf_tuning_shape(const wf_tuning *tuning, int shape);
WF_API wf_tuned_way wf_tuning_way(const wf_tuning *tuning, int shape, int way);

#ifdef __cplusplus
}
#endif
#endif
