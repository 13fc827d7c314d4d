/* Every plan trains as one rank does, bit for bit, whatever carries its ranks: threads, messages
 * between threads that share nothing, processes, MPI, or devices of a kind. The test compares the
 * losses of each step, an evaluation between steps, the weights, and every replica's and slice's
 * state; also under random delays, after a load of a saved state, and after an update of the
 * caller's. The planned peak of every rank is the measured one in each space, and the checker of
 * events watches.
 *
 * plan_pairs.h has the plans. WEFT_TEST_FULL=1 gives each pair of options a plan of its own, with
 * the other options at random.
 *
 * label: long
 */
#include "api/trainer.h"
#include "group_ranks.h"
#include "mpi_start.h"
#include "plan_pairs.h"
#include "small_models.h"
#include "wide_net.h"

#include <math.h>

#define N_STEPS 3
/* Pairs that fit, but that no row has. */
#define N_OPEN 0

static const struct {
    wf_model_function function;
    const char *bias;
    bool has_logits;
} nets[N_NETS] = {[WIDE] = {wide_net, "fc.bias", false},
                  [SMALL] = {small_net, "fc.bias", true},
                  [PLAIN] = {plain_net, "fc2.bias", false},
                  [TOKENS] = {token_net, "head.bias", true},
                  [TOKENS_BF16] = {token_net, "head.bias", true}};

static char state_path[200];
static const wfi_device_class *device; /* of this process's trainers; NULL: the CPU */

/* ---- one run ---- */

/* Results that all plans have in common. */
typedef struct outcome {
    double losses[N_STEPS + 1]; /* the last is of an evaluation between steps */
    float logits[SMALL_BATCH * 10];
    char sha[65];
} outcome;

/* Results of a shorter step and an update of the caller's after that. */
typedef struct later {
    double loss, gradient_norm;
    float gradient[10];
    char sha[65];
} later;

typedef struct run {
    wf_context *ctx;
    wf_job *job;
    row row;
    const char *plan;
    wf_trainer *t;
    small_batch batch;
    outcome outcome;
    later later;
} run;

/* Suits the replicas of the row's grid. */
static wf_recipe recipe_of(const row *r) {
    wf_recipe recipe = small_recipe();
    int way = r->value[WAY], n = n_replicas(text_at(r, GRID));
    recipe.n_lanes = n == 3 ? 3 : n == 4 || way < 2 ? 4 : 2;
    recipe.n_micro = n == 3 || way >= 2 ? 6 : 4;
    if (n == 4) recipe.n_micro = way % 2 ? 8 : 4;
    if (way == 4) recipe.n_lanes = recipe.n_micro = n;
    recipe.n_slices = r->value[NET] >= TOKENS ? 2 : 1;
    recipe.dtype = r->value[NET] == TOKENS_BF16 ? WF_BF16 : WF_F32;
    recipe.clip_norm = way == 1 || way == 2 ? 0.5 : 0;
    recipe.optimizer = way % 2 ? WF_SGD : WF_ADAMW;
    if (way == 3) recipe.momentum = 0;
    if (way == 2) recipe.lr_schedule = WF_LR_COSINE;
    if (way == 2) recipe.warmup_steps = 2, recipe.schedule_steps = 9;
    recipe.n_threads = 1;
    if (!device) recipe.kernels = WF_KERNELS_REFERENCE;
    return recipe;
}

static wf_status make_trainer(run *u, wf_trainer **trainer_out) {
    wf_trainer_config config = WF_TRAINER_CONFIG_INIT;
    wf_recipe recipe = recipe_of(&u->row);
    char devices[32];
    config.job = u->job;
    if (device) config.devices = devices;
    snprintf(devices, sizeof devices, "%s:%d", device ? device->name : "cpu",
             *u->plan ? n_ranks(text_at(&u->row, GRID)) : 1);
    return test_try_trainer(u->ctx, nets[u->row.value[NET]].function, &recipe, u->plan, &config,
                            trainer_out);
}

