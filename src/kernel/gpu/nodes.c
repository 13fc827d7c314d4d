/* Nodes as launches: for each op its kernels, and which numbers they get. An op that is not in the
 * table has no kernel here, and is declined.
 */
#include "kernel/gpu/gpu.h"
#include "op/op_table.h"

#include <string.h>

/* A concatenation has one for each of its parts. */
#define MOST_LAUNCHES WFI_MAX_INPUTS

typedef struct planned {
    wfi_kernel_launch launch;
    int in[2]; /* which inputs of the node the kernel takes for its first two */
} planned;

/* wfi_kernel.state */
typedef struct launches {
    const wf_graph *g;
    const wfi_node *node;
    planned all[MOST_LAUNCHES];
    int n;
} launches;

static const wfi_attr *attr_of(const launches *l) {
    return &l->node->attr;
}
static const wf_shape *in_shape(const launches *l, int i) {
    return &l->g->values[l->node->in[i]].shape;
}
static const wf_shape *out_shape(const launches *l, int i) {
    return &l->g->values[l->node->out[i]].shape;
}
static int64_t last_dim(const wf_shape *shape) {
    return shape->dim[shape->n_dims - 1];
}
static int64_t n_rows(const wf_shape *shape) {
    int64_t n = 1;
    for (int d = 0; d < shape->n_dims - 1; d++) n *= shape->dim[d];
    return n;
}
/* The product of dims from `first` up to `end`. */
static int64_t size_of(const wf_shape *shape, int first, int end) {
    int64_t n = 1;
    for (int d = first; d < end; d++) n *= shape->dim[d];
    return n;
}

/* Adds a launch of so many groups. */
static wfi_launch_arguments *add_groups(launches *l, wfi_gpu_entry entry, int64_t n_groups) {
    planned *p = &l->all[l->n++];
    p->in[1] = 1;
    p->launch =
        (wfi_kernel_launch){.source = &wfi_gpu_source, .entry = (int)entry, .n_groups = n_groups};
    return &p->launch.arguments;
}

/* A thread for each of n elements. */
static wfi_launch_arguments *add_elements(launches *l, wfi_gpu_entry entry, int64_t n) {
    wfi_launch_arguments *a = add_groups(l, entry, (n + WFI_GROUP_SIZE - 1) / WFI_GROUP_SIZE);
    a->n[0] = n;
    return a;
}

static wfi_launch_arguments *add_outputs(launches *l, wfi_gpu_entry entry) {
    return add_elements(l, entry, wf_shape_n_elem(out_shape(l, 0)));
}

/* A group for each row of the first input. */
static wfi_launch_arguments *add_rows(launches *l, wfi_gpu_entry entry) {
    wfi_launch_arguments *a = add_groups(l, entry, n_rows(in_shape(l, 0)));
    a->n[1] = last_dim(in_shape(l, 0));
    return a;
}

/* ---- elements ---- */

static void make_elements(launches *l, wfi_gpu_entry entry) {
    (void)add_outputs(l, entry);
}

static void make_gelu(launches *l, wfi_gpu_entry entry) {
    add_outputs(l, entry)->n[1] = attr_of(l)->gelu.tanh;
}

static void make_scale(launches *l, wfi_gpu_entry entry) {
    add_outputs(l, entry)->f[0] = attr_of(l)->scale.factor;
}

static void make_add_broadcast(launches *l, wfi_gpu_entry entry) {
    add_outputs(l, entry)->n[1] = wf_shape_n_elem(in_shape(l, 1));
}

static void make_mse_backward(launches *l, wfi_gpu_entry entry) {
    const wf_shape *x = in_shape(l, 0);
    add_outputs(l, entry)->n[1] = wf_shape_n_elem(x) / x->dim[0];
}

/* Over dim `dim` of `x`. */
static void make_reduction(launches *l, wfi_gpu_entry entry, const wf_shape *x) {
    int dim = attr_of(l)->reduce.dim;
    wfi_launch_arguments *a = add_outputs(l, entry);
    a->n[1] = x->dim[dim];
    a->n[2] = size_of(x, dim + 1, x->n_dims);
    a->f[0] = attr_of(l)->reduce.factor;
}

