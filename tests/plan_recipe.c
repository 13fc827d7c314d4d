/* Recipes: the lane tree, what resolves to what, learning rates.
 *
 * label: serial
 */
#include "base/tree.h"
#include "cli/common/options.h"
#include "kernel/tuned.h"
#include "plan/lanes.h"
#include "recipe/fields.h"
#include "test.h"

#include <locale.h>
#include <math.h>
#include <unistd.h>

/* Sums by the accumulators of wfi_lanes_sum and by recursion; formulas as text. */
static void by_recursion(int64_t begin, int64_t n, char *out) {
    if (n == 1) {
        sprintf(out + strlen(out), "%d", (int)begin);
        return;
    }
    strcat(out, "(");
    by_recursion(begin, wfi_tree_split(n), out);
    strcat(out, "+");
    by_recursion(begin + wfi_tree_split(n), n - wfi_tree_split(n), out);
    strcat(out, ")");
}

/* One lane after the other, or those of some groups at once. */
static void check_sums(wf_context *ctx, int64_t n, int64_t n_groups) {
    char sum[33][2100], want[2100] = "";
    int64_t n_own = n / n_groups;
    wfi_lane_shares shares;
    wfi_lane_sums sums;
    wfi_pool pool;
    wfi_pool_init(&pool, ctx);
    TEST_OK(ctx, wfi_lanes_share(&pool, n, 1, NULL, &shares));
    TEST_OK(ctx, wfi_lanes_sum(&pool, &shares, 0, n_groups, &sums));
    for (int64_t k = 0; k < n_own; k++) {
        for (int64_t g = 0; g < n_groups; g++) {
            int64_t lane = g * n_own + k;
            sprintf(sum[sums.accumulator[lane]], "%d", (int)lane);
        }
        for (int64_t lane = k; lane < n; lane += n_own)
            for (int32_t f = sums.first_fold[lane]; f < sums.first_fold[lane + 1]; f++) {
                const wfi_lane_fold *fold = &sums.folds[f];
                char both[4300];
                snprintf(both, sizeof both, "(%s+%s)", sum[fold->into], sum[fold->from]);
                memcpy(sum[fold->into], both, strlen(both) + 1);
                strcpy(sum[fold->from], "free");
            }
    }
    by_recursion(0, n, want);
    assert_string_equal(sum[0], want);
    /* ceil(log2) + 1 accumulators are enough for each group. */
    int log = 0;
    for (int64_t power = 1; power < n_own; power *= 2) log++;
    assert_true(sums.n_accumulators <= n_groups * (log + 1));
    wfi_pool_release(&pool);
}

TEST(sums_follow_the_tree) {
    for (int64_t n = 1; n <= 33; n++)
        for (int64_t n_groups = 1; n_groups <= n; n_groups++)
            if (n % n_groups == 0) check_sums(ctx, n, n_groups);
}

TEST_CASE(whole_subtrees) {
    assert_true(wfi_lanes_allow(4, 1));
    assert_true(wfi_lanes_allow(4, 2));
    assert_true(wfi_lanes_allow(4, 4));
    assert_true(wfi_lanes_allow(3, 3));
    assert_true(wfi_lanes_allow(6, 2));
    assert_false(wfi_lanes_allow(6, 3));
    assert_false(wfi_lanes_allow(4, 3));
}

/* ---- defaults: the model's and the recipe's, never the plan's ---- */

typedef struct default_case {
    const char *model, *recipe;
    int64_t n_heads; /* 0: as the model has */
    int64_t n_micro, n_lanes, n_slices;
} default_case;

static const default_case defaults[] = {
    {"mlp", "batch=32", 0, 8, 8, 1},
    {"mlp", "batch=20", 0, 4, 4, 1},
    {"mlp", "batch=7", 0, 1, 1, 1},
    {"mlp", "batch=32,micro=6", 0, 6, 2, 1},
    {"mlp", "batch=32,lanes=16", 0, 16, 16, 1},
    {"resnet18", "batch=31", 0, 1, 1, 1},
    {"resnet18", "batch=32", 0, 2, 2, 1},
    {"resnet18", "batch=96", 0, 4, 4, 1},
    {"resnet18", "batch=256", 0, 8, 8, 1},
    {"resnet18", "batch=32,micro=8", 0, 8, 8, 1},
    {"lstm", "batch=20", 0, 4, 4, 1},
    {"gpt2", "batch=4", 0, 4, 4, 4},
    {"gpt", "batch=64", 6, 8, 8, 2},
    {"gpt", "batch=64", 25, 8, 8, 1},
    {"gpt", "batch=64,slices=3", 6, 8, 8, 3},
    {"gpt", "batch=64,lanes=4", 6, 4, 4, 2},
};

