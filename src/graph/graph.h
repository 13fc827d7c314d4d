/* The graph as every later stage reads it: values, nodes, units, phases. Private.
 *
 * Nodes are in a legal order of execution: all forward nodes, then, in a training graph, the
 * backward ones. A node belongs to a unit and to a phase: F (forward), R (recomputation of
 * activations that are not saved), B (gradient of activations) or W (gradient of weights).
 */
#pragma once

#include "base/base.h"
#include "base/random.h"

#include <weft/graph.h>

#define WFI_MAX_INPUTS  8
#define WFI_MAX_OUTPUTS 4
#define WFI_MAX_SCOPES  32

typedef enum wfi_phase { WFI_F, WFI_R, WFI_B, WFI_W } wfi_phase;

/* PLAIN is row-major. C16 holds 4-dim images as [n][c / 16][h][w][c % 16]. */
typedef enum wfi_layout { WFI_PLAIN, WFI_C16 } wfi_layout;

typedef enum wfi_value_kind {
    WFI_VALUE_INPUT,  /* filled from the batch */
    WFI_VALUE_PARAM,  /* trained */
    WFI_VALUE_BUFFER, /* saved with the model, not trained */
    WFI_VALUE_HIDDEN, /* hidden state of each sample, from the step before */
    WFI_VALUE_NODE,   /* a node's output */
    WFI_VALUE_CUT     /* a parameter that slices have parts of, each a parameter of its own */
} wfi_value_kind;

/* Where part `number` of n_parts of so many begins; it ends where the next one does. Half as many
 * parts are two of these each. */
static inline int64_t wfi_part_begin(int64_t n, int64_t number, int64_t n_parts) {
    return n * number / n_parts;
}

/* A parameter of a slice: its part of one that is CUT. The dim is that of n_blocks blocks side by
 * side, and the part is the slice's of each. */
typedef struct wfi_cut {
    int32_t whole; /* value */
    int dim, n_blocks;
} wfi_cut;

typedef struct wfi_value {
    wfi_value_kind kind;
    wf_dtype dtype;
    wf_shape shape;
    wfi_layout layout;
    bool is_cache; /* of a buffer: kept from run to run, but not saved; ops write it in place */
    bool opaque;   /* bytes and meaning belong to the kernel that writes it */
    int32_t node;  /* producer, or -1 */
    int32_t alias; /* the value with the same bytes (a reshape) or that contains this one, or -1 */
    int32_t unit;  /* that declared it (parameters, buffers) or produces it */
    const char *name; /* NULL unless declared or an output */
    wf_init init;     /* parameters and buffers */
    bool is_frozen;   /* a parameter that is not trained: it has no gradient and no state */
    double lr_scale;  /* of a parameter's learning rate */
    size_t offset;    /* bytes into the unit's flat parameter or buffer storage, or into `alias` */
    const wfi_cut *cut; /* of a parameter of a slice, otherwise NULL */
} wfi_value;

/* Attributes of an op; the op chooses the member. */
typedef union wfi_attr {
    struct {
        int64_t stride, pad, groups, dilation;
        int bias; /* of conv2d_backward_weight: the bias's gradient is wanted, too */
    } conv;
    struct {
        int64_t kernel, stride, pad;
    } pool;
    struct {
        double eps;
        int relu; /* batch norm: a ReLU follows, fused */
    } norm;
    struct {
        int in_out; /* the weight is [in, out] instead of [out, in] */
        int bias;   /* as conv's */
    } linear;
    struct {
        int transpose_a, transpose_b; /* of the last two dims */
        int shares_b; /* b's gradient is that of many products with it: another op gives it */
    } matmul;
    struct {
        int tanh; /* the approximation */
    } gelu;
    struct {
        double factor;
    } scale;
    struct {
        int dim_a, dim_b;
    } transpose;
    struct {
        int dim;
        int64_t start;
    } slice; /* the length is node->shape's */
    struct {
        int dim;
        double factor; /* 1 for a sum, 1 / n for a mean */
    } reduce;
    struct {
        double p;
        uint64_t name;
        /* Of a part: its elements are runs of `run`, which the whole has at `first` of each
         * `stride` elements. run 0: they are one run. sample_size: of rows, how many elements of
         * the whole are a sample's; 0: the first dim is samples. */
        int64_t run, first, stride, sample_size;
    } dropout;
    struct {
        int64_t n_classes; /* the table has the rows of so many from `first` on, and all ids are */
        int64_t first;     /* below that number. 0: it has all rows, and is never a part */
    } embedding;
    struct {
        int64_t n_classes;
        int64_t n_blocks;   /* into which classes are cut, see wfi_part_begin */
        int64_t begin, end; /* the blocks present in the logits */
        double smoothing;   /* as loss's */
    } classes;
    struct {
        double smoothing;
    } loss;
    struct {
        int64_t n_heads, n_keys; /* heads of queries; of keys, and of values */
        int causal;
    } attention;
    struct {
        int64_t n_heads, n_keys; /* heads of queries, and of keys and values */
        double theta, factor, low, high;
        int64_t n_positions;
    } rotary;
    struct {
        int64_t step;     /* number of the token */
        int64_t first, h; /* the units of a part, from which on, and of the whole */
    } lstm_cell;
    struct {
        wfi_layout to;
    } reorder;
} wfi_attr;