static void make_reduce(launches *l, wfi_gpu_entry entry) {
    make_reduction(l, entry, in_shape(l, 0));
}

static void make_reduce_backward(launches *l, wfi_gpu_entry entry) {
    make_reduction(l, entry, out_shape(l, 0));
}

/* Leading dims are one. */
static void make_sum_leading(launches *l, wfi_gpu_entry entry) {
    wfi_launch_arguments *a = add_outputs(l, entry);
    a->n[2] = a->n[0] ? a->n[0] : 1;
    a->n[1] = wf_shape_n_elem(in_shape(l, 0)) / a->n[2];
    a->f[0] = 1;
}

/* The mean of a channel. */
static void make_channel_mean(launches *l, wfi_gpu_entry entry) {
    const wf_shape *x = in_shape(l, 0);
    wfi_launch_arguments *a = add_outputs(l, entry);
    a->n[1] = x->dim[2] * x->dim[3];
    a->n[2] = 1;
    a->f[0] = 1 / (double)a->n[1];
}

static void make_channel_mean_backward(launches *l, wfi_gpu_entry entry) {
    const wf_shape *x = out_shape(l, 0);
    add_outputs(l, entry)->n[1] = x->dim[2] * x->dim[3];
}

static void make_dropout(launches *l, wfi_gpu_entry entry) {
    const wf_shape *x = in_shape(l, 0);
    const wfi_attr *attr = attr_of(l);
    int64_t n = wf_shape_n_elem(x), sample = n / x->dim[0];
    bool is_part = attr->dropout.run > 0;
    if (is_part) sample = sample / attr->dropout.run * attr->dropout.stride;
    if (attr->dropout.sample_size) sample = attr->dropout.sample_size;
    wfi_launch_arguments *a = add_outputs(l, entry);
    a->n[1] = is_part ? attr->dropout.run : n;
    a->n[2] = attr->dropout.first;
    a->n[3] = is_part ? attr->dropout.stride : n;
    a->n[4] = sample;
    a->n[5] = (int64_t)attr->dropout.name;
    a->f[0] = attr->dropout.p;
}

/* ---- what changes places ---- */

static void make_transpose(launches *l, wfi_gpu_entry entry) {
    const wf_shape *y = out_shape(l, 0);
    int a = attr_of(l)->transpose.dim_a, b = attr_of(l)->transpose.dim_b;
    int first = a < b ? a : b, second = a < b ? b : a;
    bool swaps = first != second;
    wfi_launch_arguments *arguments = add_outputs(l, entry);
    arguments->n[1] = y->dim[first];
    arguments->n[2] = size_of(y, first + 1, second);
    arguments->n[3] = swaps ? y->dim[second] : 1;
    arguments->n[4] = size_of(y, second + 1, y->n_dims);
}

/* From place `from` on along a dim of x, to place `to` on of y; as much as the smaller has. */
static void add_along(launches *l, wfi_gpu_entry entry, const wf_shape *x, int64_t from,
                      const wf_shape *y, int64_t to) {
    int dim = attr_of(l)->slice.dim;
    const wf_shape *smaller = x->dim[dim] < y->dim[dim] ? x : y;
    wfi_launch_arguments *a = add_elements(l, entry, wf_shape_n_elem(smaller));
    a->n[1] = x->dim[dim];
    a->n[2] = size_of(x, dim + 1, x->n_dims);
    a->n[3] = from;
    a->n[4] = y->dim[dim];
    a->n[5] = to;
    a->n[6] = smaller->dim[dim];
}

static void make_slice(launches *l, wfi_gpu_entry entry) {
    add_along(l, entry, in_shape(l, 0), attr_of(l)->slice.start, out_shape(l, 0), 0);
}

