/* A state saved under one plan, read under others, on other devices and other numbers of ranks:
 * there is one file, written by rank 0, read by all after a barrier, and it has the same bytes
 * whoever writes it. Nothing in it says where a tensor was; where it goes is the reader's plan.
 *
 * label: serial
 */
#include "rank_processes.h"
#include "small_models.h"

#define N_STEPS 2

static wf_recipe state_recipe(void) {
    wf_recipe recipe = small_recipe();
    recipe.n_micro = 8;
    recipe.n_lanes = 4;
    recipe.n_threads = 1;
    recipe.optimizer = WF_ADAMW;
    return recipe;
}

static wf_trainer *make_trainer(wf_context *ctx, const char *plan_text, const char *devices,
                                wf_job *job, uint64_t seed) {
    wf_trainer_config config = WF_TRAINER_CONFIG_INIT;
    wf_recipe recipe = state_recipe();
    wf_model *model;
    recipe.seed = seed;
    config.job = job;
    config.devices = devices;
    TEST_OK(ctx, wf_model_create(ctx, "small", small_net, NULL, 0, &model));
    return test_trainer(ctx, model, &recipe, plan_text, &config);
}

/* words: plan, "save" or "load", the state's path, and where to write it again. A trainer that
 * loads begins with another seed. */
static int be_rank(char **argv) {
    const char *plan = argv[4], *path = argv[6], *again = argv[7];
    wf_context *ctx = test_context();
    wf_job *job = join_ranks(ctx, argv);
    char said[200];
    if (!strcmp(argv[5], "save")) {
        wf_trainer *first = make_trainer(ctx, plan, NULL, job, 5);
        for (int s = 0; s < N_STEPS; s++) small_step(ctx, first, s);
        TEST_OK(ctx, wf_trainer_save_state(first, path, NULL, 0));
        wf_trainer_destroy(first);
        TEST_OK(ctx, wf_job_barrier(job));
    }
    wf_trainer *t = make_trainer(ctx, plan, NULL, job, 99);
    TEST_OK(ctx, wf_trainer_load_state(t, path));
    TEST_OK(ctx, wf_trainer_save_state(t, again, NULL, 0));
    small_go_on(ctx, t, N_STEPS, said, sizeof said);
    printf("%s", said);
    wf_trainer_destroy(t);
    wf_job_leave(job);
    test_context_end(ctx);
    return 0;
}

static char *read_file(const char *path, size_t *n_out) {
    FILE *file = fopen(path, "rb");
    static char content[1 << 20];
    assert_non_null(file);
    *n_out = fread(content, 1, sizeof content, file);
    fclose(file);
    char *copy = malloc(*n_out);
    assert_non_null(copy);
    memcpy(copy, content, *n_out);
    return copy;
}

static void expect_equal(const char *a, const char *b, const char *who) {
    size_t n_a, n_b;
    char *in_a = read_file(a, &n_a), *in_b = read_file(b, &n_b);
    if (n_a != n_b || memcmp(in_a, in_b, n_a)) fail_msg("%s writes another file", who);
    free(in_a);
    free(in_b);
}

static void on_threads(const char *path, const char *again, const char *want) {
    static const struct {
        const char *plan, *devices;
    } plans[] = {{"", "cpu"},
                 {"dp=2", "cpu:1,cpu:0"},
                 {"pp=2", "cpu:1,cpu:0"},
                 {"pp=3", "cpu:0,cpu:0,cpu:1"},
                 {"dp=4", "cpu:0,cpu:0,cpu:0,cpu:0"},
                 {"dp=2,pp=2", "cpu:0,cpu:1,cpu:0,cpu:1"}};
    wf_context *ctx = test_context();
    char said[200];
    for (size_t k = 0; k < sizeof plans / sizeof *plans; k++) {
        wf_trainer *t = make_trainer(ctx, plans[k].plan, plans[k].devices, NULL, 99);
        TEST_OK(ctx, wf_trainer_load_state(t, path));
        TEST_OK(ctx, wf_trainer_save_state(t, again, NULL, 0));
        expect_equal(path, again, plans[k].plan);
        small_go_on(ctx, t, N_STEPS, said, sizeof said);
        if (strcmp(said, want))
            fail_msg("plan '%s' goes on to '%s', the ranks that saved to '%s'", plans[k].plan, said,
                     want);
        wf_trainer_destroy(t);
    }
    test_context_end(ctx);
}

TEST_CASE(any_plan_reads) {
    static rank_process p[MAX_PROCESSES];
    static const struct {
        const char *plan;
        int n_ranks;
    } readers[] = {{"pp=2", 2}, {"dp=1", 1}, {"dp=2,pp=2", 4}};
    char folder[] = "/tmp/weft-test-XXXXXX", path[64], again[64];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/state", folder);
    snprintf(again, sizeof again, "%s/again", folder);
    const char *saves[MAX_WORDS] = {"dp=2", "save", path, again};
    run_ranks(p, 2, saves);
    if (p[0].status || p[1].status || strcmp(p[0].said, p[1].said))
        fail_msg("rank 0: '%s', rank 1: '%s'", p[0].said, p[1].said);
    char *want = strdup(p[0].said);
    assert_non_null(want);
    expect_equal(path, again, "dp=2");
    on_threads(path, again, want);
    for (size_t k = 0; k < sizeof readers / sizeof *readers; k++) {
        const char *loads[MAX_WORDS] = {readers[k].plan, "load", path, again};
        run_ranks(p, readers[k].n_ranks, loads);
        for (int r = 0; r < readers[k].n_ranks; r++)
            if (p[r].status || strcmp(p[r].said, want))
                fail_msg("%s, rank %d: '%s', not '%s'", readers[k].plan, r, p[r].said, want);
        expect_equal(path, again, readers[k].plan);
    }
    free(want);
    unlink(path);
    unlink(again);
    rmdir(folder);
}

int main(int argc, char **argv) {
    if (argc > 4) return be_rank(argv);
    return test_run(NULL, NULL);
}
