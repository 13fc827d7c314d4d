/* Slices change what is rounded, and nothing else: gradients are those of the whole. However many
 * ranks divide them, the bits are one rank's. WEFT_TEST_FULL=1: every network with every plan.
 *
 * label: serial
 */
#include "api/trainer.h"
#include "small_models.h"

#include <math.h>

/* Two layers begin a pair, and end it in another unit; what it reads is added to what it gives.
 * Then one without biases, of which the end is read twice. */
static void gated_net(wf_graph *g, const void *config) {
    wf_tensor x = wf_input(g, "x", WF_F32, WF_SHAPE(3, 8, 8));
    wf_tensor y = wf_input(g, "y", WF_I32, WF_SCALAR), none = {g, -1};
    wf_tensor h =
        wf_layer_norm(wf_linear(wf_reshape(x, WF_SHAPE(-1, SMALL_IMAGE)), "in", 24), "ln");
    wf_cut(h, "gate");
    wf_tensor gate = wf_mul(wf_sigmoid(wf_linear(h, "gate", 48)), wf_linear(h, "up", 48));
    wf_cut(gate, "down");
    h = wf_add(wf_linear(gate, "down", 24), h);
    wf_init init = {WF_INIT_NORMAL, 0.3f};
    wf_tensor a = wf_parameter(g, "a", WF_SHAPE(24, 8), init);
    wf_tensor b = wf_parameter(g, "b", WF_SHAPE(8, 24), init);
    h = wf_dropout(wf_linear_in_out_with(wf_tanh(wf_linear_in_out_with(h, a, none)), b, none),
                   "drop", 0.1f);
    h = wf_add(wf_mul(h, h), h);
    wf_cut(h, "head");
    wf_tensor logits = wf_linear(h, "fc", 10);
    wf_output(logits, "logits");
    wf_loss(wf_cross_entropy(logits, y));
}

/* The last output is that of a vocabulary of 11, which no number of slices divides; so are the
 * columns of the pair, in which something is dropped. */
enum { CLASSES = 11, WIDTH = 24 };

static void add_words(wf_graph *g, bool is_tied) {
    wf_tensor x = wf_input(g, "x", WF_F32, WF_SHAPE(3, 8, 8));
    wf_tensor y = wf_input(g, "y", WF_I32, WF_SCALAR), none = {g, -1};
    wf_tensor h = wf_linear(wf_reshape(x, WF_SHAPE(-1, SMALL_IMAGE)), "in", WIDTH);
    h = wf_cut(wf_add(wf_embedding(y, "wte", CLASSES, WIDTH, 0.3f), h), "mlp");
    wf_tensor m = wf_dropout(wf_gelu(wf_linear(h, "up", 30)), "drop", 0.3f);
    h = wf_layer_norm(wf_add(wf_linear(wf_scale(m, 1), "down", WIDTH), h), "ln");
    wf_cut(h, "head");
    wf_tensor wte =
        wf_parameter(g, "wte.weight", WF_SHAPE(CLASSES, WIDTH), (wf_init){WF_INIT_NORMAL, 0.3f});
    h = is_tied ? wf_linear_with(h, wte, none) : wf_linear(h, "fc", CLASSES);
    wf_output(h, "logits");
    wf_loss(wf_smoothed_cross_entropy(h, y, is_tied ? 0 : 0.2));
}

static void tied_words_net(wf_graph *g, const void *config) {
    add_words(g, true);
}

static void words_net(wf_graph *g, const void *config) {
    add_words(g, false);
}

/* Two blocks of attention with the same weights, in different units, of which the second is the
 * end of a pair that is reshaped; and one of these weights in one unit twice. */
static void shared_net(wf_graph *g, const void *config) {
    wf_tensor x = wf_input(g, "x", WF_F32, WF_SHAPE(3, 8, 8)), none = {g, -1};
    wf_tensor y = wf_input(g, "y", WF_I32, WF_SCALAR);
    wf_init init = {WF_INIT_NORMAL, 0.3f};
    wf_tensor h = wf_linear(wf_reshape(x, WF_SHAPE(-1, 8, WIDTH)), "in", WIDTH);
    wf_tensor qkv = wf_parameter(g, "qkv", WF_SHAPE(3 * WIDTH, WIDTH), init);
    wf_tensor out = wf_parameter(g, "out", WF_SHAPE(WIDTH, WIDTH), init);
    for (int i = 0; i < 3; i++) {
        wf_tensor a = wf_self_attention(wf_linear_with(h, qkv, none), 8, 1);
        h = wf_layer_norm(wf_add(wf_linear_with(a, out, none), h),
                          i ? i > 1 ? "ln2" : "ln1" : "ln0");
        if (i != 1) wf_cut(h, i ? "last" : "second");
    }
    h = wf_linear(wf_tanh(wf_linear(h, "up", 16)), "down", 2);
    h = wf_reshape(h, WF_SHAPE(-1, 16));
    wf_loss(wf_cross_entropy(wf_linear(h, "fc", 10), y));
}

