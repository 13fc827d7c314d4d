/* Random small models, recipes and batches for tests of workers, and runs of them. */
#pragma once

#include "base/random.h"
#include "plan/lanes.h"
#include "test_trainer.h"

#include <time.h>
#include <unistd.h>

#define CASE_WORKERS 6
#define CASE_BATCH   96
#define CASE_INPUTS  6
#define CASE_STEPS   16

typedef struct case_net {
    int n_hidden, has_norm, has_dropout, is_tied;
} case_net;

/* The middle unit is larger than a server's smallest part if n_hidden is 64. */
static inline void case_model(wf_graph *g, const void *config) {
    const case_net *c = config;
    wf_tensor x = wf_input(g, "x", WF_F32, WF_SHAPE(CASE_INPUTS)), none = {g, -1};
    wf_tensor y = wf_input(g, "y", WF_I32, WF_SCALAR);
    wf_tensor h = wf_linear(x, "first", c->n_hidden);
    if (c->has_norm) h = wf_batch_norm(h, "norm");
    h = wf_cut(wf_relu(h), "middle");
    if (c->has_dropout) h = wf_dropout(h, "drop", 0.3f);
    if (c->is_tied) {
        wf_init init = {WF_INIT_NORMAL, 0.2f};
        wf_tensor tied = wf_parameter(g, "tied", WF_SHAPE(c->n_hidden, c->n_hidden), init);
        h = wf_cut(wf_tanh(wf_linear_with(h, tied, none)), "again");
        h = wf_linear_with(h, tied, none);
    } else {
        h = wf_linear(h, "inner", c->n_hidden);
    }
    h = wf_cut(wf_tanh(h), "head");
    wf_loss(wf_cross_entropy(wf_linear(h, "last", 5), y));
}

typedef struct one_case {
    uint64_t seed;
    case_net net;
    wf_recipe recipe;
    int n_steps;
    int64_t n_least; /* samples of the smallest batch */
    int n_ignored;   /* of 100 samples */
    int naps_us;     /* longest nap of a worker before it computes; 0: none */
    int slow;        /* worker whose naps are ten times as long; -1: none */
    int n_ahead;     /* parts of others that `slow` waits for before its first */
} one_case;

/* A number below n; another one for each `what`. */
static inline int case_draw(uint64_t seed, uint64_t what, int n) {
    wfi_random_key key = {(uint32_t)seed, (uint32_t)(seed >> 32) + 77};
    float x = wfi_random_uniform(key, what, 0);
    int i = (int)(x * (float)n);
    return i < n ? i : n - 1;
}

/* ---- data ---- */

typedef struct case_data {
    float x[CASE_BATCH * CASE_INPUTS];
    int32_t y[CASE_BATCH];
} case_data;

static inline int64_t case_n_samples(const one_case *c, int64_t batch) {
    int64_t spare = c->recipe.batch - c->n_least;
    return batch % 3 == 2 ? c->n_least + case_draw(c->seed, 900 + (uint64_t)batch, (int)spare + 1)
                          : c->recipe.batch;
}

static inline void case_fill(const one_case *c, int64_t batch, int64_t first, int64_t n,
                             case_data *data) {
    wfi_random_key key = {(uint32_t)c->seed, 5};
    for (int64_t i = 0; i < n; i++) {
        uint64_t at = (uint64_t)(batch * CASE_BATCH + first + i);
        int draw = case_draw(c->seed, 1000000 + at, 500);
        data->y[i] = draw / 5 < c->n_ignored ? -1 : draw % 5;
        for (int k = 0; k < CASE_INPUTS; k++)
            data->x[i * CASE_INPUTS + k] =
                wfi_random_normal(key, at, (uint64_t)k) + 0.5f * (float)(data->y[i] == k);
    }
}

static inline int64_t case_count_ignored(const one_case *c, int64_t batch) {
    case_data data;
    int64_t n_ignored = 0, n = case_n_samples(c, batch);
    case_fill(c, batch, 0, n, &data);
    for (int64_t i = 0; i < n; i++) n_ignored += data.y[i] < 0;
    return n_ignored;
}

static inline int case_feeds(const case_data *data, int64_t n, wf_feed *feeds) {
    feeds[0] = (wf_feed){"x", data->x, (size_t)n * CASE_INPUTS * sizeof *data->x};
    feeds[1] = (wf_feed){"y", data->y, (size_t)n * sizeof *data->y};
    return 2;
}

/* ---- the synchronous trainer, and workers ---- */

static inline wf_model *case_create_model(wf_context *ctx, const one_case *c) {
    return test_model(ctx, "case", case_model, &c->net, sizeof c->net);
}

static inline wf_trainer *case_trainer(wf_context *ctx, const one_case *c,
                                       const wf_recipe *recipe) {
    return test_trainer(ctx, case_create_model(ctx, c), recipe, "", NULL);
}

static inline wf_recipe case_sync_recipe(const one_case *c) {
    wf_recipe r = c->recipe;
    r.update = WF_UPDATE_SYNC;
    r.n_workers = r.n_backup = 0;
    return r;
}

