/* Passes that turn the declarations of a model function into a finished graph. Private.
 *
 * A pass reads and rewrites nodes by the descriptors of their ops; no pass depends on a plan.
 */
#pragma once

#include "graph/graph.h"

/* The nodes that a model function adds, in one microbatch of `batch` samples; no pass has run. */
wf_status wfi_graph_declare(wf_context *ctx, int64_t batch, bool training, wf_model_function model,
                            const void *model_config, wf_graph **graph_out);

/* facts.c: facts about a model that the recipe's defaults depend on. */
typedef struct wfi_model_facts {
    bool has_batch_norm;
    int64_t n_heads;  /* the greatest common divisor of all attentions' heads; 0: no attention */
    int32_t n_slices; /* the default */
} wfi_model_facts;
/* The default of slices is the largest power of two, up to `most_slices`, that divides the heads of
 * all attentions and into which every pair of layers can be cut; 1 without attention. */
wf_status wfi_model_look(wf_context *ctx, wf_model_function model, const void *config,
                         int32_t most_slices, wfi_model_facts *facts_out);
/* Errors: those of wfi_graph_shard. */
wf_status wfi_model_check_slices(wf_context *ctx, wf_model_function model, const void *config,
                                 int32_t n_slices);

/* wf_graph_create, with the loss as a unit of its own if `splits_loss`: it may live elsewhere
 * than the model. */
wf_status wfi_graph_create(wf_context *ctx, const wf_graph_config *config, int32_t n_slices,
                           bool splits_loss, wf_model_function model, const void *model_config,
                           wf_graph **graph_out);

/* ---- in this order; each keeps the node order legal ---- */

/* Pairs of layers become units of n_slices slices each. Errors: INVALID_ARG: there are none, or
 * they cannot be cut into so many; the sentence says into how many they can. */
wf_status wfi_graph_shard(wf_graph *g, int32_t n_slices);

/* Where a model has a vocabulary: its embeddings are marked as cut by rows, and cross entropy is
 * done in so many blocks of its classes (op/class_sums.c), so that both are pairs by their ops'
 * rules. Without effect on anything else. */
wf_status wfi_graph_find_vocabulary(wf_graph *g, int32_t n_blocks);

/* Recurrent layers become nodes for each token (recurrence.c), which can be cut by hidden units. */
wf_status wfi_graph_unroll(wf_graph *g);

/* Marks the parameters of those names (wf_graph_config.freeze and lr_scale), and puts the frozen
 * ones of each unit after the trained ones. Errors: INVALID_ARG: no parameter has a name, or
 * nothing is left to train. */
wf_status wfi_graph_freeze(wf_graph *g, const char *names, const char *lr_scale);

/* A sum and a ReLU join the op before them where that can do them, too (wfi_op.with_addend,
 * with_relu). */
wf_status wfi_graph_fuse(wf_graph *g);
/* Moves the loss, from the last values that have more than one number a row on, into a unit
 * behind all others. Nothing if there is no loss. */
wf_status wfi_graph_split_loss(wf_graph *g);
/* Appends B and W nodes. */
wf_status wfi_graph_autodiff(wf_graph *g);
/* For plans under which each rank has all rows: moves the nodes of all slices into the first
 * slice's unit and leaves the other units empty. Rows that other units read lie side by side. Each
 * kernel still computes the rows of one slice, and weight gradients are summed in the same order.
 */
wf_status wfi_graph_join_rows(wf_graph *g);
/* Errors: INVALID_ARG: parameters without a gradient, inputs that nothing reads; all are named. */
wf_status wfi_graph_check_used(const wf_graph *g);
/* Chooses C16 for images where every op allows it; inserts reorders elsewhere. */
wf_status wfi_graph_layout(wf_graph *g);

/* Sets the types of a graph of F32 to those of training in `dtype`. BF16: activations and their
 * gradients are BF16. These stay F32: parameters and their gradients, buffers, inputs, the outputs
 * of a graph that is not trained, values of one dim (biases, statistics, losses), and sums over
 * slices. If an op needs one type (WFI_OP_ONE_TYPE), its F32 inputs are cast, once a unit; weights
 * are rounded as they are packed. */
wf_status wfi_graph_cast(wf_graph *g, wf_dtype dtype);

/* Activations that a unit recomputes in backward instead of keeping: none, outputs of cheap ops
 * (WFI_OP_CHEAP), or all. */
typedef enum wfi_recompute {
    WFI_RECOMPUTE_NONE,
    WFI_RECOMPUTE_SELECTIVE,
    WFI_RECOMPUTE_ALL
} wfi_recompute;
/* Adds R nodes, by how[n_units], and lets B and W read their outputs. */
wf_status wfi_graph_recompute(wf_graph *g, const wfi_recompute *how);
/* That R nodes repeat forward nodes. Errors: BUG; the sentence names unit and op. */
wf_status wfi_graph_check_recompute(const wf_graph *g);
