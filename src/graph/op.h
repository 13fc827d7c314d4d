/* The contract of an op: one const descriptor, in the file of its family under
 * src/op. Private.
 *
 * `reference` is the plain C kernel: slow, complete and the oracle of every fast one. The reference
 * adds in ascending index order, and in double where a sum is long, so that its bits depend on
 * nothing else.
 */
#pragma once

#include "graph/graph.h"

/* Arguments that change from microbatch to microbatch. */
typedef struct wfi_step_args {
    uint64_t seed;
    uint64_t step;
    int64_t first_sample; /* index in the step's batch of the microbatch's first sample */
    double loss_scale;    /* 1 / (rows that count in the global batch) */
} wfi_step_args;

typedef struct wfi_operand {
    void *data; /* NULL: absent */
    wf_dtype dtype;
    wf_shape shape;
    wfi_layout layout;
} wfi_operand;

typedef struct wfi_call {
    const wfi_attr *attr;
    int n_in, n_out;
    wfi_operand in[WFI_MAX_INPUTS], out[WFI_MAX_OUTPUTS];
    void *scratch; /* op->scratch_bytes */
    const wfi_step_args *step;
} wfi_call;

/* The product of dims from `first` up to `end`; of all but the last. */
int64_t wfi_size_of(const wf_shape *shape, int first, int end);
static inline int64_t wfi_n_rows(const wf_shape *shape) {
    return wfi_size_of(shape, 0, shape->n_dims - 1);
}
/* A scalar has no last dim; callers have refused it. */
static inline int64_t wfi_last_dim(const wf_shape *shape) {
    return shape->dim[shape->n_dims - 1];
}

/* A node's, without data. */
wfi_call wfi_call_of(const wf_graph *g, const wfi_node *node);

/* Arguments of a kernel text shared by plain C and devices (op/groups.cl): the number of groups, or
 * of threads with an element each, and n and f, which each text documents. */
typedef struct wfi_numbers {
    int64_t n_groups, n_threads;
    int64_t n[16];
    double f[12];
} wfi_numbers;

/* y [m, n] = a [m, k] b [k, n] for each of n_matrices, which are contiguous. `a` and `b` are inputs
 * of the node, each possibly transposed. `bias` is the input added to each row; 0: none. */
typedef struct wfi_product {
    int64_t n_matrices, m, n, k;
    int a, b, bias;
    bool a_is_transposed, b_is_transposed;
} wfi_product;

typedef struct wfi_autodiff wfi_autodiff;

/* Where an op has no derivative: values that are compared with a difference keep away from there.
 */
typedef enum wfi_op_bend { WFI_SMOOTH, WFI_BENDS_AT_ZERO, WFI_BENDS_AT_TIES } wfi_op_bend;

/* A small instance of an op; dims of different meaning have different sizes. */
typedef struct wfi_op_sample {
    int n_in; /* 0 ends a list of samples */
    wf_shape in[WFI_MAX_INPUTS];
    uint8_t ids;         /* bit i: input i is I32 from 0 to id_limit - 1; the others are F32 */
    uint8_t no_gradient; /* bit i: none is passed to input i, although it is F32 */
    int id_limit;
    wf_shape shape; /* as wfi_node's */
    wfi_attr attr;
    wfi_op_bend bend;
} wfi_op_sample;

