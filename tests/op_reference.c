/* The plain C kernels against formulas written down a second time, in double and in
 * another manner; and what gradients cannot show: masks, records, edges.
 *
 * label: serial
 */
#include "graph_walk.h"
#include "op/op_table.h"

#include <math.h>

#define S(...) WF_SHAPE(__VA_ARGS__)

/* ---- one graph with inputs, run forward ---- */

/* Inputs a, b, c (F32) and i (I32), as far as they are declared, filled with numbers. */
static void fill(graph_walk *w) {
    for (int32_t v = 0; v < w->g->n_values; v++) {
        const wfi_value *value = wfi_value_at(w->g, v);
        if (value->kind == WFI_VALUE_NODE || value->alias >= 0) continue;
        for (int64_t k = 0; k < wf_shape_n_elem(&value->shape); k++) {
            if (value->dtype == WF_F32) ((float *)w->data[v])[k] = walk_uniform((uint64_t)v, k);
            if (value->dtype == WF_I32) ((int32_t *)w->data[v])[k] = (int32_t)(k * 3 % 5);
        }
    }
}

static graph_walk begin(wf_context *ctx, wf_model_function model, const void *model_config,
                        int64_t batch, int training) {
    wf_graph_config config = WF_GRAPH_CONFIG_INIT;
    config.batch = batch;
    config.training = training;
    wf_graph *g;
    graph_walk w;
    TEST_OK(ctx, wf_graph_create(ctx, &config, model, model_config, &g));
    walk_create(&w, g);
    fill(&w);
    return w;
}

static void end(wf_context *ctx, graph_walk *w) {
    walk_destroy(w);
    wf_graph_destroy((wf_graph *)w->g);
    test_context_end(ctx);
}

static wf_tensor input(wf_graph *g, const char *name, wf_shape sample) {
    return wf_input(g, name, WF_F32, sample);
}

/* ---- formulas ---- */

typedef struct formula {
    const char *name;
    wf_model_function model; /* gives the output "y" */
    int64_t batch;
    double (*expected)(const graph_walk *w, const int64_t *at); /* y[at] */
    int training;
} formula;

static double value(const graph_walk *w, const char *name, int64_t i) {
    return walk_float(w, name)[i];
}

static void linear_model(wf_graph *g, const void *config) {
    wf_output(wf_linear_with(input(g, "a", S(3, 7)), input(g, "b", S(7)), input(g, "c", WF_SCALAR)),
              "y");
}
static double linear_expected(const graph_walk *w, const int64_t *at) {
    double sum = value(w, "c", at[2]);
    for (int64_t k = 6; k >= 0; k--)
        sum += value(w, "a", (at[0] * 3 + at[1]) * 7 + k) * value(w, "b", at[2] * 7 + k);
    return sum;
}

static void matmul_model(wf_graph *g, const void *config) {
    wf_output(wf_matmul(input(g, "a", S(3, 5)), input(g, "b", S(5, 4))), "y");
}
static double matmul_expected(const graph_walk *w, const int64_t *at) {
    double sum = 0;
    for (int64_t k = 4; k >= 0; k--)
        sum +=
            value(w, "a", (at[0] * 3 + at[1]) * 5 + k) * value(w, "b", (at[0] * 5 + k) * 4 + at[2]);
    return sum;
}

/* x [4, 6, 7, 5], weight [4, 3, 3, 2], 2 groups, stride 2, pad 1, dilation 3 */
static void conv_model(wf_graph *g, const void *config) {
    wf_output(wf_conv2d_with(input(g, "a", S(6, 7, 5)), input(g, "b", S(3, 3, 2)), wfi_inert(g),
                             (wf_conv2d_shape){.stride = 2, .pad = 1, .groups = 2, .dilation = 3}),
              "y");
}
static double conv_expected(const graph_walk *w, const int64_t *at) {
    double sum = 0;
    for (int64_t c = 0; c < 3; c++)
        for (int64_t h = 0; h < 7; h++)
            for (int64_t v = 0; v < 5; v++) { /* each pixel: where in the kernel is it? */
                int64_t down = h - at[2] * 2 + 1, right = v - at[3] * 2 + 1;
                int64_t ky = down / 3, kx = right / 3;
                if (down < 0 || down % 3 || ky > 2 || right < 0 || right % 3 || kx > 1) continue;
                int64_t channel = at[1] / 2 * 3 + c;
                sum += value(w, "a", ((at[0] * 6 + channel) * 7 + h) * 5 + v) *
                       value(w, "b", ((at[1] * 3 + c) * 3 + ky) * 2 + kx);
            }
    return sum;
}

