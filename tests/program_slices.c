/* Pairs of layers as slices: which there are, what is refused, what ranks that divide them send.
 * That no plan changes the numbers, train_slices says.
 *
 * label: serial
 */
#include "program/stage.h"
#include "test_program.h"

enum { TOKENS = 16, HIDDEN = 96, HEADS = 6, BATCH = 8, MICRO = 4 };

static wf_model *find_gpt(wf_context *ctx, int64_t n_layers) {
    wf_model *model =
        test_find_model(ctx, "gpt",
                        &TEST_MODEL(.n_classes = 100, .n_tokens = TOKENS, .n_layers = n_layers,
                                    .hidden = HIDDEN, .n_heads = HEADS));
    return model;
}

static wf_status make(wf_context *ctx, const wf_model *model, const char *plan_text,
                      int64_t n_slices, wf_program **program_out) {
    wf_recipe recipe = TEST_RECIPE(.batch = BATCH, .n_micro = MICRO);
    wf_plan *plan = test_plan(ctx, plan_text);
    recipe.n_lanes = wf_plan_dp(plan);
    recipe.n_slices = n_slices;
    recipe.momentum = 0.9;
    wf_status status = wf_program_create(ctx, model, &recipe, plan, WF_PROGRAM_TRAIN, program_out);
    wf_plan_destroy(plan);
    return status;
}

static wf_model *find_lstm(wf_context *ctx, int64_t n_layers, int64_t n_tokens, int64_t hidden,
                           double dropout) {
    wf_model *model =
        test_find_model(ctx, "lstm",
                        &TEST_MODEL(.n_classes = 100, .n_tokens = n_tokens, .n_layers = n_layers,
                                    .hidden = hidden, .embedding = hidden, .dropout = dropout));
    return model;
}

/* ---- which there are ---- */

TEST(a_pair_is_units) {
    static const char *const names[] = {
        "embed",        "embed.pair0.0", "embed.pair0.1", "embed.pair0.2", "embed.sum0",
        "h.0",          "h.0.pair0.0",   "h.0.pair0.1",   "h.0.pair0.2",   "h.0.sum0",
        "h.0.pair1.0",  "h.0.pair1.1",   "h.0.pair1.2",   "h.0.sum1",      "head",
        "head.pair0.0", "head.pair0.1",  "head.pair0.2",  "head.sum0"};
    scoped_model model = find_gpt(ctx, 1);
    scoped_program p;
    TEST_OK(ctx, make(ctx, model, "", 3, &p));
    assert_int_equal(p->graph->n_units, sizeof names / sizeof *names);
    for (int32_t u = 0; u < p->graph->n_units; u++)
        assert_string_equal(p->graph->units[u].name, names[u]);
    /* Queries, keys and values of a slice's heads; of the layer after attention, its rows. */
    assert_int_equal(p->graph->units[8].param_bytes,
                     (3 * HIDDEN * (HIDDEN + 1) / 3 + HIDDEN / 3 * HIDDEN) * sizeof(float));
    for (int32_t v = 0; v < p->graph->n_values; v++) {
        const wfi_value *value = wfi_value_at(p->graph, v);
        if (value->cut && !strncmp(value->name, "h.0.attn.c_attn", 15))
            assert_int_equal(value->cut->n_blocks, 3);
    }
}

/* Two slices divide 16 tokens: between the pairs each has half of the rows. */
TEST(rows_are_units) {
    static const char *const names[] = {
        "embed",        "embed.pair0.0", "embed.pair0.1", "embed.sum0",   "h.0",
        "h.0.rows0.0",  "h.0.rows0.1",   "h.0.join0",     "h.0.pair0.0",  "h.0.pair0.1",
        "h.0.sum0",     "h.0.rows1.0",   "h.0.rows1.1",   "h.0.join1",    "h.0.pair1.0",
        "h.0.pair1.1",  "h.0.sum1",      "h.0.rows2.0",   "h.0.rows2.1",  "head",
        "head.rows0.0", "head.rows0.1",  "head.join0",    "head.pair0.0", "head.pair0.1",
        "head.sum0"};
    scoped_model model = find_gpt(ctx, 1);
    scoped_program p;
    TEST_OK(ctx, make(ctx, model, "tp=2,sp", 2, &p));
    assert_int_equal(p->graph->n_units, sizeof names / sizeof *names);
    for (int32_t u = 0; u < p->graph->n_units; u++)
        assert_string_equal(p->graph->units[u].name, names[u]);
    /* The bias of the layer before and a norm's two vectors. */
    assert_int_equal(p->graph->units[10].param_bytes, 3 * HIDDEN * sizeof(float));
    for (int rank = 0; rank < 2; rank++)
        for (int32_t u = 0; u < p->graph->n_units; u++)
            if (p->graph->units[u].is_slice)
                assert_int_equal(wfi_unit_is_on(p, u, rank), p->graph->units[u].slice == rank);
}

