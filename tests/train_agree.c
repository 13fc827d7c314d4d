/* What all ranks of a job must have in common: one of them has something else, and all say what,
 * before the first step; or it does something else than the others. Ranks are threads, which share
 * a segment or send each other messages. */
#include "comm/job/compare.h"
#include "fake_network.h"
#include "op/op_table.h"
#include "recipe/fields.h"
#include "small_models.h"

#include <math.h>
#include <pthread.h>
#include <unistd.h>

typedef struct config {
    float dropout;
    double eps;
    int is_causal, n_heads;
} config;

static const config model_config = {0.25f, 1e-5, 1, 2};

static void net(wf_graph *g, const void *of) {
    const config *c = of;
    wf_tensor x = wf_input(g, "x", WF_F32, WF_SHAPE(4, 16));
    wf_tensor y = wf_input(g, "y", WF_I32, WF_SCALAR);
    wf_tensor h = wf_linear(wf_tanh(wf_linear(x, "in", 8)), "wide", 48); /* may be slices */
    h = wf_layer_norm(h, "norm");
    h = wf_cut(wf_dropout(wf_self_attention(h, c->n_heads, c->is_causal), "drop", c->dropout),
               "head");
    h = wf_scale(wf_reshape(h, WF_SHAPE(-1, 64)), c->eps);
    wf_loss(wf_cross_entropy(wf_linear(h, "out", 10), y));
}

/* ---- ranks ---- */

#define MOST_BYTES 2000

typedef enum way { STEP, SAVE, HASH, BARRIER, COMPARE, BROADCAST } way;

/* What a rank does: a trainer with these, or something of the job alone. */
typedef struct part {
    wf_recipe recipe;
    const char *plan;
    config model;
    wf_trainer_config trainer;
    way way;
    size_t n_bytes; /* of a broadcast */
} part;

typedef struct rank {
    fake_rank box;
    bool sends_messages;
    const char *name;
    part part;
    wf_status status;
    char said[800];
    pthread_t thread;
} rank;

static part part_of_all(void) {
    part p = {.recipe = small_recipe(),
              .plan = "dp=2",
              .model = model_config,
              .trainer = WF_TRAINER_CONFIG_INIT,
              .way = HASH};
    p.recipe.n_micro = 8;
    p.recipe.n_lanes = 4;
    p.recipe.n_slices = 1;
    p.recipe.weight_decay = 0.1;
    p.recipe.clip_norm = 0.5;
    p.recipe.lr_schedule = WF_LR_STEP;
    p.recipe.warmup_steps = 3;
    p.recipe.schedule_steps = 5;
    return p;
}

static wf_status act(wf_trainer *trainer, const part *p) {
    static const float x[SMALL_BATCH * 64];
    static const int32_t y[SMALL_BATCH];
    wf_feed feeds[] = {{"x", x, sizeof x}, {"y", y, sizeof y}};
    wf_step_result result;
    char hash[65];
    if (p->way == SAVE) return wf_trainer_save(trainer, "/dev/null/nothing");
    if (p->way == HASH) return wf_trainer_weights_sha256(trainer, hash);
    return wf_trainer_step(trainer, feeds, 2, SMALL_BATCH, &result);
}

static wf_status train(wf_context *ctx, wf_job *job, const part *p) {
    wf_trainer_config trainer_config = p->trainer;
    scoped_model model = NULL;
    scoped_plan plan = NULL;
    scoped_trainer trainer = NULL;
    trainer_config.job = job;
    wf_status status = wf_model_create(ctx, "net", net, &p->model, sizeof p->model, &model);
    if (status == WF_OK) status = wf_plan_parse(ctx, p->plan, &plan);
    if (status == WF_OK)
        status = wf_trainer_create(ctx, model, &p->recipe, plan, &trainer_config, &trainer);
    if (status == WF_OK) status = act(trainer, p);
    return status;
}

