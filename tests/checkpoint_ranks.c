/* Ranks write their own parts of a checkpoint and read what they need: one file, of the same bytes
 * whoever writes it. Who does not see rank 0's file has rank 0 write and read for it, and whatever
 * is there under that name makes no difference. Whoever fails or dies while it writes, the old file
 * is whole and nothing else is left. */
#include "data_folder.h"
#include "group_ranks.h"
#include "small_models.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/stat.h>

typedef struct work {
    const char *plan, *path, *other; /* `other`: a folder that ranks other than 0 are in */
    size_t limit_bytes;              /* of what rank 1 may write; 0: none */
    size_t shard_bytes;
    bool dies, loads, is_async;
    char want[65];
} work;

static wf_recipe rank_recipe(uint64_t seed) {
    wf_recipe recipe =
        SMALL_RECIPE(.n_micro = 4, .n_lanes = 4, .n_threads = 1, .optimizer = WF_ADAM,
                     .kernels = WF_KERNELS_REFERENCE, .seed = seed);
    return recipe;
}

static wf_status make_dividing(wf_context *ctx, wf_job *job, const char *plan_text, uint64_t seed,
                               size_t shard_bytes, bool is_async, wf_trainer **trainer_out) {
    wf_trainer_config config = WF_TRAINER_CONFIG_INIT;
    wf_recipe recipe = rank_recipe(seed);
    config.job = job;
    config.shard_bytes = shard_bytes;
    config.save_async = is_async;
    return test_try_trainer(ctx, small_net, &recipe, plan_text, &config, trainer_out);
}

static wf_status make_trainer(wf_context *ctx, wf_job *job, const char *plan_text, uint64_t seed,
                              wf_trainer **trainer_out) {
    return make_dividing(ctx, job, plan_text, seed, 0, false, trainer_out);
}

/* What one rank writes, and the hash of its weights. */
static void write_as_one_divided(folder *f, const char *name, uint64_t seed, size_t shard_bytes,
                                 char hex[65]) {
    wf_trainer *t;
    TEST_OK(f->ctx, make_dividing(f->ctx, NULL, "", seed, shard_bytes, false, &t));
    TEST_OK(f->ctx, wf_trainer_save_state(t, folder_file(f, name), NULL, 0));
    TEST_OK(f->ctx, wf_trainer_weights_sha256(t, hex));
    wf_trainer_destroy(t);
}

static void write_as_one(folder *f, const char *name, uint64_t seed, char hex[65]) {
    write_as_one_divided(f, name, seed, 0, hex);
}

static bool is_same(const char *a, const char *b) {
    static char in_a[1 << 20], in_b[1 << 20];
    FILE *x = fopen(a, "rb"), *y = fopen(b, "rb");
    size_t n_a = x ? fread(in_a, 1, sizeof in_a, x) : 0,
           n_b = y ? fread(in_b, 1, sizeof in_b, y) : 0;
    if (x) fclose(x);
    if (y) fclose(y);
    assert_true(n_a < sizeof in_a);
    return n_a > 0 && n_a == n_b && !memcmp(in_a, in_b, n_a);
}

/* ---- what ranks do ---- */

/* The path may be another file to each rank: that of its own folder. */
static const char *save_and_load(ranks_one *one) {
    const work *w = one->self;
    wf_trainer *first, *second;
    char hex[65];
    if (w->other && one->rank > 0) RANKS_CHECK(one, unshare(CLONE_FS) == 0 && chdir(w->other) == 0);
    RANKS_TRY(one, make_dividing(one->ctx, one->job, w->plan, 5, w->shard_bytes, false, &first));
    /* Over itself; shards have the names of the first time again. */
    for (int k = 0; k < 3; k++) RANKS_TRY(one, wf_trainer_save_state(first, w->path, NULL, 0));
    wf_trainer_destroy(first);
    RANKS_TRY(one, make_trainer(one->ctx, one->job, w->plan, 99, &second));
    RANKS_TRY(one, wf_trainer_load_state(second, w->path));
    RANKS_TRY(one, wf_trainer_weights_sha256(second, hex));
    wf_trainer_destroy(second);
    if (strcmp(hex, w->want))
        return ranks_text("rank %d loads %s, not %s", one->rank, hex, w->want);
    return NULL;
}