typedef wf_status (*run_fn)(wf_trainer *t, const wf_feed *feeds, int n_feeds, int64_t n_samples,
                            wf_step_result *result_out);

static wf_status feed(run *u, run_fn call, int step, size_t n, wf_step_result *result_out) {
    small_batch *b = &u->batch;
    small_batch_fill(b, step);
    wf_feed feeds[] = {{"x", b->x, sizeof b->x / SMALL_BATCH * n}, {"y", b->y, sizeof *b->y * n}};
    return call(u->t, feeds, 2, (int64_t)n, result_out);
}

/* Goes on in another trainer, from a file. */
static wf_status resume(run *u) {
    WF_TRY(wf_trainer_save_state(u->t, state_path, NULL, 0));
    wf_trainer_destroy(u->t);
    u->t = NULL;
    WF_TRY(make_trainer(u, &u->t));
    return wf_trainer_load_state(u->t, state_path);
}

static wf_status train(run *u, bool resumes) {
    outcome *out = &u->outcome;
    wf_step_result result;
    char before[65];
    WF_TRY(make_trainer(u, &u->t));
    for (int s = 0; s < N_STEPS; s++) {
        WF_TRY(feed(u, wf_trainer_step, s, SMALL_BATCH, &result));
        out->losses[s] = result.loss;
        if (s != 1) continue;
        if (!*u->plan) WF_TRY(wf_trainer_weights_sha256(u->t, before));
        WF_TRY(feed(u, wf_trainer_eval, 9, 11, &result));
        if (!*u->plan) WF_TRY(wf_trainer_weights_sha256(u->t, out->sha));
        if (!*u->plan) assert_string_equal(out->sha, before);
        out->losses[N_STEPS] = result.loss;
        if (resumes) WF_TRY(resume(u));
    }
    wf_feed feeds[] = {{"x", u->batch.x, sizeof u->batch.x}, {"y", u->batch.y, sizeof u->batch.y}};
    if (nets[u->row.value[NET]].has_logits)
        WF_TRY(wf_trainer_forward(u->t, feeds, 2, SMALL_BATCH, "logits", out->logits,
                                  sizeof out->logits));
    return wf_trainer_weights_sha256(u->t, out->sha);
}

/* The weights of another trainer, which gets those of this one, are hashed. */
static wf_status train_on(run *u) {
    const char *bias = nets[u->row.value[NET]].bias;
    later *out = &u->later;
    wf_step_result result;
    wf_trainer *copy;
    WF_TRY(feed(u, wf_trainer_step, 5, SMALL_BATCH - 5, &result));
    out->loss = result.loss;
    WF_TRY(feed(u, wf_trainer_gradients, 6, SMALL_BATCH, &result));
    out->gradient_norm = result.gradient_norm;
    WF_TRY(wf_trainer_read_gradient(u->t, bias, out->gradient, sizeof out->gradient));
    WF_TRY(wf_trainer_write(u->t, bias, out->gradient, sizeof out->gradient));
    WF_TRY(wf_trainer_count_step(u->t));
    WF_TRY(make_trainer(u, &copy));
    wf_status status = wf_trainer_copy_weights(copy, u->t, NULL);
    if (!status) status = wf_trainer_weights_sha256(copy, out->sha);
    wf_trainer_destroy(copy);
    return status;
}

/* ---- one rank ---- */

#define MOST_ORACLES 150

static run oracles[MOST_ORACLES]; /* one a network and recipe */
static int n_oracles;

static const run *find_oracle(const row *r) {
    wf_recipe wanted = recipe_of(r);
    for (int k = 0; k < n_oracles; k++) {
        wf_recipe recipe = recipe_of(&oracles[k].row);
        if (oracles[k].row.value[NET] == r->value[NET] && !memcmp(&recipe, &wanted, sizeof recipe))
            return &oracles[k];
    }
    return NULL;
}

