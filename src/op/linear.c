/* Linear layers and products of matrices.
 *
 * linear(x, weight, bias?) -> y              x [rows.., in], y [rows.., out]
 * linear_backward_data(dy, weight) -> dx     weight [out, in], or [in, out]
 * linear_backward_weight(dy, x) -> dweight, dbias?
 * matmul(a, b) -> c                          [.., m, k] x [.., k, n], after transposing */
#include "op/check.h"

/* ---- the product that all of them are ---- */

typedef struct matrix {
    const float *data; /* [rows, cols], element strides */
    int64_t row, col;
} matrix;

static matrix matrix_make(const void *data, int64_t n_cols, bool transposed) {
    return transposed ? (matrix){data, 1, n_cols} : (matrix){data, n_cols, 1};
}

/* c [m, n] = a [m, k] b [k, n] + bias [n] or NULL */
static void multiply(int64_t m, int64_t n, int64_t k, matrix a, matrix b, const float *bias,
                     float *c) {
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            double sum = 0;
            for (int64_t l = 0; l < k; l++)
                sum += (double)a.data[i * a.row + l * a.col] * b.data[l * b.row + j * b.col];
            c[i * n + j] = (float)(bias ? sum + bias[j] : sum);
        }
}

static void multiply_all(const wfi_call *call, wfi_product p) {
    const float *a = call->in[p.a].data, *b = call->in[p.b].data;
    const float *bias = p.bias ? call->in[p.bias].data : NULL;
    float *c = call->out[0].data;
    for (int64_t i = 0; i < p.n_matrices; i++, a += p.m * p.k, b += p.k * p.n, c += p.m * p.n)
        multiply(p.m, p.n, p.k, matrix_make(a, p.a_is_transposed ? p.m : p.k, p.a_is_transposed),
                 matrix_make(b, p.b_is_transposed ? p.k : p.n, p.b_is_transposed), bias, c);
}

/* ---- linear ---- */

static wf_status linear_check(wf_graph *g, wfi_node *node) {
    WF_TRY(wfi_check_inputs(g, node, "fff?"));
    int in_dim = !node->attr.linear.in_out;
    wf_shape y = wfi_in_shape(g, node, 0), weight = wfi_in_shape(g, node, 1);
    if (y.n_dims < 1 || weight.n_dims != 2 || wfi_last_dim(&y) != weight.dim[in_dim] ||
        wf_shape_n_elem(&weight) == 0)
        return wfi_op_fail(g, node, WF_SHAPE, "%s does not fit the weight %s, stored as [%s]",
                           wfi_show(&y).text, wfi_show(&weight).text,
                           in_dim ? "out, in" : "in, out");
    int64_t n_out = weight.dim[!in_dim];
    WF_TRY(wfi_check_bias(g, node, n_out));
    y.dim[y.n_dims - 1] = n_out;
    return wfi_node_output(g, node, WF_F32, &y);
}

static wf_status linear_gradient(wfi_autodiff *ad, const wfi_node *node) {
    wfi_attr attr = node->attr;
    attr.linear.bias = node->in[2] >= 0;
    return wfi_pass_weighted(ad, node, &wfi_op_linear_backward_data, &wfi_op_linear_backward_weight,
                             &attr);
}

static double linear_flops(const wf_graph *g, const wfi_node *node) {
    wf_shape x = wfi_in_shape(g, node, 0);
    return wfi_flops_of_output(g, node, 2.0 * (double)wfi_last_dim(&x));
}

static wfi_product linear_product(const wfi_call *call) {
    const wf_shape *x = &call->in[0].shape, *y = &call->out[0].shape;
    bool has_bias = call->n_in > 2 && call->in[2].shape.n_dims;
    return (wfi_product){.n_matrices = 1,
                         .m = wfi_n_rows(x),
                         .n = wfi_last_dim(y),
                         .k = wfi_last_dim(x),
                         .b = 1,
                         .bias = has_bias ? 2 : 0,
                         .b_is_transposed = !call->attr->linear.in_out};
}