static int count_forwards(wf_context *ctx, const char *plan, bool of_rows) {
    scoped_model model = find_gpt(ctx, 1);
    scoped_program p;
    int n = 0;
    TEST_OK(ctx, make(ctx, model, plan, 2, &p));
    for (int32_t i = 0; i < p->n_instructions; i++) {
        const wfi_instruction *now = &p->instructions[i];
        n += now->kind == WFI_FORWARD && now->rank == 0 && now->micro == 0 &&
             p->graph->units[now->unit].is_rows == of_rows;
    }
    return n;
}

/* A rank that has all rows runs one instruction for both slices, and with sp one for its own; of
 * pairs, one rank runs both slices. */
TEST(rows_are_joined) {
    assert_int_equal(count_forwards(ctx, "tp=2,sp", true), 4);
    assert_int_equal(count_forwards(ctx, "tp=2", true), 4);
    assert_int_equal(count_forwards(ctx, "dp=1", true), 4);
    assert_int_equal(count_forwards(ctx, "dp=1", false), count_forwards(ctx, "tp=2", false) + 4);
    /* Units that have lost their nodes are not shown. */
    scoped_model model = find_gpt(ctx, 1);
    scoped_program p;
    wf_unit_summary units[32];
    TEST_OK(ctx, make(ctx, model, "dp=1", 2, &p));
    int n = wf_program_units(p, 0, 0, 32, units);
    assert_int_equal(n, p->graph->n_units - 4);
    assert_int_equal(n, wf_program_rank(p, 0).n_units);
    for (int k = 0; k < n; k++) assert_null(strstr(units[k].name, "rows0.1"));
}

static int count_sends(wf_context *ctx, int64_t n_tokens, int64_t batch) {
    scoped_model model = test_find_model(ctx, "gpt",
                                         &TEST_MODEL(.n_classes = 100, .n_tokens = n_tokens,
                                                     .n_layers = 2, .hidden = 48, .n_heads = 6));
    wf_recipe recipe = TEST_RECIPE(.batch = batch, .n_micro = 2, .n_slices = 2);
    scoped_program p = test_program(ctx, model, &recipe, "pp=2");
    int n = 0;
    for (int32_t i = 0; i < p->n_instructions; i++) {
        const wfi_instruction *now = &p->instructions[i];
        n += now->kind == WFI_SEND && now->rank == 0 && now->micro == 0;
    }
    for (int32_t v = 0; v < p->graph->n_nodes; v++) /* made before they are read */
        for (int k = 0; k < p->graph->nodes[v].n_in; k++)
            if (p->graph->nodes[v].in[k] >= 0)
                assert_true(p->graph->values[p->graph->nodes[v].in[k]].node < v);
    return n;
}

/* The next stage gets the sum of a pair and the rows that are added to it, of all slices at once.
 * The rows of a slice end within a cache line if it has one token: in BF16 they have half as many
 * bytes. */
TEST(rows_lie_side_by_side) {
    assert_int_equal(count_sends(ctx, 16, 2), 2);
    assert_int_equal(count_sends(ctx, 2, 4), 2);
    assert_int_equal(count_sends(ctx, 2, 2), 3);
}

static int count_folds(wf_context *ctx, int64_t n_slices) {
    scoped_model model = test_find_model(
        ctx, "gpt",
        &TEST_MODEL(.n_classes = 100, .n_tokens = 12, .n_layers = 1, .hidden = 48, .n_heads = 12));
    scoped_program p;
    int n = 0;
    TEST_OK(ctx, make(ctx, model, "pp=2", n_slices, &p));
    for (int32_t i = 0; i < p->n_instructions; i++) n += p->instructions[i].kind == WFI_FOLD;
    return n;
}

