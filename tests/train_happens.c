/* The happens-before checker (WEFT_CHECK_EVENTS): what the executor issues is clean under every
 * schedule and plan; without a dependency or a wait that matters the first step is refused,
 * whatever the timing.
 *
 * label: long
 */
#include "run/issue.h"
#include "run/trainer.h"
#include "small_models.h"

#include <stdlib.h>

/* Two units, a tied weight, batch statistics; small, because many are made. */
static void tiny_net(wf_graph *g, const void *config) {
    (void)config;
    wf_tensor x = wf_input(g, "x", WF_F32, WF_SHAPE(3, 8, 8));
    wf_tensor y = wf_input(g, "y", WF_I32, WF_SCALAR);
    wf_tensor tied = wf_parameter(g, "tied", WF_SHAPE(16, 16), (wf_init){WF_INIT_NORMAL, 0.2f});
    wf_tensor none = {g, -1};
    wf_tensor h = wf_linear(wf_reshape(x, WF_SHAPE(-1, 192)), "fc1", 16);
    h = wf_cut(wf_linear_with(wf_relu(wf_batch_norm(h, "bn")), tied, none), "second");
    h = wf_relu(wf_linear(h, "fc2", 16));
    wf_loss(wf_cross_entropy(wf_linear(wf_linear_with(h, tied, none), "fc3", 10), y));
}

static wf_recipe checked_recipe(void) {
    wf_recipe recipe = small_recipe();
    recipe.n_micro = 4;
    recipe.n_lanes = 2;
    recipe.clip_norm = 0.5;
    recipe.n_threads = 1;
    recipe.kernels = WF_KERNELS_REFERENCE;
    return recipe;
}

static wf_trainer *make_trainer(wf_context *ctx, wf_model_function function, const char *plan) {
    wf_recipe recipe = checked_recipe();
    wf_trainer *t = planned_trainer(ctx, function, &recipe, plan, NULL, 0);
    assert_non_null(t->ready[0]->executor->happens);
    return t;
}

/* ---- clean ---- */

static void all_plans_are_clean(void **state) {
    (void)state;
    static const char *const grids[] = {"", "pp=2,", "pp=3,", "pp=4,", "dp=2,", "dp=2,pp=2,"};
    for (int s = 0; wfi_schedules[s]; s++)
        for (size_t k = 0; k < sizeof grids / sizeof *grids; k++) {
            char plan[64];
            bool is_deep = !strncmp(grids[k], "pp=3", 4) || !strncmp(grids[k], "pp=4", 4);
            if (is_deep && wfi_schedules[s]->n_chunks > 1) continue; /* there are four units */
            snprintf(plan, sizeof plan, "%sschedule=%s", grids[k], wfi_schedules[s]->name);
            wf_context *ctx = test_context();
            wf_trainer *t = make_trainer(ctx, small_net, plan);
            for (int step = 0; step < 3; step++) TEST_OK(ctx, small_try_step(t, step, NULL));
            wf_trainer_destroy(t);
            test_context_end(ctx);
        }
    static const char *const spreads[] = {"dataparallel=2", "dataparallel=2,output=1,overlap=off",
                                          "head:dp=2", "block:dataparallel=2,last:dp=2"};
    for (size_t k = 0; k < sizeof spreads / sizeof *spreads; k++) {
        wf_context *ctx = test_context();
        wf_trainer *t = make_trainer(ctx, small_net, spreads[k]);
        for (int step = 0; step < 3; step++) TEST_OK(ctx, small_try_step(t, step, NULL));
        wf_trainer_destroy(t);
        test_context_end(ctx);
    }
}

/* ---- broken ---- */

static const char *const plans[] = {
    "",          "pp=2",           "pp=2,schedule=zb1", "dp=2,allreduce=tree,bucket=1",
    "dp=2,pp=2", "dataparallel=2", "second:dp=2",       "pp=2,recompute=all",
};
#define N_PLANS (sizeof plans / sizeof *plans)

/* What was refused, by a word of the sentence. */
typedef struct tally {
    int n_refused, n_accepted;
    int n_receive, n_all_reduce, n_gather_norm, n_gather_stats;
} tally;

static void count(tally *n, const char *plan, const char *sentence) {
    static const char *const parts[] = {"events: r", "of rank ", "no event orders them"};
    for (size_t k = 0; k < sizeof parts / sizeof *parts; k++)
        if (!strstr(sentence, parts[k]))
            fail_msg("plan '%s': '%s' does not say '%s'", plan, sentence, parts[k]);
    n->n_refused++;
    n->n_receive += strstr(sentence, " receive ") != NULL;
    n->n_all_reduce += strstr(sentence, " all_reduce") != NULL;
    n->n_gather_norm += strstr(sentence, " all_gather norm") != NULL;
    n->n_gather_stats += strstr(sentence, " all_gather ") && strstr(sentence, " stats");
}

/* Takes dependency d from instruction i; the step must be refused if, and only if, the
 * program check would have refused the program. */