typedef struct case_crew {
    const one_case *c;
    wf_workers *workers;
    wf_trainer_config trainer;
    wf_workers_config config;
    case_data data[CASE_WORKERS];
    wf_recipe resolved;
    int n_read; /* parts by workers other than the slow one; atomic access */
    wf_step_result results[CASE_STEPS]; /* [n_done] of a test that asks for them */
    int64_t n_done;
} case_crew;

static inline void case_crew_end(case_crew *crew) {
    wf_workers_destroy(crew->workers);
}
#define scoped_crew __attribute__((cleanup(case_crew_end))) case_crew

static inline void case_nap(int64_t us) {
    const struct timespec time = {us / 1000000, us % 1000000 * 1000};
    if (us) nanosleep(&time, NULL);
}

/* Lets the others compute first, whatever else the machine does. */
static inline void case_wait(case_crew *crew, int worker, int64_t batch) {
    if (worker != crew->c->slow) __atomic_add_fetch(&crew->n_read, 1, __ATOMIC_RELAXED);
    if (worker != crew->c->slow || batch) return;
    for (int k = 0;
         k < 50000 && __atomic_load_n(&crew->n_read, __ATOMIC_RELAXED) < crew->c->n_ahead; k++)
        case_nap(200);
}

static inline wf_status case_read(void *self, int worker, int64_t batch, wf_worker_part *part_out) {
    case_crew *crew = self;
    const one_case *c = crew->c;
    int64_t first, n, n_batch = case_n_samples(c, batch);
    case_wait(crew, worker, batch);
    if (c->naps_us)
        case_nap(
            case_draw(c->seed, 5000000 + (uint64_t)(batch * CASE_WORKERS + worker), c->naps_us) *
            (worker == c->slow ? 10 : 1));
    wf_recipe_part(&crew->resolved, n_batch, (int)c->recipe.n_workers, worker, &first, &n);
    case_fill(c, batch, first, n, &crew->data[worker]);
    part_out->n_feeds = case_feeds(&crew->data[worker], n, part_out->feeds);
    part_out->n_samples = n;
    part_out->n_batch = n_batch;
    if (c->n_ignored) part_out->n_ignored = case_count_ignored(c, batch);
    return WF_OK;
}

static inline void case_crew_init(case_crew *crew, const one_case *c) {
    *crew =
        (case_crew){.c = c, .trainer = WF_TRAINER_CONFIG_INIT, .config = WF_WORKERS_CONFIG_INIT};
    crew->config.read = case_read;
    crew->config.self = crew;
    crew->config.trainer = &crew->trainer;
}

/* Creates the workers of an initialized crew, whose config tests may have changed. */
static inline wf_status case_try_crew(wf_context *ctx, case_crew *crew, const char *plan_text) {
    const one_case *c = crew->c;
    scoped_model model = case_create_model(ctx, c);
    scoped_plan plan = test_plan(ctx, plan_text);
    crew->workers = NULL;
    wf_status status =
        wf_workers_create(ctx, model, &c->recipe, plan, &crew->config, &crew->workers);
    if (status == WF_OK) crew->resolved = *wf_workers_recipe(crew->workers);
    return status;
}

/* ---- results ---- */

typedef struct case_result {
    char hash[65];
    wf_step_result steps[CASE_STEPS];
    char *state; /* all tensors in the file of the trainer's state */
    size_t n_state;
} case_result;

static inline void case_read_file(const char *path, case_result *r) {
    uint64_t n_header;
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    assert_int_equal(fread(&n_header, sizeof n_header, 1, file), 1);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    r->n_state = (size_t)ftell(file) - sizeof n_header - n_header;
    assert_int_equal(fseek(file, (long)(sizeof n_header + n_header), SEEK_SET), 0);
    r->state = malloc(r->n_state);
    assert_non_null(r->state);
    assert_int_equal(fread(r->state, 1, r->n_state, file), r->n_state);
    (void)fclose(file);
    (void)remove(path);
}

static inline void case_keep(wf_context *ctx, wf_trainer *t, const char *folder, case_result *r) {
    char path[256];
    snprintf(path, sizeof path, "%s/state.safetensors", folder);
    TEST_OK(ctx, wf_trainer_weights_sha256(t, r->hash));
    TEST_OK(ctx, wf_trainer_save_state(t, path, NULL, 0));
    case_read_file(path, r);
}

/* Losses, rows and the state of trainers; `what` names the run. */
static inline void case_expect_equal(const one_case *c, const char *what, const case_result *a,
                                     const case_result *b) {
    for (int s = 0; s < c->n_steps; s++)
        if (a->steps[s].loss != b->steps[s].loss || a->steps[s].n_rows != b->steps[s].n_rows)
            fail_msg("seed %d, %s: step %d has loss %.17g and %.17g", (int)c->seed, what, s,
                     a->steps[s].loss, b->steps[s].loss);
    if (a->n_state != b->n_state || memcmp(a->state, b->state, a->n_state) != 0)
        fail_msg("seed %d, %s: another state", (int)c->seed, what);
}

