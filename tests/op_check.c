/* What ops refuse, each with a sentence that names the op and what does not fit; and
 * that the table of ops is complete.
 *
 * label: serial
 */
#include "base/base.h"
#include "op/op_table.h"
#include "test.h"

#include <math.h>

#define S(...) WF_SHAPE(__VA_ARGS__)

/* A parameter that is named after its shape. */
static wf_tensor t(wf_graph *g, wf_shape shape) {
    char name[WFI_SHAPE_TEXT];
    return wf_parameter(g, wfi_shape_text(&shape, name), shape, (wf_init){WF_INIT_CONSTANT, 0});
}

/* An I32 input of shape [2, sample...]. */
static wf_tensor ids(wf_graph *g, wf_shape sample) {
    return wf_input(g, "ids", WF_I32, sample);
}

static wf_tensor none(wf_graph *g) {
    return wfi_inert(g);
}

static wf_tensor conv(wf_graph *g, wf_shape x, wf_shape weight, wf_conv2d_shape s) {
    return wf_conv2d_with(t(g, x), t(g, weight), none(g), s);
}

static wf_tensor norm(wf_graph *g, wf_shape x, wf_shape scale) {
    wfi_attr attr = {.norm = {.eps = 1e-5}};
    return wfi_graph_op(g, &wfi_op_batch_norm, &attr, NULL, 3,
                        (wf_tensor[]){t(g, x), t(g, scale), t(g, scale)});
}

static wf_tensor split(wf_graph *g, wf_shape x, int dim, int n_parts) {
    wf_tensor parts[8];
    wf_split(t(g, x), dim, n_parts, parts);
    return parts[0];
}

static wf_tensor two_dropouts(wf_graph *g) {
    return wf_dropout(wf_dropout(t(g, S(2, 3)), "d", 0.1f), "d", 0.1f);
}

/* [2, t, 48]: 4 heads of queries and 2 of keys, of 6 elements each. */
static wf_tensor grouped(wf_graph *g, int64_t n_tokens) {
    wf_tensor x = t(g, S(2, n_tokens, 6)), keys = wf_linear(x, "k", 12);
    return wf_rotary(wf_linear(x, "q", 24), keys, keys, none(g), 4, 2, 10);
}

static wf_tensor attend(wf_graph *g, wf_tensor qkv) {
    return wf_reshape(wf_self_attention(qkv, 4, 1), S(1));
}

#define TALL ((int64_t)1 << 39)

