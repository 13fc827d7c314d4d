/* Every pair of options of a plan trains as one rank does, bit for bit: the losses of each step,
 * an evaluation between steps, the weights, and every replica's and slice's state; also under
 * random delays. The planned peak of every rank is the measured one in each space, and the checker
 * of events watches. Then, state saved under one plan goes on under another.
 *
 * The plans are a pairwise covering array over the table below. WEFT_TEST_FULL=1 gives each pair a
 * plan of its own, with the other options at random.
 *
 * label: long
 */
#include "api/trainer.h"
#include "base/random.h"
#include "data_folder.h"
#include "sharded_plan.h"
#include "small_models.h"
#include "wide_net.h"

#include <math.h>

#define N_STEPS 3
#define MOST    13 /* values of an option */

enum {
    GRID,
    SCHEDULE,
    ZERO,
    ALLREDUCE,
    BUCKET,
    OVERLAP,
    OFFLOAD,
    RECOMPUTE,
    NET,
    WAY,
    DELAY,
    N_OPTIONS
};

/* A plan is the values from GRID to RECOMPUTE. A strategy with a colon comes first, for
 * sharded_parse. */
static const char *const options[N_OPTIONS][MOST] = {
    [GRID] = {"dp=2", "dp=2,pp=2", "pp=3,cut=block+last", "dp=4", "dataparallel=2", "", "dp=2,pp=3",
              "head:dp=2", "pp=2", "dp=3,pp=2", "dataparallel=4,output=3",
              "block:dp=4,head:dataparallel=2"},
    [SCHEDULE] = {"", ",schedule=zb1", ",schedule=breadth", ",schedule=gpipe", ",schedule=zbv",
                  ",schedule=interleaved", ",schedule=auto"},
    [ZERO] = {"", ",zero=1", ",zero=2", ",zero=3", "whole gradient: ", ",zero=3,prefetch=0",
              ",zero=3,prefetch=3", ",zero=1,shard=2", ",zero=3,shard=2"},
    [ALLREDUCE] = {"", ",allreduce=tree", ",allreduce=root", ",allreduce=pairwise",
                   ",allreduce=direct", ",allreduce=ring"},
    [BUCKET] = {"", ",bucket=1", ",bucket=1KiB", ",bucket=12KiB"},
    [OVERLAP] = {"", ",overlap=off"},
    [OFFLOAD] = {"", ",offload=state", ",offload=params:disk", ",offload=activations",
                 ",offload=params+state:disk", ",offload=activations:disk", ",offload=params",
                 ",offload=activations+params:disk+state"},
    [RECOMPUTE] = {"", ",recompute=all", ",recompute=selective", ",recompute=head"},
    [NET] = {"wide", "small", "plain"},
    [WAY] = {"AdamW", "SGD, clipped", "uneven, AdamW, clipped", "uneven, descent"},
    [DELAY] = {"", "delayed"},
};

typedef struct row {
    int8_t value[N_OPTIONS]; /* -1: open */
} row;

static int n_values(int option) {
    int n = 0;
    while (n < MOST && options[option][n]) n++;
    return n;
}

static int number_after(const char *text, const char *key) {
    const char *at = strstr(text, key);
    return at ? atoi(at + strlen(key)) : 1;
}

static int n_replicas(const char *grid) {
    int n = number_after(grid, "dp="), n_spread = number_after(grid, "dataparallel=");
    return n > n_spread ? n : n_spread;
}

static bool has(const char *text, const char *words) {
    return strstr(text, words) != NULL;
}

/* Whether a schedule gives each device two stages. */
static bool has_chunks(const char *schedule) {
    return has(schedule, "zbv") || has(schedule, "interleaved");
}

/* Whether a grid goes with another option. Networks have four units, `plain` two. */
static bool grid_fits(const char *grid, int option, const char *value) {
    bool is_spread = has(grid, "dataparallel") || has(grid, ":");
    int n_stages = number_after(grid, "pp=");
    if (option == NET && !strcmp(value, "plain")) return n_stages <= 2 && !has(grid, "block");
    if (!*value) return true;
    if (option == SCHEDULE) return !is_spread && (!has_chunks(value) || n_stages == 2);
    if (option == ALLREDUCE) /* a ring of more sums in another order */
        return !is_spread && (!has(value, "ring") || n_replicas(grid) == 2);
    if (option == OFFLOAD && has(value, "params")) return !is_spread;
    if (option == ZERO) return !is_spread && (!has(value, "shard") || n_replicas(grid) == 4);
    return true;
}