static const run *oracle_of(const row *r) {
    const run *found = find_oracle(r);
    if (found) return found;
    assert_true(n_oracles < MOST_ORACLES);
    run *one = &oracles[n_oracles++];
    *one = (run){.ctx = test_context(), .row = *r, .plan = ""};
    TEST_OK(one->ctx, train(one, false));
    TEST_OK(one->ctx, wf_trainer_save_state(one->t, state_path, NULL, 0));
    TEST_OK(one->ctx, train_on(one));
    TEST_OK(one->ctx, wf_trainer_load_state(one->t, state_path));
    return one;
}

static int destroy_oracles(void **state) {
    for (int k = 0; k < n_oracles; k++) {
        wf_trainer_destroy(oracles[k].t);
        test_context_end(oracles[k].ctx);
    }
    return 0;
}

static const char *memory_of(const wf_trainer *t, const wfi_block *b) {
    return t->ready[0]->executor->workers[b->rank].arenas[b->space].base + b->offset;
}

/* Every parameter and buffer that a rank of this process keeps on its device, with the one rank's;
 * `rank` -1: all are. NULL, or what is wrong. */
static const char *other_state(const wf_trainer *t, const wf_trainer *one, int rank) {
    const wf_program *p = t->ready[0]->program, *q = one->ready[0]->program;
    for (int32_t b = 0; b < p->n_blocks; b++) {
        const wfi_block *mine = &p->blocks[b];
        if (!mine->is_state || mine->space || (rank >= 0 && mine->rank != rank)) continue;
        for (int32_t k = 0; k < q->n_blocks; k++) {
            const wfi_block *whole = &q->blocks[k];
            if (!whole->is_state || whole->name.kind != mine->name.kind ||
                whole->name.owner != mine->name.owner || mine->name.kind == WFI_BLOCK_STATE)
                continue;
            if (memcmp(memory_of(t, mine), memory_of(one, whole) + mine->begin, mine->bytes))
                return ranks_text("rank %d has another %s of unit %s", mine->rank,
                                  wfi_block_kind_name(mine->name.kind),
                                  p->graph->units[mine->name.owner].name);
        }
    }
    return NULL;
}

static const char *other_outcome(const outcome *a, const outcome *b) {
    for (int k = 0; k <= N_STEPS; k++)
        if (a->losses[k] != b->losses[k])
            return ranks_text("loss %d is %.17g, one rank has %.17g", k, a->losses[k],
                              b->losses[k]);
    if (memcmp(a->logits, b->logits, sizeof a->logits)) return "other logits";
    return strcmp(a->sha, b->sha) ? "other weights" : NULL;
}

static const char *other_later(const later *a, const later *b) {
    if (a->loss != b->loss) return "another loss of a shorter batch";
    if (memcmp(a->gradient, b->gradient, sizeof a->gradient)) return "other gradients";
    if (a->gradient_norm != b->gradient_norm) return "another norm of gradients";
    return strcmp(a->sha, b->sha) ? "other weights after an update of the caller's" : NULL;
}

/* ---- one row ---- */

#define RUN_TRY(u, call)                                                                           \
    do {                                                                                           \
        if (call) return wf_context_error((u)->ctx);                                               \
    } while (0)

/* Over MPI, rank 0 alone has an oracle. The others compare themselves with rank 0. */
static const char *other_than_first(const run *u, ranks_one *one) {
    struct {
        outcome outcome;
        later later;
    } mine = {u->outcome, u->later}, first;
    RUN_TRY(u, wf_group_broadcast(one->group, &mine, &first, sizeof first / 8, WF_I64, 0, NULL));
    const char *wrong = other_outcome(&mine.outcome, &first.outcome);
    return wrong ? wrong : other_later(&mine.later, &first.later);
}