/* status, words of the sentence, what is refused */
#define REFUSED(X)                                                                                 \
    X(SHAPE, "relu: input 0 [2, 3] is I32, but F32", wf_relu(ids(g, S(3))))                        \
    X(INVALID_ARG, "add: input 1 is not a tensor", wf_add(t(g, WF_SCALAR), none(g)))               \
    X(SHAPE, "linear: [4, 7] does not fit the weight [5, 8], stored as [out, in]",                 \
      wf_linear_with(t(g, S(4, 7)), t(g, S(5, 8)), none(g)))                                       \
    X(SHAPE, "linear: [4, 8] does not fit the weight [5, 8], stored as [in, out]",                 \
      wf_linear_in_out_with(t(g, S(4, 8)), t(g, S(5, 8)), none(g)))                                \
    X(SHAPE, "linear: the bias [8]", wf_linear_with(t(g, S(4, 8)), t(g, S(5, 8)), t(g, S(8))))     \
    X(SHAPE, "linear: [] does not fit", wf_linear_with(t(g, WF_SCALAR), t(g, S(5, 8)), none(g)))   \
    X(SHAPE, "linear: [4, 0] does not", wf_linear_with(t(g, S(4, 0)), t(g, S(5, 0)), none(g)))     \
    X(SHAPE, "matmul: [2, 3] times [2, 3]", wf_matmul(t(g, S(2, 3)), t(g, S(2, 3))))               \
    X(SHAPE, "matmul: [3] times [3]", wf_matmul(t(g, S(3)), t(g, S(3))))                           \
    X(SHAPE, "matmul: [2, 2, 2] times [3, 2, 2]", wf_matmul(t(g, S(2, 2, 2)), t(g, S(3, 2, 2))))   \
    X(SHAPE,                                                                                       \
      "conv2d: x [4, 3, 28, 28] has 3 channels, but the weight [64, 4, 3, 3] with 1 group "        \
      "expects 4",                                                                                 \
      conv(g, S(4, 3, 28, 28), S(64, 4, 3, 3), (wf_conv2d_shape){.pad = 1}))                       \
    X(SHAPE, "conv2d: 3 groups do not divide",                                                     \
      conv(g, S(1, 3, 5, 5), S(4, 1, 3, 3), (wf_conv2d_shape){.pad = 1, .groups = 3}))             \
    X(SHAPE, "conv2d: the kernel of weight [1, 1, 7, 7] is larger",                                \
      conv(g, S(1, 1, 4, 4), S(1, 1, 7, 7), (wf_conv2d_shape){.pad = 1}))                          \
    X(SHAPE, "conv2d: input 0 [3, 5, 5] is not an image",                                          \
      conv(g, S(3, 5, 5), S(4, 1, 3, 3), (wf_conv2d_shape){.pad = 1}))                             \
    X(SHAPE, "conv2d: input 0 [0, 3, 5, 5] is empty",                                              \
      conv(g, S(0, 3, 5, 5), S(4, 3, 3, 3), (wf_conv2d_shape){.pad = 1}))                          \
    X(SHAPE, "conv2d: the weight [4, 3, 3] is not",                                                \
      conv(g, S(1, 3, 5, 5), S(4, 3, 3), (wf_conv2d_shape){.pad = 1}))                             \
    X(INVALID_ARG, "conv2d: stride -1",                                                            \
      conv(g, S(1, 3, 5, 5), S(4, 3, 3, 3), (wf_conv2d_shape){.stride = -1, .pad = 1}))            \
    X(INVALID_ARG, "conv2d: stride 1, pad -2",                                                     \
      conv(g, S(1, 3, 5, 5), S(4, 3, 3, 3), (wf_conv2d_shape){.pad = -2}))                         \
    X(INVALID_ARG, "conv2d: stride 1, pad 9223372036854775807",                                    \
      conv(g, S(1, 3, 5, 5), S(4, 3, 3, 3), (wf_conv2d_shape){.pad = INT64_MAX}))                  \
    X(INVALID_ARG, "conv2d: stride 1, pad 0, groups 1, dilation -3",                               \
      conv(g, S(1, 3, 5, 5), S(4, 3, 3, 3), (wf_conv2d_shape){.dilation = -3}))                    \
    X(SHAPE,                                                                                       \
      "conv2d: the kernel of weight [4, 3, 3, 3], 3 apart, is larger than x [1, 3, 5, 6] with "    \
      "pad 0",                                                                                     \
      conv(g, S(1, 3, 5, 6), S(4, 3, 3, 3), (wf_conv2d_shape){.dilation = 3}))                     \
    X(INVALID_ARG, "conv2d: stride 1, pad 0, groups 1, dilation 4611686018427387904",              \
      conv(g, S(1, 3, 5, 5), S(4, 3, 3, 3), (wf_conv2d_shape){.dilation = INT64_C(1) << 62}))      \
    X(SHAPE, "conv2d: the bias [3]",                                                               \
      wf_conv2d_with(t(g, S(1, 3, 5, 5)), t(g, S(4, 3, 3, 3)), t(g, S(3)), (wf_conv2d_shape){0}))  \
    X(SHAPE, "batch_norm: input 1 [4] is not one value a channel of x [2, 3]",                     \
      norm(g, S(2, 3), S(4)))                                                                      \
    X(SHAPE, "batch_norm: x [2, 3, 4] is neither", norm(g, S(2, 3, 4), S(3)))                      \
    X(SHAPE, "batch_norm: x [0, 3] is empty", norm(g, S(0, 3), S(3)))                              \
    X(SHAPE, "layer_norm: input 1 [4] is not the last dim of x [2, 3]",                            \
      wf_layer_norm_with(t(g, S(2, 3)), t(g, S(4)), t(g, S(3)), 1e-5f))                            \
    X(SHAPE, "rms_norm: input 1 [4] is not the last dim of x [2, 3]",                              \
      wf_rms_norm_with(t(g, S(2, 3)), t(g, S(4)), 1e-5f))                                          \
    X(INVALID_ARG, "rms_norm: eps is nan",                                                         \
      wf_rms_norm_with(t(g, S(2, 3)), t(g, S(3)), (float)NAN))                                     \
    X(SHAPE, "rotary: q [2, 3, 8], k [2, 3, 4] and v [2, 4, 4] do not fit",                        \
      wf_rotary(t(g, S(2, 3, 8)), t(g, S(2, 3, 4)), t(g, S(2, 4, 4)), none(g), 4, 2, 10))          \
    X(INVALID_ARG, "rotary: 4 heads of 8 queries and 3 of 6 keys: heads have an even number",      \
      wf_rotary(t(g, S(2, 3, 8)), t(g, S(2, 3, 6)), t(g, S(2, 3, 6)), none(g), 4, 3, 10))          \
    X(INVALID_ARG, "rotary: theta is 0",                                                           \
      wf_rotary(t(g, S(2, 3, 8)), t(g, S(2, 3, 4)), t(g, S(2, 3, 4)), none(g), 4, 2, 0))           \
    X(INVALID_ARG, "rotary: scaling by 8 from 4 to 4 turns in 16 positions",                       \
      wf_rotary_scaled(t(g, S(2, 3, 8)), t(g, S(2, 3, 4)), t(g, S(2, 3, 4)), none(g), 4, 2, 10, 8, \
                       4, 4, 16))                                                                  \
    X(INVALID_ARG, "layer_norm: eps is nan",                                                       \
      wf_layer_norm_with(t(g, S(2, 3)), t(g, S(3)), t(g, S(3)), (float)NAN))                       \
    X(SHAPE, "add: the shapes [2, 3] and [3, 2] differ", wf_add(t(g, S(2, 3)), t(g, S(3, 2))))     \
    X(SHAPE, "add_broadcast: the dims of [2] are not the last ones of [2, 3]",                     \
      wf_add(t(g, S(2, 3)), t(g, S(2))))                                                           \
    X(SHAPE, "add_broadcast: the dims of [2, 3]", wf_add(t(g, S(3)), t(g, S(2, 3))))               \
    X(SHAPE, "mul: the shapes [2] and [3] differ", wf_mul(t(g, S(2)), t(g, S(3))))                 \
    X(SHAPE, "log_softmax: works along the last dim, which [2, 0]", wf_log_softmax(t(g, S(2, 0)))) \
    X(SHAPE, "softmax: works along the last dim, which []", wf_softmax(t(g, WF_SCALAR)))           \
    X(SHAPE, "cross_entropy: logits [2, 5] take labels [2], not [2, 3]",                           \
      wf_cross_entropy(t(g, S(2, 5)), ids(g, S(3))))                                               \
    X(SHAPE, "cross_entropy: the logits [2, 0] have no classes",                                   \
      wf_cross_entropy(t(g, S(2, 0)), ids(g, WF_SCALAR)))                                          \
    X(SHAPE, "cross_entropy: input 1 [2] is F32, but I32",                                         \
      wf_cross_entropy(t(g, S(2, 5)), t(g, S(2))))                                                 \
    X(INVALID_ARG, "smoothed_cross_entropy: the smoothing is 1, but must be in [0, 1)",            \
      wf_smoothed_cross_entropy(t(g, S(2, 5)), ids(g, S(2)), 1))                                   \
    X(SHAPE, "mse: the shapes [2, 3] and [2] differ", wf_mse(t(g, S(2, 3)), t(g, S(2))))           \
    X(SHAPE, "mse: [2, 0] has no samples", wf_mse(t(g, S(2, 0)), t(g, S(2, 0))))                   \
    X(INVALID_ARG, "max_pool: kernel 0", wf_max_pool(t(g, S(1, 1, 4, 4)), 0, 1, 0))                \
    X(INVALID_ARG, "max_pool: kernel 2, stride 2, pad 2",                                          \
      wf_max_pool(t(g, S(1, 1, 4, 4)), 2, 2, 2))                                                   \
    X(SHAPE, "avg_pool: a window of 5 is larger than x [1, 1, 4, 4]",                              \
      wf_avg_pool(t(g, S(1, 1, 4, 4)), 5, 1, 0))                                                   \
    X(SHAPE, "global_avg_pool: input 0 [2, 3] is not an image", wf_global_avg_pool(t(g, S(2, 3)))) \
    X(SHAPE, "global_avg_pool: input 0 [1, 2, 0, 3] is empty",                                     \
      wf_global_avg_pool(t(g, S(1, 2, 0, 3))))                                                     \
    X(SHAPE, "embedding: input 0 [2] is F32, but I32",                                             \
      wf_embedding_with(t(g, S(2)), t(g, S(5, 3))))                                                \
    X(SHAPE, "embedding: the table [5] is not", wf_embedding_with(ids(g, S(3)), t(g, S(5))))       \
    X(INVALID_ARG, "dropout: p is 1", wf_dropout(t(g, S(2, 3)), "d", 1.0f))                        \
    X(INVALID_ARG, "dropout: p is -0.5", wf_dropout(t(g, S(2, 3)), "d", -0.5f))                    \
    X(SHAPE, "dropout: the first dim of [3, 2] is not the microbatch's 2 samples",                 \
      wf_dropout(t(g, S(3, 2)), "d", 0.5f))                                                        \
    X(INVALID_ARG, "dropout: two are called 'd'", two_dropouts(g))                                 \
    X(SHAPE, "reshape: [2, 3] and [4, -1] have different numbers of elements",                     \
      wf_reshape(t(g, S(2, 3)), S(4, -1)))                                                         \
    X(SHAPE, "reshape: [2, 3] and [-1, -1] have different numbers of elements",                    \
      wf_reshape(t(g, S(2, 3)), S(-1, -1)))                                                        \
    X(SHAPE, "reshape: [0, 3] and [0, -1] have different numbers of elements",                     \
      wf_reshape(t(g, S(0, 3)), S(0, -1)))                                                         \
    X(SHAPE, "reshape: [2, 3] and [-2, -3] have different numbers of elements",                    \
      wf_reshape(t(g, S(2, 3)), S(-2, -3)))                                                        \
    X(SHAPE, "reshape: [2, 3] and [4611686018427387904, 8] have different numbers of elements",    \
      wf_reshape(t(g, S(2, 3)), S((int64_t)1 << 62, 8)))                                           \
    X(SHAPE, "reshape: [2, 3] and a shape with too many dims have different numbers of elements",  \
      wf_reshape(t(g, S(2, 3)), (wf_shape){.n_dims = 7}))                                          \
    X(INVALID_ARG, "transpose: dims 0 and 2 of [2, 3]", wf_transpose(t(g, S(2, 3)), 0, 2))         \
    X(INVALID_ARG, "transpose: dims -1 and 0", wf_transpose(t(g, S(2, 3)), -1, 0))                 \
    X(SHAPE, "concat: [2, 3] and [3, 3] along dim 1",                                              \
      wf_concat((wf_tensor[]){t(g, S(2, 3)), t(g, S(3, 3))}, 2, 1))                                \
    X(SHAPE, "concat: [2] and [2] along dim 1",                                                    \
      wf_concat((wf_tensor[]){t(g, S(2)), t(g, S(2))}, 2, 1))                                      \
    X(SHAPE, "slice: [2] from 2 along dim 0 is not a part of [3]", wf_slice(t(g, S(3)), 0, 2, 2))  \
    X(SHAPE, "slice: [9223372036854775807] from 1", wf_slice(t(g, S(3)), 0, 1, INT64_MAX))         \
    X(SHAPE, "slice: [3] from 0 along dim 1 is not a part", wf_slice(t(g, S(3)), 1, 0, 2))         \
    X(SHAPE, "slice: [1] from -1", wf_slice(t(g, S(3)), 0, -1, 1))                                 \
    X(SHAPE, "split: dim 1 of [2, 5] into 2 equal parts", split(g, S(2, 5), 1, 2))                 \
    X(SHAPE, "split: dim 2 of [2, 5]", split(g, S(2, 5), 2, 5))                                    \
    X(INVALID_ARG, "reduce: dim 2 of [2, 3]", wf_sum(t(g, S(2, 3)), 2))                            \
    X(INVALID_ARG, "reduce: dim 0 of []", wf_mean(t(g, WF_SCALAR), 0))                             \
    X(SHAPE, "reduce: the mean along dim 1 of [2, 0]", wf_mean(t(g, S(2, 0)), 1))                  \
    X(SHAPE, "self_attention: qkv [2, 3, 10] is not", wf_self_attention(t(g, S(2, 3, 10)), 2, 1))  \
    X(INVALID_ARG, "self_attention: 4 heads, 4 of keys, do not divide qkv [2, 3, 18]",             \
      wf_self_attention(t(g, S(2, 3, 18)), 4, 1))                                                  \
    X(SHAPE, "reshape: [2, 3, 16] and [1]",                                                        \
      wf_reshape(wf_self_attention(wf_rotary(t(g, S(2, 3, 16)), t(g, S(2, 3, 16)),                 \
                                             t(g, S(2, 3, 16)), none(g), 4, 4, 10),                \
                                   8, 1),                                                          \
                 S(1)))                                                                            \
    X(INVALID_ARG, "self_attention: 12 heads are not those that wf_rotary grouped",                \
      wf_self_attention(                                                                           \
          wf_rotary(t(g, S(2, 3, 16)), t(g, S(2, 3, 8)), t(g, S(2, 3, 8)), none(g), 4, 2, 10), 12, \
          1))                                                                                      \
    X(INVALID_ARG, "self_attention: 0 heads", wf_self_attention(t(g, S(2, 3, 18)), 0, 1))          \
    X(SHAPE, "reshape: [2, 3, 16] and [1]", attend(g, wf_linear(grouped(g, 3), "mix", 48)))        \
    X(SHAPE, "reshape: [2, 48, 16] and [1]", attend(g, wf_transpose(grouped(g, 48), 1, 2)))        \
    X(SHAPE, "reshape: [2, 3, 24] and [1]",                                                        \
      attend(g, wf_dropout(wf_scale(grouped(g, 3), 2), "d", 0)))                                   \
    X(SHAPE, "reshape: [2, 3, 24] and [1]", attend(g, wf_reshape(grouped(g, 3), S(2, 3, 48))))     \
    X(SHAPE, "far too large",                                                                      \
      wf_concat((wf_tensor[]){t(g, S(TALL)), t(g, S(TALL)), t(g, S(TALL))}, 3, 0))                 \
    X(INVALID_ARG, "batch_norm 'bn': one value a channel", wf_batch_norm(t(g, S(1, 3)), "bn"))     \
    X(SHAPE, "linear: []", wf_linear(t(g, WF_SCALAR), "fc", 3))                                    \
    X(SHAPE, "conv2d: input 0 [2, 3]",                                                             \
      wf_conv2d(t(g, S(2, 3)), "conv", 4, 3, (wf_conv2d_shape){.pad = 1}))                         \
    X(SHAPE, "far too large", wf_linear(t(g, S(2, 3)), "fc", -1))