static inline void case_release(case_result *r) {
    free(r->state);
    *r = (case_result){0};
}
#define scoped_result __attribute__((cleanup(case_release))) case_result

/* The crew's steps, in two runs. */
static inline void case_steps(wf_context *ctx, case_crew *crew, int n_first, const char *folder,
                              case_result *r) {
    int64_t n_done = 0, n_more = 0, n = crew->c->n_steps;
    TEST_OK(ctx, wf_workers_run(crew->workers, n_first, r->steps, &n_done));
    assert_int_equal(n_done, n_first);
    TEST_OK(ctx, wf_workers_run(crew->workers, n - n_first, r->steps + n_first, &n_more));
    assert_int_equal(n_more, n - n_first);
    assert_int_equal(wf_workers_n_steps(crew->workers), n);
    case_keep(ctx, wf_workers_trainer(crew->workers), folder, r);
}

static inline void case_run_crew(wf_context *ctx, case_crew *crew, const char *plan,
                                 const char *folder, int n_first, case_result *r) {
    TEST_OK(ctx, case_try_crew(ctx, crew, plan));
    case_steps(ctx, crew, n_first, folder, r);
    wf_workers_destroy(crew->workers);
}

static inline void case_run_sync(wf_context *ctx, const one_case *c, const char *folder,
                                 case_result *r) {
    wf_recipe recipe = case_sync_recipe(c);
    case_data data;
    wf_trainer *t = case_trainer(ctx, c, &recipe);
    for (int s = 0; s < c->n_steps; s++) {
        wf_feed feeds[2];
        int64_t n = case_n_samples(c, s);
        case_fill(c, s, 0, n, &data);
        TEST_OK(ctx, wf_trainer_step(t, feeds, case_feeds(&data, n, feeds), n, &r->steps[s]));
    }
    case_keep(ctx, t, folder, r);
    wf_trainer_destroy(t);
}

/* ---- random cases ---- */

static inline void case_draw_optimizer(uint64_t seed, wf_recipe *r) {
    int kind = case_draw(seed, 20, 5);
    r->optimizer = kind == 4 ? WF_ADAM : kind == 3 ? WF_ADAMW : WF_SGD;
    r->momentum = kind == 1 || kind == 2 ? 0.9 : 0;
    r->nesterov = kind == 2;
    r->lr = r->optimizer == WF_SGD ? 0.1 : 0.01;
    if (case_draw(seed, 21, 2)) r->weight_decay = 0.01;
    if (r->weight_decay > 0) r->no_bias_decay = case_draw(seed, 22, 2);
    if (case_draw(seed, 23, 2)) r->clip_norm = 0.2;
    if (!case_draw(seed, 24, 3)) strcpy(r->freeze.text, "first.weight");
    if (!case_draw(seed, 25, 3)) strcpy(r->lr_scale.text, "last=3,first=0.5");
    if (case_draw(seed, 26, 2)) {
        r->lr_schedule = WF_LR_COSINE;
        r->warmup_steps = 2;
        r->schedule_steps = 12;
    }
}

/* A model and a synchronous recipe that n_workers can share. */
static inline one_case case_of(uint64_t seed, int n_workers) {
    one_case c = {.seed = seed, .recipe = WF_RECIPE_INIT, .slow = -1};
    c.net = (case_net){.n_hidden = case_draw(seed, 1, 3) ? 64 : 12,
                       .has_norm = case_draw(seed, 2, 2),
                       .has_dropout = case_draw(seed, 3, 2),
                       .is_tied = case_draw(seed, 4, 2)};
    int64_t lanes = n_workers * (1 + case_draw(seed, 5, 2));
    if (!wfi_lanes_allow(lanes, n_workers)) lanes = n_workers;
    c.recipe.n_lanes = lanes;
    c.recipe.n_micro = lanes * (1 + case_draw(seed, 6, 2));
    c.n_least = c.recipe.n_micro * (c.net.has_norm ? 2 : 1);
    c.recipe.batch = c.n_least + case_draw(seed, 7, (int)c.recipe.n_micro + 1);
    c.recipe.seed = seed;
    c.recipe.kernels = WF_KERNELS_REFERENCE;
    c.recipe.n_workers = n_workers;
    c.n_steps = 5;
    case_draw_optimizer(seed, &c.recipe);
    return c;
}

static inline one_case async_case(uint64_t seed, int n_workers, int64_t staleness) {
    one_case c = case_of(seed, n_workers);
    c.recipe.update = WF_UPDATE_ASYNC;
    c.recipe.staleness = staleness;
    return c;
}

static inline int n_cases(int n) {
    return (test_is_full() ? 20 * n : n) / TEST_SAMPLE + 1;
}

/* ---- a folder with a record, for all tests of a program ---- */

static char case_folder[] = "/tmp/weft-test-XXXXXX", case_path[64];

static inline int case_make_folder(void **state) {
    if (!mkdtemp(case_folder)) return 1;
    snprintf(case_path, sizeof case_path, "%s/record", case_folder);
    return 0;
}

static inline int case_remove_folder(void **state) {
    (void)remove(case_path);
    return rmdir(case_folder);
}