static void batch_norm_model(wf_graph *g, const void *config) {
    wfi_attr attr = {.norm = {.eps = 1e-5}};
    wf_tensor one = wf_parameter(g, "scale", S(3), (wf_init){WF_INIT_CONSTANT, 1});
    wf_tensor in[] = {input(g, "a", S(3, 2, 2)), one, one};
    wf_output(wfi_graph_op(g, &wfi_op_batch_norm, &attr, NULL, 3, in), "y");
}
static double batch_norm_expected(const graph_walk *w, const int64_t *at) {
    double sum = 0, squares = 0;
    for (int64_t n = 0; n < 4; n++)
        for (int64_t i = 0; i < 4; i++) {
            double x = value(w, "a", (n * 3 + at[1]) * 4 + i);
            sum += x;
            squares += x * x;
        }
    double x = value(w, "a", ((at[0] * 3 + at[1]) * 2 + at[2]) * 2 + at[3]), mean = sum / 16;
    double z = (x - mean) / sqrt(squares / 16 - mean * mean + 1e-5);
    return z * value(w, "scale", at[1]) + value(w, "scale", at[1]);
}

static void layer_norm_model(wf_graph *g, const void *config) {
    wf_tensor one = wf_parameter(g, "scale", S(6), (wf_init){WF_INIT_CONSTANT, 1});
    wf_output(wf_layer_norm_with(input(g, "a", S(6)), one, one, 1e-5f), "y");
}
static double layer_norm_expected(const graph_walk *w, const int64_t *at) {
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < 6; i++) {
        double x = value(w, "a", at[0] * 6 + i);
        sum += x;
        squares += x * x;
    }
    double mean = sum / 6, scale = value(w, "scale", at[1]);
    double z = value(w, "a", at[0] * 6 + at[1]) - mean;
    return z / sqrt(squares / 6 - mean * mean + 1e-5) * scale + scale;
}

static void gelu_model(wf_graph *g, const void *config) {
    wf_output(wf_gelu(wf_scale(input(g, "a", S(9)), 4)), "y");
}
/* x times the normal density's integral, by Simpson's rule from -12. */
static double gelu_expected(const graph_walk *w, const int64_t *at) {
    double x = 4 * value(w, "a", at[0] * 9 + at[1]), low = -12, h = (x - low) / 2000, sum = 0;
    for (int i = 0; i <= 2000; i++) {
        double z = low + i * h;
        sum += (i == 0 || i == 2000 ? 1 : i % 2 ? 4 : 2) * exp(-z * z / 2);
    }
    return x * sum * h / 3 / sqrt(2 * acos(-1));
}

static void softmax_model(wf_graph *g, const void *config) {
    wf_output(wf_softmax(wf_scale(input(g, "a", S(3, 5)), 3)), "y");
}
static double softmax_expected(const graph_walk *w, const int64_t *at) {
    double sum = 0, x = value(w, "a", (at[0] * 3 + at[1]) * 5 + at[2]);
    for (int64_t i = 0; i < 5; i++)
        sum += exp(3 * (value(w, "a", (at[0] * 3 + at[1]) * 5 + i) - x));
    return 1 / sum;
}

static void cross_entropy_model(wf_graph *g, const void *config) {
    wf_output(wf_cross_entropy(input(g, "a", S(5)), wf_input(g, "i", WF_I32, WF_SCALAR)), "y");
}
static double cross_entropy_expected(const graph_walk *w, const int64_t *at) {
    double sum = 0, x = value(w, "a", at[0] * 5 + at[0] * 3 % 5);
    for (int64_t i = 0; i < 5; i++) sum += exp(value(w, "a", at[0] * 5 + i) - x);
    return log(sum);
}

/* The loss of training alone is smoothed. */
static void smoothed_model(wf_graph *g, const void *config) {
    wf_tensor b = wf_parameter(g, "b", S(5), (wf_init){WF_INIT_CONSTANT, 0});
    wf_tensor x = wf_add(input(g, "a", S(5)), b);
    wf_tensor loss = wf_smoothed_cross_entropy(x, wf_input(g, "i", WF_I32, WF_SCALAR), 0.3);
    wf_output(loss, "y");
    wf_loss(loss);
}
static double smoothed_expected(const graph_walk *w, const int64_t *at) {
    double sum = 0, loss = 0, smoothing = w->g->training ? 0.3 : 0;
    for (int64_t i = 0; i < 5; i++) sum += exp(value(w, "a", at[0] * 5 + i) + value(w, "b", i));
    for (int64_t i = 0; i < 5; i++) {
        double target = smoothing / 5 + (i == at[0] * 3 % 5) * (1 - smoothing);
        loss += target * (log(sum) - value(w, "a", at[0] * 5 + i) - value(w, "b", i));
    }
    return loss;
}