/* A shape in a static initializer. */
#define WFI_DIMS(...)                                                                              \
    {                                                                                              \
        (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), {                               \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }

/* A part of an instance: its number of n parts, and its range of the cut dim in the first operand
 * that is cut. */
typedef struct wfi_op_part {
    int64_t number, n;
    int64_t begin, end; /* of each block, which has `length` */
    int64_t length;
    int64_t inner; /* elements for each of that dim */
} wfi_op_part;
wfi_op_part wfi_op_part_of(const wf_shape *shape, int dim, int n_blocks, int64_t number, int64_t n);

/* A way of computing an instance in parts, each on a rank of its own, from parts of its operands;
 * the parts are instances of the same op. By operand, which dim is cut: 1 is the first, -1 the
 * last; every operand that is not named is whole in all parts. */
enum { WFI_WHOLE = 0, WFI_ANY_DIM = 100, WFI_SUMMED = 101 };
enum { WFI_UNEQUAL = 127 }; /* of n_blocks */
typedef struct wfi_op_cut {
    const char *name; /* "rows", "columns", "heads"; NULL ends a list */
    /* WFI_ANY_DIM: the same dim of all of them. WFI_SUMMED, of outputs: each part has a summand,
     * and the sum of two in another order may round otherwise. */
    int8_t in[WFI_MAX_INPUTS], out[WFI_MAX_OUTPUTS];
    /* The dim of some operands is so many blocks side by side, each cut; 0: one. WFI_UNEQUAL:
     * blocks of several sizes, so nothing but ops with such a rule may have the operand. */
    int8_t n_blocks;
    uint16_t blocks; /* bit i: it is operand i; inputs come first, then outputs */
    bool (*applies)(const wf_graph *g, const wfi_node *node); /* NULL: always */
    /* Makes the attributes a part's; false: there cannot be so many parts. NULL: the same. */
    bool (*divide)(wfi_attr *attr, const wfi_op_part *part);
    bool is_even; /* parts have to be equal */
} wfi_op_cut;

/* Operands of an op by role: bit i is its input, or its output, i. */
typedef struct wfi_op_roles {
    /* Weights and their gradients: row-major, even where they have an image's shape. */
    uint8_t weight_in, weight_out;
    /* Class indices, of which negative ones do not count, and how many rows were right. */
    uint8_t label_in, hit_out;
    /* Numbers of rows; places in a text, of which negative ones are nowhere in it. */
    uint8_t id_in, place_in;
    /* Caches, which it reads and writes. */
    uint8_t cache_in;
    /* Outputs that stay F32 where activations are narrow: sums, exact values, and their
     * gradients. */
    uint8_t wide_out;
} wfi_op_roles;

/* Operands of a node: the gradient of its first output, its input i (WFI_X + i), its output i. */
enum { WFI_DY = 1, WFI_X, WFI_Y = WFI_X + WFI_MAX_INPUTS };
enum { WFI_OWN_SHAPE = 1 }; /* node->shape */

/* A node of the backward, with the attributes of the forward's: its outputs are the gradients of
 * n_to inputs from `to` on. */
typedef struct wfi_op_backward {
    const wfi_op *op;           /* NULL: no node, the gradient is `in` itself */
    uint8_t in[WFI_MAX_INPUTS]; /* 0 ends them; a row without any ends a list of rows */
    uint8_t to, n_to;           /* n_to 0: 1 */
    bool has_shape;             /* node->shape is that of input `to` */
} wfi_op_backward;

/* Work: so many operations for each element of an operand. */
typedef struct wfi_op_work {
    double each;
    uint8_t of; /* WFI_X + i, WFI_Y + i; 0: one for each element of the first output */
} wfi_op_work;

enum {
    /* Any layout, as long as all operands of full shape have the same one. */
    WFI_OP_ELEMENTWISE = 1,
    /* 4-dim operands may be C16, each by its own shape (use wfi_image_at). */
    WFI_OP_IMAGE = 2,
    /* Produces gradients of parameters only: runs in phase W. */
    WFI_OP_WEIGHT_GRADIENT = 4,
    /* The first output is the first input's bytes under another shape. */
    WFI_OP_ALIAS = 8,
    /* Takes little time for the bytes that it makes: these are computed again rather than kept,
     * where memory is short (pass/recompute.c). */
    WFI_OP_CHEAP = 16,
    /* Nothing runs: all operands are the same bytes, and so are the gradients'. */
    WFI_OP_SLICES = 32,
    /* All inputs except weights have one type (pass/cast.c): a library multiplies two numbers of
     * one type, or has a kernel for one type. */
    WFI_OP_ONE_TYPE = 64,
    /* Kernels read the step's arguments except loss_scale (STEP), or loss_scale (SCALE). Kernels
     * without either flag do the same in every step. */
    WFI_OP_READS_STEP = 128,
    WFI_OP_READS_SCALE = 256,
};
enum { WFI_OP_READS = WFI_OP_READS_STEP | WFI_OP_READS_SCALE };

struct wfi_op {
    const char *name;
    unsigned flags;
    wfi_op_roles roles;
    /* Bit i: every kernel may write the first output over input i, with the same result. */
    uint8_t overwrites;
    /* Relative error (RMS over a tensor) that a kernel may have against float64. */
    float tolerance;
    /* Checks inputs and attributes, declares outputs (wfi_node_output). */
    wf_status (*check)(wf_graph *g, wfi_node *node);
    /* Without a check, for ops of gradients: the forward's check has passed, and wfi_contribute
     * compares each gradient with its value. The shape of each output: that of input i (WFI_X + i),
     * or WFI_OWN_SHAPE. */
    uint8_t makes[WFI_MAX_OUTPUTS];
    /* The gradients of the inputs: rows of `backward`, or, where rows do not suffice, a function
     * that adds the nodes. Both NULL: the op has no gradients. */
    const wfi_op_backward *backward;
    wf_status (*gradient)(wfi_autodiff *ad, const wfi_node *node);
    /* Makes the node apply a ReLU to its first output; NULL: it cannot. */
    wf_status (*with_relu)(wf_graph *g, wfi_node *node);
    /* Makes it add `addend`, of the first output's shape, to that; false or NULL: it cannot. */
    bool (*with_addend)(const wf_graph *g, wfi_node *node, int32_t addend);
    wfi_op_work work;
    double (*flops)(const wf_graph *g, const wfi_node *node); /* NULL: as `work` says */
    size_t (*scratch_bytes)(const wf_graph *g,
                            const wfi_node *node); /* of the reference; may be NULL */
    void (*reference)(const wfi_call *call);
    /* Arguments of kernels with one text for all devices; reads no data. NULL: no arguments. */
    wfi_numbers (*numbers)(const wfi_call *call);
    /* The exclusive upper bound of operands with the roles label_in (classes) and id_in (rows).
     * Only with either role. */
    int64_t (*n_ids)(const wf_graph *g, const wfi_node *node);
    /* Which product of matrices the first output is; NULL: it is none. */
    wfi_product (*product)(const wfi_call *call);
    /* Adds the reference's results to the outputs, with the same bits; NULL: adding would save
     * nothing. The second function returns the bytes of scratch memory that this needs. */
    void (*add)(const wfi_call *call);
    size_t (*add_scratch_bytes)(const wf_graph *g, const wfi_node *node);
    /* Those from which tests make instances. NULL: the op appears in another's backward. */
    const wfi_op_sample *samples;
    /* How an instance may be placed on several ranks. NULL: on each as a whole. */
    const wfi_op_cut *place;
};

/* Whether nothing runs: the outputs have the bytes of the inputs, or the reverse. */
static inline bool wfi_node_is_alias(const wf_graph *g, const wfi_node *node) {
    unsigned flags = node->op->flags;
    return flags & WFI_OP_SLICES || (flags & WFI_OP_ALIAS && g->values[node->out[0]].alias >= 0);
}

/* ---- for op->gradient ---- */

/* The gradient of value v, or -1 if nothing has flowed into it. */
int32_t wfi_gradient_of(const wfi_autodiff *ad, int32_t v);
/* Whether v depends on a parameter, so that its gradient is worth computing. */
bool wfi_wants_gradient(const wfi_autodiff *ad, int32_t v);
/* Adds a backward node to the unit of the forward node at hand. B or W follows
 * from op->flags and from the inputs. Its outputs are node->out. NULL on failure. */
const wfi_node *wfi_backward_node(wfi_autodiff *ad, const wfi_op *op, const wfi_attr *attr,
                                  const wf_shape *shape, int n_in, const int32_t *in);
/* dv is (one summand of) the gradient of v. Does nothing if v wants none. */
wf_status wfi_contribute(wfi_autodiff *ad, int32_t v, int32_t dv);
wf_graph *wfi_autodiff_graph(wfi_autodiff *ad);
/* Nodes added next belong to `unit` instead of the forward node's unit. */
void wfi_autodiff_take_unit(wfi_autodiff *ad, int32_t unit);

/* ---- for references ---- */

/* Offset in elements of [n, c, h, w] in a 4-dim operand of either layout. */
static inline int64_t wfi_image_at(const wfi_operand *o, int64_t n, int64_t c, int64_t h,
                                   int64_t w) {
    const int64_t *dim = o->shape.dim;
    if (o->layout == WFI_C16)
        return (((n * (dim[1] / 16) + c / 16) * dim[2] + h) * dim[3] + w) * 16 + c % 16;
    return ((n * dim[1] + c) * dim[2] + h) * dim[3] + w;
}