static bool pair_fits(int a, int x, int b, int y) {
    const char *one = options[a][x], *other = options[b][y];
    if (a == GRID) return grid_fits(one, b, other);
    if (a == ZERO && b == ALLREDUCE) return !*other || !has(one, "zero");
    if (a == SCHEDULE && b == NET && !strcmp(other, "plain")) return !has_chunks(one);
    return true;
}

/* Whether the value goes with all that are set. */
static bool fits(const row *r, int option, int value) {
    for (int k = 0; k < N_OPTIONS; k++) {
        if (k == option || r->value[k] < 0) continue;
        if (!(k < option ? pair_fits(k, r->value[k], option, value)
                         : pair_fits(option, value, k, r->value[k])))
            return false;
    }
    return true;
}

/* ---- one plan ---- */

typedef struct oracle {
    wf_context *ctx;
    wf_trainer *t;
    double losses[N_STEPS + 1]; /* the last is of an evaluation between steps */
    char sha[65];
    float logits[SMALL_BATCH * 10]; /* of small_net */
} oracle;

static wf_recipe recipe_of(const row *r) {
    wf_recipe recipe = small_recipe();
    int way = r->value[WAY], n = n_replicas(options[GRID][(int)r->value[GRID]]);
    recipe.n_lanes = n == 3 ? 3 : n == 4 || way < 2 ? 4 : 2;
    recipe.n_micro = n == 3 || way >= 2 ? 6 : 4;
    if (n == 4) recipe.n_micro = way % 2 ? 8 : 4;
    recipe.clip_norm = way == 1 || way == 2 ? 0.5 : 0;
    recipe.optimizer = way % 2 ? WF_SGD : WF_ADAMW;
    if (way == 3) recipe.momentum = 0;
    recipe.n_threads = 1;
    recipe.kernels = WF_KERNELS_REFERENCE;
    return recipe;
}

static wf_trainer *make_trainer(wf_context *ctx, const row *r, const char *text) {
    static const wf_model_function functions[] = {wide_net, small_net, plain_net};
    wf_recipe recipe = recipe_of(r);
    wf_model *model;
    wf_plan *plan;
    wf_trainer *t;
    if (sharded_parse(ctx, text, &plan)) fail_msg("plan '%s': %s", text, wf_context_error(ctx));
    TEST_OK(ctx, wf_model_create(ctx, "net", functions[r->value[NET]], NULL, 0, &model));
    if (wf_trainer_create(ctx, model, &recipe, plan, NULL, &t))
        fail_msg("plan '%s': %s", text, wf_context_error(ctx));
    wf_model_destroy(model);
    wf_plan_destroy(plan);
    assert_non_null(t->ready[0]->executor->happens);
    return t;
}

static void run(wf_context *ctx, const row *r, const char *text, oracle *out) {
    static small_batch batch;
    wf_feed feeds[] = {{"x", batch.x, sizeof batch.x}, {"y", batch.y, sizeof batch.y}};
    memset(out->logits, 0, sizeof out->logits);
    small_batch_fill(&batch, 3);
    out->t = make_trainer(ctx, r, text);
    for (int s = 0; s < N_STEPS; s++) {
        out->losses[s] = small_step(ctx, out->t, s);
        if (s == 1) TEST_OK(ctx, small_eval(out->t, 9, 11, &out->losses[N_STEPS]));
    }
    if (!strcmp(options[NET][(int)r->value[NET]], "small"))
        TEST_OK(ctx, wf_trainer_forward(out->t, feeds, 2, SMALL_BATCH, "logits", out->logits,
                                        sizeof out->logits));
    TEST_OK(ctx, wf_trainer_weights_sha256(out->t, out->sha));
    small_expect_planned(out->t, text);
}

/* One rank's, kept for each network and recipe. */
static oracle oracles[3 * 4 * 5];
static int n_oracles;