static wf_model *model_of(wf_context *ctx, const default_case *c) {
    wf_model_config config = WF_MODEL_CONFIG_INIT;
    wf_model *model;
    const wf_model_info *about = wf_model_registry_find(c->model);
    config.channels = about->takes_tokens ? config.channels : 3;
    config.height = config.width = about->takes_tokens ? config.height : 32;
    config.n_classes = 40;
    config.n_tokens = about->takes_tokens ? 4 : 0;
    if (c->n_heads) {
        config.n_heads = c->n_heads;
        config.hidden = 4 * c->n_heads;
        config.n_layers = 1;
    }
    model = test_find_model(ctx, c->model, &config);
    return model;
}

TEST(defaults_are_the_models) {
    for (size_t k = 0; k < sizeof defaults / sizeof *defaults; k++) {
        const default_case *c = &defaults[k];
        scoped_model model = model_of(ctx, c);
        static const char *const plans[] = {"", "dp=2", "tp=2", "pp=2", "dataparallel=2"};
        for (size_t p = 0; p < sizeof plans / sizeof *plans; p++) {
            wf_recipe recipe, got;
            TEST_OK(ctx, wf_recipe_parse(ctx, c->recipe, &recipe));
            wf_plan *plan = test_plan(ctx, plans[p]);
            wf_status status = wf_recipe_resolve(ctx, &recipe, model, plan, &got);
            wf_plan_destroy(plan);
            if (status == WF_INVALID_ARG && p) continue; /* too few lanes or slices */
            TEST_OK(ctx, status);
            print_message("%s %s, plan '%s': %d, %d, %d\n", c->model, c->recipe, plans[p],
                          (int)got.n_micro, (int)got.n_lanes, (int)got.n_slices);
            assert_int_equal(got.n_micro, c->n_micro);
            assert_int_equal(got.n_lanes, c->n_lanes);
            assert_int_equal(got.n_slices, c->n_slices);
            assert_int_equal(got.n_threads, 1);
        }
    }
}

/* What a plan needs beyond that, and the sentences that name it: each number in them is legal. */
static const struct {
    default_case model;
    const char *plan, *sentence; /* of wf_recipe_resolve; NULL: it suits */
    int64_t n_lanes, n_slices;   /* of wf_recipe_resolve_for; 0: that refuses, too */
} needs[] = {
    {{.model = "mlp", .recipe = "batch=64"}, "dp=8", NULL, 8, 1},
    {{.model = "mlp", .recipe = "batch=8"}, "dp=4", NULL, 8, 1},
    {{.model = "mlp", .recipe = "batch=8,micro=9"}, "dp=4", "8 at most", 0, 0},
    {{.model = "mlp", .recipe = "batch=8,micro=5"},
     "dp=4",
     "this recipe has 1; --lanes 4 --micro 8 is another",
     0,
     0},
    {{.model = "mlp", .recipe = "batch=8,micro=4,lanes=8"},
     "dp=4",
     "8 lanes do not divide 4 microbatches; 4 would",
     0,
     0},
    {{.model = "mlp", .recipe = "batch=8,micro=8,lanes=3"}, "dp=4", "lanes do not divide", 0, 0},
    {{.model = "mlp", .recipe = "batch=8,micro=8,lanes=2"},
     "dp=4",
     "dp=4 needs 4 lanes, and this recipe has 2; --lanes 4 is another recipe",
     0,
     0},
    {{.model = "mlp", .recipe = "lr=-1"}, "", "lr is -1", 0, 0},
    {{.model = "mlp", .recipe = "beta1=0.99999999"},
     "",
     "beta1 is 0.99999999; it must lie between 0 and 0.9999999",
     0,
     0},
    {{.model = "mlp", .recipe = "batch=64"}, "dp=64", "--lanes 64 is another recipe", 64, 1},
    {{.model = "mlp", .recipe = "batch=64,lanes=8"}, "dp=64", "--lanes 64 is another", 0, 0},
    {{.model = "mlp", .recipe = "batch=64"}, "dp=65", "more replicas than the batch", 0, 0},
    {{.model = "mlp", .recipe = "batch=64"}, "dataparallel=16", "dataparallel=16 needs 16", 16, 1},
    {{.model = "mlp", .recipe = "batch=9,micro=8,lanes=8"},
     "dataparallel=3",
     "--lanes 3 --micro 9",
     0,
     0},
    {{.model = "gpt", .recipe = "batch=8", .n_heads = 6}, "tp=2", NULL, 8, 2},
    {{.model = "gpt", .recipe = "batch=8", .n_heads = 6}, "tp=3", "--slices 3 is another", 8, 3},
    {{.model = "gpt", .recipe = "batch=8", .n_heads = 6}, "tp=4", "tp=2, 3 or 6 would", 8, 4},
    {{.model = "gpt", .recipe = "batch=8,slices=1", .n_heads = 6}, "tp=2", "--slices 2 is", 0, 0},
    {{.model = "gpt", .recipe = "batch=8", .n_heads = 25}, "tp=4", "25 heads", 8, 4},
    {{.model = "resnet18", .recipe = "batch=32"}, "tp=2", "nothing in this model can be cut", 2, 2},
    {{.model = "lstm", .recipe = "batch=8"}, "tp=2", "tp=2 needs 2 slices", 8, 2},
};

