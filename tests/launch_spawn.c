/* A function of one's own as ranks, in threads and in processes: they meet, their failures are
 * told, nothing is left behind, and what they train has one rank's bits. */
#include "small_models.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#define N_RANKS 4
#define N_STEPS 3

typedef struct order {
    char url[100]; /* of a store */
    char sha[65];  /* of one rank's weights */
    int who;       /* fails, dies or leaves */
} order;

/* ---- what ranks do ---- */

static wf_status add_up(wf_context *ctx, wf_job *job, void *arg) {
    const order *o = arg;
    wf_store_config config = WF_STORE_CONFIG_INIT;
    wf_store *store;
    int64_t sum = 0;
    config.url = o->url;
    config.rank = wf_job_rank(job);
    config.n_ranks = wf_job_n_ranks(job);
    wf_status status = wf_store_open(ctx, &config, &store);
    if (status) return status;
    status = wf_store_add(store, "sum", 1 + wf_job_rank(job), &sum);
    if (!status) status = wf_job_barrier(job);
    if (!status) status = wf_store_add(store, "sum", 0, &sum);
    if (!status) status = wf_job_barrier(job);
    wf_store_close(store);
    if (!status && sum != 10) status = wf_context_fail(ctx, WF_BUG, "the sum is not 10");
    return status;
}

/* Longer than what a meeting brings at once, and of no length that it divides. */
static wf_status broadcast(wf_context *ctx, wf_job *job, void *arg) {
    unsigned char bytes[3001];
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (unsigned char)(wf_job_rank(job) ? 0 : i * 31 + i / 256);
    wf_status status = wf_job_broadcast(job, bytes, sizeof bytes);
    for (size_t i = 0; i < sizeof bytes && !status; i++)
        if (bytes[i] != (unsigned char)(i * 31 + i / 256))
            status = wf_context_fail(ctx, WF_BUG, "not the bytes of rank 0");
    return status;
}

static wf_status fail_one(wf_context *ctx, wf_job *job, void *arg) {
    const order *o = arg;
    wf_status status = wf_job_barrier(job);
    if (status) return status;
    if (wf_job_rank(job) == o->who) return wf_context_fail(ctx, WF_SHAPE, "a sentence of its own");
    status = wf_job_barrier(job);
    return status ? status : wf_context_fail(ctx, WF_BUG, "nobody has told me");
}

static wf_status leave(wf_context *ctx, wf_job *job, void *arg) {
    const order *o = arg;
    return wf_job_rank(job) == o->who ? WF_OK : wf_job_barrier(job);
}

static wf_status die(wf_context *ctx, wf_job *job, void *arg) {
    const order *o = arg;
    if (wf_job_rank(job) == o->who) raise(SIGKILL);
    return wf_job_barrier(job);
}

static wf_recipe train_recipe(void) {
    wf_recipe recipe = SMALL_RECIPE(.n_micro = 8, .n_lanes = 4, .n_threads = 1);
    return recipe;
}

static wf_status train_plan(wf_context *ctx, wf_job *job, const char *plan_text, int n_steps,
                            char sha_out[65]) {
    wf_recipe recipe = train_recipe();
    wf_trainer_config config = WF_TRAINER_CONFIG_INIT;
    wf_model *model = NULL;
    wf_plan *plan = NULL;
    wf_trainer *trainer = NULL;
    config.job = job;
    wf_status status = wf_model_create(ctx, "small", small_net, NULL, 0, &model);
    if (!status) status = wf_plan_parse(ctx, plan_text, &plan);
    if (!status) status = wf_trainer_create(ctx, model, &recipe, plan, &config, &trainer);
    for (int s = 0; s < n_steps && !status; s++) {
        small_batch batch;
        wf_step_result result;
        small_batch_fill(&batch, s);
        wf_feed feeds[] = {{"x", batch.x, sizeof batch.x}, {"y", batch.y, sizeof batch.y}};
        status = wf_trainer_step(trainer, feeds, 2, SMALL_BATCH, &result);
    }
    if (!status && n_steps == N_STEPS) status = wf_trainer_weights_sha256(trainer, sha_out);
    wf_trainer_destroy(trainer);
    wf_plan_destroy(plan);
    wf_model_destroy(model);
    return status;
}

static wf_status train(wf_context *ctx, wf_job *job, void *arg) {
    const order *o = arg;
    char sha[65];
    wf_status status = train_plan(ctx, job, wf_job_n_ranks(job) == 2 ? "dp=2" : "dp=2,pp=2",
                                  wf_job_rank(job) == o->who ? N_STEPS - 1 : N_STEPS, sha);
    if (!status && wf_job_rank(job) != o->who && strcmp(sha, o->sha) != 0)
        status = wf_context_fail(ctx, WF_BUG, "not the bits of one rank");
    return status;
}

static const wf_rank_entry functions[] = {{"add_up", add_up}, {"broadcast", broadcast},
                                          {"fail", fail_one}, {"leave", leave},
                                          {"die", die},       {"train", train}};
static const wf_rank_entry stranger = {"stranger", add_up};

/* ---- the test ---- */

static wf_status spawn(wf_context *ctx, wf_spawn_how how, int n_ranks, const wf_rank_entry *entry,
                       order *o, int *failed_rank_out) {
    wf_spawn_config config = WF_SPAWN_CONFIG_INIT;
    config.how = how;
    config.n_ranks = n_ranks;
    config.entry = entry;
    config.arg = o;
    config.arg_bytes = sizeof *o;
    return wf_spawn(ctx, &config, failed_rank_out);
}