typedef struct wfi_op wfi_op;

typedef struct wfi_node {
    const wfi_op *op;
    wfi_attr attr;
    wf_shape shape; /* of the first output, for ops that cannot derive it from their inputs */
    int32_t in[WFI_MAX_INPUTS];
    int32_t out[WFI_MAX_OUTPUTS]; /* -1 in either: absent */
    int n_in, n_out;
    int32_t unit;
    wfi_phase phase;
    int32_t repeats; /* R: which forward node */
    bool dead;       /* fused into another node */
} wfi_node;

/* Batch statistics that are folded into running ones at the end of the step. */
typedef struct wfi_stat {
    int32_t mean, var;                 /* [c] values of the forward node: biased variance */
    int32_t running_mean, running_var; /* [c] buffers */
    int32_t n_batches;                 /* I64 scalar buffer */
    int32_t unit;
    int64_t n_reduced; /* elements behind each mean */
    double momentum;
} wfi_stat;

/* Hidden state [batch, ...]: a step reads `before`, and at its end `after`, a node's output of the
 * same shape, takes its place. Nothing of it is trained, or goes from sample to sample. */
typedef struct wfi_hidden {
    int32_t before, after;
} wfi_hidden;

/* The gradient of one parameter as one unit sees it. */
typedef struct wfi_weight_gradient {
    int32_t param, value, unit;
    int32_t slice; /* of a weight that all slices use, whose gradients are summed; otherwise -1 */
} wfi_weight_gradient;

/* Parameters side by side in a unit's flat storage that are updated alike. */
typedef struct wfi_param_group {
    size_t end;      /* bytes; it begins where the one before ends, the first at 0 */
    bool has_matrix; /* these have two dims or more: no biases, and no weights of norms */
    double lr_scale; /* of their learning rate */
} wfi_param_group;

typedef struct wfi_unit {
    const char *name;
    size_t param_bytes;      /* flat storage of its own parameters, each aligned to 64 */
    size_t trained_bytes;    /* of these, the trained parameters, at the beginning */
    wfi_param_group *groups; /* [n_groups] of the trained parameters, in the pool */
    int32_t n_groups;
    /* Ranges of the graph's weight gradients that this unit computes, and of `tied`: gradients of
     * its weights by other units.
     */
    int32_t first_gradient, end_gradient, first_tied, end_tied;
    size_t buffer_bytes; /* flat storage of its buffers */
    size_t cache_bytes;  /* of these as far as there are caches */
    bool begins_stage;   /* the model says so (wf_next_stage) */
    bool is_passed; /* by an op that leaves no node in this graph, but does in a training one */
    bool is_slice;  /* one of the graph's n_slices side by side, each a unit */
    bool is_rows;   /* a slice with some rows of the values between pairs; or all slices joined */
    bool is_inner;  /* between pairs that slices go on through, and in them: no stage begins here */
    int32_t slice;  /* which of them, or was before they were joined; otherwise 0 */
} wfi_unit;

struct wf_graph {
    wf_context *ctx;
    wfi_pool pool; /* names */
    wf_status status;
    int64_t batch;
    bool training;

    wfi_value *values;
    wfi_node *nodes;
    wfi_unit *units;
    wfi_stat *stats;
    wfi_hidden *hidden;
    wfi_weight_gradient *weight_gradients; /* ascending unit, then declaration order */
    /* In the pool, by owner: weight gradients that another unit than the weight's computes. The
     * first slice's gradient represents those of all slices. */
    int32_t *tied;
    int32_t *outputs; /* values named by wf_output */
    int32_t n_values, n_nodes, n_units, n_stats, n_hidden, n_weight_gradients, n_outputs;
    size_t value_capacity, node_capacity, unit_capacity, stat_capacity, hidden_capacity,
        weight_gradient_capacity, output_capacity;