static void linear_reference(const wfi_call *call) {
    multiply_all(call, linear_product(call));
}

static bool has_rows(const wf_graph *g, const wfi_node *node) {
    return wfi_in_shape(g, node, 0).n_dims > 1;
}
static bool is_in_out(const wf_graph *g, const wfi_node *node) {
    (void)g;
    return node->attr.linear.in_out;
}
static bool is_out_in(const wf_graph *g, const wfi_node *node) {
    return !is_in_out(g, node);
}
/* A bias would be added once a part. */
static bool sums_in_out(const wf_graph *g, const wfi_node *node) {
    return is_in_out(g, node) && node->n_in == 2;
}
static bool sums_out_in(const wf_graph *g, const wfi_node *node) {
    return is_out_in(g, node) && node->n_in == 2;
}

static const wfi_op_sample linear_samples[] = {
    {.n_in = 3, .in = {WFI_DIMS(4, 6), WFI_DIMS(10, 6), WFI_DIMS(10)}},
    {.n_in = 2, .in = {WFI_DIMS(2, 3, 6), WFI_DIMS(10, 6)}},
    {.n_in = 3,
     .in = {WFI_DIMS(2, 3, 6), WFI_DIMS(6, 10), WFI_DIMS(10)},
     .attr = {.linear = {1, 0}}},
    {.n_in = 2, .in = {WFI_DIMS(4, 6), WFI_DIMS(6, 10)}, .attr = {.linear = {1, 0}}},
    {0}};

static const wfi_op_cut linear_place[] = {
    {.name = "rows", .in = {1}, .out = {1}, .applies = has_rows},
    {.name = "columns", .in = {WFI_WHOLE, 1, 1}, .out = {-1}, .applies = is_out_in},
    {.name = "columns", .in = {WFI_WHOLE, 2, 1}, .out = {-1}, .applies = is_in_out},
    {.name = "inner", .in = {-1, 2}, .out = {WFI_SUMMED}, .applies = sums_out_in},
    {.name = "inner", .in = {-1, 1}, .out = {WFI_SUMMED}, .applies = sums_in_out},
    {0}};

const wfi_op wfi_op_linear = {
    .name = "linear",
    .flags = WFI_OP_ONE_TYPE,
    .roles = {.weight_in = 1 << 1},
    .tolerance = 5e-6f,
    .check = linear_check,
    .gradient = linear_gradient,
    .flops = linear_flops,
    .reference = linear_reference,
    .product = linear_product,
    .samples = linear_samples,
    .place = linear_place,
};

static wfi_product linear_backward_data_product(const wfi_call *call) {
    wfi_product p = linear_product(call);
    p.b_is_transposed = !p.b_is_transposed;
    return p;
}

static void linear_backward_data_reference(const wfi_call *call) {
    multiply_all(call, linear_backward_data_product(call));
}

const wfi_op wfi_op_linear_backward_data = {
    .name = "linear_backward_data",
    .flags = WFI_OP_ONE_TYPE,
    .roles = {.weight_in = 1 << 1},
    .tolerance = 5e-6f,
    .makes = {WFI_OWN_SHAPE},
    .flops = linear_flops,
    .reference = linear_backward_data_reference,
    .product = linear_backward_data_product,
};

static wf_status linear_backward_weight_check(wf_graph *g, wfi_node *node) {
    WF_TRY(wfi_node_output(g, node, WF_F32, &node->shape));
    if (!node->attr.linear.bias) return WF_OK;
    return wfi_node_output(g, node, WF_F32, &WF_SHAPE(node->shape.dim[node->attr.linear.in_out]));
}

static double linear_backward_weight_flops(const wf_graph *g, const wfi_node *node) {
    wf_shape x = wfi_in_shape(g, node, 1);
    return wfi_flops_of_output(g, node, 2.0 * (double)wfi_n_rows(&x));
}

