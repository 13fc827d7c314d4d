/* The work of a model for one tensor-parallel rank and one microbatch, block by block, from the
 * graph that trains it. Private.
 *
 * A block is a unit of the model with the slices and sums that a plan's tp makes of it: an
 * embedding, a layer, a head. Equal layers of a transformer are one kind of block, so a graph of
 * three layers gives the work of any number.
 */
#pragma once

#include "cluster/cluster.h"
#include "comm/algorithm/allreduce.h"
#include "pass/pass.h"

#include <weft/model.h>

typedef struct wfi_phase_work {
    double us;
    double flops;     /* of products of matrices; attention counts as whole squares */
    double summed_us; /* sums over the tensor-parallel ranks, not in `us` */
} wfi_phase_work;

#define WFI_BLOCK_NAME 64
/* Units that are gathered ahead of their use; more are counted as if they were like these. */
#define WFI_MOST_AHEAD 3

/* While a block goes forward or backward, at most. */
typedef struct wfi_pass_bytes {
    double alive;     /* values that are not kept from forward to backward */
    double transient; /* the same, but for what has been kept until now */
    double crossing;  /* of alive, values between units */
    double packed;    /* weights in a kernel's format: for forward alone; for backward, too */
    double gathered[WFI_MOST_AHEAD + 1]; /* parameters of a unit and of so many that follow */
} wfi_pass_bytes;

typedef struct wfi_model_block {
    wfi_phase_work phase[4];  /* by wfi_phase; R: what recomputation adds */
    wfi_phase_work attention; /* the forward of the attention alone */
    double n_parameters;      /* of this rank */
    double n_used;            /* the same, and those of other blocks that it uses */
    double saved_bytes;       /* kept from forward to backward */
    double weight_bytes;      /* values that gradients of weights read */
    double unit_saved_bytes;  /* of saved_bytes, its largest unit's */
    double unit_own,
        unit_tied;      /* its largest unit's, of n_parameters, and what it uses of others */
    double added_bytes; /* of the largest gradient that a kernel adds to a sum */
    double updated[WFI_MOST_AHEAD + 1]; /* parameters of a unit and those before it, at most */
    int32_t n_units;
    wfi_pass_bytes pass[2]; /* forward, backward */
    double planned_us;      /* as weft's programs balance stages */
    double input_elements;  /* of the value that it gets from the block before */
    bool is_layer;          /* neither the first nor the last block */
    bool begins_stage;      /* the model says so */
    char name[WFI_BLOCK_NAME];
} wfi_model_block;

typedef struct wfi_work_request {
    const wf_cluster *cluster;
    const wf_model *model;
    const wf_recipe *recipe;
    int64_t n_samples; /* of a microbatch */
    int tp;
    bool divides_rows;
    wfi_recompute recompute;
    wfi_precision precision;
    wf_accounting accounting;
    int n_contexts; /* ranks that divide a sample's tokens: the model has one's */
} wfi_work_request;

typedef struct wfi_model_work {
    wf_context *ctx;
    wfi_model_block *kinds; /* [n_kinds] */
    int32_t n_kinds;
    int32_t layer;       /* the kind that is there n_layers times; -1: each is there once */
    int64_t n_layers;    /* n_kinds and these - 1 blocks in all */
    bool has_rows;       /* sp divides some of its units */
    double n_parameters; /* of the model */
    double n_own;        /* of a rank that has all blocks */
    double us;           /* of all blocks, without sums */
    double updated[WFI_MOST_AHEAD + 1]; /* parameters of units in a row, at most */
} wfi_model_work;

wf_status wfi_work_create(wf_context *ctx, const wfi_work_request *request,
                          wfi_model_work **work_out);
void wfi_work_destroy(wfi_model_work *work);

static inline int64_t wfi_work_n_blocks(const wfi_model_work *w) {
    return w->n_kinds + (w->layer < 0 ? 0 : w->n_layers - 1);
}
/* The kind of block i. */
static inline const wfi_model_block *wfi_work_block(const wfi_model_work *w, int64_t i) {
    int64_t more = w->layer < 0 ? 0 : w->n_layers - 1;
    if (w->layer < 0 || i < w->layer) return &w->kinds[i];
    return &w->kinds[i <= w->layer + more ? w->layer : i - more];
}
/* Blocks from i on that are of the same kind, at least 1. */
static inline int64_t wfi_work_n_equal(const wfi_model_work *w, int64_t i) {
    bool is_layer = w->layer >= 0 && i >= w->layer && i < w->layer + w->n_layers;
    return is_layer ? w->layer + w->n_layers - i : 1;
}

/* ---- lives.c ---- */

typedef struct wfi_lives_request {
    const wf_graph *g;
    wfi_model_block *kinds;
    const int32_t *block_of; /* [n_units] */
    const bool *is_own;      /* [n_units] */
    double *unit_bytes;      /* [n_units] zeros */
} wfi_lives_request;

/* Sets the blocks' bytes, but for packed weights. Errors: NO_MEMORY. */
wf_status wfi_work_find_lives(const wfi_lives_request *request);

/* ---- papers.c ---- */

/* Returns whether ops between products are counted as in published runs, not from the graph. */
bool wfi_work_has_papers(const wfi_work_request *q);
/* Adds their time to the block. */
void wfi_work_add_papers(const wfi_work_request *q, wfi_model_block *block, bool is_head);

/* ---- cost.c ---- */

/* Microseconds of a product [m, k] x [k, n], `count` of them. */
double wfi_product_us(const wf_cluster *c, wfi_precision p, double count, double m, double n,
                      double k);
/* Microseconds of an op that only moves bytes. */
double wfi_bytes_us(const wf_cluster *c, double bytes);

typedef enum wfi_traffic_kind {
    WFI_TRAFFIC_ALL_REDUCE,
    WFI_TRAFFIC_REDUCE_SCATTER,
    WFI_TRAFFIC_ALL_GATHER,
    WFI_TRAFFIC_SEND
} wfi_traffic_kind;
/* Microseconds of a collective of `bytes` (of the whole) over n ranks that are `stride` apart, with
 * all other such groups at the same time. SEND: from a rank to the one `stride` on, n at once. */
double wfi_traffic_us(const wf_cluster *c, wfi_traffic_kind kind, double bytes, double n,
                      double stride);

/* ---- allreduce.c ---- */

/* Microseconds of an all-reduce by this algorithm of weft's; NULL or auto: by the one that is the
 * fastest on these links. */
double wfi_allreduce_us(const wf_cluster *c, const wfi_allreduce *how, double bytes, double n,
                        double stride);