    int32_t *declared; /* [n_table] by name, open addressing: value + 1, 0 = free */
    size_t n_table, n_declared;

    int32_t loss;         /* [rows], or -1 */
    int32_t labels;       /* the labels of the loss, or -1: negative ones do not count */
    int32_t record;       /* F64[2]: sum of the loss over the microbatch's rows, number of hits */
    int32_t loss_unit;    /* the unit of the loss alone, or -1: it is part of the last one */
    int64_t n_rows;       /* rows of the loss in one microbatch */
    int32_t n_slices;     /* tensor-parallel slices (pass/shard.c); 1: nothing is cut */
    bool has_uneven_rows; /* slices do not divide the rows of the values between pairs */
    const char *scope;    /* of all that are open, with a dot after each */
    size_t outer_scope[WFI_MAX_SCOPES]; /* length of `scope` before each was opened */
    int n_scopes;
};

static inline const wfi_value *wfi_value_at(const wf_graph *g, int32_t v) {
    return &g->values[v];
}
/* The value of operand i, counted over inputs, then outputs; -1: absent. */
static inline int32_t wfi_node_operand(const wfi_node *node, int i) {
    return i < node->n_in ? node->in[i] : node->out[i - node->n_in];
}
/* Ranks of one stage sum the slices' outputs and keep the slices' values from pair to pair. Units
 * of rows read parameters of the unit before them, so no stage begins there. */
static inline bool wfi_unit_may_begin_stage(const wf_graph *g, int32_t unit) {
    const wfi_unit *u = &g->units[unit];
    return !u->is_inner && !u->is_rows && (!u->is_slice || u->slice == 0);
}
/* Whether the unit has all rows, in as many parts as there are slices. */
static inline bool wfi_is_joined(const wf_graph *g, int32_t unit) {
    return g->units[unit].is_rows && !g->units[unit].is_slice;
}
/* Whether another unit got all of its nodes when rows were joined. */
static inline bool wfi_is_emptied(const wf_graph *g, int32_t unit) {
    return wfi_is_joined(g, unit) && g->units[unit].slice > 0;
}
/* The value that owns the bytes of v. */
static inline int32_t wfi_value_root(const wf_graph *g, int32_t v) {
    while (g->values[v].alias >= 0) v = g->values[v].alias;
    return v;
}
/* Where in those v begins. */
static inline size_t wfi_value_begin(const wf_graph *g, int32_t v) {
    size_t begin = 0;
    for (; g->values[v].alias >= 0; v = g->values[v].alias) begin += g->values[v].offset;
    return begin;
}
/* Whether weight gradient i is of a weight that all slices use: then the gradients of all slices
 * are summed. wfi_use_of_slice returns another slice's gradient for the same use. wfi_use_of
 * returns the first slice's, which names the use. */
static inline bool wfi_is_slices_use(const wf_graph *g, int32_t i) {
    return g->weight_gradients[i].slice >= 0;
}
static inline int32_t wfi_use_of_slice(const wf_graph *g, int32_t i, int32_t slice) {
    const wfi_weight_gradient *w = &g->weight_gradients[i];
    const wfi_unit *unit = &g->units[w->unit];
    int32_t n = unit->end_gradient - unit->first_gradient;
    return i + (slice - w->slice) * (unit->is_slice ? n : n / g->n_slices);
}
static inline int32_t wfi_use_of(const wf_graph *g, int32_t i) {
    return wfi_is_slices_use(g, i) ? wfi_use_of_slice(g, i, 0) : i;
}
/* The unit that owns the weight of a weight gradient, and whether it is tied: used by another unit,
 * too. */
static inline int32_t wfi_owner_of(const wf_graph *g, int32_t i) {
    return g->values[g->weight_gradients[i].param].unit;
}
static inline bool wfi_is_tied(const wf_graph *g, int32_t i) {
    return g->weight_gradients[i].unit != wfi_owner_of(g, i);
}
/* Whether the slices of the unit add the gradients of weights that all of them use in one block
 * (graph.c). wfi_sum_home returns the use that names the block in which weight gradient i is
 * summed; wfi_sum_begin, where it is in there; wfi_sum_bytes, the bytes of all slices. */