static const struct {
    const char *text;
    int n_ranks;
} plans[] = {{"dp=2", 2},           {"pp=3", 3},         {"dp=2,pp=2", 4},
             {"dataparallel=2", 2}, {"zero=1: dp=2", 2}, {"zero=3: dp=2,pp=2", 4}};

TEST_IN_FOLDER(all_see_one_file) {
    char one[200], many[200];
    work w = {0};
    snprintf(one, sizeof one, "%s/one", f->path);
    snprintf(many, sizeof many, "%s/many", f->path);
    write_as_one(f, "one", 5, w.want);
    w.path = many;
    for (size_t k = 0; k < sizeof plans / sizeof *plans; k++)
        for (int how = 0; how <= PROCESSES; how++) {
            w.plan = plans[k].text;
            ranks_as((ranks_way)how, plans[k].n_ranks, save_and_load, &w);
            if (!is_same(one, many)) fail_msg("%s, way %d: another file", w.plan, how);
            assert_int_equal(unlink(many), 0);
            assert_int_equal(folder_count(f, 0), 1);
        }
}

/* The other ranks' folder holds a state of the same length, which is not to be read. */
TEST_IN_FOLDER(others_do_not_see_it) {
    char one[200], many[200], other[200], decoy[200], want[65], before[4096];
    work w = {.path = "/proc/thread-self/cwd/many", .other = other};
    snprintf(one, sizeof one, "%s/one", f->path);
    snprintf(many, sizeof many, "%s/many", f->path);
    snprintf(other, sizeof other, "%s/other", f->path);
    snprintf(decoy, sizeof decoy, "%s/other/many", f->path);
    write_as_one(f, "one", 5, w.want);
    assert_int_equal(mkdir(other, 0700), 0);
    write_as_one(f, "other/many", 7, want);
    write_as_one(f, "decoy", 7, want);
    assert_non_null(getcwd(before, sizeof before));
    assert_int_equal(chdir(f->path), 0);
    for (size_t k = 0; k < sizeof plans / sizeof *plans; k++)
        for (int how = 0; how <= PROCESSES; how++) {
            w.plan = plans[k].text;
            ranks_as((ranks_way)how, plans[k].n_ranks, save_and_load, &w);
            if (!is_same(one, many)) fail_msg("%s, way %d: another file", w.plan, how);
            if (!is_same("decoy", decoy)) fail_msg("%s, way %d: others write", w.plan, how);
            assert_int_equal(unlink(many), 0);
            assert_int_equal(folder_count(f, 0), 3);
        }
    assert_int_equal(chdir(before), 0);
    assert_int_equal(unlink(decoy), 0);
    assert_int_equal(rmdir(other), 0);
}

/* The same of shards. Others have a folder of their own, without them, or see rank 0's. */
TEST_IN_FOLDER(all_write_shards) {
    static const char *const names[] = {"", "-00001-of-00003.safetensors",
                                        "-00002-of-00003.safetensors",
                                        "-00003-of-00003.safetensors", ".index.json"};
    char one[300], many[300], other[200], before[4096];
    work w = {.shard_bytes = 28000, .path = "/proc/thread-self/cwd/many/x"};
    snprintf(many, sizeof many, "%s/many", f->path);
    snprintf(other, sizeof other, "%s/other", f->path);
    assert_int_equal(mkdir(many, 0700), 0);
    assert_int_equal(mkdir(other, 0700), 0);
    assert_int_equal(mkdir(folder_file(f, "one"), 0700), 0);
    write_as_one_divided(f, "one/x", 5, w.shard_bytes, w.want);
    assert_non_null(getcwd(before, sizeof before));
    assert_int_equal(chdir(f->path), 0);
    for (size_t k = 0; k < sizeof plans / sizeof *plans; k++)
        for (int how = (int)k % TEST_SAMPLE; how <= 2 * PROCESSES + 1; how += TEST_SAMPLE) {
            w.plan = plans[k].text;
            w.other = how > PROCESSES ? other : NULL;
            ranks_as((ranks_way)(how % (PROCESSES + 1)), plans[k].n_ranks, save_and_load, &w);
            for (size_t i = 1; i < sizeof names / sizeof *names; i++) {
                snprintf(one, sizeof one, "one/x%s", names[i]);
                snprintf(many, sizeof many, "many/x%s", names[i]);
                if (!is_same(one, many)) fail_msg("%s, way %d: another %s", w.plan, how, many);
                assert_int_equal(unlink(many), 0);
            }
            assert_int_equal(rmdir("many"), 0); /* nothing else is there */
            assert_int_equal(mkdir("many", 0700), 0);
        }
    for (size_t i = 1; i < sizeof names / sizeof *names; i++) {
        snprintf(one, sizeof one, "one/x%s", names[i]);
        assert_int_equal(unlink(one), 0);
    }
    assert_int_equal(rmdir("one") | rmdir("many") | rmdir("other"), 0);
    assert_int_equal(chdir(before), 0);
}