static void make_slice_backward(launches *l, wfi_gpu_entry entry) {
    (void)add_outputs(l, WFI_GPU_zero);
    add_along(l, entry, in_shape(l, 0), 0, out_shape(l, 0), attr_of(l)->slice.start);
}

static void make_concat(launches *l, wfi_gpu_entry entry) {
    int64_t start = 0;
    for (int i = 0; i < l->node->n_in; i++) {
        add_along(l, entry, in_shape(l, i), 0, out_shape(l, 0), start);
        l->all[i].in[0] = i;
        start += in_shape(l, i)->dim[attr_of(l)->slice.dim];
    }
}

/* ---- rows ---- */

static void make_softmax(launches *l, wfi_gpu_entry entry) {
    bool is_log = l->node->op == &wfi_op_log_softmax || l->node->op == &wfi_op_log_softmax_backward;
    add_rows(l, entry)->n[2] = is_log;
}

static void make_cross_entropy(launches *l, wfi_gpu_entry entry) {
    add_rows(l, entry)->f[0] = attr_of(l)->loss.smoothing;
}

static void make_mse(launches *l, wfi_gpu_entry entry) {
    const wf_shape *x = in_shape(l, 0);
    add_groups(l, entry, x->dim[0])->n[1] = wf_shape_n_elem(x) / x->dim[0];
}

static void make_loss_record(launches *l, wfi_gpu_entry entry) {
    add_groups(l, entry, 1)->n[1] = in_shape(l, 0)->dim[0];
}

static void make_layer_norm(launches *l, wfi_gpu_entry entry) {
    add_rows(l, entry)->f[0] = attr_of(l)->norm.eps;
}

/* The gradient of the data last: it may lie over what comes in. */
static void make_layer_norm_backward(launches *l, wfi_gpu_entry entry) {
    wfi_launch_arguments *a =
        add_elements(l, WFI_GPU_layer_norm_backward_weight, last_dim(in_shape(l, 0)));
    a->n[1] = n_rows(in_shape(l, 0));
    a->f[0] = attr_of(l)->norm.eps;
    add_rows(l, entry)->f[0] = attr_of(l)->norm.eps;
}

/* A group for each channel of x. */
static wfi_launch_arguments *add_channels(launches *l, wfi_gpu_entry entry, const wf_shape *x) {
    wfi_launch_arguments *a = add_groups(l, entry, x->dim[1]);
    a->n[1] = x->dim[0];
    a->n[2] = x->dim[1];
    a->n[3] = size_of(x, 2, x->n_dims);
    return a;
}

static void make_batch_norm(launches *l, wfi_gpu_entry entry) {
    wfi_launch_arguments *a = add_channels(l, entry, in_shape(l, 0));
    a->n[4] = attr_of(l)->norm.relu;
    a->n[5] = l->node->n_out > 3 && l->node->op == &wfi_op_batch_norm_backward;
    a->f[0] = attr_of(l)->norm.eps;
}

/* ---- windows ---- */

static void make_pool(launches *l, wfi_gpu_entry entry) {
    bool is_backward =
        l->node->op == &wfi_op_max_pool_backward || l->node->op == &wfi_op_avg_pool_backward;
    const wf_shape *x = is_backward ? out_shape(l, 0) : in_shape(l, 0);
    const wf_shape *y = is_backward ? in_shape(l, 0) : out_shape(l, 0);
    wfi_launch_arguments *a = add_outputs(l, entry);
    for (int k = 0; k < 2; k++) {
        a->n[1 + k] = x->dim[2 + k];
        a->n[3 + k] = y->dim[2 + k];
    }
    a->n[5] = attr_of(l)->pool.kernel;
    a->n[6] = attr_of(l)->pool.stride;
    a->n[7] = attr_of(l)->pool.pad;
}

/* ---- tables ---- */

static void make_embedding(launches *l, wfi_gpu_entry entry) {
    const wf_shape *table = in_shape(l, 1);
    wfi_launch_arguments *a = add_outputs(l, entry);
    a->n[1] = table->dim[0];
    a->n[2] = table->dim[1];
    a->n[3] = attr_of(l)->embedding.first;
}