/* Seven values of a microbatch are sums of slices. Four units of rows sum gradients: halves in one
 * block, other numbers of slices use by use of eight weights. */
TEST(halves_are_summed_at_once) {
    const int values = 7 * MICRO;
    assert_int_equal(count_folds(ctx, 2), values + 4);
    assert_int_equal(count_folds(ctx, 4), 3 * values + 2 * 4);
    assert_int_equal(count_folds(ctx, 3), 2 * values + 2 * 8);
    assert_int_equal(count_folds(ctx, 6), 5 * values + 5 * 8);
}

/* Weights of a norm are used by the units of rows: the unit that owns them begins their sums. */
TEST(nothing_is_added_once) {
    scoped_model model = find_gpt(ctx, 1);
    scoped_program p;
    int n = 0;
    TEST_OK(ctx, make(ctx, model, "", 2, &p));
    for (int32_t i = 0; i < p->n_instructions; i++) {
        const wfi_instruction *now = &p->instructions[i];
        bool is_part = now->segment && !now->segment->is_pack;
        if (is_part && now->segment->part == WFI_PART_BW && !wfi_segment_adds(now->segment))
            n += now->micro == 0 ? 1 : MICRO;
    }
    assert_int_equal(n, 4);
}

/* Of a layer of an LSTM slices have the rows of their hidden units, and go on with these from token
 * to token: no stage begins there. */
TEST(tokens_are_units) {
    static const char *const names[] = {
        "encoder",         "encoder.pair0.0", "encoder.pair0.1", "encoder.sum0",  "rnn.0",
        "rnn.0.pair0.0",   "rnn.0.pair0.1",   "rnn.0.sum0",      "rnn.0.pair1.0", "rnn.0.pair1.1",
        "rnn.0.sum1",      "rnn.0.pair2.0",   "rnn.0.pair2.1",   "rnn.0.sum2",    "decoder",
        "decoder.pair0.0", "decoder.pair0.1", "decoder.sum0"};
    scoped_model model = find_lstm(ctx, 1, 2, HIDDEN, 0);
    scoped_program p;
    TEST_OK(ctx, make(ctx, model, "tp=2", 2, &p));
    assert_int_equal(p->graph->n_units, sizeof names / sizeof *names);
    for (int32_t u = 0; u < p->graph->n_units; u++) {
        const wfi_unit *unit = &p->graph->units[u];
        bool is_inner = u > 4 && u < 14;
        size_t n = u == 5 || u == 6 ? (size_t)4 * HIDDEN * (2 * HIDDEN + 2) / 2 : 0;
        assert_string_equal(unit->name, names[u]);
        assert_int_equal(unit->is_inner, is_inner);
        if (u > 3 && u < 14) assert_int_equal(unit->param_bytes, n * sizeof(float));
        if (is_inner) assert_false(wfi_unit_may_begin_stage(p->graph, u));
    }
}

/* ---- what is refused ---- */

/* Layers of samples, not of tokens: there is nothing that sp could divide. */
static void without_rows(wf_graph *g, const void *config) {
    wf_tensor h = wf_relu(wf_linear(wf_input(g, "x", WF_F32, WF_SHAPE(12)), "in", 12));
    h = wf_relu(wf_linear(h, "out", 12));
    wf_loss(wf_cross_entropy(wf_linear(h, "head", 4), wf_input(g, "y", WF_I32, WF_SCALAR)));
}

TEST(nothing_to_divide) {
    wf_program *p;
    wf_model *model = test_model(ctx, "small", without_rows, NULL, 0);
    TEST_OK(ctx, make(ctx, model, "tp=2,sp", 2, &p));
    for (int32_t u = 0; u < p->graph->n_units; u++) assert_false(p->graph->units[u].is_rows);
    wf_program_destroy(p);
    wf_model_destroy(model);
    /* A dropout alone is no reason, even where slices do not divide the tokens. */
    model = find_lstm(ctx, 1, 5, HIDDEN, 0.1);
    TEST_OK(ctx, make(ctx, model, "tp=2,sp", 2, &p));
    for (int32_t u = 0; u < p->graph->n_units; u++) assert_false(p->graph->units[u].is_rows);
    wf_program_destroy(p);
    wf_model_destroy(model);
}