static void mse_model(wf_graph *g, const void *config) {
    wf_output(wf_mse(input(g, "a", S(2, 3)), input(g, "b", S(2, 3))), "y");
}
static double mse_expected(const graph_walk *w, const int64_t *at) {
    double sum = 0;
    for (int64_t i = 0; i < 6; i++)
        sum += pow(value(w, "a", at[0] * 6 + i) - value(w, "b", at[0] * 6 + i), 2);
    return sum / 6;
}

static void max_pool_model(wf_graph *g, const void *config) {
    wf_output(wf_max_pool(input(g, "a", S(3, 5, 4)), 3, 2, 1), "y");
}
static double pooled(const graph_walk *w, const int64_t *at, int average) {
    double max = -INFINITY, sum = 0;
    for (int64_t h = 0; h < 5; h++)
        for (int64_t v = 0; v < 4; v++) {
            if (llabs(h - 2 * at[2]) > 1 || llabs(v - 2 * at[3]) > 1) continue;
            double x = value(w, "a", ((at[0] * 3 + at[1]) * 5 + h) * 4 + v);
            max = fmax(max, x);
            sum += x;
        }
    return average ? sum / 9 : max;
}
static double max_pool_expected(const graph_walk *w, const int64_t *at) {
    return pooled(w, at, 0);
}

static void avg_pool_model(wf_graph *g, const void *config) {
    wf_output(wf_avg_pool(input(g, "a", S(3, 5, 4)), 3, 2, 1), "y");
}
static double avg_pool_expected(const graph_walk *w, const int64_t *at) {
    return pooled(w, at, 1);
}

static void attention_model(wf_graph *g, const void *config) {
    wf_output(wf_self_attention(wf_scale(input(g, "a", S(5, 18)), 2), 3, 1), "y");
}
static void window_model(wf_graph *g, const void *config) {
    wf_output(wf_self_attention(wf_scale(input(g, "a", S(5, 18)), 2), 3, 3), "y");
}
/* qkv [n, 5, 18], three heads of two, causal */
static double attention_from(const graph_walk *w, const int64_t *at, int64_t first) {
    int64_t head = at[2] / 2 * 2;
    double total = 0, sum = 0;
    for (int64_t j = first; j <= at[1]; j++) {
        double score = 0;
        for (int64_t e = head; e < head + 2; e++)
            score += 4 * value(w, "a", (at[0] * 5 + at[1]) * 18 + e) *
                     value(w, "a", (at[0] * 5 + j) * 18 + 6 + e);
        double weight = exp(score / sqrt(2));
        total += weight;
        sum += weight * 2 * value(w, "a", (at[0] * 5 + j) * 18 + 12 + at[2]);
    }
    return sum / total;
}
static double attention_expected(const graph_walk *w, const int64_t *at) {
    return attention_from(w, at, 0);
}
static double window_expected(const graph_walk *w, const int64_t *at) {
    return attention_from(w, at, at[1] > 2 ? at[1] - 2 : 0);
}

static void transpose_model(wf_graph *g, const void *config) {
    wf_output(wf_transpose(input(g, "a", S(3, 5, 2)), 1, 3), "y");
}
static double transpose_expected(const graph_walk *w, const int64_t *at) {
    return value(w, "a", ((at[0] * 3 + at[3]) * 5 + at[2]) * 2 + at[1]);
}

static void concat_model(wf_graph *g, const void *config) {
    wf_tensor a = input(g, "a", S(3, 2)), b = input(g, "b", S(4, 2));
    wf_output(wf_slice(wf_concat((wf_tensor[]){a, b}, 2, 1), 1, 2, 4), "y");
}
static double concat_expected(const graph_walk *w, const int64_t *at) {
    int64_t place = at[1] + 2;
    return place < 3 ? value(w, "a", (at[0] * 3 + place) * 2 + at[2])
                     : value(w, "b", (at[0] * 4 + place - 3) * 2 + at[2]);
}

