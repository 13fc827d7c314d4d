/* Networks that are trained beside each other, their weights copied from trainer to trainer:
 * PyTorch's losses of 50 steps (golden/make_dqn.py), under plans, and its weights after them.
 *
 * label: once
 */
#include "golden/formula.h"
#include "run/trainer.h"
#include "test.h"

#include <stdlib.h>
#include <unistd.h>
#include <weft/checkpoint.h>
#include <weft/nn.h>

enum { N_STEPS = 50, N_TRANSITIONS = 32, COPY_EVERY = 10, N_STATES = N_STEPS * N_TRANSITIONS };

static wf_trainer *make(wf_context *ctx, wf_model_function function, const char *recipe,
                        const char *plan) {
    wf_trainer *t;
    TEST_OK(ctx, wf_trainer_open(ctx, function, NULL, recipe, plan, &t));
    return t;
}

/* The formula's weights, as a file. */
static void load_formula(wf_context *ctx, wf_trainer *t) {
    const wf_graph *g = wfi_trainer_graph(t);
    wf_tensor_data tensors[64];
    const char *base = getenv("TMPDIR");
    char path[400];
    int n = 0;
    snprintf(path, sizeof path, "%s/weft-two-%d.safetensors", base ? base : "/tmp", (int)getpid());
    for (int32_t v = 0; v < g->n_values; v++) {
        const wfi_value *value = wfi_value_at(g, v);
        if (value->kind != WFI_VALUE_PARAM && value->kind != WFI_VALUE_BUFFER) continue;
        void *data = malloc(wfi_value_bytes(g, v));
        assert_true(data && n < 64);
        if (value->kind == WFI_VALUE_PARAM)
            golden_fill_parameter(value->name, value->shape.dim, value->shape.n_dims, data);
        else
            TEST_OK(ctx, wf_trainer_read(t, value->name, data, wfi_value_bytes(g, v)));
        tensors[n++] = (wf_tensor_data){value->name, value->dtype, value->shape, data};
    }
    TEST_OK(ctx, wf_safetensors_write(ctx, path, tensors, n, NULL, 0));
    while (n > 0) free((void *)tensors[--n].data);
    TEST_OK(ctx, wf_trainer_load_weights(t, path));
    unlink(path);
}

static void compare_loss(FILE *golden, double loss, int step, const char *plan) {
    double wanted;
    assert_int_equal(fscanf(golden, "%lf", &wanted), 1);
    if (!(fabs(loss - wanted) <= 2e-5 * (1 + wanted)))
        fail_msg("'%s': step %d has the loss %.9f, PyTorch's %.9f", plan, step + 1, loss, wanted);
}

static int compare_norms(wf_context *ctx, wf_trainer *t, FILE *golden) {
    const wf_graph *g = wfi_trainer_graph(t);
    char name[64];
    double wanted;
    int n = 0;
    for (; fscanf(golden, "%63s %lf", name, &wanted) == 2; n++) {
        size_t bytes = 0;
        double sum = 0;
        for (int32_t v = 0; v < g->n_values; v++)
            if (g->values[v].name && !strcmp(g->values[v].name, name))
                bytes = wfi_value_bytes(g, v);
        assert_true(bytes > 0);
        float *data = malloc(bytes);
        assert_non_null(data);
        TEST_OK(ctx, wf_trainer_read(t, name, data, bytes));
        for (size_t i = 0; i < bytes / sizeof *data; i++) sum += (double)data[i] * data[i];
        free(data);
        if (fabs(sqrt(sum) - wanted) > 1e-4 * wanted)
            fail_msg("the norm of %s is %.9g, PyTorch's %.9g", name, sqrt(sum), wanted);
    }
    return n;
}

/* ---- a network and its target network ---- */

static void dqn(wf_graph *g, const void *config) {
    (void)config;
    wf_tensor x = wf_input(g, "x", WF_F32, WF_SHAPE(4));
    wf_tensor action = wf_input(g, "action", WF_I32, WF_SCALAR);
    wf_tensor wanted = wf_input(g, "wanted", WF_F32, WF_SCALAR);
    x = wf_cut(wf_relu(wf_linear(x, "layer1", 16)), "second");
    wf_tensor q = wf_linear(wf_relu(wf_linear(x, "layer2", 16)), "layer3", 2);
    wf_output(q, "q");
    wf_loss(wf_smooth_l1(wf_gather(q, action), wanted));
}

static float s[N_STATES][4], next[N_STATES][4];
static int32_t action[N_STATES], end[N_STATES];

static double learn(wf_context *ctx, wf_trainer *policy, wf_trainer *target, int first) {
    float q[N_TRANSITIONS][2], wanted[N_TRANSITIONS];
    wf_step_result result;
    const wf_feed of_next = {"x", next[first], sizeof *next * N_TRANSITIONS};
    const wf_feed feeds[] = {{"x", s[first], sizeof *s * N_TRANSITIONS},
                             {"action", &action[first], sizeof *action * N_TRANSITIONS},
                             {"wanted", wanted, sizeof wanted}};
    TEST_OK(ctx, wf_trainer_forward(target, &of_next, 1, N_TRANSITIONS, "q", q, sizeof q));
    for (int i = 0; i < N_TRANSITIONS; i++)
        wanted[i] = 1 + (end[first + i] ? 0.99f * fmaxf(q[i][0], q[i][1]) : 0);
    TEST_OK(ctx, wf_trainer_step(policy, feeds, 3, N_TRANSITIONS, &result));
    return result.loss;
}

static void dqn_as_pytorch(void **state) {
    (void)state;
    static const char recipe[] =
        "batch=32,micro=4,lanes=2,optimizer=adamw,lr=0.01,weight_decay=0.01";
    static const char *const plans[][2] = {/* the policy's, the target's */
                                           {"", ""},
                                           {"dp=2,zero=3", "pp=2"},
                                           {"pp=2", "dp=2,zero=1"},
                                           {"dp=2", "dp=2,pp=2"}};
    char one[65], hex[65];
    golden_fill("state", 2, 0, s[0], sizeof s / sizeof(float));
    golden_fill("next", 2, 0, next[0], sizeof next / sizeof(float));
    golden_fill_integers("action", 2, action, N_STATES);
    golden_fill_integers("end", 5, end, N_STATES); /* 0: it is one */
    wf_context *ctx = test_context();
    for (size_t k = 0; k < sizeof plans / sizeof *plans; k++) {
        wf_trainer *policy = make(ctx, dqn, recipe, plans[k][0]);
        wf_trainer *target = make(ctx, dqn, recipe, plans[k][1]);
        FILE *golden = fopen("tests/golden/dqn.txt", "r");
        assert_non_null(golden);
        load_formula(ctx, policy);
        for (int step = 0; step < N_STEPS; step++) {
            if (step % COPY_EVERY == 0) TEST_OK(ctx, wf_trainer_copy_weights(target, policy, NULL));
            compare_loss(golden, learn(ctx, policy, target, step * N_TRANSITIONS), step,
                         plans[k][0]);
        }
        assert_int_equal(compare_norms(ctx, policy, golden), 6);
        fclose(golden);
        TEST_OK(ctx, wf_trainer_weights_sha256(policy, k ? hex : one));
        if (k) assert_string_equal(hex, one);
        wf_trainer_destroy(target);
        wf_trainer_destroy(policy);
    }
    test_context_end(ctx);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dqn_as_pytorch),
    };
    return cmocka_run_group_tests_name("golden_two_networks", tests, NULL, NULL);
}