/* The host reads all rows of what has a name. */
static void named_rows(wf_graph *g, const void *config) {
    wf_tensor h = wf_input(g, "x", WF_F32, WF_SHAPE(4, 16));
    for (int k = 0; k < 2; k++) {
        h = wf_linear(wf_tanh(wf_linear(h, k ? "in1" : "in0", 16)), k ? "out1" : "out0", 16);
        h = wf_layer_norm(h, k ? "ln1" : "ln0");
        if (!k) wf_output(h, "normed");
        h = wf_layer_norm(h, k ? "ln3" : "ln2");
    }
    h = wf_reshape(h, WF_SHAPE(-1, 64));
    wf_loss(wf_cross_entropy(wf_linear(h, "head", 4), wf_input(g, "y", WF_I32, WF_SCALAR)));
}

TEST(names_are_whole) {
    static const char *const plans[] = {"", "tp=2", "tp=2,sp"};
    for (size_t k = 0; k < 3; k++) {
        wf_recipe recipe = TEST_RECIPE(.batch = 4, .n_slices = 2);
        scoped_program p;
        scoped_plan plan = test_plan(ctx, plans[k]);
        scoped_model model = test_model(ctx, "small", named_rows, NULL, 0);
        TEST_OK(ctx, wf_program_create(ctx, model, &recipe, plan, WF_PROGRAM_FORWARD, &p));
    }
}

static wf_tensor begin(wf_graph *g) {
    return wf_linear(wf_input(g, "x", WF_F32, WF_SHAPE(12)), "in", 12);
}

/* A softmax sees all of a row. */
static void end(wf_graph *g, wf_tensor h) {
    h = wf_softmax(h);
    wf_loss(wf_cross_entropy(wf_linear(h, "head", 4), wf_input(g, "y", WF_I32, WF_SCALAR)));
}

static void by_softmax(wf_graph *g, const void *config) {
    end(g, begin(g));
}

static void seen_outside(wf_graph *g, const void *config) {
    wf_tensor h = wf_relu(begin(g));
    end(g, wf_add(wf_linear(h, "out", 12), h));
}

static void tied(wf_graph *g, const void *config) {
    wf_tensor none = {g, -1}, x = wf_input(g, "x", WF_F32, WF_SHAPE(12));
    wf_tensor weight = wf_parameter(g, "w", WF_SHAPE(12, 12), (wf_init){WF_INIT_NORMAL, 0.1f});
    wf_tensor h = wf_linear_with(wf_tanh(wf_linear_with(x, weight, none)), weight, none);
    end(g, h);
}

/* Its running statistics are not folded in parts. */
static void by_statistics(wf_graph *g, const void *config) {
    const wf_conv2d_shape same = {.stride = 1, .pad = 1};
    wf_tensor x = wf_input(g, "x", WF_F32, WF_SHAPE(16, 4, 4));
    wf_tensor h = wf_batch_norm(wf_conv2d(x, "conv1", 32, 3, same), "bn");
    end(g, wf_global_avg_pool(wf_conv2d(h, "conv2", 12, 3, same)));
}

/* One pair has all columns of a weight, the other those of queries, keys and values. */
static void blocks_of_another(wf_graph *g, const void *config) {
    wf_tensor none = {g, -1}, x = wf_input(g, "x", WF_F32, WF_SHAPE(2, 12));
    wf_tensor qkv = wf_parameter(g, "qkv", WF_SHAPE(36, 12), (wf_init){WF_INIT_NORMAL, 0.1f});
    wf_tensor h = wf_linear(wf_tanh(wf_linear_with(x, qkv, none)), "down", 12);
    h = wf_linear(wf_self_attention(wf_linear_with(wf_softmax(h), qkv, none), 2, 1), "out", 12);
    end(g, wf_reshape(h, WF_SHAPE(-1, 24)));
}

/* Columns of queries, keys and values, of which there are fewer, and a weight for all of them. */
static void unequal_blocks(wf_graph *g, const void *config) {
    wf_tensor x = wf_input(g, "x", WF_F32, WF_SHAPE(2, 12));
    wf_tensor h = wf_rotary(wf_linear(x, "q", 8), wf_linear(x, "k", 4), wf_linear(x, "v", 4),
                            (wf_tensor){g, -1}, 4, 2, 100);
    end(g, wf_reshape(wf_linear(h, "out", 12), WF_SHAPE(-1, 24)));
}

static wf_tensor read_features(wf_graph *g) {
    return wf_input(g, "x", WF_F32, WF_SHAPE(2, 6));
}

