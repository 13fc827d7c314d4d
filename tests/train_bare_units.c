/* Units that have no parameters, or parameters that other units alone use, or no op outside
 * training; numbers that are none in front of a ReLU, and a norm that is read twice.
 *
 * label: serial
 */
#include "test.h"

#include <math.h>

#define BATCH 8

static float x[BATCH][4], y[BATCH][2];
static const wf_feed feeds[] = {{"x", x, sizeof x}, {"y", y, sizeof y}};

static void fill(void) {
    for (int i = 0; i < BATCH * 4; i++) x[i / 4][i % 4] = (float)(i * 37 % 23) / 11 - 1;
    for (int i = 0; i < BATCH * 2; i++) y[i / 2][i % 2] = (float)(i * 5 % 7) / 3 - 1;
}

static void without_parameters(wf_graph *g, const void *config) {
    wf_tensor in = wf_input(g, "x", WF_F32, WF_SHAPE(4)), t = wf_input(g, "y", WF_F32, WF_SHAPE(2));
    wf_tensor h = wf_cut(wf_tanh(in), "second");
    h = wf_cut(wf_relu(wf_linear(h, "net1", 6)), "third");
    wf_loss(wf_mse(wf_linear(h, "net2", 2), t));
}

/* A rank that updates nothing hides nobody's norm. */
TEST(norm_is_known) {
    static const char *const plans[] = {"", "pp=2,cut=second", "pp=3", "dp=2,pp=3"};
    double want = 0;
    fill();
    for (int k = 0; k < 4; k++) {
        scoped_trainer t;
        wf_step_result result;
        TEST_OK(ctx, wf_trainer_open(ctx, without_parameters, NULL,
                                     "batch=8,lanes=2,clip_norm=0.01", plans[k], &t));
        TEST_OK(ctx, wf_trainer_step(t, feeds, 2, BATCH, &result));
        if (k == 0) want = result.gradient_norm;
        if (!(want > 0) || result.gradient_norm != want)
            fail_msg("plan '%s': norm %.17g instead of %.17g", plans[k], result.gradient_norm,
                     want);
    }
}

static void of_dropout_alone(wf_graph *g, const void *config) {
    wf_tensor in = wf_input(g, "x", WF_F32, WF_SHAPE(4)), t = wf_input(g, "y", WF_F32, WF_SHAPE(2));
    wf_tensor h = wf_cut(wf_dropout(in, "drop", 0.5f), "body");
    h = wf_cut(wf_relu(wf_linear(h, "net1", 6)), "noise");
    h = wf_cut(wf_dropout(h, "drop2", 0.1f), "head");
    wf_loss(wf_mse(wf_linear(h, "net2", 2), t));
}

TEST(dropout_alone) {
    static const char *const plans[] = {"", "pp=2", "dp=2,pp=2", "body:dp=2"};
    char sha[4][65];
    double test[4];
    fill();
    for (int k = 0; k < 4; k++) {
        scoped_trainer t;
        wf_step_result result;
        TEST_OK(ctx, wf_trainer_open(ctx, of_dropout_alone, NULL, "batch=8,lanes=2", plans[k], &t));
        TEST_OK(ctx, wf_trainer_step(t, feeds, 2, BATCH, &result));
        TEST_OK(ctx, wf_trainer_eval(t, feeds, 2, BATCH, &result));
        test[k] = result.loss;
        TEST_OK(ctx, wf_trainer_step(t, feeds, 2, BATCH, &result));
        TEST_OK(ctx, wf_trainer_weights_sha256(t, sha[k]));
        assert_string_equal(sha[k], sha[0]);
        assert_true(test[k] == test[0]);
    }
}

/* A weight of three units that is declared where it is first used, or in a unit before, or in one
 * that has nothing else to train. */
enum { WHERE_USED, BEFORE, ALONE };

static void declares_early(wf_graph *g, const void *config) {
    int where = *(const int *)config;
    wf_init init = {WF_INIT_NORMAL, 0.3f};
    wf_tensor in = wf_input(g, "x", WF_F32, WF_SHAPE(4)), t = wf_input(g, "y", WF_F32, WF_SHAPE(2));
    wf_tensor none = {g, -1}, h = wf_relu(wf_linear(in, "net1", 50));
    if (where == BEFORE) (void)wf_parameter(g, "shared", WF_SHAPE(50, 50), init);
    h = wf_cut(h, "second");
    if (where == ALONE) (void)wf_parameter(g, "shared", WF_SHAPE(50, 50), init);
    h = wf_cut(wf_tanh(h), "third");
    wf_tensor shared = wf_parameter(g, "shared", WF_SHAPE(50, 50), init);
    h = wf_cut(wf_tanh(wf_linear_with(h, shared, none)), "fourth");
    h = wf_cut(wf_tanh(wf_linear_with(h, shared, none)), "fifth");
    h = wf_cut(wf_tanh(wf_linear_with(h, shared, none)), "sixth");
    wf_loss(wf_mse(wf_linear(h, "net2", 2), t));
}

