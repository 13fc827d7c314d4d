/* The parameters of a model as one flat vector, for workers and servers. Private.
 *
 * The vector is the trained part of each unit's flat storage, in the order of units. The vector
 * includes the gaps between parameters, so that an update of any range has the bits of the
 * synchronous program.
 */
#pragma once

#include "program/program.h"

/* One batch statistic of a microbatch among all of them. */
typedef struct wfi_vector_stat {
    size_t at, n; /* floats: mean [n], then variance [n] */
} wfi_vector_stat;

typedef struct wfi_vector {
    const wf_program *program; /* of a worker's gradients or steps; borrowed */
    wfi_pool pool;
    int32_t n_units, n_stats;
    int64_t n_micro;        /* of a worker's part */
    size_t *first;          /* [n_units + 1] floats before the unit */
    size_t *first_buffer;   /* [n_units + 1] bytes of buffers before the unit */
    wfi_vector_stat *stats; /* [n_stats] in the statistics of a microbatch, ... */
    size_t n_stat_floats;   /* ... which are so many */
} wfi_vector;

wf_status wfi_vector_create(wf_context *ctx, const wf_program *program, wfi_vector *vector_out);
void wfi_vector_release(wfi_vector *vector);

static inline size_t wfi_vector_n(const wfi_vector *l) {
    return l->first[l->n_units];
}
static inline size_t wfi_vector_buffer_bytes(const wfi_vector *l) {
    return l->first_buffer[l->n_units];
}
/* Returns the floats of a worker's statistics: of all microbatches, with the number of elements of
 * each. */
static inline size_t wfi_vector_all_stats(const wfi_vector *l) {
    return (size_t)l->n_micro * (l->n_stat_floats + 2 * (size_t)l->n_stats);
}

/* The first element of server `k` of `n_servers`: near an equal share, where the unit's sums of
 * squares allow a cut. */
size_t wfi_vector_cut(const wfi_vector *l, int n_servers, int k);
