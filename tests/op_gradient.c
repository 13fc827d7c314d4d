/* Every op's gradient against central differences of its forward, element by element.
 * op_gradient NAME runs the cases whose names contain NAME.
 *
 * label: serial
 */
#include "op/op_table.h"
#include "op_case.h"
#include "pass/pass.h"

#include <math.h>

#define MAX_ELEMENTS 60 /* of a parameter that are tried; larger ones are sampled */

static const char *program, *only; /* the name to run, or NULL */

/* ---- the ops ---- */

#define BUILD(op) static wf_tensor op(wf_graph *g, const wf_tensor *p, const int64_t *arg)
#define UNUSED    (void)g, (void)p, (void)arg

BUILD(linear) {
    UNUSED;
    return arg[0] ? wf_linear_in_out_with(p[0], p[1], p[2]) : wf_linear_with(p[0], p[1], p[2]);
}
BUILD(matmul) {
    UNUSED;
    wfi_attr attr = {.matmul = {(int)arg[0], (int)arg[1]}};
    return wfi_graph_op(g, &wfi_op_matmul, &attr, NULL, 2, p);
}
BUILD(conv) {
    UNUSED;
    return wf_conv2d_with(p[0], p[1], p[2],
                          (wf_conv2d_shape){arg[0], arg[1], arg[2], .dilation = arg[3]});
}
/* Weights that are computed, and a parameter that looks like an image. */
BUILD(conv_of_values) {
    UNUSED;
    wf_tensor weight = wf_reshape(p[1], WF_SHAPE(16, 16, 3, 3));
    wf_tensor x =
        wf_conv2d_with(p[0], weight, wfi_inert(g), (wf_conv2d_shape){.stride = 1, .pad = 1});
    return wf_mul(wf_tanh(x), p[2]);
}
BUILD(batch_norm) {
    UNUSED;
    wfi_attr attr = {.norm = {.eps = 1e-5}};
    /* A small shift keeps bimodal inputs away from where the ReLU bends. */
    wf_tensor in[] = {p[0], p[1], arg[0] ? wf_scale(p[2], 0.1f) : p[2]};
    wf_tensor y = wfi_graph_op(g, &wfi_op_batch_norm, &attr, NULL, 3, in);
    if (arg[0] == 2) y = wf_add(wf_scale(p[3], 0.1f), y);
    return arg[0] ? wf_relu(y) : y;
}
BUILD(layer_norm) {
    UNUSED;
    return wf_layer_norm_with(p[0], p[1], p[2], 1e-5f);
}
BUILD(activation) {
    UNUSED;
    wf_tensor (*const function[])(wf_tensor) = {wf_relu,    wf_gelu,    wf_gelu_tanh,  wf_tanh,
                                                wf_sigmoid, wf_softmax, wf_log_softmax};
    return function[arg[0]](p[0]);
}
BUILD(add) {
    UNUSED;
    return arg[0] ? wf_relu(wf_add(p[0], wf_scale(p[1], 0.2f))) : wf_add(p[0], p[1]);
}
BUILD(twice) { /* one value, three uses, two of them of one op */
    UNUSED;
    return wf_add(wf_mul(p[0], p[0]), wf_scale(p[0], 0.3f));
}
BUILD(cross_entropy) {
    UNUSED;
    return wf_smoothed_cross_entropy(p[0], p[1], 0.1 * (double)arg[0]);
}
BUILD(cross_entropy_in_blocks) {
    UNUSED;
    wf_shape logits = wf_tensor_shape(p[0]);
    int64_t n = logits.dim[logits.n_dims - 1];
    wfi_attr attr = {.classes = {n, arg[0], 0, arg[0], (double)arg[1] / 10}};
    wf_tensor sums = wfi_graph_op(g, &wfi_op_class_sums, &attr, NULL, 2, p);
    return wfi_graph_op(g, &wfi_op_cross_entropy_of_sums, &attr, NULL, 2,
                        (wf_tensor[]){sums, p[1]});
}
BUILD(mse) {
    UNUSED;
    return wf_mse(p[0], p[1]);
}
BUILD(max_pool) {
    UNUSED;
    return wf_max_pool(p[0], arg[0], arg[1], arg[2]);
}
BUILD(avg_pool) {
    UNUSED;
    return wf_avg_pool(p[0], arg[0], arg[1], arg[2]);
}
BUILD(global_avg_pool) {
    UNUSED;
    return wf_global_avg_pool(p[0]);
}
BUILD(embedding) {
    UNUSED;
    return wf_embedding_with(p[1], p[0]);
}
BUILD(transpose) {
    UNUSED;
    return wf_transpose(p[0], (int)arg[0], (int)arg[1]);
}
BUILD(concat) {
    UNUSED;
    return wf_concat((wf_tensor[]){p[0], p[1], p[0], p[2], p[1], p[1], p[0], p[2], p[1], p[0]},
                     (int)arg[1], (int)arg[0]);
}
BUILD(slice) {
    UNUSED;
    return wf_slice(p[0], (int)arg[0], arg[1], arg[2]);
}
BUILD(split) {
    UNUSED;
    wf_tensor part[3];
    wf_split(p[0], (int)arg[0], 3, part);
    return wf_add(wf_mul(part[0], part[2]), part[1]);
}
BUILD(reduce) {
    UNUSED;
    return arg[1] ? wf_mean(p[0], (int)arg[0]) : wf_sum(p[0], (int)arg[0]);
}
BUILD(attention) {
    UNUSED;
    return wf_self_attention(p[0], arg[0], (int)arg[1]);
}
BUILD(block) { /* an image through most image ops */
    UNUSED;
    wf_tensor x =
        wf_conv2d_with(p[0], p[1], wfi_inert(g), (wf_conv2d_shape){.stride = 1, .pad = 1});
    wf_tensor norm[3] = {wf_tanh(x), p[2], p[2]};
    x = wf_add(wf_sigmoid(batch_norm(g, norm, (int64_t[]){0})), x);
    return wf_global_avg_pool(wf_avg_pool(wf_mul(x, p[0]), 2, 1, 1));
}