/* ---- from any layout to any ---- */

static const struct {
    const char *plan;
    int n_ranks;
} layouts[] = {{"", 1},
               {"dp=2", 2},
               {"dp=4", 4},
               {"pp=2", 2},
               {"pp=3", 3},
               {"dp=2,pp=2,schedule=1f1b", 4},
               {"dataparallel=2", 2},
               {"dataparallel=4", 4},
               {"block:dp=2", 2},
               {"block:dataparallel=4", 4},
               {"dp=2,zero=1", 2},
               {"dp=4,zero=1", 4},
               {"dp=2,zero=2", 2},
               {"dp=2,pp=2,zero=2", 4},
               {"dp=2,zero=3", 2},
               {"dp=4,zero=3", 4},
               {"dp=4,zero=3,schedule=breadth", 4},
               {"dp=2,pp=2,zero=3", 4},
               {"offload=state", 1},
               {"dp=2,recompute=all", 2},
               {"dp=2,zero=3,offload=state+params:disk", 2}};

#define ALONE  (PROCESSES + 1) /* all ranks are threads of one process that has no job */
#define N_WAYS (ALONE + 1)
static const char *const way_names[N_WAYS] = {"ranks as threads", "ranks without common files",
                                              "processes", "one process"};

/* Takes two steps: the first two, which are then saved; or, from what was saved on, the next. */
static const char *go_on(ranks_one *one) {
    const work *w = one->self;
    wf_trainer *t;
    char hex[65];
    small_batch *batch = malloc(sizeof *batch);
    RANKS_CHECK(one, batch != NULL);
    if (w->other && one->rank > 0) RANKS_CHECK(one, unshare(CLONE_FS) == 0 && chdir(w->other) == 0);
    RANKS_TRY(one, make_dividing(one->ctx, one->job, w->plan, w->loads ? 99 : 5, w->shard_bytes,
                                 w->is_async, &t));
    if (w->loads) RANKS_TRY(one, wf_trainer_load_state(t, w->path));
    for (int k = 0; k < 2; k++) {
        wf_step_result ignored;
        small_batch_fill(batch, 2 * w->loads + k);
        const wf_feed feeds[] = {{"x", batch->x, sizeof batch->x},
                                 {"y", batch->y, sizeof batch->y}};
        RANKS_TRY(one, wf_trainer_step(t, feeds, 2, SMALL_BATCH, &ignored));
    }
    if (!w->loads) RANKS_TRY(one, wf_trainer_save_state(t, w->path, NULL, 0));
    RANKS_TRY(one, wf_trainer_weights_sha256(t, hex));
    for (int k = 0; k < 2 && w->is_async; k++) { /* meanwhile */
        const wf_feed feeds[] = {{"x", batch->x, sizeof batch->x},
                                 {"y", batch->y, sizeof batch->y}};
        wf_step_result ignored;
        RANKS_TRY(one, wf_trainer_step(t, feeds, 2, SMALL_BATCH, &ignored));
    }
    RANKS_TRY(one, wf_trainer_save_wait(t));
    wf_trainer_destroy(t);
    free(batch);
    if (strcmp(hex, w->want)) return ranks_text("rank %d has %s, not %s", one->rank, hex, w->want);
    return NULL;
}

static void run_layout(folder *f, int how, size_t layout, work *w) {
    ranks_one alone = {.ctx = f->ctx, .n = 1, .self = w};
    w->plan = layouts[layout].plan;
    if (how < ALONE)
        ranks_as((ranks_way)how, layouts[layout].n_ranks, go_on, w);
    else
        ranks_expect(go_on(&alone));
}