TEST(plans_need) {
    for (size_t k = 0; k < sizeof needs / sizeof *needs; k++) {
        scoped_model model = model_of(ctx, &needs[k].model);
        wf_recipe recipe, got;
        TEST_OK(ctx, wf_recipe_parse(ctx, needs[k].model.recipe, &recipe));
        scoped_plan plan = test_plan(ctx, needs[k].plan);
        if (needs[k].sentence)
            TEST_REFUSED(ctx, wf_recipe_resolve(ctx, &recipe, model, plan, &got), WF_INVALID_ARG,
                         needs[k].sentence);
        else
            TEST_OK(ctx, wf_recipe_resolve(ctx, &recipe, model, plan, &got));
        wf_status status = wf_recipe_resolve_for(ctx, &recipe, model, plan, &got);
        assert_int_equal(status, needs[k].n_lanes ? WF_OK : WF_INVALID_ARG);
        if (status == WF_OK) assert_int_equal(got.n_lanes, needs[k].n_lanes);
        if (status == WF_OK) assert_int_equal(got.n_slices, needs[k].n_slices);
    }
}

/* They are divided among all ranks of the plan, and each has one at least. */
TEST(threads_share_cores) {
    static const char *const plans[] = {"", "dp=2", "pp=2", "dp=4,pp=2", "dp=2,pp=8"};
    for (size_t k = 0; k < WFI_COUNT(plans); k++) {
        wf_recipe recipe = WF_RECIPE_INIT, got;
        recipe.n_threads = 0;
        scoped_plan plan = test_plan(ctx, plans[k]);
        TEST_OK(ctx, wf_recipe_resolve(ctx, &recipe, NULL, plan, &got));
        int share = wf_info_limits().n_cores / wf_plan_n_ranks(plan);
        assert_int_equal(got.n_threads, share > 1 ? share : 1);
    }
}

TEST_CASE(learning_rates) {
    wf_recipe r = TEST_RECIPE(.lr = 1);
    assert_true(wf_recipe_lr(&r, 1000) == 1);
    r.warmup_steps = 4;
    assert_true(wf_recipe_lr(&r, 0) == 0.25 && wf_recipe_lr(&r, 3) == 1);
    /* As DeepSpeed's WarmupLR: log(step + 1) / log(10). */
    static const double logs[] = {0,
                                  0.301029995663981,
                                  0.477121254719662,
                                  0.602059991327962,
                                  0.698970004336019,
                                  0.778151250383644,
                                  0.845098040014257,
                                  0.903089986991943,
                                  0.954242509439325,
                                  1,
                                  1};
    wf_recipe l = r;
    l.warmup_steps = 10;
    l.warmup_shape = WF_WARMUP_LOG;
    for (int64_t step = 0; step <= 10; step++)
        assert_float_equal(wf_recipe_lr(&l, step), logs[step], 1e-14);
    l.warmup_steps = 1;
    assert_true(wf_recipe_lr(&l, 0) == 0 && wf_recipe_lr(&l, 1) == 1);
    r.lr_schedule = WF_LR_COSINE;
    r.schedule_steps = 14;
    assert_true(wf_recipe_lr(&r, 4) == 1 && wf_recipe_lr(&r, 14) == 0);
    assert_true(wf_recipe_lr(&r, 9) > 0.4999 && wf_recipe_lr(&r, 9) < 0.5001);
    r.lr_schedule = WF_LR_STEP;
    r.warmup_steps = 0;
    r.schedule_steps = 10;
    r.lr_gamma = 0.5;
    assert_true(wf_recipe_lr(&r, 9) == 1 && wf_recipe_lr(&r, 10) == 0.5 &&
                wf_recipe_lr(&r, 25) == 0.25);
}