#define S(...)      WF_SHAPE(__VA_ARGS__)
#define SHAPES(...) .shape = {__VA_ARGS__}, .n_params = WFI_COUNT(((wf_shape[]){__VA_ARGS__}))

/* ---- one case ---- */

static double loss_of(const graph_walk *w) {
    int32_t v = walk_find(w->g, "y");
    const float *y = w->data[v], *weight = walk_float(w, "weights");
    double sum = 0;
    for (int64_t i = 0; i < wf_shape_n_elem(&w->g->values[v].shape); i++)
        sum += (double)y[i] * weight[i];
    return sum;
}

/* Fourth order: exact for cubic functions. What the step does not touch cancels bit by
 * bit, so rounding costs little. */
static double slope(graph_walk *w, float *element) {
    const float start = *element, h = 1.0f / 64;
    double difference[2];
    for (int i = 0; i < 2; i++) {
        *element = start + h * (float)(i + 1);
        walk_run(w, true);
        difference[i] = loss_of(w);
        *element = start - h * (float)(i + 1);
        walk_run(w, true);
        difference[i] -= loss_of(w);
    }
    *element = start;
    return (8 * difference[0] - difference[1]) / (12 * (double)h);
}

static void check_parameter(const op_case *c, graph_walk *w, int p) {
    int64_t n = wf_shape_n_elem(&c->shape[p]), worst = 0;
    float *gradient = malloc((size_t)(n + 1) * sizeof *gradient);
    double norm = 0, error = 0, found = 0;
    walk_run(w, false);
    if (n) memcpy(gradient, walk_gradient(w, case_param(p)), (size_t)n * sizeof *gradient);
    for (int64_t i = 0; i < n; i++) norm += (double)gradient[i] * gradient[i];
    for (int64_t k = 0; k < n && k < MAX_ELEMENTS; k++) {
        int64_t i = n <= MAX_ELEMENTS ? k : (k * 7919 + 13) % n;
        double s = slope(w, walk_float(w, case_param(p)) + i);
        if (fabs(s - gradient[i]) <= error) continue;
        error = fabs(s - gradient[i]);
        found = s;
        worst = i;
        if (isnan(error)) break;
    }
    double allowed = (c->tolerance ? c->tolerance : 1e-3) * (sqrt(norm / (double)(n + 1)) + 1e-3);
    char text[WFI_SHAPE_TEXT];
    if (!(error <= allowed))
        fail_msg("%s, gradient of p%d %s: largest difference %.3g at element %lld (%g, but the "
                 "slope is %g), allowed %.3g\n  again: %s '%s'",
                 c->name, p, wfi_shape_text(&c->shape[p], text), error, (long long)worst,
                 gradient[worst], found, allowed, program, c->name);
    free(gradient);
}

