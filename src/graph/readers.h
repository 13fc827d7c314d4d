/* Which nodes read which value. Private.
 *
 * The index is of the graph at its creation: later changes of nodes do not update it.
 */
#pragma once

#include "graph/graph.h"

/* A reader is there once for each of its inputs that is the value; dead nodes read nothing. */
typedef struct wfi_readers {
    int32_t *first; /* [n_values + 1] where a value's begin; they end where the next one's do */
    int32_t *nodes; /* each value's ascending */
} wfi_readers;

/* Errors: NO_MEMORY; then there is nothing to release. */
wf_status wfi_readers_find(const wf_graph *g, wfi_readers *readers_out);
void wfi_readers_release(wf_context *ctx, wfi_readers *readers);

static inline int32_t wfi_n_readers(const wfi_readers *readers, int32_t v) {
    return readers->first[v + 1] - readers->first[v];
}