TEST(texts) {
    const wf_recipe init = WF_RECIPE_INIT;
    wf_recipe r, again;
    char *text, *other; /* of all fields: structs have holes */
    TEST_OK(ctx, wf_recipe_parse(ctx, NULL, &r));
    TEST_OK(ctx, wf_recipe_text(ctx, &r, &text));
    TEST_OK(ctx, wf_recipe_text(ctx, &init, &other));
    assert_string_equal(text, other);
    wf_text_free(ctx, text);
    wf_text_free(ctx, other);
    TEST_OK(ctx, wf_recipe_parse(ctx,
                                 "batch=20,lr=0.30000000000000004,optimizer=adamw,nesterov=1,"
                                 "seed=18446744073709551615,kernels=reference,threads=3,"
                                 "lr_schedule=cosine,lr_step=9,freeze=conv1+layer1.0",
                                 &r));
    assert_string_equal(r.freeze.text, "conv1+layer1.0");
    assert_true(r.batch == 20 && r.lr == 0.1 + 0.2 && r.optimizer == WF_ADAMW && r.nesterov == 1);
    assert_true(r.seed == UINT64_MAX && r.kernels == WF_KERNELS_REFERENCE && r.n_threads == 3);
    assert_true(r.lr_schedule == WF_LR_COSINE && r.schedule_steps == 9 && r.momentum == 0);
    TEST_OK(ctx, wf_recipe_text(ctx, &r, &text));
    TEST_OK(ctx, wf_recipe_parse(ctx, text, &again));
    TEST_OK(ctx, wf_recipe_text(ctx, &again, &other));
    assert_string_equal(text, other);
    assert_true(again.lr == r.lr && again.seed == r.seed);
    assert_string_equal(again.freeze.text, r.freeze.text);
    wf_text_free(ctx, text);
    wf_text_free(ctx, other);
}

TEST(bad_texts) {
    static const struct {
        const char *text, *words;
    } cases[] = {
        {"batch", "expected key=value at position 1, found 'batch'"},
        {"batch=2,=3", "expected key=value at position 9"},
        {"batch=2,", "expected key=value at position 9, found ''"},
        {"batch=2,batch=3", "batch is given twice, again at position 9"},
        {"gpus=2", "unknown key 'gpus' at position 1; there are batch, micro"},
        {"batch=two", "batch='two' at position 1; it takes a whole number"},
        {"batch=9223372036854775808", "it takes a whole number"},
        {"batch=2x", "it takes a whole number"},
        {"threads=4294967297", "it takes a whole number below 2^31"},
        {"seed=-1", "it takes a whole number"},
        {"seed=18446744073709551616", "it takes a whole number below 2^64"},
        {"lr=", "it takes a number such as 0.1"},
        {"lr=nan", "it takes a number such as 0.1"},
        {"lr=1e999", "it takes a number such as 0.1"},
        {"lr=0x1p3", "it takes a number such as 0.1"},
        {"lr=0.1.2", "it takes a number such as 0.1"},
        {"optimizer=lion", "it takes one of sgd|adam|adamw"},
        {"optimizer=", "it takes one of sgd|adam|adamw"},
        {"nesterov=yes", "it takes one of 0|1"},
        {"lr=0.1\n", "byte 0x0a at position 7 is not text"},
    };
    wf_recipe r;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        TEST_REFUSED(ctx, wf_recipe_parse(ctx, cases[i].text, &r), WF_INVALID_ARG, cases[i].words);
    static const struct {
        const char *text, *words;
    } tables[] = {
        {"tuned=conv2d", "tuned at 'conv2d': it takes SHAPE=WAY joined by +"},
        {"tuned=a=b+=c", "tuned at ''"},
        {"tuned=a=b+c= d", "tuned at 'c'"},
        {"tuned=a=b=c", "tuned at 'a'"},
        {"tuned=a=b+c=d+a=e", "tuned has the shape 'a' twice"},
    };
    scoped_plan plan = test_plan(ctx, "");
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
        TEST_OK(ctx, wf_recipe_parse(ctx, tables[i].text, &r));
        TEST_REFUSED(ctx, wf_recipe_resolve(ctx, &r, NULL, plan, &r), WF_INVALID_ARG,
                     tables[i].words);
    }
    char long_text[33000];
    memset(long_text, 'a', sizeof long_text);
    memcpy(long_text, "freeze=", 7);
    long_text[7 + 1024] = 0;
    TEST_REFUSED(ctx, wf_recipe_parse(ctx, long_text, &r), WF_INVALID_ARG, "at most 1023");
    memset(long_text, 'a', sizeof long_text);
    memcpy(long_text, "tuned=", 6);
    long_text[6 + 16384] = 0;
    TEST_REFUSED(ctx, wf_recipe_parse(ctx, long_text, &r), WF_INVALID_ARG, "at most 16383");
    memset(long_text, 'a', sizeof long_text);
    long_text[sizeof long_text - 1] = 0;
    TEST_REFUSED(ctx, wf_recipe_parse(ctx, long_text, &r), WF_INVALID_ARG, "longer than");
}