/* Slices of images, which kernels hold in layouts of their own: so does what is summed. */
static void image_net(wf_graph *g, const void *config) {
    const wf_conv2d_shape same = {.stride = 1, .pad = 1};
    wf_tensor x = wf_input(g, "x", WF_F32, WF_SHAPE(3, 8, 8));
    wf_tensor y = wf_input(g, "y", WF_I32, WF_SCALAR);
    x = wf_conv2d(x, "in", 32, 3, same);
    wf_cut(x, "b");
    x = wf_add(x, wf_conv2d(wf_relu(wf_conv2d(x, "b1", 64, 3, same)), "b2", 32, 3, same));
    wf_cut(x, "head");
    wf_tensor logits = wf_linear(wf_global_avg_pool(x), "fc", CLASSES);
    wf_output(logits, "logits");
    wf_loss(wf_cross_entropy(logits, y));
}

/* Layers whose hidden units slices divide, token by token: also where these do not divide. */
static void recurrent_net(wf_graph *g, const void *config) {
    wf_tensor x = wf_input(g, "x", WF_F32, WF_SHAPE(3, 8, 8));
    wf_tensor y = wf_input(g, "y", WF_I32, WF_SCALAR);
    x = wf_lstm(wf_linear(wf_reshape(x, WF_SHAPE(-1, 3, 64)), "in", 10), "rnn", 0, 18);
    wf_cut(x, "second");
    x = wf_lstm(wf_dropout(x, "drop", 0.1f), "rnn", 1, 13);
    wf_cut(x, "head");
    wf_tensor logits = wf_linear(wf_reshape(x, WF_SHAPE(-1, 39)), "fc", CLASSES);
    wf_output(logits, "logits");
    wf_loss(wf_cross_entropy(logits, y));
}

typedef struct net {
    wf_model_function function;
    int n_slices; /* at most */
    int n_pairs;
    bool has_rows;
} net;

static const net nets[] = {{gated_net, 8, 2, false},      {plain_net, 4, 1, false},
                           {tied_words_net, 8, 3, false}, {words_net, 4, 3, false},
                           {shared_net, 8, 4, true},      {token_net, 8, 4, true},
                           {image_net, 4, 1, false},      {recurrent_net, 8, 8, false}};

static int count_pairs(const wf_graph *g) {
    int n = 0;
    for (int32_t u = 0; u < g->n_units; u++)
        n += g->units[u].is_slice && !g->units[u].is_rows && !g->units[u].slice;
    return n;
}

static float *read_gradients(wf_context *ctx, wf_trainer *t, size_t *n_out) {
    const wf_graph *g = wfi_trainer_graph(t);
    float *all = test_malloc(1 << 20);
    *n_out = 0;
    for (int32_t v = 0; v < g->n_values; v++) {
        const wfi_value *value = wfi_value_at(g, v);
        if (!wfi_value_is_state(value) || value->kind == WFI_VALUE_BUFFER) continue;
        size_t bytes = wfi_value_bytes(g, v);
        TEST_OK(ctx, wf_trainer_read_gradient(t, value->name, all + *n_out, bytes));
        *n_out += bytes / sizeof *all;
    }
    return all;
}

