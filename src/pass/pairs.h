/* Pairs of layers that can be cut into slices. Private to src/pass.
 *
 * A pair begins with a product that is cut by columns (linear: its outputs). The pair goes on
 * through ops that can be cut in the same way (element by element, attention by heads). The last
 * node is a product that is cut by rows: each slice computes a summand of the whole. The descriptor
 * of an op lists its possible cuts.
 */
#pragma once

#include "graph/op.h"
#include "graph/readers.h"

/* How a value is cut: along a dim, counted from 1, that is so many blocks side by side. Dim 0: it
 * is whole. */
typedef struct wfi_value_cut {
    int dim, n_blocks;
} wfi_value_cut;

typedef struct wfi_pairs {
    wfi_pool pool; /* of the arrays */
    int32_t n_pairs, n_slices;
    wfi_readers readers;
    int32_t *end_of; /* [n_nodes] the node that ends the node's pair, or -1 */
    /* A pair's nodes in order: first_of[end], then next_of[that], ..., up to -1. [n_nodes] each. */
    int32_t *first_of, *next_of;
    const wfi_op_cut **rule; /* [n_nodes] of a pair: how its op is cut */
    wfi_value_cut *cuts;     /* [n_values] */
    bool *is_row;            /* [n_nodes] of no pair: each slice can compute some of its rows */
    bool has_uneven_rows;    /* some of them could be, did slices divide the rows */
} wfi_pairs;

/* All pairs of the graph, which is left as it is. Errors: INVALID_ARG: there are none, or they
 * cannot be cut into n_slices; the sentence says into how many they can. */
wf_status wfi_pairs_find(const wf_graph *g, int32_t n_slices, wfi_pairs *pairs_out);
/* The largest power of two, up to `most`, into which every pair can be cut; 1: there are no pairs.
 */
wf_status wfi_pairs_most(const wf_graph *g, int32_t most, int32_t *n_slices_out);
void wfi_pairs_release(wfi_pairs *pairs);

/* Returns the part of a node of a pair that slice `slice` of n computes. */
wfi_op_part wfi_pairs_part(const wf_graph *g, const wfi_pairs *pairs, const wfi_node *node,
                           int64_t slice, int64_t n);

/* Whether the end of a pair has outputs besides the sum, which slices keep for a later pair. */
bool wfi_pairs_goes_on(const wfi_pairs *pairs, const wfi_node *end);

/* rows.c: fills is_row, when all pairs are found. */
void wfi_pairs_find_rows(const wf_graph *g, wfi_pairs *pairs);

/* The end of a pair as slices have it: a product without its bias, which is added to the sum of all
 * slices. */
wfi_node wfi_without_bias(const wfi_node *node);
