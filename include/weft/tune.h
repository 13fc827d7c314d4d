/* Tuning: which of a library's kernels computes each node of a model fastest here.
 *
 *     wf_tuning_create(ctx, model, &recipe, plan, NULL, NULL, &tuning);
 *     for (int i = 0; i < wf_tuning_n_shapes(tuning); i++) wf_tuning_measure(tuning, i, 5);
 *
 * Timing chooses once, into the recipe: what wf_tuning_shape says then goes into its field `tuned`
 * as "SHAPE=WAY" joined by "+". From there on kernels follow from shapes and the recipe again, and
 * the same recipe gives the same bits under every plan.
 */
#ifndef WEFT_TUNE_H
#define WEFT_TUNE_H

#include <weft/model.h>
#include <weft/recipe.h>

typedef struct wf_tuning wf_tuning;

/* Nodes of one op, operands and attributes, of which there are several ways to compute them. */
typedef struct wf_tuned_shape {
    const char *shape; /* borrowed */
    int n_nodes;       /* of a microbatch */
    int n_ways;
    int usual;  /* the way that is taken without a table */
    int chosen; /* the fastest, but the usual one if that is nearly as fast; -1: not measured */
} wf_tuned_shape;

/* How long one node takes, in microseconds, with what its layout of parameters costs: CPU time on
 * one thread of a CPU, else wall time, the least of all rounds. */
typedef struct wf_tuned_way {
    const char *name; /* borrowed */
    double time_us;   /* 0: not measured */
    int is_wrong;     /* its result is not the usual one's, so it is never chosen */
} wf_tuned_way;

#ifdef __cplusplus
extern "C" {
#endif

/* Finds the shapes of a training step's microbatches, and their ways on the first device of the
 * plan's kind (wf_plan_use_devices); what the recipe's `tuned` says does not count. `model` may go
 * when this has returned. `stop`, NULL is allowed, is asked now and then, on any thread: not 0
 * makes this, and wf_tuning_measure, INTERRUPTED, after the kernel that is running; then the tuning
 * can only be destroyed. Errors: those of wf_program_create and of devices; INVALID_ARG: the plan's
 * devices are of several kinds; INTERRUPTED. */
WF_API WF_NODISCARD wf_status wf_tuning_create(wf_context *ctx, const wf_model *model,
                                               const wf_recipe *recipe, const wf_plan *plan,
                                               int (*stop)(void *argument), void *argument,
                                               wf_tuning **tuning_out);
WF_API void wf_tuning_destroy(wf_tuning *tuning); /* NULL is allowed */

WF_API int wf_tuning_n_shapes(const wf_tuning *tuning);
/* Runs all ways of a shape on random numbers, once untimed and in `n_rounds` rounds, at least one,
 * every other one backwards. A shape that does not exist is INVALID_ARG. Errors: NO_MEMORY, DEVICE,
 * INTERRUPTED. */
WF_API WF_NODISCARD wf_status wf_tuning_measure(wf_tuning *tuning, int shape, int64_t n_rounds);
/* Out of range: zeros. */
WF_API wf_tuned_shape wf_tuning_shape(const wf_tuning *tuning, int shape);
WF_API wf_tuned_way wf_tuning_way(const wf_tuning *tuning, int shape, int way);

#ifdef __cplusplus
}
#endif
#endif