/* Trains; NULL, or what is wrong. */
static const char *run_uses(run *u, ranks_one *one) {
    const run *oracle = one && one->rank ? find_oracle(&u->row) : oracle_of(&u->row);
    RUN_TRY(u, train(u, u->row.value[USE] == RESUMED));
    assert_non_null(u->t->ready[0]->executor->happens);
    const char *wrong = oracle ? other_outcome(&u->outcome, &oracle->outcome) : NULL;
    if (!wrong && oracle && !device) wrong = other_state(u->t, oracle->t, one ? one->rank : -1);
    if (!wrong && u->row.value[USE] == CONTINUED) {
        RUN_TRY(u, train_on(u));
        if (oracle) wrong = other_later(&u->later, &oracle->later);
    }
    if (!wrong) wrong = small_other_peak(u->t);
    if (!wrong && u->row.value[CARRIER] == MPI) wrong = other_than_first(u, one);
    return wrong;
}

/* `one` NULL: all ranks are threads of one trainer. */
static const char *run_row(wf_context *ctx, const row *r, ranks_one *one) {
    char plan[200];
    run u = {.ctx = ctx, .job = one ? one->job : NULL, .row = *r, .plan = plan};
    plan_text(r, plan);
    const char *wrong = run_uses(&u, one);
    if (wrong)
        wrong = ranks_text("plan '%s', %s, %s, %s, by %s%s%s: %s", plan, text_at(r, NET),
                           text_at(r, WAY), text_at(r, USE), text_at(r, CARRIER),
                           r->value[DELAY] ? ", " : "", text_at(r, DELAY), wrong);
    wf_trainer_destroy(u.t);
    return wrong;
}

/* ---- all rows ---- */

/* Rows that one job runs. */
typedef struct job_rows {
    int carrier, n_ranks, delay;
} job_rows;

static bool is_in(const row *r, job_rows j) {
    return r->value[CARRIER] == j.carrier && r->value[DELAY] == j.delay &&
           n_ranks(text_at(r, GRID)) == j.n_ranks;
}

static const char *run_rows(ranks_one *one) {
    const char *wrong = NULL;
    for (int k = 0; k < n_rows && !wrong; k += TEST_SAMPLE)
        if (is_in(&rows[k], *(const job_rows *)one->self)) wrong = run_row(one->ctx, &rows[k], one);
    return wrong;
}

#define MOST_RANKS 8

/* The jobs of a carrier that have rows, one after the other. */
static void run_jobs(int carrier, void (*run_job)(job_rows j)) {
    job_rows j = {.carrier = carrier};
    int n_all = 0;
    for (j.n_ranks = 1; j.n_ranks <= MOST_RANKS; j.n_ranks++)
        for (j.delay = 0; j.delay < 2; j.delay++) {
            int n = 0;
            for (int k = 0; k < n_rows; k += TEST_SAMPLE) {
                if (!is_in(&rows[k], j)) continue;
                if (carrier != MPI) (void)oracle_of(&rows[k]);
                n++;
            }
            if (j.delay) setenv("WEFT_DELAY_US", "60", 1);
            if (n) run_job(j);
            n_all += n;
            unsetenv("WEFT_DELAY_US");
        }
    assert_true(n_all > 0);
}

static void run_threads(job_rows j) {
    for (int k = 0; k < n_rows; k += TEST_SAMPLE) {
        if (!is_in(&rows[k], j)) continue;
        scoped_context ctx = test_context();
        ranks_expect(run_row(ctx, &rows[k], NULL));
    }
}

static void run_messages(job_rows j) {
    ranks_messages(j.n_ranks, NULL, run_rows, &j);
}

static void run_processes(job_rows j) {
    ranks_processes(j.n_ranks, NULL, run_rows, &j, 0);
}

TEST_CASE(all_pairs_are_in_rows) {
    int n_open = add_rows(true);
    print_message("%d plans; %d pairs are in none\n", n_rows, n_open);
    assert_int_equal(n_open, N_OPEN);
    assert_in_range(n_rows, 100, MOST_ROWS);
}

TEST_CASE(threads_give_the_bits_of_one_rank) {
    run_jobs(THREADS, run_threads);
}

