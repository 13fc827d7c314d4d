#ifndef CLI_BENCH_ASYNC_H
#define CLI_BENCH_ASYNC_H

#include "bench/rounds.h"

/* One worker's times of a share of a batch. */
typedef struct async_costs {
    double compute_ms, transfer_ms, update_ms;
} async_costs;

static inline wf_update_mode async_update(const json_t *row) {
    return (wf_update_mode)row_number(row, ".update");
}

/* Sets each row's "predicted" and "server_busy_predicted" by wf_simulation_run. Errors: its. */
wf_status async_predict(rounds *b, const async_costs *costs);

/* The mean of a window of losses, a tenth of all, that ends with the step. */
double async_mean_loss(const json_t *row, size_t step);

/* Pictures into --out. Complains. */
exit_status async_plot(const rounds *b);

#endif