/* Blocked images must change no bit: every reference adds in the same order. */
static void check_layout(wf_context *ctx, const op_case *c, const graph_walk *plain) {
    scoped_graph g;
    graph_walk w;
    case_graph(ctx, c, &g);
    TEST_OK(ctx, wfi_graph_layout(g));
    int n_blocked = 0;
    for (int32_t v = 0; v < g->n_values; v++) n_blocked += g->values[v].layout == WFI_C16;
    if (c->shape[0].dim[1] % 16 == 0 && !n_blocked) fail_msg("%s: nothing is blocked", c->name);
    walk_create(&w, g);
    case_fill_values(c, &w);
    walk_run(&w, false);
    for (int p = 0; p < c->n_params; p++)
        if (memcmp(walk_gradient(&w, case_param(p)), walk_gradient(plain, case_param(p)),
                   (size_t)wf_shape_n_elem(&c->shape[p]) * sizeof(float)))
            fail_msg("%s: the gradient of p%d has other bits in blocked layout\n"
                     "  again: %s '%s'",
                     c->name, p, program, c->name);
    walk_destroy(&w);
}

static void run_case(const op_case *c) {
    if (only && !strstr(c->name, only)) return;
    scoped_context ctx = test_context();
    scoped_graph g;
    graph_walk w;
    case_graph(ctx, c, &g);
    walk_create(&w, g);
    case_fill_values(c, &w);
    for (int p = 0; p < c->n_params; p++) check_parameter(c, &w, p);
    walk_run(&w, false);
    if (c->blocked) check_layout(ctx, c, &w);
    walk_destroy(&w);
}

static void run_cases(const op_case *cases, size_t n) {
    for (size_t i = 0; i < n; i++) run_case(&cases[i]);
}
#define RUN(cases) run_cases(cases, sizeof(cases) / sizeof *(cases))

/* Every op that has a gradient, by its own samples. */
TEST_CASE(samples) {
    for (int op = 0; wfi_op_table[op]; op++) {
        char name[64];
        const wfi_op_sample *all = wfi_op_table[op]->samples;
        if (!wfi_op_table[op]->gradient && !wfi_op_table[op]->backward) continue;
        /* Two steps of one loss, whose gradients are right together: the cases of losses. */
        if (strstr(wfi_op_table[op]->name, "class_sums") ||
            strstr(wfi_op_table[op]->name, "of_sums"))
            continue;
        if (!all) fail_msg("%s has a gradient and no sample", wfi_op_table[op]->name);
        for (int k = 0; all[k].n_in; k++) {
            op_case c = case_of_sample(op, k, name);
            run_case(&c);
        }
    }
}

/* ---- the cases: sizes, layouts and compositions beside the samples ---- */

TEST_CASE(products) {
    const op_case cases[] = {
        {"linear vector", linear, {0}, SHAPES(S(7), S(1, 7), S(1))},
        {"linear no rows", linear, {0}, SHAPES(S(0, 7), S(3, 7), S(3))},
        {"matmul tt", matmul, {1, 1}, SHAPES(S(3, 1, 5, 3), S(3, 1, 7, 5))},
        {"matmul over nothing", matmul, {0, 0}, SHAPES(S(3, 0), S(0, 2))},
    };
    RUN(cases);
}

TEST_CASE(convolutions) {
    const op_case cases[] = {
        {"conv2d pixel", conv, {1, 0, 1}, SHAPES(S(1, 1, 1, 1), S(1, 1, 1, 1))},
        {"conv2d blocked",
         conv,
         {2, 1, 1},
         SHAPES(S(2, 16, 5, 7), S(32, 16, 3, 2), S(32)),
         .blocked = true},
        {"conv2d blocked groups",
         conv,
         {1, 2, 2},
         SHAPES(S(1, 32, 3, 3), S(16, 16, 3, 3)),
         .blocked = true},
        {"conv2d of values",
         conv_of_values,
         {0},
         SHAPES(S(1, 16, 3, 2), S(16 * 16 * 9), S(1, 16, 3, 2)),
         .blocked = true},
        {"conv2d first", conv, {1, 1, 1}, SHAPES(S(2, 3, 6, 6), S(16, 3, 3, 3)), .blocked = true},
    };
    RUN(cases);
}