/* After two steps, of which the second has hidden state, for each kind of kernels. */
TEST(gradients_are_the_whole_ones) {
    for (size_t k = 0; k < 2 * sizeof nets / sizeof *nets; k++) {
        const net *one = &nets[k / 2];
        wf_recipe recipe = small_recipe();
        float *whole = NULL;
        double loss_whole = 0;
        size_t n_whole, n;
        recipe.kernels = k % 2 ? WF_KERNELS_REFERENCE : WF_KERNELS_FAST;
        for (recipe.n_slices = 1; recipe.n_slices <= one->n_slices; recipe.n_slices *= 2) {
            double loss = 0, difference = 0, size = 0;
            scoped_trainer t = small_trainer(ctx, one->function, &recipe, 1);
            for (int step = 0; step < 2; step++) TEST_OK(ctx, small_try_step(t, step, &loss));
            float *all = read_gradients(ctx, t, &n);
            assert_int_equal(count_pairs(wfi_trainer_graph(t)),
                             recipe.n_slices > 1 ? one->n_pairs : 0);
            if (!whole) {
                whole = all;
                n_whole = n;
                loss_whole = loss;
            } else {
                if (!(fabs(loss - loss_whole) <= 1e-6 * loss_whole))
                    fail_msg("net %zu, %d slices: loss %.9g, but %.9g as a whole", k / 2,
                             (int)recipe.n_slices, loss, loss_whole);
                assert_int_equal(n, n_whole);
                for (size_t i = 0; i < n; i++) {
                    difference += pow((double)all[i] - whole[i], 2);
                    size += pow(whole[i], 2);
                }
                if (!(sqrt(difference) <= 2e-6 * sqrt(size)) || difference == 0)
                    fail_msg("net %zu, %d slices: gradients are %g off", k / 2,
                             (int)recipe.n_slices, sqrt(difference / size));
                test_free(all);
            }
        }
        test_free(whole);
    }
}

/* Weights after two steps, and what is computed forward. */
static void train(wf_context *ctx, wf_model_function function, int n_slices, double clip_norm,
                  const char *plan, int n_ranks, char *hex_out, double *loss_out) {
    wf_recipe recipe =
        SMALL_RECIPE(.n_micro = 4, .n_lanes = 2, .n_slices = n_slices, .clip_norm = clip_norm);
    char devices[16];
    snprintf(devices, sizeof devices, "cpu:%d", n_ranks);
    wf_trainer *t = planned_trainer(ctx, function, &recipe, plan, devices, 0);
    for (int step = 0; step < 2; step++) TEST_OK(ctx, small_try_step(t, step, NULL));
    TEST_OK(ctx, small_eval(t, 2, 6, loss_out));
    TEST_OK(ctx, wf_trainer_weights_sha256(t, hex_out));
    for (int rank = 0; rank < n_ranks; rank++) {
        wf_trainer_memory memory = wf_trainer_memory_of(t, rank);
        assert_int_equal(memory.measured_peak_bytes, memory.planned_peak_bytes);
    }
    wf_trainer_destroy(t);
}

/* Without clipping, units whose state is kept elsewhere are updated while backward goes on. */
TEST(ranks_give_the_same_bits) {
    static const struct {
        const char *text;
        int n_ranks;
    } plans[] = {{"tp=2", 2},
                 {"tp=2,sp,allreduce=pairwise", 2},
                 {"tp=2,sp,dp=2,allreduce=ring", 4},
                 {"tp=4,sp,recompute=all", 4},
                 {"tp=2,sp,dp=2,zero=3,recompute=selective", 4},
                 {"tp=2,sp,pp=2,schedule=zb1,recompute=all", 4},
                 {"tp=2,sp,offload=activations", 2},
                 {"tp=4", 4},
                 {"tp=2,dp=2,zero=1", 4},
                 {"tp=2,dp=2,zero=3,recompute=all", 4},
                 {"tp=2,dp=2,zero=3,axes=dp+tp", 4},
                 {"tp=2,pp=2,dp=2,axes=pp+dp+tp", 8},
                 {"tp=2,pp=2,schedule=zb1", 4},
                 {"tp=2,offload=state+activations", 2},
                 {"dp=2,zero=2", 2},
                 {"schedule=breadth", 1}};
    size_t stride = test_is_full() ? 1 : 1 + TEST_SAMPLE;
    for (size_t k = 0; k < WFI_COUNT(nets); k++) {
        char one[65], hex[65];
        double loss_one, loss, clip_norm = k % 2 ? 0 : 0.5;
        train(ctx, nets[k].function, 4, clip_norm, "", 1, one, &loss_one);
        for (size_t i = k % stride; i < sizeof plans / sizeof *plans; i += stride) {
            if (strstr(plans[i].text, ",sp") && !nets[k].has_rows) continue;
            train(ctx, nets[k].function, 4, clip_norm, plans[i].text, plans[i].n_ranks, hex, &loss);
            if (strcmp(hex, one) || memcmp(&loss, &loss_one, sizeof loss))
                fail_msg("net %zu, %s: not one rank's bits", k, plans[i].text);
        }
    }
}

