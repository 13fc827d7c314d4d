/* Numbers that are not finite are noticed in the step in which they appear, with the unit and the
 * microbatch, by every rank of every plan alike, as threads, as ranks of a job that share memory,
 * and over messages. What the step left is not saved, and a state that is loaded makes up for it.
 *
 * label: serial
 */
#include "base/finite.h"
#include "comm/job/control.h"
#include "fake_network.h"
#include "optimizer/optimizer.h"
#include "small_models.h"

#include <math.h>
#include <unistd.h>

#define MAX_RANKS 4

/* The first weights are zero: what comes in reaches their gradient, but not the loss. */
static void scaled_net(wf_graph *g, const void *config) {
    wf_tensor x = wf_input(g, "x", WF_F32, WF_SHAPE(3, 8, 8)), none = {g, -1};
    wf_tensor y = wf_input(g, "y", WF_I32, WF_SCALAR);
    wf_tensor zero = wf_parameter(g, "zero", WF_SHAPE(16, 192), (wf_init){WF_INIT_CONSTANT, 0});
    wf_tensor h = wf_linear_with(wf_reshape(x, WF_SHAPE(-1, 192)), zero, none);
    h = wf_cut(wf_scale(h, 100), "middle");
    h = wf_cut(wf_leaky_relu(wf_tanh(wf_linear(h, "fc1", 16)), 0.5f), "last");
    wf_tensor logits = wf_linear(h, "fc2", 10);
    wf_output(logits, "logits");
    wf_loss(wf_cross_entropy(logits, y));
}

/* One of four steps is spoiled. */
static const struct spoiled {
    const char *name;
    wf_model_function function;
    float value; /* the inputs of one sample, or of all */
    int sample;  /* -1: all */
    int at;      /* the step; the weights called zero are so in the first */
    int is_adam;
    const char *words;
} cases[] = {
    {"nan in", scaled_net, NAN, 5, 2, 0,
     "step 3: the gradient of unit last is not finite (first seen in microbatch 2, the loss of "
     "which is nan)"},
    {"inf in", scaled_net, INFINITY, 15, 2, 1,
     "step 3: the gradient of unit last is not finite (first seen in microbatch 7, the loss of "
     "which is nan)"},
    {"nan in, through relu", small_net, NAN, 5, 2, 0,
     "step 3: the gradient of unit last is not finite (first seen in microbatch 2, the loss of "
     "which is nan)"},
    {"gradient", scaled_net, 3e38f, -1, 0, 0,
     "step 1: the gradient of unit first is not finite (the loss of every microbatch is finite)"},
    {"gradient, adamw", scaled_net, 3e38f, -1, 0, 1,
     "step 1: the gradient of unit first is not finite (the loss of every microbatch is finite)"},
    {"second moment", scaled_net, 1e22f, -1, 0, 1,
     "step 1: the optimizer's state of unit first is not finite (the loss of every microbatch is "
     "finite)"},
    {"statistics", small_net, 1e25f, 5, 2, 0, "step 3: the running statistics of unit first"},
};
#define N_CASES (sizeof cases / sizeof *cases)

typedef struct trial {
    const struct spoiled *c;
    const char *plan;
    const char *state; /* file */
    bool undoes;       /* the spoiled step, in place of a load of the state before it */
    char said[MAX_RANKS][700];
} trial;

static wf_status make_trainer(wf_context *ctx, const trial *x, wf_job *job,
                              wf_trainer **trainer_out) {
    wf_trainer_config config = WF_TRAINER_CONFIG_INIT;
    wf_recipe recipe = SMALL_RECIPE(.n_micro = 8, .n_lanes = 4, .n_threads = 1,
                                    .optimizer = x->c->is_adam ? WF_ADAMW : WF_SGD);
    if (x->c->is_adam) recipe.lr = 1e-6;
    config.job = job;
    config.keep_undo = x->undoes;
    return test_try_trainer(ctx, x->c->function, &recipe, x->plan, &config, trainer_out);
}