static void make_embedding_backward(launches *l, wfi_gpu_entry entry) {
    const wf_shape *table = out_shape(l, 0);
    int64_t n_ids = wf_shape_n_elem(in_shape(l, 1));
    (void)add_outputs(l, WFI_GPU_zero);
    wfi_launch_arguments *a = add_groups(l, entry, n_ids);
    a->n[0] = n_ids;
    a->n[1] = table->dim[0];
    a->n[2] = table->dim[1];
    a->n[3] = attr_of(l)->embedding.first;
}

/* ---- products ---- */

#define TILE 32 /* product.cl's */

/* So many matrices of m x n elements, each a sum of k. */
static wfi_launch_arguments *add_product(launches *l, wfi_gpu_entry entry, int64_t n_matrices,
                                         int64_t m, int64_t n, int64_t k) {
    int64_t n_tiles = (m + TILE - 1) / TILE * ((n + TILE - 1) / TILE);
    wfi_launch_arguments *a = add_groups(l, entry, n_matrices * n_tiles);
    a->n[0] = m;
    a->n[1] = n;
    a->n[2] = k;
    return a;
}

/* The strides of matrix `which`, of `n_cols` where it lies as it is. */
static void set_strides(wfi_launch_arguments *a, int which, int64_t n_cols, bool is_transposed) {
    a->n[3 + 2 * which] = is_transposed ? 1 : n_cols;
    a->n[4 + 2 * which] = is_transposed ? n_cols : 1;
}

static void make_linear(launches *l, wfi_gpu_entry entry) {
    const wf_shape *x = in_shape(l, 0), *weight = in_shape(l, 1), *y = out_shape(l, 0);
    bool is_backward = l->node->op == &wfi_op_linear_backward_data;
    wfi_launch_arguments *a = add_product(l, entry, 1, n_rows(x), last_dim(y), last_dim(x));
    set_strides(a, 0, last_dim(x), false);
    set_strides(a, 1, weight->dim[1], !attr_of(l)->linear.in_out != is_backward);
}

/* dy, x */
static void make_linear_backward_weight(launches *l, wfi_gpu_entry entry) {
    const wf_shape *dy = in_shape(l, 0), *x = in_shape(l, 1);
    bool in_out = attr_of(l)->linear.in_out;
    int64_t m = last_dim(in_out ? x : dy), n = last_dim(in_out ? dy : x);
    wfi_launch_arguments *a = add_product(l, entry, 1, m, n, n_rows(dy));
    set_strides(a, 0, m, true);
    set_strides(a, 1, n, false);
    l->all[0].in[0] = in_out; /* x times dy, or dy times x */
    l->all[0].in[1] = !in_out;
    if (l->node->n_out > 1 && l->node->out[1] >= 0)
        add_elements(l, WFI_GPU_column_sum, last_dim(dy))->n[1] = n_rows(dy);
}

static void make_matmul(launches *l, wfi_gpu_entry entry) {
    const wf_shape *a = in_shape(l, 0), *b = in_shape(l, 1), *c = out_shape(l, 0);
    int d = c->n_dims - 2;
    bool ta = attr_of(l)->matmul.transpose_a, tb = attr_of(l)->matmul.transpose_b;
    wfi_launch_arguments *arguments =
        add_product(l, entry, size_of(c, 0, d), c->dim[d], c->dim[d + 1], a->dim[ta ? d : d + 1]);
    set_strides(arguments, 0, a->dim[d + 1], ta);
    set_strides(arguments, 1, b->dim[d + 1], tb);
    arguments->n[7] = a->dim[d] * a->dim[d + 1];
    arguments->n[8] = b->dim[d] * b->dim[d + 1];
}