static void twelve_tokens_net(wf_graph *g, const void *config) {
    add_tokens(g, 12);
}

/* Slices whose tree is not made of halves. Ranks that divide rows do not join them. */
TEST(other_slices_give_the_same_bits) {
    static const char *const plans[] = {"pp=2", "tp=2,sp", "tp=3,sp"};
    for (int n_slices = 3; n_slices <= 6; n_slices += 3) {
        char one[65], hex[65];
        double loss_one, loss;
        train(ctx, twelve_tokens_net, n_slices, 0.5, "", 1, one, &loss_one);
        for (size_t k = 0; k < WFI_COUNT(plans); k++) {
            int n_ranks = plans[k][3] - '0';
            if (k && n_slices != 3 * (4 - n_ranks)) continue;
            train(ctx, twelve_tokens_net, n_slices, 0.5, plans[k], n_ranks, hex, &loss);
            assert_string_equal(hex, one);
            assert_memory_equal(&loss, &loss_one, sizeof loss);
        }
    }
}

/* ---- the vocabulary ---- */

/* What slices put out are the logits that the whole has; the loss and the hits are those of them,
 * for labels on both sides of where slices begin. */
TEST(logits_are_the_whole_ones) {
    enum { N = 11 };
    static const char *const plans[] = {"", "", "tp=2", "tp=4"}, *const devices[] = {
                                                                     "cpu:1", "cpu:1", "cpu:2",
                                                                     "cpu:4"};
    for (size_t k = 2; k < 4; k++) {
        float logits[sizeof plans / sizeof *plans][N * CLASSES];
        int64_t n_whole = 0;
        small_batch batch;
        small_batch_fill(&batch, 0);
        for (int i = 0; i < N; i++) batch.y[i] = i;
        wf_feed feeds[] = {{"x", batch.x, N * SMALL_IMAGE * sizeof *batch.x},
                           {"y", batch.y, N * sizeof *batch.y}};
        for (size_t i = 0; i < sizeof plans / sizeof *plans; i++) {
            wf_recipe recipe = small_recipe();
            wf_step_result result;
            double loss = 0;
            int64_t n_hits = 0;
            recipe.n_slices = i ? 4 : 1;
            scoped_trainer t =
                planned_trainer(ctx, nets[k].function, &recipe, plans[i], devices[i], 0);
            TEST_OK(ctx, wf_trainer_forward(t, feeds, 2, N, "logits", logits[i], sizeof logits[i]));
            TEST_OK(ctx, wf_trainer_eval(t, feeds, 2, N, &result));
            for (int r = 0; r < N; r++) {
                const float *row = logits[i] + r * CLASSES;
                double sum = 0;
                int largest = 0;
                for (int c = 0; c < CLASSES; c++) {
                    sum += exp(row[c]);
                    if (row[c] > row[largest]) largest = c;
                }
                loss += (log(sum) - row[r]) / N;
                n_hits += largest == r;
            }
            assert_true(fabs(result.loss - loss) < 1e-6 * loss);
            assert_int_equal(result.n_hits, n_hits);
            for (int e = 0; e < N * CLASSES; e++)
                if (!(fabsf(logits[i][e] - logits[0][e]) < 1e-5f) ||
                    (i > 1 && logits[i][e] != logits[1][e]))
                    fail_msg("net %zu, plan '%s': logit %d is %g", k, plans[i], e, logits[i][e]);
            /* A training step counts by slices. */
            wf_feed all[] = {{"x", batch.x, sizeof batch.x}, {"y", batch.y, sizeof batch.y}};
            TEST_OK(ctx, wf_trainer_step(t, all, 2, SMALL_BATCH, &result));
            if (!i) n_whole = result.n_hits;
            assert_int_equal(result.n_hits, n_whole);
            batch.y[3] = CLASSES; /* is in no slice */
            TEST_REFUSED(ctx, wf_trainer_step(t, all, 2, SMALL_BATCH, &result), WF_INVALID_ARG,
                         "y[3] is");
            batch.y[3] = 3;
        }
    }
}

TEST_FIXTURE(test_check_events, NULL)