static int64_t pick(uint64_t stream, int64_t i, int64_t low, int64_t high) {
    double u = (walk_uniform(stream, i) + 1) / 2;
    return low + (int64_t)(u * (double)(high - low + 1));
}

TEST_CASE(random_convolutions) {
    for (uint64_t k = 1000; k < 1030; k++) {
        char name[64];
        snprintf(name, sizeof name, "conv2d random %d", (int)k);
        int64_t groups = pick(k, 0, 1, 3), c = pick(k, 1, 1, 3), out = groups * pick(k, 2, 1, 3);
        int64_t kh = pick(k, 3, 1, 4), kw = pick(k, 4, 1, 4), pad = pick(k, 5, 0, 3);
        int64_t dilation = k % 3 ? 1 : pick(k, 11, 2, 3);
        int64_t h = wfi_max_i64(1, (kh - 1) * dilation + 1 - 2 * pad) + pick(k, 6, 0, 6);
        int64_t w = wfi_max_i64(1, (kw - 1) * dilation + 1 - 2 * pad) + pick(k, 7, 0, 6);
        op_case random = {
            .name = name, .build = conv, .arg = {pick(k, 8, 1, 3), pad, groups, dilation}};
        random.shape[0] = S(pick(k, 9, 1, 2), groups * c, h, w);
        random.shape[1] = S(out, c, kh, kw);
        random.shape[2] = S(out);
        random.n_params = (int)pick(k, 10, 2, 3);
        run_case(&random);
    }
}

TEST_CASE(norms) {
    const op_case cases[] = {
        {"batch_norm rows", batch_norm, {0}, SHAPES(S(7, 3), S(3), S(3)), .tolerance = 3e-3},
        {"batch_norm relu",
         batch_norm,
         {1},
         SHAPES(S(3, 5, 3, 3), S(5), S(5)),
         .fill = BIMODAL,
         .tolerance = 3e-3},
        {"batch_norm blocked",
         batch_norm,
         {0},
         SHAPES(S(2, 32, 3, 2), S(32), S(32)),
         .blocked = true,
         .tolerance = 3e-3},
        {"batch_norm relu blocked",
         batch_norm,
         {1},
         SHAPES(S(5, 16, 3, 3), S(16), S(16)),
         .fill = BIMODAL,
         .blocked = true,
         .tolerance = 3e-3},
        {"batch_norm add relu",
         batch_norm,
         {2},
         SHAPES(S(5, 16, 3, 3), S(16), S(16), S(5, 16, 3, 3)),
         .fill = BIMODAL,
         .blocked = true,
         .tolerance = 3e-3},
        {"layer_norm row", layer_norm, {0}, SHAPES(S(5), S(5), S(5)), .tolerance = 3e-3},
        {"layer_norm no rows", layer_norm, {0}, SHAPES(S(0, 5), S(5), S(5))},
    };
    RUN(cases);
}

TEST_CASE(elements) {
    const op_case cases[] = {
        {"relu scalar", activation, {0}, SHAPES(WF_SCALAR), .fill = BIMODAL},
        {"relu empty", activation, {0}, SHAPES(S(3, 0)), .fill = BIMODAL},
        {"softmax of one", activation, {5}, SHAPES(S(3, 1))},
        {"log_softmax no rows", activation, {6}, SHAPES(S(0, 7))},
        {"add empty", add, {0}, SHAPES(S(2, 0), S(2, 0))},
        {"add_relu", add, {1}, SHAPES(S(3, 5), S(3, 5)), .fill = BIMODAL},
        {"add_broadcast scalar", add, {0}, SHAPES(S(2, 3), WF_SCALAR)},
        {"add_broadcast relu", add, {1}, SHAPES(S(4, 3), S(3)), .fill = BIMODAL},
        {"one value, three uses", twice, {0}, SHAPES(S(3, 5))},
    };
    RUN(cases);
}