static wf_status join(wf_context *ctx, rank *self, wf_job **job_out) {
    wf_job_config meeting = WF_JOB_CONFIG_INIT;
    wfi_network mail = fake_network(&self->box);
    if (self->sends_messages)
        return wfi_control_join_network(ctx, &mail, self->box.rank, 2, TEST_TIMEOUT_MS, job_out);
    meeting.rank = self->box.rank;
    meeting.n_ranks = 2;
    meeting.name = self->name;
    return wf_job_join(ctx, &meeting, job_out);
}

/* Rank 0's bytes come, and nothing behind them is touched. */
static wf_status broadcast(wf_job *job, size_t n_bytes) {
    char bytes[MOST_BYTES], own = (char)(1 + wf_job_rank(job));
    memset(bytes, own, sizeof bytes);
    WF_TRY(wf_job_broadcast(job, bytes, n_bytes));
    for (size_t i = 0; i < sizeof bytes; i++)
        if (bytes[i] != (i < n_bytes ? 1 : own)) return WF_BUG;
    return WF_OK;
}

static void *be_rank(void *argument) {
    rank *self = argument;
    const wf_setting setting = {"--lr", "0.1"};
    scoped_context ctx = test_context();
    wf_job *job = NULL;
    self->status = join(ctx, self, &job);
    if (self->status == WF_OK) switch (self->part.way) {
        case BARRIER:
            self->status = wf_job_barrier(job);
            break;
        case COMPARE:
            self->status = wf_job_compare(job, &setting, 1);
            break;
        case BROADCAST:
            self->status = broadcast(job, self->part.n_bytes);
            break;
        default:
            self->status = train(ctx, job, &self->part);
        }
    if (self->status) snprintf(self->said, sizeof self->said, "%.700s", wf_context_error(ctx));
    wf_job_leave(job);
    return NULL;
}

/* Both ranks end with that status, and with words where there are any. */
static void expect(const part parts[2], wf_status status, const char *words) {
    static int n_jobs;
    for (int kind = 0; kind < 2; kind++) {
        fake_net mail = {.lock = PTHREAD_MUTEX_INITIALIZER, .n_ranks = 2};
        char name[64];
        rank ranks[2];
        snprintf(name, sizeof name, "agree-%d-%d", (int)getpid(), n_jobs++);
        for (int r = 0; r < 2; r++) {
            ranks[r] = (rank){
                .box = {&mail, r}, .sends_messages = kind == 1, .name = name, .part = parts[r]};
            assert_int_equal(pthread_create(&ranks[r].thread, NULL, be_rank, &ranks[r]), 0);
        }
        for (int r = 0; r < 2; r++) pthread_join(ranks[r].thread, NULL);
        for (int r = 0; r < 2; r++)
            if (ranks[r].status != status || !strstr(ranks[r].said, words))
                fail_msg("%s: rank %d: %s '%s', not %s '%s'", kind ? "messages" : "memory", r,
                         wf_status_name(ranks[r].status), ranks[r].said, wf_status_name(status),
                         words);
    }
}

TEST_CASE(who_agrees_runs) {
    const part parts[2] = {part_of_all(), part_of_all()};
    expect(parts, WF_OK, "");
}

/* ---- recipes ---- */

/* Another legal value, as near as there is one. */
static void change(wf_recipe *recipe, const wfi_recipe_field *field) {
    void *value = (char *)recipe + field->offset;
    switch (field->kind) {
    case WFI_RECIPE_COUNT:
        *(int64_t *)value += *(int64_t *)value ? *(int64_t *)value : 1;
        break;
    case WFI_RECIPE_SEED:
        *(uint64_t *)value += 1;
        break;
    case WFI_RECIPE_INT:
        *(int *)value += 1;
        break;
    case WFI_RECIPE_FLAG:
        *(int *)value ^= 1;
        break;
    case WFI_RECIPE_REAL:
        *(double *)value = nextafter(*(double *)value, 0.75);
        break;
    case WFI_RECIPE_CHOICE:
        *(int *)value = *(int *)value < (int)field->most ? *(int *)value + 1 : 0;
        break;
    case WFI_RECIPE_NAMES:
        strcpy(((wf_names *)value)->text, "in");
        break;
    case WFI_RECIPE_TABLE:
        *(const char **)value = "in=out";
        break;
    }
}