TEST_CASE(messages_do) {
    run_jobs(MESSAGES, run_messages);
}

TEST_CASE(processes_do) {
#ifdef __SANITIZE_THREAD__
    print_message("skipped: the thread sanitizer sees no processes\n");
    skip();
#endif
    run_jobs(PROCESSES, run_processes);
}

static const char *mpirun;

static void run_mpi(job_rows j) {
    char words[300];
    snprintf(words, sizeof words, "%d %d '%s'", j.n_ranks, j.delay, state_path);
    if (mpi_start(mpirun, j.n_ranks, words)) fail_msg("%s -np %d", mpirun, j.n_ranks);
}

/* Over one of both; over each with WEFT_TEST_FULL=1. */
TEST_CASE(mpi_does) {
    int n = 0;
    for (int k = 0; k < N_MPI_FAMILIES && (!n || test_is_full()); k++) {
        mpirun = mpi_find((mpi_family)k);
        if (mpirun) run_jobs(MPI, run_mpi);
        n += mpirun != NULL;
    }
    if (n) return;
    print_message("skipped: neither Open MPI nor MPICH is installed, or there is a sanitizer\n");
    skip();
}

/* The arguments of run_devices. */
static int be_devices(char **argv) {
    wf_context *ctx = test_context();
    char text[512];
    int carrier = atoi(argv[1]);
    device = carrier == CUDA ? &wfi_device_cuda : &wfi_device_opencl;
    snprintf(state_path, sizeof state_path, "%s", argv[2]);
    bool is_there = device->describe(ctx, device, text, sizeof text) == WF_OK;
    if (!is_there) printf("skipped: %s\n", wf_context_error(ctx));
    test_context_end(ctx);
    (void)add_rows(false);
    if (is_there) run_jobs(carrier, run_threads);
    (void)destroy_oracles(NULL);
    return is_there ? 0 : 77;
}

/* Two OpenCL devices do not reach each other's memory; CUDA's driver is a stand-in. */
static void run_devices(int carrier) {
    if (TEST_SAMPLE > 1) {
        print_message("skipped: devices run without sanitizers\n");
        skip();
    }
    char command[8192], folder[2048] = "";
    assert_true(readlink("/proc/self/exe", folder, sizeof folder - 1) > 0);
    *strrchr(folder, '/') = 0;
    snprintf(command, sizeof command,
             "LD_LIBRARY_PATH='%s'/%s POCL_DEVICES='pthread pthread' '%s'/train_plans %d '%s'",
             folder, carrier == CUDA ? "stand_in" : "none", folder, carrier, state_path);
    int status = system(command);
    if (WEXITSTATUS(status) == 77) skip();
    if (status) fail_msg("%s", command);
}

TEST_CASE(opencl_does) {
    run_devices(OPENCL);
}

TEST_CASE(cuda_does) {
    run_devices(CUDA);
}

/* The arguments of run_mpi. */
static int be_rank(char **argv) {
    job_rows j = {.carrier = MPI, .n_ranks = atoi(argv[1]), .delay = atoi(argv[2])};
    ranks_one one = {.ctx = test_context(), .self = &j};
    wf_job_config config = WF_JOB_CONFIG_INIT;
    const char *wrong = NULL;
    config.init = "env://";
    config.wire = "mpi";
    snprintf(state_path, sizeof state_path, "%s", argv[3]);
    (void)add_rows(false);
    if (wf_job_join(one.ctx, &config, &one.job) || wf_group_create(one.job, NULL, &one.group))
        wrong = wf_context_error(one.ctx);
    one.rank = wrong ? 0 : wf_job_rank(one.job);
    if (!wrong) wrong = run_rows(&one);
    if (wrong) printf("%s\n", wrong);
    fflush(stdout);
    if (wrong) _exit(1);
    wf_group_destroy(one.group);
    wf_job_leave(one.job);
    return 0;
}

/* ---- other bits, and files ---- */