static const wf_rank_entry *entry_of(const char *name) {
    for (size_t k = 0; k < sizeof functions / sizeof *functions; k++)
        if (!strcmp(functions[k].name, name)) return &functions[k];
    fail_msg("no function %s", name);
    return NULL;
}

TEST(they_meet) {
    for (int how = WF_SPAWN_THREADS; how <= WF_SPAWN_PROCESSES; how++)
        for (int round = 0; round < 3; round++) {
            order o = {.who = -1};
            int failed = 7, n_open = test_descriptors();
            snprintf(o.url, sizeof o.url, "file:///tmp/weft-test-spawn-%d", (int)getpid());
            TEST_OK(ctx, spawn(ctx, how, N_RANKS, entry_of("add_up"), &o, &failed));
            TEST_OK(ctx, spawn(ctx, how, N_RANKS, entry_of("broadcast"), &o, &failed));
            assert_int_equal(failed, -1);
            assert_int_equal(test_descriptors(), n_open);
            assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* no child */
        }
}

TEST(failures_are_told) {
    for (int how = WF_SPAWN_THREADS; how <= WF_SPAWN_PROCESSES; how++)
        for (int who = 0; who < N_RANKS; who++) {
            order o = {.who = who};
            int failed = 7, n_open = test_descriptors();
            char words[64];
            snprintf(words, sizeof words, "rank %d: a sentence of its own", who);
            TEST_REFUSED(ctx, spawn(ctx, how, N_RANKS, entry_of("fail"), &o, &failed), WF_SHAPE,
                         words);
            assert_int_equal(failed, who);
            assert_int_equal(test_descriptors(), n_open);
        }
    order o = {.who = 2};
    int failed;
    for (int how = WF_SPAWN_THREADS; how <= WF_SPAWN_PROCESSES; how++) {
        TEST_REFUSED(ctx, spawn(ctx, how, N_RANKS, entry_of("leave"), &o, &failed), WF_REMOTE,
                     "rank 2 has left the job");
        assert_int_not_equal(failed, 2);
    }
    TEST_REFUSED(ctx, spawn(ctx, WF_SPAWN_PROCESSES, N_RANKS, entry_of("die"), &o, &failed),
                 WF_REMOTE, "was killed by signal 9");
    assert_int_equal(failed, 2);
}

/* The spawning process has computed before: its threads of OpenMP must not matter. */
TEST(bits_of_one_rank) {
    order o = {.who = -1};
    TEST_OK(ctx, train_plan(ctx, NULL, "", N_STEPS, o.sha));
    for (int how = WF_SPAWN_THREADS; how <= WF_SPAWN_PROCESSES; how++)
        for (int n_ranks = 2; n_ranks <= 4; n_ranks += 2)
            TEST_OK(ctx, spawn(ctx, how, n_ranks, entry_of("train"), &o, NULL));
    order early = o;
    early.who = 1; /* takes a step less */
    for (int how = WF_SPAWN_THREADS; how <= WF_SPAWN_PROCESSES; how++)
        TEST_REFUSED(ctx, spawn(ctx, how, 2, entry_of("train"), &early, NULL), WF_REMOTE, "rank 1");
    o.sha[0] ^= 1;
    TEST_REFUSED(ctx, spawn(ctx, WF_SPAWN_THREADS, 2, entry_of("train"), &o, NULL), WF_BUG,
                 "not the bits of one rank");
}

TEST(what_is_refused) {
    wf_rank_entry nameless = {NULL, add_up}, wrong = {"two words", add_up}, empty = {"x", NULL};
    order o = {.who = -1};
    TEST_REFUSED(ctx, spawn(ctx, WF_SPAWN_THREADS, 0, entry_of("train"), &o, NULL), WF_INVALID_ARG,
                 "1 to 1024");
    TEST_REFUSED(ctx, spawn(ctx, WF_SPAWN_THREADS, 2, NULL, &o, NULL), WF_INVALID_ARG,
                 "no function is given");
    TEST_REFUSED(ctx, spawn(ctx, WF_SPAWN_THREADS, 2, &empty, &o, NULL), WF_INVALID_ARG,
                 "no function is given");
    TEST_REFUSED(ctx, spawn(ctx, (wf_spawn_how)2, 2, &stranger, &o, NULL), WF_INVALID_ARG,
                 "neither threads nor processes");
    TEST_REFUSED(ctx, spawn(ctx, WF_SPAWN_PROCESSES, 2, &nameless, &o, NULL), WF_INVALID_ARG,
                 "it has none");
    TEST_REFUSED(ctx, spawn(ctx, WF_SPAWN_PROCESSES, 2, &wrong, &o, NULL), WF_INVALID_ARG,
                 "it has others");
    TEST_REFUSED(ctx, spawn(ctx, WF_SPAWN_PROCESSES, 2, &stranger, &o, NULL), WF_INVALID_ARG,
                 "no function of the name 'stranger' was given to wf_spawn_main");
    wf_spawn_config config = WF_SPAWN_CONFIG_INIT;
    config.entry = entry_of("add_up");
    config.how = WF_SPAWN_PROCESSES;
    config.arg_bytes = WF_SPAWN_MAX_ARG + 1;
    TEST_REFUSED(ctx, wf_spawn(ctx, &config, NULL), WF_INVALID_ARG, "32769 bytes");
    config.struct_size--;
    TEST_REFUSED(ctx, wf_spawn(ctx, &config, NULL), WF_INVALID_ARG, "begin it with its _INIT");
}

int main(int argc, char **argv) {
    int status;
    if (wf_spawn_main(argc, argv, functions, sizeof functions / sizeof *functions, &status))
        return status;
    return test_run(NULL, NULL);
}