TEST_CASE(every_field_of_the_recipe) {
    for (int k = 0; k < wfi_recipe_n_fields; k++) {
        const wfi_recipe_field *field = &wfi_recipe_fields[k];
        part parts[2] = {part_of_all(), part_of_all()};
        char words[200], first[WFI_RECIPE_TEXT], second[WFI_RECIPE_TEXT];
        strcpy(parts[0].recipe.freeze.text, "out"); /* texts are told if they are not empty */
        strcpy(parts[0].recipe.lr_scale.text, "out");
        parts[0].recipe.tuned = "out=in";
        parts[1].recipe.freeze = parts[0].recipe.freeze;
        parts[1].recipe.lr_scale = parts[0].recipe.lr_scale;
        parts[1].recipe.tuned = parts[0].recipe.tuned;
        change(&parts[1].recipe, field);
        snprintf(words, sizeof words,
                 "rank 1 was started with recipe %s %s, rank 0 with recipe %s %s: all ranks",
                 field->name, wfi_recipe_text(&parts[1].recipe, field, second), field->name,
                 wfi_recipe_text(&parts[0].recipe, field, first));
        assert_string_not_equal(first, second);
        expect(parts, WF_REMOTE, words);
    }
}

/* ---- models and the rest ---- */

TEST_CASE(models_of_one_name) {
    config others[5] = {model_config, model_config, model_config, model_config, model_config};
    others[0].dropout = 0.5f;
    others[1].eps = 2e-5;
    others[2].is_causal = 0;
    others[3].n_heads = 4;
    others[4].is_causal = 3; /* a window */
    for (int k = 0; k < 5; k++) {
        part parts[2] = {part_of_all(), part_of_all()};
        parts[1].model = others[k];
        expect(parts, WF_REMOTE, "rank 1 was started with a model whose hash is ");
    }
}

/* An op whose attributes wfi_attr_text does not know would not count. */
TEST_CASE(every_op_with_attributes) {
    static const char *const without =
        " relu relu_backward silu silu_backward tanh tanh_backward sigmoid sigmoid_backward "
        "add add_relu add_broadcast mul sum_leading softmax softmax_backward log_softmax "
        "log_softmax_backward "
        "cross_entropy cross_entropy_backward "
        "mse mse_backward binary_cross_entropy binary_cross_entropy_backward smooth_l1 "
        "smooth_l1_backward gather gather_backward loss_record loss_gradient global_avg_pool "
        "global_avg_pool_backward "
        "reshape cast lstm lstm_backward ";
    for (int k = 0; wfi_op_table[k]; k++) {
        wfi_attr attr;
        char text[WFI_ATTR_TEXT], word[80];
        memset(&attr, 0, sizeof attr);
        snprintf(word, sizeof word, " %s ", wfi_op_table[k]->name);
        bool has_text = *wfi_attr_text(wfi_op_table[k], &attr, text) != 0;
        if (has_text == (strstr(without, word) != NULL))
            fail_msg("%s: wfi_attr_text has %s for it", wfi_op_table[k]->name,
                     has_text ? "attributes" : "none");
    }
}

/* Most models have no scale of rotary positions, whose attributes are in the text only if it is. */
TEST_CASE(scales_of_rotary_positions) {
    const wfi_attr scales[] = {
        {.rotary = {2, 2, 100, 0, 0, 0, 0}},  {.rotary = {2, 2, 100, 2, 1, 4, 16}},
        {.rotary = {2, 2, 100, 3, 1, 4, 16}}, {.rotary = {2, 2, 100, 2, 2, 4, 16}},
        {.rotary = {2, 2, 100, 2, 1, 3, 16}}, {.rotary = {2, 2, 100, 2, 1, 4, 17}}};
    char text[WFI_COUNT(scales)][WFI_ATTR_TEXT];
    for (size_t k = 0; k < WFI_COUNT(scales); k++)
        for (size_t i = 0; i <= k; i++)
            assert_int_equal(!strcmp(wfi_attr_text(&wfi_op_rotary, &scales[k], text[k]), text[i]),
                             i == k);
}