static inline bool wfi_has_one_sum(const wf_graph *g, int32_t unit) {
    const wfi_unit *u = &g->units[unit];
    return wfi_is_joined(g, unit) && u->first_gradient < u->end_gradient &&
           !(g->n_slices & (g->n_slices - 1));
}
static inline int32_t wfi_sum_home(const wf_graph *g, int32_t i) {
    int32_t unit = g->weight_gradients[i].unit;
    return wfi_has_one_sum(g, unit) ? g->units[unit].first_gradient : i;
}
size_t wfi_sum_begin(const wf_graph *g, int32_t i);
size_t wfi_sum_bytes(const wf_graph *g, int32_t i);
/* Whether users and files see it as a tensor: a parameter as a whole, or a buffer. */
static inline bool wfi_value_is_state(const wfi_value *value) {
    return (value->kind == WFI_VALUE_PARAM && !value->cut) || value->kind == WFI_VALUE_CUT ||
           (value->kind == WFI_VALUE_BUFFER && !value->is_cache);
}
static inline size_t wfi_value_bytes(const wf_graph *g, int32_t v) {
    return (size_t)wf_shape_n_elem(&g->values[v].shape) * wf_dtype_bytes(g->values[v].dtype);
}

/* ---- building (sticky errors) ---- */

/* Records the sentence, marks the graph failed. */
void wfi_graph_fail(wf_graph *g, wf_status status, const char *format, ...) WFI_PRINTF(3, 4);

/* Adds a node of the current unit after `op->check` has accepted it. NULL if the
 * graph has failed or does now. Absent inputs are inert tensors. */
const wfi_node *wfi_graph_add(wf_graph *g, const wfi_op *op, const wfi_attr *attr,
                              const wf_shape *shape, int n_in, const wf_tensor *in);
/* The same, returning the first output. */
wf_tensor wfi_graph_op(wf_graph *g, const wfi_op *op, const wfi_attr *attr, const wf_shape *shape,
                       int n_in, const wf_tensor *in);
static inline wf_tensor wfi_tensor(wf_graph *g, int32_t id) {
    return (wf_tensor){g, id};
}
static inline wf_tensor wfi_inert(wf_graph *g) {
    return (wf_tensor){g, -1};
}
/* Begins a unit. */
void wfi_graph_add_unit(wf_graph *g, const char *name);
/* A buffer (no gradient) of the current unit under the current scope. */
wf_tensor wfi_buffer(wf_graph *g, const char *name, wf_dtype dtype, wf_shape shape, float start);
/* An F32 buffer that each forward run updates. */
wf_tensor wfi_cache(wf_graph *g, const char *name, wf_shape shape);
void wfi_graph_add_stat(wf_graph *g, wfi_stat stat);
/* Hidden state of F32, of shape `sample` for each sample, that begins with zeros. Declare the next
 * step's state once, with wfi_graph_add_hidden. */
wf_tensor wfi_hidden_state(wf_graph *g, const char *name, wf_shape sample);
void wfi_graph_add_hidden(wf_graph *g, wfi_hidden hidden);
/* Which node makes which value, after nodes were moved. */
void wfi_graph_find_producers(wf_graph *g);
/* A slice's part of a parameter, declared in the current unit; it has no place yet. Returns the
 * value, or -1. */
int32_t wfi_graph_cut_parameter(wf_graph *g, wfi_cut cut, int32_t slice);
/* Buffers get their places in their units' flat storage. */
void wfi_graph_lay_out_buffers(wf_graph *g);

/* For op->check: declares the next output. */
wf_status wfi_node_output(wf_graph *g, wfi_node *node, wf_dtype dtype, const wf_shape *shape);
wf_status wfi_node_opaque_output(wf_graph *g, wfi_node *node, int64_t n_bytes);

/* The same for the same model, batch and passes: every value, node and attribute counts. */
uint64_t wfi_graph_hash(const wf_graph *g);
/* An op's attributes as text, "" if it has none: "0.1 12345" for a dropout. */
#define WFI_ATTR_TEXT 128
const char *wfi_attr_text(const wfi_op *op, const wfi_attr *attr, char *text);

/* "[4, 3, 28, 28]" into a caller's buffer, which is returned. */
#define WFI_SHAPE_TEXT 128
const char *wfi_shape_text(const wf_shape *shape, char *text);
bool wfi_shape_equal(const wf_shape *a, const wf_shape *b);