/* A step, or with `logits` a forward run, of the batch as it is or spoiled. */
static wf_status run(wf_trainer *trainer, const trial *x, int s, bool is_spoiled, char what,
                     wf_step_result *result_out) {
    small_batch batch;
    float logits[SMALL_BATCH * 10];
    small_batch_fill(&batch, s);
    for (int i = 0; i < SMALL_BATCH * SMALL_IMAGE && is_spoiled; i++)
        if (x->c->sample < 0 || i / SMALL_IMAGE == x->c->sample)
            batch.x[i] = i % 7 ? x->c->value : 0;
    wf_feed feeds[] = {{"x", batch.x, sizeof batch.x}, {"y", batch.y, sizeof batch.y}};
    if (what == 's') return wf_trainer_step(trainer, feeds, 2, SMALL_BATCH, result_out);
    if (what == 'e') return wf_trainer_eval(trainer, feeds, 2, SMALL_BATCH, result_out);
    return wf_trainer_forward(trainer, feeds, 2, SMALL_BATCH, "logits", logits, sizeof logits);
}

/* Says what came of it: the spoiled step, saving after it, going on from the state before it. */
static wf_status train(wf_context *ctx, const trial *x, wf_job *job, char said[700]) {
    wf_trainer *t;
    wf_step_result result = {.loss = -1};
    char sha[65] = "";
    WF_TRY(make_trainer(ctx, x, job, &t));
    wf_status status = WF_OK;
    int s = 0;
    for (; s < x->c->at && !status; s++) status = run(t, x, s, false, 's', &result);
    if (!status) status = wf_trainer_save_state(t, x->state, NULL, 0);
    if (!status) {
        wf_status bad = run(t, x, s, true, 's', &result);
        snprintf(said, 700, "%s: %.400s", wf_status_name(bad), wf_context_error(ctx));
        size_t n = strlen(said);
        wf_status saved = wf_trainer_save_state(t, x->state, NULL, 0);
        wf_status weights = wf_trainer_save(t, x->state);
        snprintf(said + n, 700 - n, "; saved %s %s; %lld steps", wf_status_name(saved),
                 wf_status_name(weights), (long long)wf_trainer_n_steps(t));
        status = x->undoes ? wf_trainer_undo_step(t) : wf_trainer_load_state(t, x->state);
        if (!status && wf_trainer_undo_step(t) != WF_INVALID_ARG) status = WF_INVALID_ARG;
    }
    for (; s < 4 && !status; s++) status = run(t, x, s, false, 's', &result);
    if (!status) status = wf_trainer_save_state(t, x->state, NULL, 0);
    if (!status) status = wf_trainer_verify(t, NULL);
    if (!status) status = wf_trainer_weights_sha256(t, sha);
    /* What small_net has behind a batch norm loses it when it is not trained. */
    if (!status && x->c->function == scaled_net && strstr(x->c->words, "first seen")) {
        wf_status seen = run(t, x, 9, true, 'e', &result), no = run(t, x, 9, true, 'f', &result);
        wf_status saved = wf_trainer_save_state(t, x->state, NULL, 0); /* nothing was learned */
        snprintf(said + strlen(said), 700 - strlen(said), "; eval %s %s, saved %s",
                 wf_status_name(seen), wf_status_name(no), wf_status_name(saved));
    }
    snprintf(said + strlen(said), 700 - strlen(said), "; %s", sha);
    wf_trainer_destroy(t);
    return status;
}

/* The weights of a run in which nothing was spoiled. */
static void train_well(const trial *x, char sha[65]) {
    scoped_context ctx = test_context();
    scoped_trainer t;
    wf_step_result result;
    TEST_OK(ctx, make_trainer(ctx, x, NULL, &t));
    for (int s = 0; s < 4; s++) TEST_OK(ctx, run(t, x, s, false, 's', &result));
    TEST_OK(ctx, wf_trainer_weights_sha256(t, sha));
}

/* ---- ranks as threads of one trainer, of a job, and over messages ---- */

static wf_status job_rank(wf_context *ctx, wf_job *job, void *argument) {
    trial *x = argument;
    return train(ctx, x, job, x->said[wf_job_rank(job)]);
}

typedef struct message_rank {
    fake_rank box;
    trial *x;
    pthread_t thread;
} message_rank;

static void *message_thread(void *argument) {
    message_rank *self = argument;
    int r = self->box.rank;
    scoped_context ctx = test_context();
    wf_job *job = NULL;
    wfi_network mail = fake_network(&self->box);
    wf_status status =
        wfi_control_join_network(ctx, &mail, r, self->box.net->n_ranks, TEST_TIMEOUT_MS, &job);
    if (!status) status = train(ctx, self->x, job, self->x->said[r]);
    if (status) snprintf(self->x->said[r], 700, "%.600s", wf_context_error(ctx));
    wf_job_leave(job);
    return NULL;
}