TEST_CASE(losses) {
    const op_case cases[] = {
        {"cross_entropy sample",
         cross_entropy,
         {0},
         SHAPES(S(1, 3)),
         .has_ids = true,
         .id_shape = WF_SCALAR,
         .id_limit = 3},
        {"smoothed_cross_entropy",
         cross_entropy,
         {3},
         SHAPES(S(1, 3, 5)),
         .has_ids = true,
         .id_shape = S(3),
         .id_limit = 5},
        {"cross_entropy one class",
         cross_entropy,
         {0},
         SHAPES(S(1, 2, 1)),
         .has_ids = true,
         .id_shape = S(2),
         .id_limit = 1},
        {"cross_entropy in blocks",
         cross_entropy_in_blocks,
         {3},
         SHAPES(S(1, 5, 11)),
         .has_ids = true,
         .id_shape = S(5),
         .id_limit = 11},
        {"cross_entropy in blocks of one class",
         cross_entropy_in_blocks,
         {4, 3},
         SHAPES(S(1, 2, 4)),
         .has_ids = true,
         .id_shape = S(2),
         .id_limit = 4},
        {"mse vector", mse, {0}, SHAPES(S(7), S(7))},
        {"embedding of none",
         embedding,
         {0},
         SHAPES(S(5, 3)),
         .has_ids = true,
         .id_shape = S(0),
         .id_limit = 4},
    };
    RUN(cases);
}

TEST_CASE(pools) {
    const op_case cases[] = {
        {"max_pool", max_pool, {2, 2, 0}, SHAPES(S(2, 2, 4, 4)), .fill = DISTINCT},
        {"max_pool leftover", max_pool, {2, 3, 1}, SHAPES(S(1, 1, 6, 9)), .fill = DISTINCT},
        {"max_pool blocked",
         max_pool,
         {3, 2, 1},
         SHAPES(S(2, 16, 5, 4)),
         .fill = DISTINCT,
         .blocked = true},
        {"avg_pool", avg_pool, {2, 2, 0}, SHAPES(S(2, 2, 4, 4))},
        {"avg_pool overlapping", avg_pool, {3, 1, 1}, SHAPES(S(1, 2, 5, 4))},
        {"avg_pool blocked", avg_pool, {3, 2, 1}, SHAPES(S(2, 32, 5, 3)), .blocked = true},
        {"global_avg_pool pixel", global_avg_pool, {0}, SHAPES(S(2, 3, 1, 1))},
        {"global_avg_pool blocked", global_avg_pool, {0}, SHAPES(S(2, 16, 3, 5)), .blocked = true},
    };
    RUN(cases);
}

TEST_CASE(moves) {
    const op_case cases[] = {
        {"transpose last", transpose, {2, 1}, SHAPES(S(2, 3, 5))},
        {"transpose itself", transpose, {1, 1}, SHAPES(S(2, 3))},
        {"transpose empty", transpose, {0, 1}, SHAPES(S(2, 0, 3))},
        {"concat", concat, {1, 4}, SHAPES(S(2, 3, 2), S(2, 1, 2), S(2, 0, 2))},
        {"concat first", concat, {0, 4}, SHAPES(S(2, 3), S(1, 3), S(4, 3))},
        {"concat ten", concat, {1, 10}, SHAPES(S(2, 3), S(2, 1), S(2, 2))},
        {"slice all", slice, {0, 0, 4}, SHAPES(S(4, 2))},
        {"slice nothing", slice, {0, 4, 0}, SHAPES(S(4, 2))},
        {"split", split, {1}, SHAPES(S(2, 9, 2))},
        {"sum", reduce, {1, 0}, SHAPES(S(2, 5, 3))},
        {"sum last", reduce, {2, 0}, SHAPES(S(2, 5, 3))},
        {"sum to a scalar", reduce, {0, 0}, SHAPES(S(5))},
        {"sum of nothing", reduce, {1, 0}, SHAPES(S(2, 0, 3))},
    };
    RUN(cases);
}

TEST_CASE(attentions) {
    const op_case cases[] = {
        {"self_attention one token", attention, {1, 1}, SHAPES(S(2, 1, 9))},
    };
    RUN(cases);
}

TEST_CASE(blocks) {
    const op_case cases[] = {
        {"block", block, {0}, SHAPES(S(2, 3, 4, 3), S(3, 3, 3, 3), S(3)), .tolerance = 3e-3},
        {"block blocked",
         block,
         {0},
         SHAPES(S(2, 16, 4, 3), S(16, 16, 3, 3), S(16)),
         .blocked = true,
         .tolerance = 3e-3},
    };
    RUN(cases);
}

int main(int argc, char **argv) {
    program = argv[0];
    if (argc > 1) only = argv[1];
    return test_run(NULL, NULL);
}