/* A shape is compared as a whole: one that begins with another's text has a way of its own. */
TEST_CASE(tuned_shapes) {
    static const char table[] = "add:2x3=long+add:2x30=longer+add:2=short";
    static const struct {
        const char *shape, *way;
    } cases[] = {{"add:2", "short"}, {"add:2x3", "long"}, {"add:2x30", "longer"}, {"add:2x", ""},
                 {"add:2x300", ""},  {"dd:2", ""},        {"add:20", ""},         {"", ""}};
    char way[WFI_WAY_TEXT];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_string_equal(wfi_tuned_find(table, cases[i].shape, way), cases[i].way);
    assert_string_equal(wfi_tuned_find("", "add:2", way), "");
}

/* Recipes have the context's copy, which equal texts share. */
TEST(tables_are_kept) {
    char table[] = "add:2=a";
    wf_recipe r[3] = {WF_RECIPE_INIT, WF_RECIPE_INIT, WF_RECIPE_INIT};
    scoped_plan plan = test_plan(ctx, "");
    for (int k = 0; k < 3; k++) {
        r[k].tuned = table;
        table[4] = k == 1 ? '3' : '2';
        TEST_OK(ctx, wf_recipe_resolve(ctx, &r[k], NULL, plan, &r[k]));
    }
    assert_string_equal(r[0].tuned, "add:2=a");
    assert_string_equal(r[1].tuned, "add:3=a");
    assert_ptr_equal(r[0].tuned, r[2].tuned);
}

static void toy(wf_graph *g, const void *config) {
    const int *width = config;
    wf_tensor x = wf_input(g, "x", WF_F32, WF_SHAPE(4)), y = wf_input(g, "y", WF_F32, WF_SHAPE(2));
    x = wf_next_stage(wf_relu(wf_linear(x, "net1", *width)), "second");
    wf_loss(wf_mse(wf_linear(x, "net2", 2), y));
}

/* One call, two devices, and one rank's bits. */
TEST(opened) {
    static const char *const plans[] = {"", "pp=2", "dp=2"};
    static const float x[8][4] = {{1, 2}, {3}, {4, 5, 6}}, y[8][2] = {{1}, {0, 2}};
    const wf_feed feeds[] = {{"x", x, sizeof x}, {"y", y, sizeof y}};
    const int width = 6;
    char sha[3][65];
    for (int k = 0; k < 3; k++) {
        scoped_trainer t;
        wf_step_result result;
        TEST_OK(ctx, wf_trainer_open(ctx, toy, &width, "batch=8,lanes=2,lr=0.05", plans[k], &t));
        for (int step = 0; step < 3; step++) TEST_OK(ctx, wf_trainer_step(t, feeds, 2, 8, &result));
        TEST_OK(ctx, wf_trainer_weights_sha256(t, sha[k]));
        assert_string_equal(sha[k], sha[0]);
    }
    wf_trainer *t;
    TEST_REFUSED(ctx, wf_trainer_open(ctx, toy, &width, "batch=8,lr=a", "", &t), WF_INVALID_ARG,
                 "lr='a'");
    TEST_REFUSED(ctx, wf_trainer_open(ctx, toy, &width, "batch=8", "pp", &t), WF_INVALID_ARG,
                 "plan: ");
    TEST_REFUSED(ctx, wf_trainer_open(ctx, toy, &width, "batch=8,lr=-1", "", &t), WF_INVALID_ARG,
                 "lr is -1");
}