static void mean_model(wf_graph *g, const void *config) {
    wf_output(wf_add(wf_mean(input(g, "a", S(3, 2)), 1), wf_sum(input(g, "b", S(2, 4)), 2)), "y");
}
static double mean_expected(const graph_walk *w, const int64_t *at) {
    double a = 0, b = 0;
    for (int64_t i = 0; i < 3; i++) a += value(w, "a", (at[0] * 3 + i) * 2 + at[1]);
    for (int64_t i = 0; i < 4; i++) b += value(w, "b", (at[0] * 2 + at[1]) * 4 + i);
    return a / 3 + b;
}

static void embedding_model(wf_graph *g, const void *config) {
    wf_tensor table = wf_parameter(g, "table", S(5, 3), (wf_init){WF_INIT_CONSTANT, 0});
    wf_output(wf_embedding_with(wf_input(g, "i", WF_I32, S(2)), table), "y");
}
static double embedding_expected(const graph_walk *w, const int64_t *at) {
    return value(w, "table", (at[0] * 2 + at[1]) * 3 % 5 * 3 + at[2]);
}

static const formula formulas[] = {
    {"linear", linear_model, 5, linear_expected, 0},
    {"matmul", matmul_model, 2, matmul_expected, 0},
    {"conv2d", conv_model, 4, conv_expected, 0},
    {"batch_norm", batch_norm_model, 4, batch_norm_expected, 0},
    {"layer_norm", layer_norm_model, 4, layer_norm_expected, 0},
    {"gelu", gelu_model, 3, gelu_expected, 0},
    {"softmax", softmax_model, 2, softmax_expected, 0},
    {"cross_entropy", cross_entropy_model, 7, cross_entropy_expected, 0},
    {"smoothed_cross_entropy", smoothed_model, 7, smoothed_expected, 1},
    {"smoothed_cross_entropy, not in training", smoothed_model, 7, smoothed_expected, 0},
    {"mse", mse_model, 3, mse_expected, 0},
    {"max_pool", max_pool_model, 2, max_pool_expected, 0},
    {"avg_pool", avg_pool_model, 2, avg_pool_expected, 0},
    {"attention", attention_model, 2, attention_expected, 0},
    {"attention in a window", window_model, 2, window_expected, 0},
    {"transpose", transpose_model, 2, transpose_expected, 0},
    {"concat", concat_model, 2, concat_expected, 0},
    {"mean", mean_model, 3, mean_expected, 0},
    {"embedding", embedding_model, 3, embedding_expected, 0},
};

/* Rounding of inputs and of the result to float; sums are in double. */
#define TOLERANCE 1e-6

static void check_formula(const formula *f) {
    wf_context *ctx = test_context();
    graph_walk w = begin(ctx, f->model, NULL, f->batch, f->training);
    walk_run(&w, true);
    wf_shape shape = w.g->values[walk_find(w.g, "y")].shape;
    double error = 0, scale = 0;
    int64_t worst = 0, at[WF_MAX_DIMS] = {0}, n = wf_shape_n_elem(&shape);
    for (int64_t i = 0; i < n; i++) {
        int64_t rest = i;
        for (int d = shape.n_dims - 1; d >= 0; rest /= shape.dim[d--]) at[d] = rest % shape.dim[d];
        double expected = f->expected(&w, at), difference = fabs(value(&w, "y", i) - expected);
        scale = fmax(scale, fabs(expected));
        if (difference <= error) continue;
        error = difference;
        worst = i;
    }
    if (!(error <= TOLERANCE * scale))
        fail_msg("%s: largest difference %.3g at element %lld, allowed %.3g\n  again: op_reference",
                 f->name, error, (long long)worst, TOLERANCE * scale);
    end(ctx, &w);
}

TEST_CASE(agree_with_formulas) {
    for (size_t i = 0; i < WFI_COUNT(formulas); i++) check_formula(&formulas[i]);
}

/* ---- dropout ---- */

#define DROP_ELEMENTS 1000

static void dropout_model(wf_graph *g, const void *config) {
    wf_tensor x = input(g, "x", S(DROP_ELEMENTS));
    wf_tensor zero = wf_parameter(g, "zero", S(DROP_ELEMENTS), (wf_init){WF_INIT_CONSTANT, 0});
    wf_scope(g, "%s", (const char *)config);
    wf_tensor y = wf_scale(wf_dropout(wf_add(x, zero), "drop", 0.25f), 1);
    wf_scope_end(g);
    wf_output(y, "y");
    wf_loss(wf_mean(y, 1));
}