static void drop_dependency(wf_context *ctx, const char *plan, wf_trainer **t, int32_t i, int32_t d,
                            tally *n) {
    wf_program *p = (*t)->ready[0]->program;
    wfi_instruction *now = &p->instructions[i];
    wfi_instruction kept = *now;
    int32_t depends[64];
    assert_true(kept.n_depends <= 64);
    now->n_depends = 0;
    for (int32_t k = 0; k < kept.n_depends; k++)
        if (k != d) depends[now->n_depends++] = kept.depends[k];
    now->depends = depends;
    wf_status status = small_try_step(*t, 0, NULL);
    if (status != WF_OK) {
        assert_int_equal(status, WF_BUG);
        count(n, plan, wf_context_error(ctx));
    }
    n->n_accepted += status == WF_OK;
    bool matters = wf_program_check(p) != WF_OK;
    if (matters != (status != WF_OK))
        fail_msg("plan '%s': instruction %d (%s) without dependency %d: the program check %s it, "
                 "the checker does not agree",
                 plan, i, wfi_instruction_name(&kept), d, matters ? "refuses" : "passes");
    *now = kept;
    TEST_OK(ctx, wf_program_check(p));
    if (status == WF_OK) return;
    wf_trainer_destroy(*t); /* failed for good */
    *t = make_trainer(ctx, tiny_net, plan);
}

static void dependencies_are_missed(void **state) {
    (void)state;
    tally n = {0};
    for (size_t k = 0; k < N_PLANS; k++) {
        wf_context *ctx = test_context();
        wf_trainer *t = make_trainer(ctx, tiny_net, plans[k]);
        for (int32_t i = 0; i < t->ready[0]->program->n_instructions; i++)
            for (int32_t d = 0; d < t->ready[0]->program->instructions[i].n_depends; d++)
                drop_dependency(ctx, plans[k], &t, i, d, &n);
        wf_trainer_destroy(t);
        test_context_end(ctx);
    }
    if (n.n_refused < 120 || n.n_receive < 20 || n.n_all_reduce < 10)
        fail_msg("%d refused (%d with a receive, %d with an all-reduce), %d accepted", n.n_refused,
                 n.n_receive, n.n_all_reduce, n.n_accepted);
}

/* Each wait of a step once, those inside exchanges too. One that is accepted was implied by
 * others; the thread sanitizer, where it runs, would see it if it was not. */
static void waits_are_missed(void **state) {
    (void)state;
    tally n = {0};
    for (size_t k = 0; k < N_PLANS; k++) {
        wf_context *ctx = test_context();
        wf_trainer *t = make_trainer(ctx, tiny_net, plans[k]);
        TEST_OK(ctx, small_try_step(t, 0, NULL));
        int64_t n_waits = t->ready[0]->executor->n_waits;
        for (int64_t w = 1; w <= n_waits; w++) {
            t->ready[0]->executor->left_out_wait = w;
            wf_status status = small_try_step(t, 0, NULL);
            n.n_accepted += status == WF_OK;
            if (status == WF_OK) continue;
            assert_int_equal(status, WF_BUG);
            count(&n, plans[k], wf_context_error(ctx));
            wf_trainer_destroy(t);
            t = make_trainer(ctx, tiny_net, plans[k]);
        }
        wf_trainer_destroy(t);
        test_context_end(ctx);
    }
    if (n.n_refused < 120 || n.n_receive < 20 || n.n_all_reduce < 20 || n.n_gather_norm < 10 ||
        n.n_gather_stats < 2)
        fail_msg("%d refused: %d with a receive, %d all_reduce, %d gather_norm, %d gather_stats",
                 n.n_refused, n.n_receive, n.n_all_reduce, n.n_gather_norm, n.n_gather_stats);
}

static wf_status do_nothing(void *self, void *argument) {
    (void)self, (void)argument;
    return WF_OK;
}

/* A task that reaches a stream on another way than through issue.c. */
static void stray_task(void **state) {
    (void)state;
    wf_context *ctx = test_context();
    wf_trainer *t = make_trainer(ctx, tiny_net, "pp=2");
    wfi_executor *e = t->ready[0]->executor;
    wfi_issue_begin(e);
    TEST_OK(ctx, wfi_stream_push(t->workers[1].streams[WFI_STREAM_COPY], do_nothing, NULL, NULL));
    TEST_REFUSED(
        ctx, wfi_issue_end(e), WF_BUG,
        "stream copy of rank 1 was given 1 tasks in this step, of which the checker saw 0");
    wf_trainer_destroy(t);
    test_context_end(ctx);
}

static int turn_on(void **state) {
    (void)state;
    return setenv("WEFT_CHECK_EVENTS", "1", 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_plans_are_clean),
        cmocka_unit_test(dependencies_are_missed),
        cmocka_unit_test(waits_are_missed),
        cmocka_unit_test(stray_task),
    };
    return cmocka_run_group_tests(tests, turn_on, NULL);
}