/* The bits of a run that never stopped, whoever saved it and whoever goes on. */
TEST_IN_FOLDER(any_layout_goes_on) {
    const char *full = getenv("WEFT_TEST_FULL");
    int n_pairs = full && !strcmp(full, "1") ? 20 : 5;
    char other[200], before[4096];
    wf_trainer *t;
    assert_int_equal(mkdir(strcpy(other, folder_file(f, "other")), 0700), 0);
    assert_int_equal(mkdir(folder_file(f, "state"), 0700), 0);
    assert_non_null(getcwd(before, sizeof before));
    assert_int_equal(chdir(f->path), 0);
    work first = {.path = "/proc/thread-self/cwd/state/x"}, second = first;
    TEST_OK(f->ctx, make_trainer(f->ctx, NULL, "", 5, &t));
    for (int k = 0; k < 4; k++) {
        small_step(f->ctx, t, k);
        TEST_OK(f->ctx, wf_trainer_weights_sha256(t, k < 2 ? first.want : second.want));
    }
    wf_trainer_destroy(t);
    assert_string_not_equal(first.want, second.want);
    second.loads = true;
    uint64_t seed = 20;
    for (int k = 0; k < n_pairs; k++) {
        size_t layout[2];
        int how[2];
        for (int i = 0; i < 2; i++) {
            seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
            layout[i] = (size_t)(seed >> 33) % (sizeof layouts / sizeof *layouts);
            how[i] = (int)(seed >> 53) % N_WAYS;
        }
        first.shard_bytes = seed >> 60 & 1 ? 28000 : 0;
        first.is_async = seed >> 59 & 1;
        first.other = how[0] == MESSAGES ? other : NULL;
        second.other = how[1] == MESSAGES ? other : NULL;
        print_message("'%s' (%s)%s%s, then '%s' (%s)\n", layouts[layout[0]].plan, way_names[how[0]],
                      first.shard_bytes ? ", shards" : "", first.is_async ? ", meanwhile" : "",
                      layouts[layout[1]].plan, way_names[how[1]]);
        run_layout(f, how[0], layout[0], &first);
        run_layout(f, how[1], layout[1], &second);
    }
    assert_int_equal(chdir(before), 0);
    assert_int_equal(rmdir(other), 0);
    strcpy(f->path + strlen(f->path), "/state");
    folder_count(f, 1);
    f->path[strlen(f->path) - strlen("/state")] = 0;
    assert_int_equal(rmdir(folder_file(f, "state")), 0);
}

/* ---- in the background ---- */

static int64_t saved_steps(folder *f, const char *path) {
    char *text;
    TEST_OK(f->ctx, wf_trainer_state_metadata(f->ctx, path, "weft.n_steps", &text));
    assert_non_null(text);
    int64_t n = atoll(text);
    wf_text_free(f->ctx, text);
    return n;
}

/* Nothing is in its place before a step, a save or a wait after the writing. */
TEST_IN_FOLDER(writes_in_the_background) {
    char one[200], path[200], hex[65];
    wf_trainer *t;
    snprintf(one, sizeof one, "%s/one", f->path);
    snprintf(path, sizeof path, "%s/x", f->path);
    write_as_one(f, "one", 5, hex);
    TEST_OK(f->ctx, make_dividing(f->ctx, NULL, "dp=2", 5, 0, true, &t));
    TEST_OK(f->ctx, wf_trainer_save_wait(t)); /* for nothing */
    TEST_OK(f->ctx, wf_trainer_save_state(t, path, NULL, 0));
    TEST_OK(f->ctx, wf_trainer_save(t, folder_file(f, "weights"))); /* of the same step */
    assert_int_equal(folder_count(f, 0), 3);                        /* two of them temporary */
    assert_int_equal(access(path, F_OK), -1);
    assert_true(wf_trainer_memory_of(t, 0).save_bytes > 3 * 10000);
    small_step(f->ctx, t, 0);
    TEST_OK(f->ctx, wf_trainer_save_wait(t));
    if (!is_same(one, path)) fail_msg("a step meanwhile makes another file");
    assert_int_equal(folder_count(f, 0), 3);
    TEST_OK(f->ctx, wf_trainer_save_state(t, path, NULL, 0)); /* of step 1 */
    assert_int_equal(saved_steps(f, path), 0);
    small_step(f->ctx, t, 1);
    TEST_OK(f->ctx, wf_trainer_save_state(t, path, NULL, 0)); /* of step 2; waits for that */
    assert_int_equal(saved_steps(f, path), 1);
    for (int k = 2; saved_steps(f, path) == 1; k++) small_step(f->ctx, t, k); /* sooner or later */
    assert_int_equal(saved_steps(f, path), 2);
    TEST_OK(f->ctx, wf_trainer_save_state(t, path, NULL, 0));
    wf_trainer_destroy(t); /* does not wait */
    assert_int_equal(saved_steps(f, path), 2);
    assert_int_equal(folder_count(f, 0), 3);
}

