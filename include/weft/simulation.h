/* Simulation of data-parallel training with synchronous, asynchronous or local updates.
 *
 * From a few times, the simulation finds the throughput, the staleness of the gradients and the
 * load of the parameter servers. It needs no model. All times are in milliseconds.
 *
 *     wf_simulation_config config = WF_SIMULATION_CONFIG_INIT;
 *     wf_simulation *s;
 *     config.update = WF_SIMULATION_ASYNC, config.n_workers = 4, config.forward_ms = 10;
 *     if (wf_simulation_run(ctx, &config, &s) == WF_OK)
 *         printf("%g\n", wf_simulation_summarize(s).steps_per_second);
 *     wf_simulation_destroy(s);
 *
 * A step is one batch, which M workers divide into M equal shares. Worker 0 may be slower than the
 * others.
 *
 * SYNC: each worker computes its share, all of them all-reduce, and each applies the update. The
 * all-reduce takes two transfers.
 *
 * ASYNC: a worker pulls the parameters, computes a share, pushes the gradient, waits for its update
 * and takes the next of the remaining shares. The servers divide the parameters and do the same
 * work at the same times. They apply pushes in the order of arrival, one at a time. Transfers of a
 * server share its link, one after the other. Meanwhile the server may apply a push. The staleness
 * of a push is the number of updates between its pull and its update, in steps of M updates,
 * rounded up. Under a bound, a push waits if its update would make the staleness of another
 * worker's gradient larger than the bound. With bound 0 the servers wait for all M gradients and
 * apply their sum.
 *
 * LOCAL: each worker takes local_steps steps of its own. Then all of them all-reduce the changes
 * and apply an outer update.
 */
#ifndef WEFT_SIMULATION_H
#define WEFT_SIMULATION_H

#include <weft/timeline.h>

/* Bounds of a configuration. */
#define WF_SIMULATION_MAX_WORKERS 256     /* and servers */
#define WF_SIMULATION_MAX_SHARES  1000000 /* steps times workers */
#define WF_SIMULATION_MAX_SLOW    1000
#define WF_SIMULATION_MAX_TIME_MS 1e9
#define WF_SIMULATION_UNBOUNDED   (-1)

typedef enum wf_simulation_update {
    WF_SIMULATION_SYNC,
    WF_SIMULATION_ASYNC,
    WF_SIMULATION_LOCAL
} wf_simulation_update;

typedef struct wf_simulation_config {
    size_t struct_size; /* set by WF_SIMULATION_CONFIG_INIT */
    wf_simulation_update update;
    int64_t n_workers, n_steps;
    int64_t n_servers;   /* ASYNC */
    int64_t staleness;   /* ASYNC: bound in steps, or WF_SIMULATION_UNBOUNDED */
    int64_t local_steps; /* LOCAL: steps between two all-reduces */
    double slow;         /* worker 0 takes this many times as long to compute and update; from 1 */
    double forward_ms, backward_ms, weight_ms; /* of a share; the last two: its gradients */
    double transfer_ms;                        /* of all parameters, one way; n_servers divide it */
    double update_ms;                          /* of all parameters; n_servers divide it */
    int64_t timeline_steps; /* number of first steps in the timeline; 0: no timeline */
} wf_simulation_config;

#define WF_SIMULATION_CONFIG_INIT                                                                  \
    {                                                                                              \
        sizeof(wf_simulation_config), WF_SIMULATION_SYNC, 1, 100, 1, WF_SIMULATION_UNBOUNDED, 1,   \
            1, 0, 0, 0, 0, 0, 0                                                                    \
    }

typedef struct wf_simulation wf_simulation;

/* Shares of time are from 0 to 1. */
typedef struct wf_simulation_summary {
    double step_ms; /* in the mean */
    double steps_per_second;
    double worker_busy;            /* workers compute and update, in the mean */
    double link_busy, update_busy; /* ASYNC: a server's link; its updates */
    double server_busy;            /* the larger of the two: near 1, the servers are too few */
    int64_t n_staleness;           /* length of the histogram; LOCAL: 0 */
} wf_simulation_summary;

#ifdef __cplusplus
extern "C" {
#endif

/* Simulates all steps. The caller owns the result. Errors: INVALID_ARG (a number out of bounds, or
 * no compute time), NO_MEMORY. */
WF_API WF_NODISCARD wf_status wf_simulation_run(wf_context *ctx, const wf_simulation_config *config,
                                                wf_simulation **simulation_out);
WF_API void wf_simulation_destroy(wf_simulation *simulation); /* NULL is allowed */

WF_API wf_simulation_summary wf_simulation_summarize(const wf_simulation *simulation);
/* Returns the number of gradients with this staleness, rounded up; 0 if out of range. */
WF_API int64_t wf_simulation_staleness(const wf_simulation *simulation, int64_t steps);
/* The first timeline_steps steps, or NULL if that is 0; borrowed. Ranks are the workers, then, with
 * ASYNC, the servers. `micro` is a version of the parameters: the one that a share read, or the one
 * that a server's update made. In SYNC and LOCAL, it is the step. */
WF_API const wf_timeline *wf_simulation_timeline(const wf_simulation *simulation);

#ifdef __cplusplus
}
#endif
#endif