static const oracle *oracle_of(const row *r) {
    static oracle *by_recipe[3][4][5];
    int n = n_replicas(options[GRID][(int)r->value[GRID]]);
    oracle **o = &by_recipe[r->value[NET]][r->value[WAY]][n];
    if (*o) return *o;
    *o = &oracles[n_oracles++];
    (*o)->ctx = test_context();
    run((*o)->ctx, r, "", *o);
    return *o;
}

static const char *memory_of(const wf_trainer *t, const wfi_block *b) {
    return t->ready[0]->executor->workers[b->rank].arenas[b->space].base + b->offset;
}

/* Every parameter and buffer that a rank keeps on its device, with the one rank's. */
static void compare_state(const wf_trainer *t, const wf_trainer *one, const char *text) {
    const wf_program *p = t->ready[0]->program, *q = one->ready[0]->program;
    for (int32_t b = 0; b < p->n_blocks; b++) {
        const wfi_block *mine = &p->blocks[b];
        if (!mine->is_state || mine->space) continue;
        for (int32_t k = 0; k < q->n_blocks; k++) {
            const wfi_block *whole = &q->blocks[k];
            if (!whole->is_state || whole->name.kind != mine->name.kind ||
                whole->name.owner != mine->name.owner || mine->name.kind == WFI_BLOCK_STATE)
                continue;
            if (memcmp(memory_of(t, mine), memory_of(one, whole) + mine->begin, mine->bytes))
                fail_msg("plan '%s': rank %d has another %s of unit %s", text, mine->rank,
                         wfi_block_kind_name(mine->name.kind),
                         p->graph->units[mine->name.owner].name);
        }
    }
}

static void text_of(const row *r, char *text, size_t n) {
    const char *zero = options[ZERO][(int)r->value[ZERO]];
    bool is_named = has(zero, ": ");
    int used = snprintf(text, n, "%s", is_named ? zero : "");
    for (int k = GRID; k <= RECOMPUTE; k++) {
        const char *value = k == ZERO && is_named ? "" : options[k][(int)r->value[k]];
        bool is_first = !used || text[used - 1] == ' ';
        used += snprintf(text + used, n - (size_t)used, "%s", value + (is_first && *value == ','));
    }
}

static void compare(const row *r) {
    char text[200];
    const oracle *one = oracle_of(r);
    oracle got;
    wf_context *ctx = test_context();
    text_of(r, text, sizeof text);
    if (r->value[DELAY]) setenv("WEFT_DELAY_US", "60", 1);
    run(ctx, r, text, &got);
    unsetenv("WEFT_DELAY_US");
    for (int k = 0; k <= N_STEPS; k++)
        if (got.losses[k] != one->losses[k])
            fail_msg("plan '%s', %s, %s: loss %d is %.17g, one rank has %.17g", text,
                     options[NET][(int)r->value[NET]], options[WAY][(int)r->value[WAY]], k,
                     got.losses[k], one->losses[k]);
    assert_string_equal(got.sha, one->sha);
    assert_memory_equal(got.logits, one->logits, sizeof got.logits);
    compare_state(got.t, one->t, text);
    wf_trainer_destroy(got.t);
    test_context_end(ctx);
}

/* ---- all pairs ---- */

static bool is_covered[N_OPTIONS][MOST][N_OPTIONS][MOST];

static int count_new(const row *r, int option, int value) {
    int n = 0;
    for (int k = 0; k < N_OPTIONS; k++)
        n += r->value[k] >= 0 && !is_covered[option][value][k][(int)r->value[k]];
    return n;
}

/* Sets an open option: the value that covers most new pairs; in full runs any. */
static bool choose(row *r, int option, uint64_t seed) {
    int n = n_values(option), best = -1, most = -1;
    uint64_t from = (seed * 2654435761u >> 7) + (uint64_t)option;
    for (int k = 0; k < n; k++) {
        int value = (int)((from + (uint64_t)k) % (uint64_t)n);
        if (!fits(r, option, value)) continue;
        int n_new = test_is_full() ? 0 : count_new(r, option, value);
        if (n_new > most) best = value, most = n_new;
    }
    r->value[option] = (int8_t)best;
    return best >= 0;
}

static void cover(const row *r) {
    for (int a = 0; a < N_OPTIONS; a++)
        for (int b = 0; b < N_OPTIONS; b++)
            is_covered[a][(int)r->value[a]][b][(int)r->value[b]] = true;
}

static int n_rows;