/* The y of `batch` samples of ones from `first` on. */
static void drop(const char *scope, int64_t batch, int64_t first, uint64_t step, int training,
                 float *y) {
    wf_context *ctx = test_context();
    graph_walk w = begin(ctx, dropout_model, scope, batch, training);
    w.step.first_sample = first;
    w.step.step = step;
    for (int64_t i = 0; i < batch * DROP_ELEMENTS; i++) walk_float(&w, "x")[i] = 1;
    for (int64_t i = 0; i < DROP_ELEMENTS; i++) walk_float(&w, "zero")[i] = 0;
    walk_run(&w, true);
    memcpy(y, walk_float(&w, "y"), (size_t)(batch * DROP_ELEMENTS) * sizeof *y);
    end(ctx, &w);
}

static int n_different(const float *a, const float *b, int n) {
    int different = 0;
    for (int i = 0; i < n; i++) different += a[i] != b[i];
    return different;
}

TEST_CASE(dropout_masks) {
    float whole[4 * DROP_ELEMENTS], part[4 * DROP_ELEMENTS];
    drop("a", 4, 8, 3, 1, whole);
    int n_dropped = 0;
    for (int i = 0; i < 4 * DROP_ELEMENTS; i++) {
        if (whole[i] == 0)
            n_dropped++;
        else
            assert_true(whole[i] == (float)(1 / 0.75));
    }
    /* 4000 trials at 0.25: four standard deviations are 110. */
    assert_in_range(n_dropped, 890, 1110);
    drop("a", 1, 10, 3, 1, part); /* the third sample alone */
    assert_int_equal(n_different(whole + 2 * DROP_ELEMENTS, part, DROP_ELEMENTS), 0);
    drop("a", 1, 9, 3, 1, part);
    assert_true(n_different(whole + 2 * DROP_ELEMENTS, part, DROP_ELEMENTS) > 200);
    drop("a", 4, 8, 4, 1, part);
    assert_true(n_different(whole, part, DROP_ELEMENTS) > 200);
    drop("b", 4, 8, 3, 1, part);
    assert_true(n_different(whole, part, DROP_ELEMENTS) > 200);
    drop("a", 4, 8, 3, 0, part); /* not training */
    for (int i = 0; i < 4 * DROP_ELEMENTS; i++) assert_true(part[i] == 1);
}

/* ---- losses ---- */

/* config: in so many blocks of classes; 0: as a whole. */
static void record_model(wf_graph *g, const void *config) {
    int n_blocks = *(const int *)config;
    wf_tensor zero = wf_parameter(g, "zero", S(3), (wf_init){WF_INIT_CONSTANT, 0});
    wf_tensor logits = wf_add(input(g, "logits", S(3)), zero);
    wf_tensor labels = wf_input(g, "labels", WF_I32, WF_SCALAR);
    wfi_attr attr = {.classes = {3, n_blocks, 0, n_blocks}};
    if (n_blocks)
        logits = wfi_graph_op(g, &wfi_op_class_sums, &attr, NULL, 2, (wf_tensor[]){logits, labels});
    wf_loss(n_blocks ? wfi_graph_op(g, &wfi_op_cross_entropy_of_sums, &attr, NULL, 2,
                                    (wf_tensor[]){logits, labels})
                     : wf_cross_entropy(logits, labels));
}

static void check_records(int n_blocks) {
    wf_context *ctx = test_context();
    graph_walk w = begin(ctx, record_model, &n_blocks, 5, 1);
    const float logits[] = {1, 2, 3, 3, 3, 1, 0, 0, 0, 1000, 0, 0, 7, 8, 9}; /* [5, 3] */
    memcpy(walk_float(&w, "logits"), logits, sizeof logits);
    memset(walk_float(&w, "zero"), 0, 3 * sizeof(float));
    int32_t *labels = w.data[walk_find(w.g, "labels")];
    const int32_t with_ignored[] = {2, 1, 0, 0, -1}; /* a hit, beaten by the first, a hit, a hit */
    memcpy(labels, with_ignored, sizeof with_ignored);
    w.step.loss_scale = 0.25;
    walk_run(&w, false);
    const double *record = w.data[w.g->record];
    const float *loss = w.data[w.g->loss], *dzero = walk_gradient(&w, "zero");
    assert_true(record[0] == (double)loss[0] + loss[1] + loss[2] + loss[3] + loss[4]);
    assert_true(record[1] == 3);
    assert_true(loss[3] == 0 && loss[4] == 0);
    assert_float_equal(loss[2], (float)log(3), 1e-6);
    assert_float_equal(dzero[0] + dzero[1] + dzero[2], 0, 1e-6);
    assert_int_equal(w.g->labels, walk_find(w.g, "labels"));
    labels[0] = 3; /* out of range: loud, and in bounds */
    walk_run(&w, false);
    assert_true(isnan(loss[0]) && isnan(record[0]));
    end(ctx, &w);
}

