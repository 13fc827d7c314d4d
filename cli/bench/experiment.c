/* Rows of an experiment: their list, the order of their runs, and their results. */
#include "bench/experiment.h"

#include <stdlib.h>
#include <string.h>

static bool is(const char *wanted, const char *is) {
    return !wanted || !strcmp(wanted, is);
}

const row *experiment_best(const experiment *e, const char *name, const char *schedule,
                           const char *cut, int64_t split) {
    const row *best = NULL;
    for (const row *r = e->rows; r < e->rows + e->n_rows; r++) {
        if (is(name, r->name) && is(schedule, r->schedule) && is(cut, r->cut) &&
            (!split || r->split == split) && (!best || row_mean(r) < row_mean(best)))
            best = r;
    }
    return best;
}

/* "single device" comes before "model parallel" before "pipeline". */
static int compare(const void *a, const void *b) {
    static const char order[] = "smp";
    const row *x = a, *y = b;
    int by = (int)(strchr(order, *x->name) - strchr(order, *y->name));
    if (!by) by = -strcmp(x->cut, y->cut); /* the tutorial's cut before the balanced one */
    if (!by) by = strcmp(x->schedule, y->schedule);
    return by ? by : (x->split > y->split) - (x->split < y->split);
}

void experiment_sort(experiment *e) {
    qsort(e->rows, (size_t)e->n_rows, sizeof *e->rows, compare);
}

void experiment_release(experiment *e) {
    for (int i = 0; i < e->n_rows; i++) samples_release(&e->rows[i].seconds);
    for (int i = 0; i < e->n_costs; i++) wf_costs_destroy(e->costs[i].costs);
    free(e->x);
    free(e->y);
    job_close(&e->j);
}

/* ---- results of a row ---- */

double row_mean(const row *r) {
    return samples_mean(&r->seconds);
}

rank_time row_time(const row *r, int rank) {
    rank_time t = r->time[rank];
    double n = (double)r->seconds.n;
    return (rank_time){t.compute / n, t.transfer / n, t.bubble / n, t.wait / n};
}

double row_compute(const row *r) {
    double sum = 0;
    for (int rank = 0; rank < r->n_ranks; rank++) sum += row_time(r, rank).compute;
    return sum;
}