TEST_CASE(plans_and_configurations) {
    part parts[2] = {part_of_all(), part_of_all()};
    parts[1].plan = "dp=2,bucket=2KiB";
    expect(
        parts, WF_REMOTE,
        "rank 1 was started with plan dp=2,pp=1,schedule=1f1b,bucket=2KiB, rank 0 with plan dp=2");
    parts[1].plan = "pp=3";
    expect(parts, WF_REMOTE, "rank 1 was started with plan ");
    parts[1] = parts[0];
    parts[1].trainer.own_batch = 1;
    expect(parts, WF_REMOTE, "rank 1 was started with own_batch 1, rank 0 with own_batch 0");
    parts[1] = parts[0];
    parts[1].trainer.forward_only = 1;
    expect(parts, WF_REMOTE, "rank 1 was started with forward_only 1");
    parts[1] = parts[0];
    parts[1].trainer.trace = 1;
    expect(parts, WF_REMOTE, "rank 1 was started with trace 1");
}

/* ---- purposes ---- */

TEST_CASE(meetings_have_one_purpose) {
    part parts[2] = {part_of_all(), part_of_all()};
    parts[0].way = BARRIER;
    parts[1].way = COMPARE;
    expect(parts, WF_REMOTE,
           "rank 1 is at: compare how they were started; rank 0 is at: a barrier");
    parts[0].way = SAVE;
    parts[1].way = HASH;
    expect(parts, WF_REMOTE, "rank 1 is at: read weights; rank 0 is at: save weights");
}

/* Pieces of a broadcast have WFI_BROADCAST_BYTES bytes. */
TEST_CASE(broadcasts_have_one_size) {
    part parts[2] = {part_of_all(), part_of_all()};
    const size_t sizes[] = {0, 1, WFI_BROADCAST_BYTES, WFI_BROADCAST_BYTES + 1, MOST_BYTES};
    parts[0].way = parts[1].way = BROADCAST;
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        parts[0].n_bytes = parts[1].n_bytes = sizes[k];
        expect(parts, WF_OK, "");
    }
    parts[0].n_bytes = 200;
    parts[1].n_bytes = 100;
    expect(parts, WF_REMOTE,
           "rank 1 is at: a broadcast of 100 bytes; rank 0 is at: a broadcast of 200 bytes");
    parts[1].n_bytes = MOST_BYTES;
    expect(parts, WF_REMOTE, "rank 1 is at: a broadcast of 2000 bytes");
}

/* ---- sentences ---- */

static void expect_said(const char *first, const char *own, const char *words) {
    char said[600];
    wfi_difference_describe(first, own, 3, said, sizeof said);
    assert_string_equal(said, words);
}

TEST(what_is_said) {
    wfi_text text;
    wfi_text_init(&text, ctx);
    wfi_setting_add(&text, "--data", "%s", "a\tb\n\033[31m");
    wfi_setting_add(&text, "--out", "%s", "");
    assert_string_equal(text.data, "--data\ta\\x09b\\x0a\\x1b[31m\n--out\t\n");
    wfi_free(ctx, text.data);
    expect_said("a\t1\nb\t2\n", "a\t1\nb\t3\n", "rank 3 was started with b 3, rank 0 with b 2");
    expect_said("--out\t\n", "--out\ttrue\n",
                "rank 3 was started with --out, rank 0 without --out");
    expect_said("a\t1\n", "a\t1\nc\t4\n", "rank 3 was started with c 4, rank 0 without c");
    expect_said("a\t1\nc\t4\n", "c\t4\n", "rank 3 was started without a, rank 0 with a 1");
    char first[400], own[400], said[600];
    snprintf(first, sizeof first, "plan\t%0300d1\n", 0);
    snprintf(own, sizeof own, "plan\t%0300d2\n", 0);
    wfi_difference_describe(first, own, 1, said, sizeof said);
    assert_non_null(
        strstr(said, "...000000000000000000002, rank 0 with plan ...000000000000000000001"));
}