TEST_CASE(records) {
    for (int n_blocks = 0; n_blocks <= 3; n_blocks++) check_records(n_blocks);
}

/* ---- edges ---- */

static void edge_model(wf_graph *g, const void *config) {
    wf_tensor x = input(g, "x", S(1, 2, 2));
    wf_output(wf_relu(x), "relu");
    wf_output(wf_max_pool(x, 2, 2, 0), "max");
    wf_tensor table = wf_parameter(g, "table", S(2, 2), (wf_init){WF_INIT_CONSTANT, 0});
    wf_tensor ids = wf_input(g, "ids", WF_I32, S(3));
    wf_output(wf_embedding_with(ids, table), "rows");
    wf_output(wf_gather(input(g, "pairs", S(3, 2)), ids), "gathered");
}

TEST_CASE(edges) {
    wf_context *ctx = test_context();
    graph_walk w = begin(ctx, edge_model, NULL, 1, 0);
    const float x[] = {-1, NAN, 5, -INFINITY};
    const int32_t ids[] = {-1, 2, 1};
    memcpy(walk_float(&w, "x"), x, sizeof x);
    memcpy(w.data[walk_find(w.g, "ids")], ids, sizeof ids);
    walk_run(&w, true);
    const float *relu = walk_float(&w, "relu"), *rows = walk_float(&w, "rows");
    const float *table = walk_float(&w, "table");
    assert_true(relu[0] == 0 && isnan(relu[1]) && relu[2] == 5 && relu[3] == 0);
    assert_true(isnan(walk_float(&w, "max")[0]));
    for (int k = 0; k < 4; k++) assert_true(rows[k] == 0);
    assert_true(rows[4] == table[2] && rows[5] == table[3]);
    const float *gathered = walk_float(&w, "gathered"), *pairs = walk_float(&w, "pairs");
    assert_true(gathered[0] == 0 && gathered[1] == 0 && gathered[2] == pairs[5]);
    end(ctx, &w);
}

/* ---- batch norm as a layer ---- */

static void layer_model(wf_graph *g, const void *config) {
    wf_tensor y = wf_batch_norm(input(g, "x", S(2, 3, 3)), "bn");
    wf_output(y, "y");
    wf_loss(wf_mean(wf_reshape(y, S(-1, 18)), 1));
}

TEST_CASE(batch_norm_layer) {
    wf_context *ctx = test_context();
    graph_walk w = begin(ctx, layer_model, NULL, 4, 1);
    assert_int_equal(w.g->n_stats, 1);
    const wfi_stat *stat = &w.g->stats[0];
    assert_int_equal(stat->n_reduced, 36);
    assert_int_equal(stat->running_mean, walk_find(w.g, "bn.running_mean"));
    assert_int_equal(stat->running_var, walk_find(w.g, "bn.running_var"));
    assert_int_equal(stat->n_batches, walk_find(w.g, "bn.num_batches_tracked"));
    walk_run(&w, false);
    const float *x = walk_float(&w, "x");
    double mean = 0, var = 0;
    for (int n = 0; n < 4; n++)
        for (int i = 0; i < 9; i++) mean += x[(n * 2 + 1) * 9 + i] / 36.0;
    for (int n = 0; n < 4; n++)
        for (int i = 0; i < 9; i++) var += pow(x[(n * 2 + 1) * 9 + i] - mean, 2) / 36;
    assert_float_equal(((float *)w.data[stat->mean])[1], mean, 1e-6);
    assert_float_equal(((float *)w.data[stat->var])[1], var, 1e-6);
    end(ctx, &w);

    ctx = test_context();
    w = begin(ctx, layer_model, NULL, 4, 0);
    assert_int_equal(w.g->n_stats, 0);
    for (int c = 0; c < 2; c++) walk_float(&w, "bn.running_var")[c] = 0.5f + (float)c;
    walk_run(&w, true);
    double expected = (value(&w, "x", 9) - value(&w, "bn.running_mean", 1)) / sqrt(1.5 + 1e-5);
    expected = expected * value(&w, "bn.weight", 1) + value(&w, "bn.bias", 1);
    assert_float_equal(value(&w, "y", 9), expected, 1e-6);
    end(ctx, &w);
}
