/* A node as launches of kernels, by tables of ops: elements.c, products.c, sequences.c. Private to
 * kernel/gpu. */
#pragma once

#include "kernel/gpu/gpu.h"
#include "op/op_table.h"

/* A concatenation has one for each of its parts. */
#define WFI_GPU_LAUNCHES WFI_MAX_INPUTS

#define WFI_GPU_LOOPS 3

typedef struct wfi_gpu_planned {
    wfi_kernel_launch launch;
    /* Which operand of the node each of the kernel's is: usually the same. */
    int8_t from[WFI_LAUNCH_OPERANDS];
    size_t skip[WFI_LAUNCH_OPERANDS]; /* bytes into it */
    /* Bytes by which an iteration of each loop moves it on. */
    size_t step[WFI_GPU_LOOPS][WFI_LAUNCH_OPERANDS];
} wfi_gpu_planned;

/* Launches one of a node's, with its operands; `k` is its place. */
typedef wf_status (*wfi_gpu_launcher)(wfi_kernel *kernel, wfi_stream_queue *stream,
                                      const wfi_kernel_launch *launch, int k);

/* wfi_kernel.state */
typedef struct wfi_gpu_node {
    wfi_gpu_launcher launch_one; /* NULL: the device does */
    const wf_graph *g;
    const wfi_node *node;
    wfi_gpu_planned all[WFI_GPU_LAUNCHES];
    int n;
    int64_t n_loops[WFI_GPU_LOOPS]; /* iterations of all launches, loop in loop; 0: as 1 */
    size_t scratch_bytes;
    const char *reason; /* why it cannot be computed; NULL: it can */
} wfi_gpu_node;

/* Adds the launches that compute a node of this op; `entry` is one of their kernels. */
typedef struct wfi_gpu_row {
    const wfi_op *op; /* NULL ends a table */
    void (*make)(wfi_gpu_node *l, wfi_gpu_entry entry);
    wfi_gpu_entry entry;
} wfi_gpu_row;

extern const wfi_gpu_row wfi_gpu_elements[], wfi_gpu_products[], wfi_gpu_sequences[];

static inline const wfi_attr *attr_of(const wfi_gpu_node *l) {
    return &l->node->attr;
}
static inline const wf_shape *in_shape(const wfi_gpu_node *l, int i) {
    return &l->g->values[l->node->in[i]].shape;
}
static inline const wf_shape *out_shape(const wfi_gpu_node *l, int i) {
    return &l->g->values[l->node->out[i]].shape;
}
/* Whether the second output is wanted. */
static inline bool has_second(const wfi_gpu_node *l) {
    return l->node->n_out > 1 && l->node->out[1] >= 0;
}
/* The row of an op in these, or else of the kernel of its name; without an op: there is none. */
wfi_gpu_row wfi_gpu_find_row(const wfi_op *op);
/* For describe: makes kernel->state, which begins with a wfi_gpu_node, and the launches of a row.
 */
wf_status wfi_gpu_plan(wfi_kernel *kernel, const wfi_gpu_row *row, size_t state_bytes,
                       wfi_gpu_launcher launch_one, const char **reason_out);
/* wfi_kernel_impl.run, of such a state */
wf_status wfi_gpu_run(wfi_kernel *kernel, wfi_stream_queue *stream, void *const operands[],
                      void *scratch, const wfi_step_args *step);

/* Each adds a launch: of so many groups; of a thread for each of n elements, n[0], or for each of
 * the first output's; of a group for each channel of x, n[1] samples of n[2] channels of n[3]
 * pixels; with the numbers given; with the numbers of the node's op (wfi_op.numbers), or, without
 * such, as add_outputs; the same after setting the first output to zero. */
wfi_launch_arguments *wfi_gpu_add_groups(wfi_gpu_node *l, wfi_gpu_entry entry, int64_t n_groups);
wfi_launch_arguments *wfi_gpu_add_elements(wfi_gpu_node *l, wfi_gpu_entry entry, int64_t n);
wfi_launch_arguments *wfi_gpu_add_outputs(wfi_gpu_node *l, wfi_gpu_entry entry);
wfi_launch_arguments *wfi_gpu_add_channels(wfi_gpu_node *l, wfi_gpu_entry entry, const wf_shape *x);
void wfi_gpu_add_numbers(wfi_gpu_node *l, wfi_gpu_entry entry, wfi_numbers told);
void wfi_gpu_add_told(wfi_gpu_node *l, wfi_gpu_entry entry);
void wfi_gpu_add_cleared(wfi_gpu_node *l, wfi_gpu_entry entry);
/* The node's, of a product of its operands; n[9]: n_matrices. */
wfi_launch_arguments *wfi_gpu_add_product(wfi_gpu_node *l, wfi_gpu_entry entry,
                                          const wfi_product *p);
/* The memory layout of an operand of the kernel `product`: `row` elements from row to row, `apart`
 * elements from matrix to matrix, and `extent` elements in all. */
typedef struct wfi_gpu_matrix {
    bool is_turned; /* the operand is transposed */
    int64_t n_rows, n_cols, row, apart, extent;
} wfi_gpu_matrix;
/* Operand 0, 1, or, `which` 2, the result. */
wfi_gpu_matrix wfi_gpu_matrix_of(const wfi_kernel_launch *launch, int which);
/* Sums of the columns of an operand [n_rows, n_cols], into output `to`: a reduction. */
void wfi_gpu_add_column_sum(wfi_gpu_node *l, int of, int64_t n_rows, int64_t n_cols, int to);
/* Which operands of the node the latest launch takes for its first three. */
void wfi_gpu_take(wfi_gpu_node *l, int first, int second, int third);

/* A convolution, transposed or not, or its backward. */
typedef struct wfi_gpu_conv {
    const wf_shape *x, *y, *weight;
    bool is_forward, is_data; /* neither: the weight's gradient */
} wfi_gpu_conv;
wfi_gpu_conv wfi_gpu_conv_of(const wfi_gpu_node *l);
/* Sets the arguments with which kernels of product.cl describe the convolution. */
void wfi_gpu_set_windows(const wfi_gpu_node *l, const wfi_gpu_conv *c, wfi_launch_arguments *a);
/* Adds a launch for the gradient of the convolution's bias, if the node has that output. */
void wfi_gpu_add_channel_sum(wfi_gpu_node *l, const wf_shape *y);