static void train_shared(wf_context *ctx, int where, const char *recipe, const char *plan,
                         char sha[65]) {
    wf_trainer *t;
    wf_step_result result;
    TEST_OK(ctx, wf_trainer_open(ctx, declares_early, &where, recipe, plan, &t));
    for (int s = 0; s < 3; s++) TEST_OK(ctx, wf_trainer_step(t, feeds, 2, BATCH, &result));
    TEST_OK(ctx, wf_trainer_weights_sha256(t, sha));
    wf_trainer_destroy(t);
}

TEST(declared_elsewhere) {
    static const char *const plans[] = {"dp=2",
                                        "pp=2",
                                        "pp=5",
                                        "pp=3,schedule=zb1",
                                        "dp=2,pp=2,zero=1",
                                        "dp=2,zero=2,bucket=1",
                                        "dp=4,zero=3,shard=2",
                                        "dp=2,pp=3,zero=3,schedule=zb2",
                                        "dp=2,zero=3,schedule=breadth",
                                        "schedule=breadth,recompute=all",
                                        "dp=2,zero=3,offload=params+state:disk",
                                        "pp=2,recompute=all,offload=activations",
                                        "dataparallel=4",
                                        "fourth:dp=2"};
    static const char *const recipes[] = {"batch=8,micro=8,lanes=4,optimizer=adamw,lr=0.01",
                                          "batch=8,micro=4,lanes=4,momentum=0.9,clip_norm=0.05"};
    fill();
    for (size_t r = 0; r < 2; r++) {
        char want[65], sha[65];
        for (int where = WHERE_USED; where <= ALONE; where++) {
            bool clips = r == 1; /* by a norm whose sum goes by places */
            train_shared(ctx, where, recipes[r], "", sha);
            if (where == WHERE_USED || clips) strcpy(want, sha);
            assert_string_equal(sha, want);
            for (size_t k = 0; k < sizeof plans / sizeof *plans; k++) {
                train_shared(ctx, where, recipes[r], plans[k], sha);
                if (strcmp(sha, want) != 0)
                    fail_msg("declared %d, %s, plan '%s': not one rank's bits", where, recipes[r],
                             plans[k]);
            }
        }
    }
}

static void two_relus(wf_graph *g, const void *config) {
    const int *adds = config;
    wf_tensor in = wf_input(g, "x", WF_F32, WF_SHAPE(4)), t = wf_input(g, "y", WF_F32, WF_SHAPE(2));
    wf_tensor h = wf_linear(in, "net1", 6);
    h = wf_relu(*adds ? wf_add(h, wf_linear(in, "skip", 6)) : h);
    wf_loss(wf_mse(wf_linear(h, "net2", 2), t));
}

/* A ReLU that made a zero of it would hide that the layer before it is lost. */
TEST(relu_keeps_nan) {
    for (int adds = 0; adds < 2; adds++) {
        wf_trainer *t;
        wf_step_result result;
        fill();
        x[3][1] = NAN;
        TEST_OK(ctx, wf_trainer_open(ctx, two_relus, &adds, "batch=8", "", &t));
        TEST_REFUSED(ctx, wf_trainer_eval(t, feeds, 2, BATCH, &result), WF_NOT_FINITE, "loss");
        wf_trainer_destroy(t);
        TEST_OK(ctx, wf_trainer_open(ctx, two_relus, &adds, "batch=8", "", &t));
        TEST_REFUSED(ctx, wf_trainer_step(t, feeds, 2, BATCH, &result), WF_NOT_FINITE, "step 1");
        wf_trainer_destroy(t);
    }
}

/* With a cut behind the norm, it cannot become one node with the ReLU. */
static void reads_twice(wf_graph *g, const void *config) {
    const int *cuts = config;
    wf_tensor in = wf_input(g, "x", WF_F32, WF_SHAPE(4)), t = wf_input(g, "y", WF_F32, WF_SHAPE(2));
    wf_tensor b = wf_batch_norm(wf_linear(in, "net1", 6), "bn");
    if (*cuts) b = wf_cut(b, "second");
    wf_loss(wf_mse(wf_linear(wf_add(wf_relu(b), wf_tanh(b)), "net2", 2), t));
}

TEST(norm_is_read_twice) {
    char sha[2][65];
    fill();
    for (int cuts = 0; cuts < 2; cuts++) {
        scoped_trainer t;
        wf_step_result result;
        TEST_OK(ctx, wf_trainer_open(ctx, reads_twice, &cuts, "batch=8", "", &t));
        for (int s = 0; s < 3; s++) TEST_OK(ctx, wf_trainer_step(t, feeds, 2, BATCH, &result));
        TEST_OK(ctx, wf_trainer_weights_sha256(t, sha[cuts]));
    }
    assert_string_equal(sha[0], sha[1]);
}