static void make_conv(launches *l, wfi_gpu_entry entry) {
    const wfi_op *op = l->node->op;
    bool is_forward = op == &wfi_op_conv2d, is_data = op == &wfi_op_conv2d_backward_data;
    const wf_shape *x = is_forward ? in_shape(l, 0) : is_data ? out_shape(l, 0) : in_shape(l, 1);
    const wf_shape *y = is_forward ? out_shape(l, 0) : in_shape(l, 0);
    const wf_shape *weight = is_forward || is_data ? in_shape(l, 1) : out_shape(l, 0);
    int64_t groups = attr_of(l)->conv.groups, n_outs = weight->dim[0] / groups;
    int64_t window = weight->dim[2] * weight->dim[3], n_weights = weight->dim[1] * window;
    int64_t x_pixels = x->dim[0] * x->dim[2] * x->dim[3];
    int64_t y_pixels = y->dim[0] * y->dim[2] * y->dim[3];
    wfi_launch_arguments *a =
        is_forward ? add_product(l, entry, groups, n_outs, y_pixels, n_weights)
        : is_data  ? add_product(l, entry, groups, weight->dim[1], x_pixels, n_outs * window)
                   : add_product(l, entry, groups, n_outs, n_weights, y_pixels);
    for (int k = 0; k < 3; k++) {
        a->n[3 + k] = x->dim[1 + k];
        a->n[6 + k] = y->dim[1 + k];
    }
    a->n[9] = weight->dim[2];
    a->n[10] = weight->dim[3];
    a->n[11] = attr_of(l)->conv.stride;
    a->n[12] = attr_of(l)->conv.pad;
    a->f[0] = (double)groups;
    a->f[1] = (double)attr_of(l)->conv.dilation;
    if (l->node->n_out > 1 && l->node->out[1] >= 0) (void)add_channels(l, WFI_GPU_channel_sum, y);
}

/* ---- attention ---- */

static void add_attention(launches *l, wfi_gpu_entry entry, const wf_shape *qkv) {
    int64_t c = qkv->dim[2] / 3, n_heads = attr_of(l)->attention.n_heads;
    wfi_launch_arguments *a = add_groups(l, entry, qkv->dim[0] * n_heads * qkv->dim[1]);
    a->n[1] = qkv->dim[1];
    a->n[2] = c;
    a->n[3] = n_heads;
    a->n[4] = c / n_heads;
    a->n[5] = attr_of(l)->attention.causal;
    a->f[0] = 1 / __builtin_sqrt((double)a->n[4]);
}

static void make_attention(launches *l, wfi_gpu_entry entry) {
    add_attention(l, entry, in_shape(l, 0));
}

static void make_attention_backward(launches *l, wfi_gpu_entry entry) {
    add_attention(l, entry, in_shape(l, 1));
    add_attention(l, WFI_GPU_attention_backward_values, in_shape(l, 1));
}

static bool has_small_heads(const launches *l) {
    const wf_shape *qkv = in_shape(l, l->node->op == &wfi_op_self_attention ? 0 : 1);
    return qkv->dim[2] / 3 / attr_of(l)->attention.n_heads <= 4 * WFI_GROUP_SIZE;
}

/* ---- the table ---- */

typedef struct row {
    const wfi_op *op;
    void (*make)(launches *l, wfi_gpu_entry entry);
    wfi_gpu_entry entry;
} row;