static double toy_rate(wf_context *ctx, wf_trainer *t) {
    static const float x[8][4] = {{1, 2}}, y[8][2] = {{1}};
    const wf_feed feeds[] = {{"x", x, sizeof x}, {"y", y, sizeof y}};
    wf_step_result result;
    TEST_OK(ctx, wf_trainer_step(t, feeds, 2, 8, &result));
    return result.lr;
}

/* As ReduceLROnPlateau with threshold 0: more than `patience` evaluations in a row that are no
 * better cut the rate. The best loss goes through a file to the last bit. */
TEST(plateaus) {
    static const double best = 1.0 / 3, nearly = best * (1 - 0x1p-50);
    static const struct {
        double loss, lr;
    } cases[] = {{1, 1},         {best, 1}, {0.8, 1},  {best, 1}, {0.7, 0.5},
                 {0.9, 0.5},     {1, 0.5},  {1, 0.25}, {1, 0.25}, {1, 0.25},
                 {nearly, 0.25}, {1, 0.25}, {1, 0.25}, {1, 0.125}};
    const int width = 6;
    const char *recipe = "batch=8,lanes=1,lr=1,lr_schedule=plateau,lr_gamma=0.5,lr_patience=2";
    wf_trainer *t;
    char path[] = "/tmp/weft-test-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    TEST_OK(ctx, wf_trainer_open(ctx, toy, &width, recipe, "", &t));
    for (size_t k = 0; k < WFI_COUNT(cases); k++) {
        wf_trainer_evaluated(t, cases[k].loss);
        double lr = toy_rate(ctx, t);
        if (lr != cases[k].lr)
            fail_msg("evaluation %zu, loss %g: the rate is %g, not %g", k, cases[k].loss, lr,
                     cases[k].lr);
        if (k != 9) continue;
        TEST_OK(ctx, wf_trainer_save_state(t, path, NULL, 0));
        wf_trainer_destroy(t);
        TEST_OK(ctx, wf_trainer_open(ctx, toy, &width, recipe, "", &t));
        TEST_OK(ctx, wf_trainer_load_state(t, path));
    }
    wf_trainer_destroy(t);
    unlink(path);
}

static const wfi_recipe_field *field_called(const char *name) {
    for (int k = 0; k < wfi_recipe_n_fields; k++)
        if (!strcmp(wfi_recipe_fields[k].name, name)) return &wfi_recipe_fields[k];
    fail_msg("the recipe has no %s", name);
    return NULL;
}

/* Reading the text gives the same bits, whatever the locale writes. */
TEST_CASE(reals_as_text) {
    const wfi_recipe_field *lr = field_called("lr");
    const double reals[] = {0.1, 0.1 + 0x1p-56, 1e-8, 1.0 / 3, 5e-324, 1e6, 0, -0.0};
    char text[WFI_RECIPE_TEXT];
    for (size_t k = 0; k < WFI_COUNT(reals); k++) {
        wf_recipe r = TEST_RECIPE(.lr = reals[k]);
        double again = strtod(wfi_recipe_text(&r, lr, text), NULL);
        assert_memory_equal(&again, &reals[k], sizeof again);
    }
}

/* Makes the locale if this machine can: few have more than C. */
static bool take_locale(const char *name) {
    const char *tmp = getenv("TMPDIR");
    char folder[4000], command[9000];
    snprintf(folder, sizeof folder, "%s/weft-locale-XXXXXX", tmp ? tmp : "/tmp");
    assert_non_null(mkdtemp(folder));
    snprintf(command, sizeof command, "localedef -i %s -f UTF-8 '%s/%s.UTF-8' 2>&1", name, folder,
             name);
    bool is_made = system(command) == 0;
    snprintf(command, sizeof command, "%s.UTF-8", name);
    setenv("LOCPATH", folder, 1);
    bool is_taken = is_made && setlocale(LC_NUMERIC, command);
    unsetenv("LOCPATH");
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    assert_int_equal(system(command), 0);
    return is_taken;
}