/* The thread may write no more than the header; a step tells, and so does a wait. */
TEST_IN_FOLDER(tells_of_a_full_disk) {
    struct rlimit limit, low;
    char one[200], old[200], hex[65];
    scoped_trainer t;
    snprintf(one, sizeof one, "%s/one", f->path);
    snprintf(old, sizeof old, "%s/old", f->path);
    write_as_one(f, "one", 5, hex);
    write_as_one(f, "old", 5, hex);
    TEST_OK(f->ctx, make_dividing(f->ctx, NULL, "", 6, 0, true, &t));
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    low = limit;
    low.rlim_cur = 20000;
    signal(SIGXFSZ, SIG_IGN);
    for (int waits = 0; waits < 2; waits++) {
        wf_status status = WF_OK;
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &low), 0);
        TEST_OK(f->ctx, wf_trainer_save_state(t, old, NULL, 0));
        if (waits) status = wf_trainer_save_wait(t);
        for (int k = 0; status == WF_OK; k++) status = small_try_step(t, k, NULL);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
        expect_failure(f->ctx, status, WF_IO, "/old cannot be written: File too large");
        if (!is_same(one, old)) fail_msg("the old file is not whole");
        assert_int_equal(folder_count(f, 0), 2);
    }
    signal(SIGXFSZ, SIG_DFL);
    TEST_OK(f->ctx, wf_trainer_save_state(t, old, NULL, 0));
    TEST_OK(f->ctx, wf_trainer_save_wait(t));
    assert_false(is_same(one, old));
}

/* ---- who fails ---- */

/* Rank 1 may not write as much as it has to; where it dies of that, it is the others that tell. */
static const char *cannot_write(ranks_one *one) {
    const work *w = one->self;
    wf_trainer *t;
    RANKS_TRY(one, make_dividing(one->ctx, one->job, "pp=3", 6, 0, w->is_async, &t));
    if (one->rank == 1) {
        struct rlimit limit = {w->limit_bytes, RLIM_INFINITY}, none = {0, 0};
        setrlimit(RLIMIT_CORE, &none);
        signal(SIGXFSZ, w->dies ? SIG_DFL : SIG_IGN);
        RANKS_CHECK(one, setrlimit(RLIMIT_FSIZE, &limit) == 0);
    }
    wf_status status = wf_trainer_save_state(t, w->path, NULL, 0);
    if (status == WF_OK) status = wf_trainer_save_wait(t);
    wf_trainer_destroy(t);
    RANKS_REFUSED(one, status, status == WF_OK ? WF_IO : status,
                  w->dies ? "rank 1 (process" : "cannot be written: File too large");
    return NULL;
}

TEST_IN_FOLDER(who_cannot_write_spoils_nothing) {
    char one[200], old[200], hex[65];
    work w = {.path = old, .limit_bytes = 100};
    snprintf(one, sizeof one, "%s/one", f->path);
    snprintf(old, sizeof old, "%s/old", f->path);
    write_as_one(f, "one", 5, hex);
    write_as_one(f, "old", 5, hex);
    for (int how = 0; how < 3; how++) { /* fails; dies; fails in the background */
        w.dies = how == 1;
        w.is_async = how == 2;
        ranks_processes(3, NULL, cannot_write, &w, w.dies);
        if (!is_same(one, old)) fail_msg("the old file is not whole");
        assert_int_equal(folder_count(f, 0), 2);
    }
}
