/* Asynchronous runs against the formula, in double: each push of the record moves the parameters by
 * the gradient at the version that it read, times the rate divided by the workers.
 * label: serial
 */
#include "workers_case.h"

#include "api/share.h"
#include "plan/workers.h"
#include "workers/record.h"

#include <math.h>

static const char *const names[] = {"first.weight", "first.bias",  "inner.weight",
                                    "inner.bias",   "last.weight", "last.bias"};
enum { N_NAMES = 6, N_HIDDEN = 12, N_MOST = N_HIDDEN * N_HIDDEN, N_VERSIONS = 64 };
static const size_t sizes[N_NAMES] = {N_HIDDEN * CASE_INPUTS, N_HIDDEN, N_MOST, N_HIDDEN,
                                      5 * N_HIDDEN,           5};

typedef double parameters[N_NAMES][N_MOST];

static void read_all(wf_context *ctx, wf_trainer *t, parameters to) {
    float data[N_MOST];
    for (int k = 0; k < N_NAMES; k++) {
        TEST_OK(ctx, wf_trainer_read(t, names[k], data, sizes[k] * sizeof *data));
        for (size_t i = 0; i < sizes[k]; i++) to[k][i] = data[i];
    }
}

static void write_all(wf_context *ctx, wf_trainer *t, parameters from) {
    float data[N_MOST];
    for (int k = 0; k < N_NAMES; k++) {
        for (size_t i = 0; i < sizes[k]; i++) data[i] = (float)from[k][i];
        TEST_OK(ctx, wf_trainer_write(t, names[k], data, sizes[k] * sizeof *data));
    }
}

static void compute(wf_context *ctx, wf_trainer *t, const case_crew *crew, const wfi_push *push) {
    static case_data data;
    wf_feed feeds[2];
    wf_step_result result;
    int64_t first, n, n_batch = case_n_samples(crew->c, push->batch);
    wf_recipe_part(&crew->resolved, n_batch, (int)crew->c->recipe.n_workers, push->worker, &first,
                   &n);
    case_fill(crew->c, push->batch, first, n, &data);
    wfi_trainer_share(t, &(wfi_share){.step = push->batch, .first_sample = first});
    TEST_OK(ctx, wf_trainer_gradients(t, feeds, case_feeds(&data, n, feeds), n, &result));
}

static double rate_of(const one_case *c, int64_t version, const wfi_push *push) {
    int64_t n = c->recipe.n_workers, steps = (version - push->version + n - 1) / n;
    double lr = wf_recipe_lr(&c->recipe, version / n) / (double)n;
    return c->recipe.staleness_lr && steps > 1 ? lr / (double)steps : lr;
}

static void apply(wf_context *ctx, wf_trainer *t, double rate, parameters from, parameters to) {
    float gradient[N_MOST];
    for (int k = 0; k < N_NAMES; k++) {
        TEST_OK(ctx, wf_trainer_read_gradient(t, names[k], gradient, sizes[k] * sizeof(float)));
        for (size_t i = 0; i < sizes[k]; i++) to[k][i] = from[k][i] - rate * (double)gradient[i];
    }
}

/* The parameters after all pushes of the record. */
static void run_by_hand(wf_context *ctx, const case_crew *crew, parameters to) {
    static parameters versions[N_VERSIONS];
    wfi_record record;
    wf_recipe own = wfi_recipe_of_worker(&crew->resolved);
    scoped_trainer t = case_trainer(ctx, crew->c, &own);
    TEST_OK(ctx, wfi_record_read(ctx, case_path, &record));
    assert_true(record.n_pushes < N_VERSIONS);
    read_all(ctx, t, versions[0]);
    for (size_t v = 0; v < record.n_pushes; v++) {
        const wfi_push *push = &record.pushes[v];
        write_all(ctx, t, versions[push->version]);
        compute(ctx, t, crew, push);
        apply(ctx, t, rate_of(crew->c, (int64_t)v, push), versions[v], versions[v + 1]);
    }
    memcpy(to, versions[record.n_pushes], sizeof(parameters));
    wfi_record_release(&record);
}

TEST(pushes_are_gradient_steps) {
    for (int i = 0; i < 6; i++) {
        static case_crew crew;
        static parameters got, want;
        wf_step_result results[CASE_STEPS];
        int64_t n_done;
        one_case c = case_of(400 + (uint64_t)i, 2 + i % 4);
        c.net = (case_net){.n_hidden = N_HIDDEN, .has_dropout = i % 2};
        c.recipe.optimizer = WF_SGD;
        c.recipe.lr = 0.5;
        c.recipe.momentum = c.recipe.weight_decay = c.recipe.clip_norm = 0;
        c.recipe.no_bias_decay = c.recipe.nesterov = 0;
        c.recipe.freeze.text[0] = c.recipe.lr_scale.text[0] = '\0';
        c.recipe.update = WF_UPDATE_ASYNC;
        c.recipe.staleness = i < 3 ? 2 : WF_STALENESS_UNBOUNDED;
        c.recipe.staleness_lr = i % 2;
        c.n_steps = 6;
        c.naps_us = 300;
        c.slow = 0;
        case_crew_init(&crew, &c);
        crew.config.record = case_path;
        TEST_OK(ctx, case_try_crew(ctx, &crew, i % 2 ? "dp=2,ps=2" : "dp=2"));
        TEST_OK(ctx, wf_workers_run(crew.workers, c.n_steps, results, &n_done));
        read_all(ctx, wf_workers_trainer(crew.workers), got);
        run_by_hand(ctx, &crew, want);
        for (int k = 0; k < N_NAMES; k++)
            for (size_t e = 0; e < sizes[k]; e++)
                if (!(fabs(got[k][e] - want[k][e]) <= 1e-5))
                    fail_msg("case %d, %s[%d] is %g, expected %g", i, names[k], (int)e, got[k][e],
                             want[k][e]);
        wf_workers_destroy(crew.workers);
    }
}

TEST_FIXTURE(case_make_folder, case_remove_folder)