static const struct {
    wf_status status;
    const char *words, *what;
} refused[] = {
#define ENTRY(status, words, expression) {WF_##status, words, #expression},
    REFUSED(ENTRY)
#undef ENTRY
};

static void refused_model(wf_graph *g, const void *config) {
    int wanted = *(const int *)config, i = 0;
#define TRY(status, words, expression)                                                             \
    if (i++ == wanted) wf_output(expression, "y");
    REFUSED(TRY)
#undef TRY
}

TEST_CASE(refusals) {
    for (int i = 0; i < (int)WFI_COUNT(refused); i++) {
        scoped_context ctx = test_context();
        wf_graph_config config = WF_GRAPH_CONFIG_INIT;
        wf_graph *g = NULL;
        config.batch = 2;
        wf_status status = wf_graph_create(ctx, &config, refused_model, &i, &g);
        if (status != refused[i].status || !strstr(wf_context_error(ctx), refused[i].words))
            fail_msg("%s: %s '%s', expected %s '%s'", refused[i].what, wf_status_name(status),
                     wf_context_error(ctx), wf_status_name(refused[i].status), refused[i].words);
        assert_null(g);
    }
}

/* After a failure everything is inert, and the first sentence stands. */
static void inert_model(wf_graph *g, const void *config) {
    wf_tensor x = wf_relu(ids(g, S(3))), parts[3];
    assert_true(x.id < 0);
    x = wf_linear(x, "fc", 3);
    x = wf_conv2d(x, "conv", 3, 3, (wf_conv2d_shape){.pad = 1, .groups = 2});
    x = wf_batch_norm(wf_layer_norm(x, "ln"), "bn");
    wf_split(wf_reshape(wf_slice(wf_mean(x, 3), 0, 1, 2), S(-1)), 0, 3, parts);
    x = wf_self_attention(wf_concat(parts, 3, 5), 0, 1);
    x = wf_embedding(wf_dropout(wf_matmul(x, x), "d", 7), "e", -1, -1, 0);
    assert_true(x.id < 0);
    wf_loss(wf_cross_entropy(x, x));
}

TEST(inert) {
    wf_graph_config config = WF_GRAPH_CONFIG_INIT;
    wf_graph *g = NULL;
    TEST_REFUSED(ctx, wf_graph_create(ctx, &config, inert_model, NULL, &g), WF_SHAPE, "relu");
}

TEST_CASE(table) {
    static const char *const names[] = {
#define NAME(name) #name,
        WFI_OP_LIST(NAME)
#undef NAME
    };
    size_t n = 0;
    for (; wfi_op_table[n]; n++) {
        const wfi_op *op = wfi_op_table[n];
        assert_string_equal(op->name, names[n]);
        assert_true(op->check || op->makes[0]);
        assert_non_null(op->reference);
        assert_true(op->tolerance >= 0 && op->tolerance < 1e-4f);
    }
    assert_int_equal(n, WFI_COUNT(names));
}