/* A weight of a layer is something else's, too: of no token is anything cut. */
static void shared_recurrence(wf_graph *g, const void *config) {
    wf_tensor x = read_features(g), none = {g, -1}, h = wf_lstm(x, "rnn", 0, 6);
    wf_tensor w =
        wf_parameter(g, "rnn.weight_ih_l0", WF_SHAPE(24, 6), (wf_init){WF_INIT_NORMAL, 0.1f});
    h = wf_softmax(wf_add(wf_linear_with(x, w, none), wf_linear(h, "out", 24)));
    wf_loss(wf_cross_entropy(wf_linear(wf_reshape(h, WF_SHAPE(-1, 48)), "head", 4),
                             wf_input(g, "y", WF_I32, WF_SCALAR)));
}

static void recurrence(wf_graph *g, const void *config) {
    wf_tensor h = wf_lstm(wf_cut(read_features(g), "rnn"), "rnn", 0, 6);
    h = wf_reshape(wf_cut(h, "head"), WF_SHAPE(-1, 12));
    wf_loss(wf_cross_entropy(wf_linear(h, "fc", 4), wf_input(g, "y", WF_I32, WF_SCALAR)));
}

TEST(refused) {
    static const struct {
        wf_model_function function; /* NULL: gpt */
        const char *plan;
        int64_t n_slices;
        const char *says;
    } cases[] = {
        {NULL, "", 4,
         "slices=4 do not divide self_attention of unit h.0, which has 6 heads; 3 (tp=3) or 6 "
         "(tp=6) would"},
        {NULL, "", 7, "; 6 (tp=6) would"},
        {NULL, "tp=4", 0, "tp=4 does not divide the 6 heads of attention; tp=2, 3 or 6 would"},
        {NULL, "tp=2", 3, "tp=2 needs 2 slices, and this recipe has 3; --slices 2 is another"},
        {NULL, "pp=2,cut=h.0.pair0.1", 3, "lies between slices that are summed"},
        {NULL, "pp=12", 3, "the model has 11 units"},
        {NULL, "pp=2,cut=h.0.rows1.0", 2, "lies between slices that are summed"},
        {NULL, "tp=3,sp", 3, "slices=3 do not divide the tokens of a sample into parts"},
        {by_softmax, "", 2, "nothing in this model can be cut: op softmax of unit first"},
        {by_statistics, "", 2, "nothing in this model can be cut: op batch_norm of unit"},
        {seen_outside, "", 2, "nothing in this model can be cut: op add of unit first"},
        {tied, "", 2, "nothing in this model can be cut"},
        {blocks_of_another, "", 2, "nothing in this model can be cut"},
        {unequal_blocks, "", 2, "nothing in this model can be cut"},
        {shared_recurrence, "", 2, "nothing in this model can be cut"},
        {recurrence, "", 7,
         "slices=7 do not divide linear of unit rnn, which gives [2, 2, 24]; 6 (tp=6) would"},
        {recurrence, "tp=2,pp=2,cut=rnn.sum0", 2, "lies between slices that are summed"},
        {recurrence, "tp=2,pp=2,cut=rnn.pair1.0", 2, "lies between slices that are summed"},
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        scoped_model model;
        wf_program *p;
        if (cases[k].function)
            model = test_model(ctx, "small", cases[k].function, NULL, 0);
        else
            model = find_gpt(ctx, 1);
        TEST_REFUSED(ctx, make(ctx, model, cases[k].plan, cases[k].n_slices, &p), WF_INVALID_ARG,
                     cases[k].says);
    }
}

/* ---- what is sent ---- */

static size_t sent_of(wf_context *ctx, wf_model *model, const char *plan, int64_t n_slices) {
    scoped_program p;
    TEST_OK(ctx, make(ctx, model, plan, n_slices, &p));
    size_t bytes = wf_program_rank(p, 0).sent_bytes;
    wf_model_destroy(model);
    return bytes;
}

static size_t sent(wf_context *ctx, const char *plan, int64_t n_layers, int64_t n_slices) {
    return sent_of(ctx, find_gpt(ctx, n_layers), plan, n_slices);
}

/* Shoeybi et al., Megatron-LM, 2019: two all-reduces forward and two backward a block and
 * microbatch, of which each rank of n sends 2(n - 1)/n of what is summed. */