static void run_messages(trial *x, int n_ranks) {
    fake_net net = {.lock = PTHREAD_MUTEX_INITIALIZER, .n_ranks = n_ranks};
    message_rank ranks[MAX_RANKS];
    for (int r = 0; r < n_ranks; r++) {
        ranks[r] = (message_rank){{&net, r}, x, 0};
        assert_int_equal(pthread_create(&ranks[r].thread, NULL, message_thread, &ranks[r]), 0);
    }
    for (int r = 0; r < n_ranks; r++) pthread_join(ranks[r].thread, NULL);
}

static void run_job(trial *x, int n_ranks) {
    static const wf_rank_entry entry = {"train", job_rank};
    scoped_context ctx = test_context();
    wf_spawn_config config = WF_SPAWN_CONFIG_INIT;
    config.n_ranks = n_ranks;
    config.entry = &entry;
    config.arg = x;
    TEST_OK(ctx, wf_spawn(ctx, &config, NULL));
}

static void run_threads(trial *x, int n_ranks) {
    scoped_context ctx = test_context();
    for (int r = 0; r < n_ranks; r++) x->said[r][0] = 0;
    TEST_OK(ctx, train(ctx, x, NULL, x->said[0]));
    for (int r = 1; r < n_ranks; r++) memcpy(x->said[r], x->said[0], sizeof *x->said);
}

TEST_CASE(every_plan_says_the_same) {
    static const struct {
        const char *plan;
        int n_ranks;
    } plans[] = {{"dp=2", 2},
                 {"pp=2", 2},
                 {"dataparallel=2", 2},
                 {"dp=2,pp=2", 4},
                 {"dp=2,zero=3,offload=state:disk+params", 2}};
    void (*const ways[])(trial *, int) = {run_threads, run_job, run_messages};
    char folder[] = "/tmp/weft-test-XXXXXX", path[64], sha[65];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/state", folder);
    for (size_t c = 0; c < N_CASES; c++) {
        trial one = {.c = &cases[c], .plan = "", .state = path}, many = one;
        train_well(&one, sha);
        one.undoes = true;
        run_threads(&one, 1);
        if (!strstr(one.said[0], sha))
            fail_msg("%s: undone, and then '%s', not %s", cases[c].name, one.said[0], sha);
        one.undoes = false;
        run_threads(&one, 1);
        char begin[300], steps[60];
        snprintf(begin, sizeof begin, "NOT_FINITE: %s", cases[c].words);
        if (strncmp(one.said[0], begin, strlen(begin)))
            fail_msg("%s: one rank says '%s'", cases[c].name, one.said[0]);
        snprintf(steps, sizeof steps, "; saved NOT_FINITE NOT_FINITE; %d steps", cases[c].at);
        if (!strstr(one.said[0], steps) || !strstr(one.said[0], sha))
            fail_msg("%s: afterwards '%s', not %s", cases[c].name, one.said[0], sha);
        if (cases[c].function == scaled_net && strstr(cases[c].words, "first seen") &&
            !strstr(one.said[0], "eval NOT_FINITE OK, saved OK"))
            fail_msg("%s: eval: '%s'", cases[c].name, one.said[0]);
        for (size_t k = 0; k < sizeof plans / sizeof *plans; k++)
            for (size_t w = (c + k) % TEST_SAMPLE; w < 3; w += TEST_SAMPLE) {
                many.plan = plans[k].plan;
                many.undoes = strstr(many.plan, "offload") || (c / TEST_SAMPLE + k) % 2;
                ways[w](&many, plans[k].n_ranks);
                for (int r = 0; r < plans[k].n_ranks; r++)
                    if (strcmp(many.said[r], one.said[0]))
                        fail_msg("%s, plan '%s', way %zu, rank %d: '%s', one rank says '%s'",
                                 cases[c].name, many.plan, w, r, many.said[r], one.said[0]);
            }
    }
    unlink(path);
    rmdir(folder);
}

/* ---- the optimizer ---- */

#define N_ELEMENTS 10000