/* Numbers have a point where German writes a comma and Pashto a character of two bytes. */
TEST(points_in_every_locale) {
    static const char *const names[] = {"de_DE", "ps_AF"};
    static const char text[] = "lr=0.001,momentum=.5,epsilon=1.5e-09";
    for (size_t k = 0; k < WFI_COUNT(names); k++) {
        char value[WFI_RECIPE_TEXT], *all;
        wf_recipe r, again;
        if (!take_locale(names[k])) {
            print_message("there is no locale %s, and localedef cannot make it\n", names[k]);
            wf_context_destroy(ctx);
            skip();
        }
        assert_string_not_equal(localeconv()->decimal_point, ".");
        TEST_OK(ctx, wf_recipe_parse(ctx, text, &r));
        assert_true(r.lr == 1e-3 && r.momentum == 0.5 && r.epsilon == 1.5e-9);
        assert_string_equal(wfi_recipe_text(&r, field_called("lr"), value), "0.001");
        TEST_OK(ctx, wf_recipe_text(ctx, &r, &all));
        TEST_OK(ctx, wf_recipe_parse(ctx, all, &again));
        assert_true(again.lr == r.lr && again.epsilon == r.epsilon && again.beta2 == r.beta2);
        wf_text_free(ctx, all);
        setlocale(LC_NUMERIC, "C");
    }
}

TEST_CASE(words_as_text) {
    wf_recipe r = TEST_RECIPE(.optimizer = WF_ADAMW, .seed = UINT64_MAX);
    char text[WFI_RECIPE_TEXT];
    assert_string_equal(wfi_recipe_text(&r, field_called("optimizer"), text), "adamw");
    assert_string_equal(wfi_recipe_text(&r, field_called("seed"), text), "18446744073709551615");
    assert_string_equal(wfi_recipe_text(&r, field_called("threads"), text), "1");
}

/* Every field refuses what lies outside its range; a choice, what is none of its words. */
TEST(ranges) {
    scoped_plan plan = test_plan(ctx, "");
    for (int k = 0; k < wfi_recipe_n_fields; k++) {
        const wfi_recipe_field *field = &wfi_recipe_fields[k];
        wf_recipe r = WF_RECIPE_INIT, resolved;
        char words[80], *value = (char *)&r + field->offset;
        if (field->kind == WFI_RECIPE_SEED) continue;
        if (field->kind == WFI_RECIPE_NAMES) {
            memset(value, 'x', (size_t)field->most + 1);
            snprintf(words, sizeof words, "recipe: %s is not terminated", field->name);
            TEST_REFUSED(ctx, wf_recipe_resolve(ctx, &r, NULL, plan, &resolved), WF_INVALID_ARG,
                         words);
            continue;
        }
        if (field->kind == WFI_RECIPE_TABLE) {
            char *table = calloc(1, (size_t)field->most + 2);
            assert_non_null(table);
            r.tuned = memset(table, 'x', (size_t)field->most + 1);
            TEST_REFUSED(ctx, wf_recipe_resolve(ctx, &r, NULL, plan, &resolved), WF_INVALID_ARG,
                         "recipe: tuned has more than 16383 characters");
            table[(size_t)field->most] = 0; /* as long as may be, but not SHAPE=WAY */
            TEST_REFUSED(ctx, wf_recipe_resolve(ctx, &r, NULL, plan, &resolved), WF_INVALID_ARG,
                         "SHAPE=WAY");
            free(table);
            continue;
        }
        if (field->kind == WFI_RECIPE_REAL)
            *(double *)value = NAN;
        else if (field->kind == WFI_RECIPE_COUNT)
            *(int64_t *)value = -1;
        else
            *(int *)value = (int)field->most + 1;
        snprintf(words, sizeof words, "recipe: %s is ", field->name);
        TEST_REFUSED(ctx, wf_recipe_resolve(ctx, &r, NULL, plan, &resolved), WF_INVALID_ARG, words);
    }
}