static const row rows[] = {
    {&wfi_op_reshape, make_elements, WFI_GPU_copy},
    {&wfi_op_relu, make_elements, WFI_GPU_relu},
    {&wfi_op_relu_backward, make_elements, WFI_GPU_relu_backward},
    {&wfi_op_tanh, make_elements, WFI_GPU_tanh_forward},
    {&wfi_op_tanh_backward, make_elements, WFI_GPU_tanh_backward},
    {&wfi_op_sigmoid, make_elements, WFI_GPU_sigmoid},
    {&wfi_op_sigmoid_backward, make_elements, WFI_GPU_sigmoid_backward},
    {&wfi_op_gelu, make_gelu, WFI_GPU_gelu},
    {&wfi_op_gelu_backward, make_gelu, WFI_GPU_gelu_backward},
    {&wfi_op_scale, make_scale, WFI_GPU_scale},
    {&wfi_op_add, make_elements, WFI_GPU_add},
    {&wfi_op_add_relu, make_elements, WFI_GPU_add_relu},
    {&wfi_op_mul, make_elements, WFI_GPU_mul},
    {&wfi_op_add_broadcast, make_add_broadcast, WFI_GPU_add_broadcast},
    {&wfi_op_sum_leading, make_sum_leading, WFI_GPU_reduce},
    {&wfi_op_reduce, make_reduce, WFI_GPU_reduce},
    {&wfi_op_reduce_backward, make_reduce_backward, WFI_GPU_reduce_backward},
    {&wfi_op_global_avg_pool, make_channel_mean, WFI_GPU_reduce},
    {&wfi_op_global_avg_pool_backward, make_channel_mean_backward,
     WFI_GPU_global_avg_pool_backward},
    {&wfi_op_dropout, make_dropout, WFI_GPU_dropout},
    {&wfi_op_dropout_backward, make_dropout, WFI_GPU_dropout},
    {&wfi_op_transpose, make_transpose, WFI_GPU_transpose},
    {&wfi_op_slice, make_slice, WFI_GPU_copy_along},
    {&wfi_op_slice_backward, make_slice_backward, WFI_GPU_copy_along},
    {&wfi_op_concat, make_concat, WFI_GPU_copy_along},
    {&wfi_op_softmax, make_softmax, WFI_GPU_softmax},
    {&wfi_op_softmax_backward, make_softmax, WFI_GPU_softmax_backward},
    {&wfi_op_log_softmax, make_softmax, WFI_GPU_softmax},
    {&wfi_op_log_softmax_backward, make_softmax, WFI_GPU_softmax_backward},
    {&wfi_op_cross_entropy, make_cross_entropy, WFI_GPU_cross_entropy},
    {&wfi_op_cross_entropy_backward, make_cross_entropy, WFI_GPU_cross_entropy_backward},
    {&wfi_op_smoothed_cross_entropy, make_cross_entropy, WFI_GPU_cross_entropy},
    {&wfi_op_smoothed_cross_entropy_backward, make_cross_entropy, WFI_GPU_cross_entropy_backward},
    {&wfi_op_mse, make_mse, WFI_GPU_mse},
    {&wfi_op_mse_backward, make_mse_backward, WFI_GPU_mse_backward},
    {&wfi_op_loss_record, make_loss_record, WFI_GPU_loss_record},
    {&wfi_op_loss_gradient, make_elements, WFI_GPU_loss_gradient},
    {&wfi_op_layer_norm, make_layer_norm, WFI_GPU_layer_norm},
    {&wfi_op_layer_norm_backward, make_layer_norm_backward, WFI_GPU_layer_norm_backward_data},
    {&wfi_op_batch_norm, make_batch_norm, WFI_GPU_batch_norm},
    {&wfi_op_batch_norm_inference, make_batch_norm, WFI_GPU_batch_norm_inference},
    {&wfi_op_batch_norm_backward, make_batch_norm, WFI_GPU_batch_norm_backward},
    {&wfi_op_max_pool, make_pool, WFI_GPU_max_pool},
    {&wfi_op_max_pool_backward, make_pool, WFI_GPU_max_pool_backward},
    {&wfi_op_avg_pool, make_pool, WFI_GPU_avg_pool},
    {&wfi_op_avg_pool_backward, make_pool, WFI_GPU_avg_pool_backward},
    {&wfi_op_embedding, make_embedding, WFI_GPU_embedding},
    {&wfi_op_embedding_backward, make_embedding_backward, WFI_GPU_embedding_backward},
    {&wfi_op_linear, make_linear, WFI_GPU_product},
    {&wfi_op_linear_backward_data, make_linear, WFI_GPU_product},
    {&wfi_op_linear_backward_weight, make_linear_backward_weight, WFI_GPU_product},
    {&wfi_op_matmul, make_matmul, WFI_GPU_product},
    {&wfi_op_conv2d, make_conv, WFI_GPU_conv2d},
    {&wfi_op_conv2d_backward_data, make_conv, WFI_GPU_conv2d_backward_data},
    {&wfi_op_conv2d_backward_weight, make_conv, WFI_GPU_conv2d_backward_weight},
    {&wfi_op_self_attention, make_attention, WFI_GPU_self_attention},
    {&wfi_op_self_attention_backward, make_attention_backward, WFI_GPU_attention_backward_queries},
};