TEST(as_published) {
    for (int n = 2; n <= 6; n *= 3) {
        const char *plan = n == 2 ? "tp=2" : "tp=6";
        size_t block = sent(ctx, plan, 3, 6) - sent(ctx, plan, 2, 6);
        size_t values = (size_t)BATCH * TOKENS * HIDDEN * sizeof(float);
        assert_int_equal(block * (size_t)n, 4 * 2 * (size_t)(n - 1) * values);
    }
    assert_int_equal(sent(ctx, "", 2, 6), 0);
}

/* What the vocabulary adds: an all-reduce forward for the embedding and one backward for the head,
 * and four numbers for each slice and token of which cross entropy is made. */
TEST(for_the_vocabulary) {
    for (int n = 2; n <= 6; n *= 3) {
        const char *plan = n == 2 ? "tp=2" : "tp=6";
        size_t vocabulary = 2 * sent(ctx, plan, 1, 6) - sent(ctx, plan, 2, 6);
        size_t n_tokens = (size_t)BATCH * TOKENS;
        size_t expected = n_tokens * (2 * HIDDEN + 6 * 4) * sizeof(float);
        assert_int_equal(vocabulary * (size_t)n, 2 * (size_t)(n - 1) * expected);
    }
}

/* A layer of an LSTM sums h of each token and the last c forward, the gradient of h before each
 * token but the first and that of its input backward. */
TEST(token_by_token) {
    for (int n = 2; n <= 6; n *= 3) {
        const char *plan = n == 2 ? "tp=2" : "tp=6,allreduce=direct";
        size_t layer = sent_of(ctx, find_lstm(ctx, 3, TOKENS, HIDDEN, 0), plan, 6) -
                       sent_of(ctx, find_lstm(ctx, 2, TOKENS, HIDDEN, 0), plan, 6);
        size_t n_elem = (size_t)BATCH * HIDDEN * (TOKENS + 1 + TOKENS - 1 + TOKENS);
        assert_int_equal(layer * (size_t)n, 2 * (size_t)(n - 1) * n_elem * sizeof(float));
    }
}

/* With zero=3 a rank that has several slices of a layer gathers their parameters once a pass, not
 * once a token. */
TEST(gathered_once_a_pass) {
    scoped_model model = find_lstm(ctx, 2, TOKENS, HIDDEN, 0);
    scoped_program p;
    int32_t n = 0;
    TEST_OK(ctx, make(ctx, model, "tp=2,dp=2,zero=3", 4, &p));
    for (int32_t i = 0; i < p->n_instructions; i++) {
        const wfi_instruction *now = &p->instructions[i];
        n += now->kind == WFI_CHANGE && now->rank == 0 && now->from == WFI_SHARD &&
             now->unit >= 0 && !strcmp(p->graph->units[now->unit].name, "rnn.1.pair0.1");
    }
    assert_int_equal(n, 2 * MICRO / 2);
}

/* What is kept elsewhere is fetched ahead in the order in which all ranks gather, also where a rank
 * has none of a small unit's state. */
TEST(state_that_some_have) {
    scoped_model model = find_lstm(ctx, 1, 5, 7, 0);
    scoped_program p;
    TEST_OK(ctx, make(ctx, model, "tp=4,dp=2,zero=3,offload=state", 4, &p));
}

/* By rows: as many bytes in two halves each, a reduce-scatter and an all-gather; and the gradients
 * of the six vectors that a block has between its pairs, which are sums over rows: of all
 * microbatches of a lane at once. */
TEST(rows_send_the_same) {
    size_t whole = sent(ctx, "tp=2", 3, 2) - sent(ctx, "tp=2", 2, 2);
    size_t rows = sent(ctx, "tp=2,sp", 3, 2) - sent(ctx, "tp=2,sp", 2, 2);
    assert_int_equal(rows, whole + 6 * HIDDEN * sizeof(float));
}

/* ---- what is kept ---- */

static bool is_used(const wf_program *p, int32_t block, wfi_instruction_kind kind) {
    bool is = false;
    for (int32_t i = 0; i < p->n_instructions; i++)
        for (int32_t k = 0; k < p->instructions[i].n_references; k++)
            is |=
                p->instructions[i].kind == kind && p->instructions[i].references[k].block == block;
    return is;
}