/* A ring of more than two replicas rotates the order: other bits than one rank's, up to rounding,
 * but the same on all ranks and every time. */
TEST(ring_is_a_sum) {
    static const struct {
        const char *text;
        int8_t grid;
    } rings[] = {{"dp=4,bucket=1KiB", 3}, {"dp=3,pp=2,schedule=gpipe", 9}};
    for (size_t k = 0; k < WFI_COUNT(rings); k++) {

        row r = {.value = {[GRID] = rings[k].grid, [NET] = SMALL, [WAY] = 1}};
        const double *one = oracle_of(&r)->outcome.losses;
        run got[2];
        char text[80];
        snprintf(text, sizeof text, "%s,allreduce=ring,sums=free", rings[k].text);
        for (int i = 0; i < 2; i++) {
            got[i] = (run){.ctx = ctx, .row = r, .plan = text};
            TEST_OK(ctx, train(&got[i], false));
            ranks_expect(other_state(got[i].t, got[i].t, -1));
            wf_trainer_destroy(got[i].t);
        }
        ranks_expect(other_outcome(&got[0].outcome, &got[1].outcome));
        double far = fabs(got->outcome.losses[N_STEPS - 1] - one[N_STEPS - 1]);
        assert_true(far < 1e-5 * fabs(one[N_STEPS - 1]));
    }
}

/* Saved under one plan, resumed under another, and the bits of a run that never stopped. */
TEST(state_moves_between_plans) {
    static const char *const pairs[][2] = {
        {"pp=2", ""},
        {"pp=2", "dp=2,pp=2"},
        {"pp=2", "dataparallel=2"},
        {"pp=2", "last:dp=2"},
        {"offload=state", "dp=2"},
        {"dp=2,zero=2", "dp=2,zero=2,offload=state:disk"},
        {"dp=4,zero=3,offload=state:disk+params", "pp=2,offload=state"},
        {"pp=2,offload=params:disk", "dp=2,zero=3,offload=params+state:disk"}};
    for (size_t k = 0; k < WFI_COUNT(pairs); k++) {
        row r = {.value = {[WAY] = (int8_t)(k % 2)}};
        const char *const plans[] = {"", pairs[k][0], pairs[k][1]};
        run runs[3];
        char sha[2][65];
        for (int i = 0; i < 3; i++) {
            runs[i] = (run){.ctx = ctx, .row = r, .plan = plans[i]};
            TEST_OK(ctx, make_trainer(&runs[i], &runs[i].t));
        }
        for (int s = 0; s < 4; s++) small_step(ctx, runs[0].t, s);
        for (int s = 0; s < 2; s++) small_step(ctx, runs[1].t, s);
        TEST_OK(ctx, wf_trainer_save_state(runs[1].t, state_path, NULL, 0));
        TEST_OK(ctx, wf_trainer_load_state(runs[2].t, state_path));
        for (int s = 2; s < 4; s++) small_step(ctx, runs[2].t, s);
        for (int i = 0; i < 2; i++) TEST_OK(ctx, wf_trainer_weights_sha256(runs[2 * i].t, sha[i]));
        if (strcmp(sha[0], sha[1])) fail_msg("'%s' to '%s': other bits", pairs[k][0], pairs[k][1]);
        for (int i = 0; i < 3; i++) wf_trainer_destroy(runs[i].t);
    }
}

int main(int argc, char **argv) {
    const char *base = getenv("TMPDIR");
    char folder[128];
    setenv("WEFT_CHECK_EVENTS", "1", 1);
    if (argc == 3) return be_devices(argv);
    if (argc > 1) return be_rank(argv);
    snprintf(folder, sizeof folder, "%.80s/weft-test-XXXXXX", base ? base : "/tmp");
    if (!mkdtemp(folder)) return 1;
    snprintf(state_path, sizeof state_path, "%s/state", folder);
    int status = test_run(NULL, destroy_oracles);
    (void)unlink(state_path);
    return rmdir(folder) ? 1 : status; /* nothing else is left there */
}