/* A plan with this pair, unless no grid goes with both. */
static void run_pair(int a, int x, int b, int y) {
    row r;
    if (!pair_fits(a, x, b, y)) return;
    memset(r.value, -1, sizeof r.value);
    r.value[a] = (int8_t)x;
    r.value[b] = (int8_t)y;
    for (int k = 0; k < N_OPTIONS; k++)
        if (r.value[k] < 0 && !choose(&r, k, (uint64_t)n_rows)) return;
    cover(&r);
    if (n_rows++ % TEST_SAMPLE == 0) compare(&r);
}

TEST_CASE(pairs_give_the_bits_of_one_rank) {
    for (int a = 0; a < N_OPTIONS; a++)
        for (int b = a + 1; b < N_OPTIONS; b++)
            for (int x = 0; x < n_values(a); x++)
                for (int y = 0; y < n_values(b); y++)
                    if (test_is_full() || !is_covered[a][x][b][y]) run_pair(a, x, b, y);
    assert_in_range(n_rows, 100, 3000); /* plans */
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
        row r = {.value = {[GRID] = rings[k].grid, [NET] = 1, [WAY] = 1}};
        const oracle *one = oracle_of(&r);
        oracle got[2];
        char text[80];
        snprintf(text, sizeof text, "%s,allreduce=ring,sums=free", rings[k].text);
        for (int i = 0; i < 2; i++) {
            run(ctx, &r, text, &got[i]);
            compare_state(got[i].t, got[i].t, text);
            wf_trainer_destroy(got[i].t);
        }
        assert_memory_equal(got[0].losses, got[1].losses, sizeof got->losses);
        assert_string_equal(got[0].sha, got[1].sha);
        double far = fabs(got->losses[N_STEPS - 1] - one->losses[N_STEPS - 1]);
        assert_true(far < 1e-5 * fabs(one->losses[N_STEPS - 1]));
    }
}

/* Saved under one plan, resumed under another, and the bits of a run that never stopped. */
TEST_IN_FOLDER(state_moves_between_plans) {
    static const char *const pairs[][2] = {
        {"pp=2", ""},
        {"pp=2", "dp=2,pp=2"},
        {"pp=2", "dataparallel=2"},
        {"pp=2", "last:dp=2"},
        {"offload=state", "dp=2"},
        {"dp=2,zero=2", "dp=2,zero=2,offload=state:disk"},
        {"dp=4,zero=3,offload=state:disk+params", "pp=2,offload=state"},
        {"pp=2,offload=params:disk", "dp=2,zero=3,offload=params+state:disk"}};
    folder *f = *state;
    char path[200], mine[65], want[65];
    snprintf(path, sizeof path, "%s/state", f->path);
    for (size_t k = 0; k < WFI_COUNT(pairs); k++) {
        row r = {.value = {[WAY] = (int8_t)(k % 2)}};
        wf_trainer *one = make_trainer(f->ctx, &r, "");
        wf_trainer *from = make_trainer(f->ctx, &r, pairs[k][0]);
        wf_trainer *to = make_trainer(f->ctx, &r, pairs[k][1]);
        for (int s = 0; s < 4; s++) small_step(f->ctx, one, s);
        for (int s = 0; s < 2; s++) small_step(f->ctx, from, s);
        TEST_OK(f->ctx, wf_trainer_save_state(from, path, NULL, 0));
        TEST_OK(f->ctx, wf_trainer_load_state(to, path));
        for (int s = 2; s < 4; s++) small_step(f->ctx, to, s);
        TEST_OK(f->ctx, wf_trainer_weights_sha256(to, mine));
        TEST_OK(f->ctx, wf_trainer_weights_sha256(one, want));
        if (strcmp(mine, want)) fail_msg("'%s' to '%s': other bits", pairs[k][0], pairs[k][1]);
        wf_trainer_destroy(one);
        wf_trainer_destroy(from);
        wf_trainer_destroy(to);
    }
    assert_int_equal(folder_count(f, 1), 1);
}

static int destroy_oracles(void **state) {
    for (int k = 0; k < n_oracles; k++) {
        wf_trainer_destroy(oracles[k].t);
        test_context_end(oracles[k].ctx);
    }
    return 0;
}

TEST_MAIN(test_check_events, destroy_oracles)