/* dy times x, or x times dy. */
static wfi_product linear_backward_weight_product(const wfi_call *call) {
    bool in_out = call->attr->linear.in_out;
    const wf_shape *a = &call->in[in_out].shape, *b = &call->in[!in_out].shape;
    return (wfi_product){.n_matrices = 1,
                         .m = wfi_last_dim(a),
                         .n = wfi_last_dim(b),
                         .k = wfi_n_rows(a),
                         .a = in_out,
                         .b = !in_out,
                         .a_is_transposed = true};
}

static void linear_backward_weight_reference(const wfi_call *call) {
    static const float one = 1;
    const wfi_operand *dy = &call->in[0];
    int64_t n_out = wfi_last_dim(&dy->shape);
    multiply_all(call, linear_backward_weight_product(call));
    if (call->n_out < 2) return;
    multiply(1, n_out, wfi_n_rows(&dy->shape), (matrix){&one, 0, 0},
             matrix_make(dy->data, n_out, false), NULL, call->out[1].data);
}

const wfi_op wfi_op_linear_backward_weight = {
    .name = "linear_backward_weight",
    .flags = WFI_OP_WEIGHT_GRADIENT | WFI_OP_ONE_TYPE,
    .roles = {.weight_out = 1 << 0},
    .tolerance = 1e-5f,
    .check = linear_backward_weight_check,
    .flops = linear_backward_weight_flops,
    .reference = linear_backward_weight_reference,
    .product = linear_backward_weight_product,
};

static wf_tensor build_linear(wf_tensor x, wf_tensor weight, wf_tensor bias, int in_out) {
    wfi_attr attr = {.linear = {.in_out = in_out}};
    int n_in = bias.graph && bias.id >= 0 ? 3 : 2;
    return wfi_build(&wfi_op_linear, &attr, NULL, n_in, (wf_tensor[]){x, weight, bias});
}

wf_tensor wf_linear_with(wf_tensor x, wf_tensor weight, wf_tensor bias) {
    return build_linear(x, weight, bias, 0);
}

wf_tensor wf_linear_in_out_with(wf_tensor x, wf_tensor weight, wf_tensor bias) {
    return build_linear(x, weight, bias, 1);
}

/* ---- matmul ---- */

static wf_status matmul_check(wf_graph *g, wfi_node *node) {
    WF_TRY(wfi_check_inputs(g, node, "ff"));
    wf_shape a = wfi_in_shape(g, node, 0), b = wfi_in_shape(g, node, 1);
    int d = a.n_dims - 2; /* of the matrix */
    bool fits = a.n_dims >= 2 && b.n_dims == a.n_dims;
    for (int i = 0; i < d && fits; i++) fits = a.dim[i] == b.dim[i];
    int ta = node->attr.matmul.transpose_a != 0, tb = node->attr.matmul.transpose_b != 0;
    if (!fits || a.dim[d + !ta] != b.dim[d + tb])
        return wfi_op_fail(g, node, WF_SHAPE, "%s%s times %s%s", wfi_show(&a).text,
                           ta ? " transposed" : "", wfi_show(&b).text, tb ? " transposed" : "");
    wf_shape c = a;
    c.dim[d] = a.dim[d + ta];
    c.dim[d + 1] = b.dim[d + !tb];
    return wfi_node_output(g, node, WF_F32, &c);
}

static wf_status add_product(wfi_autodiff *ad, int32_t v, int32_t a, int ta, int32_t b, int tb) {
    wfi_attr attr = {.matmul = {ta, tb}};
    return wfi_pass(ad, v, &wfi_op_matmul, &attr, NULL, 2, (int32_t[]){a, b});
}