/* ---- the implementation ---- */

static const row *find_row(const wfi_op *op) {
    for (size_t i = 0; i < WFI_COUNT(rows); i++)
        if (rows[i].op == op) return &rows[i];
    return NULL;
}

static int32_t value_of(const wfi_node *node, int operand) {
    return operand < node->n_in ? node->in[operand] : node->out[operand - node->n_in];
}

/* NULL: it can be computed. */
static const char *why_not(const wfi_kernel *kernel, const row *r) {
    if (!r) return "weft has no kernel of it for such devices yet";
    if (kernel->adds) return "it has to add";
    for (int i = 0; i < kernel->n_operands; i++) {
        int32_t v = value_of(kernel->node, i);
        if (v >= 0 && kernel->graph->values[v].dtype == WF_BF16)
            return "it would have to compute with BF16";
        if (v >= 0 && kernel->graph->values[v].layout != WFI_PLAIN) return "a blocked layout";
    }
    return NULL;
}

static wf_status gpu_describe(wfi_kernel *kernel, const char **reason_out) {
    const row *r = find_row(kernel->node->op);
    *reason_out = why_not(kernel, r);
    if (*reason_out) return WF_UNSUPPORTED;
    launches *l = wfi_alloc(kernel->ctx, 1, sizeof *l, "a kernel");
    if (!l) return WF_NO_MEMORY;
    kernel->state = l;
    l->g = kernel->graph;
    l->node = kernel->node;
    for (int i = 0; i < kernel->n_operands; i++) {
        int32_t v = value_of(kernel->node, i);
        if (v >= 0) kernel->bytes[i] = wfi_value_bytes(kernel->graph, v);
    }
    bool is_attention = r->make == make_attention || r->make == make_attention_backward;
    *reason_out = "heads of more than 256 elements";
    if (is_attention && !has_small_heads(l)) return WF_UNSUPPORTED;
    r->make(l, r->entry);
    return WF_OK;
}

static wf_status gpu_prepare(wfi_kernel *kernel) {
    for (int i = 0; i < kernel->n_operands; i++) kernel->extent[i] = kernel->bytes[i];
    return WF_OK;
}

static wf_status gpu_run(wfi_kernel *kernel, wfi_stream_queue *stream, void *const operands[],
                         void *scratch, const wfi_step_args *step) {
    (void)scratch;
    const launches *l = kernel->state;
    const wfi_node *node = kernel->node;
    for (int k = 0; k < l->n; k++) {
        wfi_kernel_launch launch = l->all[k].launch;
        for (int i = 0; i < node->n_in; i++)
            launch.operands[i] = operands[i < 2 ? l->all[k].in[i] : i];
        for (int i = 0; i < node->n_out; i++)
            launch.operands[WFI_GPU_OUT + i] = operands[node->n_in + i];
        launch.arguments.n[13] = (int64_t)step->seed;
        launch.arguments.n[14] = (int64_t)step->step;
        launch.arguments.n[15] = step->first_sample;
        launch.arguments.f[11] = step->loss_scale;
        WF_TRY(stream->device->kind->launch(stream, &launch));
    }
    return WF_OK;
}

static void gpu_destroy(wfi_kernel *kernel) {
    wfi_free(kernel->ctx, kernel->state);
}

const wfi_kernel_impl wfi_kernel_gpu = {
    .name = "gpu",
    .describe = gpu_describe,
    .prepare = gpu_prepare,
    .run = gpu_run,
    .destroy = gpu_destroy,
};