/* A value as an option, in the report's and checkpoint's JSON, and as an option again. `want` is
 * what the recipe says then. */
static void check_option(const wfi_recipe_field *field, const char *typed, const char *want) {
    option_id id = option_find(field->name, FOR_TRAIN);
    char text[WFI_RECIPE_TEXT];
    options o, back;
    options_init(&o);
    options_init(&back);
    /* What gives the field a meaning. */
    assert_true(option_set(&o, OPT_lr_schedule, "step"));
    if (strstr(field->help, "plateau:")) assert_true(option_set(&o, OPT_lr_schedule, "plateau"));
    assert_true(option_set(&o, OPT_weight_decay, "0.1"));
    assert_true(option_set(&o, OPT_warmup_steps, "5"));
    if (strstr(field->help, "async")) assert_true(option_set(&o, OPT_update, "async"));
    if (!strncmp(field->help, "local:", 6)) assert_true(option_set(&o, OPT_update, "local"));
    if (strstr(field->help, "adam")) assert_true(option_set(&o, OPT_optimizer, "adam"));
    if (!option_set(&o, id, typed)) fail_msg("%s", o.error);
    assert_string_equal(wfi_recipe_text(&o.recipe, field, text), want);
    json_t *recipe = options_recipe(&o), *alone = json_object();
    json_t *value = json_object_get(recipe, field->name);
    if (!value) fail_msg("the report's recipe has no %s", field->name);
    json_object_set(alone, field->name, value);
    char *dumped = json_dumps(alone, 0);
    if (!options_read_json(&back, FOR_TRAIN, dumped, strlen(dumped), "here"))
        fail_msg("%s", back.error);
    assert_string_equal(wfi_recipe_text(&back.recipe, field, text), want);
    free(dumped);
    json_decref(alone);
    json_decref(recipe);
    options_release(&back);
    options_release(&o);
}

/* Both ends of its range, and what lies between: another value than the default. */
static void check_range(const wfi_recipe_field *field) {
    char text[WFI_RECIPE_TEXT];
    if (field->kind >= WFI_RECIPE_NAMES) {
        check_option(field, "", "");
        check_option(field, "conv1,layer1.0+fc", "conv1+layer1.0+fc");
        return;
    }
    if (field->kind == WFI_RECIPE_FLAG) {
        check_option(field, "false", "0");
        check_option(field, "true", "1");
        return;
    }
    for (const char *word = field->words; *word; word += *word == '|') {
        int n = (int)strcspn(word, "|");
        snprintf(text, sizeof text, "%.*s", n, word);
        check_option(field, text, text);
        word += n;
    }
    if (field->kind == WFI_RECIPE_CHOICE) return;
    bool is_real = field->kind == WFI_RECIPE_REAL, is_seed = field->kind == WFI_RECIPE_SEED;
    const double ends[] = {field->least, field->most, is_real ? field->most / 3 : 77};
    for (size_t k = 0; k < WFI_COUNT(ends); k++) {
        wf_recipe r = WF_RECIPE_INIT;
        if (is_real) *(double *)((char *)&r + field->offset) = ends[k];
        snprintf(text, sizeof text, "%.0f", ends[k]);
        if (is_real) wfi_recipe_text(&r, field, text);
        if (is_seed && k == 1) snprintf(text, sizeof text, "18446744073709551615");
        check_option(field, text, text);
    }
}

/* A row of the recipe is an option with its help, a member of the reports' and checkpoints' recipe,
 * and is read back from there: nothing else has to name the field. */
TEST_CASE(rows_are_all_there_is) {
    int n_options = 0;
    for (option_id id = 0; id < N_OPTIONS; id++)
        n_options += option_about(id).offset >= offsetof(options, recipe);
    assert_int_equal(n_options, wfi_recipe_n_fields);
    for (int k = 0; k < wfi_recipe_n_fields; k++) {
        const wfi_recipe_field *field = &wfi_recipe_fields[k];
        option_id id = option_find(field->name, FOR_TRAIN);
        if (id == N_OPTIONS) fail_msg("there is no option for the recipe's %s", field->name);
        assert_int_equal(option_about(id).scope, OF_RECIPE);
        assert_int_equal(option_about(id).offset, offsetof(options, recipe) + field->offset);
        assert_string_equal(option_about(id).help, field->help);
        check_range(field);
    }
}