/* With A = a or a^T, B likewise: dA = dC B^T, dB = A^T dC. */
static wf_status matmul_gradient(wfi_autodiff *ad, const wfi_node *node) {
    int32_t a = node->in[0], b = node->in[1], dc = wfi_gradient_of(ad, node->out[0]);
    int ta = node->attr.matmul.transpose_a != 0, tb = node->attr.matmul.transpose_b != 0;
    WF_TRY(ta ? add_product(ad, a, b, tb, dc, 1) : add_product(ad, a, dc, 0, b, !tb));
    if (node->attr.matmul.shares_b) return WF_OK;
    return tb ? add_product(ad, b, dc, 1, a, ta) : add_product(ad, b, a, !ta, dc, 0);
}

static double matmul_flops(const wf_graph *g, const wfi_node *node) {
    wf_shape a = wfi_in_shape(g, node, 0);
    int64_t k = a.dim[a.n_dims - (node->attr.matmul.transpose_a ? 2 : 1)];
    return wfi_flops_of_output(g, node, 2.0 * (double)k);
}

static wfi_product matmul_product(const wfi_call *call) {
    const wf_shape *a = &call->in[0].shape, *c = &call->out[0].shape;
    bool ta = call->attr->matmul.transpose_a, tb = call->attr->matmul.transpose_b;
    int d = c->n_dims - 2;
    wfi_product p = {.n_matrices = 1,
                     .m = c->dim[d],
                     .n = c->dim[d + 1],
                     .k = a->dim[d + !ta],
                     .b = 1,
                     .a_is_transposed = ta,
                     .b_is_transposed = tb};
    for (int i = 0; i < d; i++) p.n_matrices *= c->dim[i];
    return p;
}

static void matmul_reference(const wfi_call *call) {
    multiply_all(call, matmul_product(call));
}

static bool is_a_transposed(const wf_graph *g, const wfi_node *node) {
    (void)g;
    return node->attr.matmul.transpose_a;
}
static bool is_a(const wf_graph *g, const wfi_node *node) {
    return !is_a_transposed(g, node);
}
static bool is_b_transposed(const wf_graph *g, const wfi_node *node) {
    (void)g;
    return node->attr.matmul.transpose_b;
}
static bool is_b(const wf_graph *g, const wfi_node *node) {
    return !is_b_transposed(g, node);
}

static const wfi_op_sample matmul_samples[] = {
    {.n_in = 2, .in = {WFI_DIMS(4, 6), WFI_DIMS(6, 8)}},
    {.n_in = 2, .in = {WFI_DIMS(2, 6, 4), WFI_DIMS(2, 6, 8)}, .attr = {.matmul = {1, 0}}},
    {.n_in = 2, .in = {WFI_DIMS(2, 4, 6), WFI_DIMS(2, 8, 6)}, .attr = {.matmul = {0, 1}}},
    {.n_in = 2, .in = {WFI_DIMS(6, 4), WFI_DIMS(8, 6)}, .attr = {.matmul = {1, 1}}},
    {0}};

static const wfi_op_cut matmul_place[] = {
    {.name = "rows", .in = {-2}, .out = {-2}, .applies = is_a},
    {.name = "rows", .in = {-1}, .out = {-2}, .applies = is_a_transposed},
    {.name = "columns", .in = {WFI_WHOLE, -1}, .out = {-1}, .applies = is_b},
    {.name = "columns", .in = {WFI_WHOLE, -2}, .out = {-1}, .applies = is_b_transposed},
    {0}};

const wfi_op wfi_op_matmul = {
    .name = "matmul",
    .flags = WFI_OP_ONE_TYPE,
    .tolerance = 5e-6f,
    .check = matmul_check,
    .gradient = matmul_gradient,
    .flops = matmul_flops,
    .reference = matmul_reference,
    .product = matmul_product,
    .samples = matmul_samples,
    .place = matmul_place,
};

wf_tensor wf_matmul(wf_tensor a, wf_tensor b) {
    wfi_attr attr = {.matmul = {0, 0}};
    return wfi_build(&wfi_op_matmul, &attr, NULL, 2, (wf_tensor[]){a, b});
}