/* Of the second block's activations of a microbatch, what is on rank 0 from forward to backward. */
static size_t kept(wf_context *ctx, const char *plan, int64_t n_slices) {
    scoped_model model = find_gpt(ctx, 3);
    scoped_program p = NULL;
    size_t bytes = 0;
    TEST_OK(ctx, make(ctx, model, plan, n_slices, &p));
    for (int32_t b = 0; b < p->n_blocks; b++) {
        const wfi_block *block = &p->blocks[b];
        bool is_activation =
            block->rank == 0 && block->name.micro == 0 && !block->name.accumulator &&
            (block->name.kind == WFI_BLOCK_SAVED || block->name.kind == WFI_BLOCK_VALUE);
        if (!is_activation) continue;
        bool is_value = block->name.kind == WFI_BLOCK_VALUE;
        int32_t unit = is_value ? p->graph->values[block->name.owner].unit : block->name.owner;
        if (!strncmp(p->graph->units[unit].name, "h.1", 3) && is_used(p, b, WFI_FORWARD) &&
            is_used(p, b, WFI_BACKWARD_WEIGHT))
            bytes += block->bytes;
    }
    return bytes;
}

/* Korthikanti et al., Reducing Activation Recomputation in Large Transformer Models, 2022, Table 2,
 * in elements of 4 bytes; masks of dropout are drawn again, and norms have two numbers a row. Along
 * tp 12 of 16 values and the attention are divided, with sp all but what the pairs read: that, too,
 * would have to be gathered again for the backward. */
TEST(kept_as_published) {
    const size_t rows = (size_t)BATCH / MICRO * TOKENS, value = rows * HIDDEN * sizeof(float);
    const size_t attention = rows * HEADS * sizeof(float); /* its scores are not kept */
    const size_t norms = 2 * 2 * rows * sizeof(float);
    assert_int_equal(kept(ctx, "", 2), 16 * value + attention + norms);
    assert_int_equal(kept(ctx, "tp=2", 2), 4 * value + (12 * value + attention) / 2 + norms);
    assert_int_equal(kept(ctx, "tp=2,sp", 2), 2 * value + (14 * value + attention + norms) / 2);
}

/* ---- what would fit ---- */

/* Of the proposals for five eighths of the memory that the plan needs: how many have the text, and
 * how many there are of those that divide slices. */
static int proposed(wf_context *ctx, const char *plan, int64_t n_slices, const char *text,
                    int *n_divided_out) {
    wf_model *model = find_gpt(ctx, 2);
    wf_program *p;
    wf_proposal *found;
    int n, n_with = 0;
    *n_divided_out = 0;
    TEST_OK(ctx, make(ctx, model, plan, n_slices, &p));
    size_t bytes = wf_program_rank(p, 0).peak_bytes / 8 * 5;
    TEST_OK(ctx, wf_program_propose(p, bytes, 0, 0, &found, &n));
    for (int k = 0; k < n; k++) {
        n_with += strstr(found[k].plan, text) != NULL;
        *n_divided_out += strstr(found[k].plan, "tp=") != NULL;
    }
    wf_proposals_destroy(ctx, found, n);
    wf_program_destroy(p);
    wf_model_destroy(model);
    return n_with;
}

TEST(rows_are_proposed) {
    int n, n_with = proposed(ctx, "tp=2", 2, "tp=2,sp", &n);
    /* As many slices as ranks may be nobody's wish: another tp would be another recipe. */
    assert_true(n > 0);
    assert_int_equal(n_with, n);
    /* Three slices do not divide the tokens. */
    assert_int_equal(proposed(ctx, "tp=3", 3, ",sp", &n), 0);
    assert_true(n > 0);
    /* Six slices are given, so any ranks may divide them. */
    assert_true(proposed(ctx, "dp=2", 6, "tp=2", &n) > 0);
}

/* More meshes than the search has room for. */
TEST(many_meshes_are_tried) {
    scoped_model model = find_gpt(ctx, 2);
    wf_recipe recipe = TEST_RECIPE(.batch = 24, .n_micro = 24, .n_lanes = 24, .n_slices = 6);
    wf_proposal *found;
    int n;
    scoped_program p = test_program(ctx, model, &recipe, "dp=24");
    TEST_OK(ctx, wf_program_propose(p, 1024, 0, 0, &found, &n));
    assert_int_equal(n, 0);
    wf_proposals_destroy(ctx, found, n);
}