static const struct {
    wf_optimizer optimizer;
    double momentum;
    int nesterov;
} rules[] = {
    {WF_SGD, 0, 0}, {WF_SGD, 0.9, 0}, {WF_SGD, 0.9, 1}, {WF_ADAM, 0, 0}, {WF_ADAMW, 0, 0},
};
#define N_RULES (sizeof rules / sizeof *rules)

static wf_recipe rule_recipe(size_t k) {
    wf_recipe r = TEST_RECIPE(.optimizer = rules[k].optimizer, .momentum = rules[k].momentum,
                              .nesterov = rules[k].nesterov, .weight_decay = 0.01, .lr = 0.1);
    return r;
}

static float some(uint64_t i) {
    return wfi_random_normal((wfi_random_key){3, 4}, 5, i);
}

#define kept(m) ((float *[]){(m), (m) + N_ELEMENTS})

TEST_CASE(bad_gradients_are_seen) {
    static float param[N_ELEMENTS], gradient[N_ELEMENTS], moments[2 * N_ELEMENTS];
    static const float bad[] = {NAN, -NAN, INFINITY, -INFINITY};
    static const size_t places[] = {0, 1, 1023, 1024, 4095, 4096, 9000, N_ELEMENTS - 1};
    static const double rates[] = {0, 1e-3, 1e3};
    for (size_t k = 0; k < N_RULES; k++)
        for (size_t v = 0; v < 4 * 8 * 3; v++) {
            wf_recipe r = rule_recipe(k);
            for (size_t i = 0; i < N_ELEMENTS; i++) param[i] = gradient[i] = some(i);
            memset(moments, 0, sizeof moments);
            gradient[places[v / 4 % 8]] = bad[v % 4];
            assert_int_equal(wfi_optimizer_update(&r, rates[v / 32], 0, 1, param, gradient,
                                                  kept(moments), N_ELEMENTS),
                             WFI_UPDATE_PARAM);
            assert_int_equal(wfi_find_not_finite(gradient, N_ELEMENTS), places[v / 4 % 8]);
            assert_int_equal(wfi_find_not_finite(param, N_ELEMENTS), places[v / 4 % 8]);
        }
}

/* A second moment that overflows makes the step zero, not infinite. */
TEST_CASE(bad_moments_are_seen) {
    static float param[N_ELEMENTS], gradient[N_ELEMENTS], moments[2 * N_ELEMENTS];
    wf_recipe r = rule_recipe(4);
    for (size_t i = 0; i < N_ELEMENTS; i++) param[i] = gradient[i] = some(i);
    assert_int_equal(
        wfi_optimizer_update(&r, 0.1, 0, 1, param, gradient, kept(moments), N_ELEMENTS),
        WFI_UPDATE_FINITE);
    gradient[9999] = 1e30f;
    assert_int_equal(
        wfi_optimizer_update(&r, 0.1, 1, 1, param, gradient, kept(moments), N_ELEMENTS),
        WFI_UPDATE_STATE);
}

/* Elements do not see each other, so an update has the bits of one by one. */
TEST_CASE(bits_of_each_alone) {
    static float param[N_ELEMENTS], gradient[N_ELEMENTS], moments[2 * N_ELEMENTS];
    for (size_t k = 0; k < N_RULES; k++) {
        wf_recipe r = rule_recipe(k);
        for (size_t i = 0; i < N_ELEMENTS; i++) param[i] = some(i);
        memset(moments, 0, sizeof moments);
        for (int s = 0; s < 3; s++) {
            for (size_t i = 0; i < N_ELEMENTS; i++) gradient[i] = some(i + 77 + (size_t)s);
            assert_int_equal(
                wfi_optimizer_update(&r, 0.1, s, 0.5f, param, gradient, kept(moments), N_ELEMENTS),
                WFI_UPDATE_FINITE);
        }
        for (size_t i = 0; i < N_ELEMENTS; i++) {
            float p = some(i), own[2] = {0, 0};
            for (int s = 0; s < 3; s++) {
                float g = some(i + 77 + (size_t)s);
                (void)wfi_optimizer_update(&r, 0.1, s, 0.5f, &p, &g, (float *[]){&own[0], &own[1]},
                                           1);
            }
            if (memcmp(&p, &param[i], sizeof p))
                fail_msg("rule %zu, element %zu: %a, alone %a", k, i, (double)param[i], (double)p);
        }
    }
}
