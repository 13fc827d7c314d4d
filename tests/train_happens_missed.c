/* The happens-before checker (WEFT_CHECK_EVENTS): without a dependency or a wait that matters the
 * first step is refused, whatever the timing. train_plans checks that all plans are clean.
 *
 * label: once long serial
 */
#include "checked_trainer.h"
#include "execute/issue.h"

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
    *t = checked_trainer(ctx, tiny_net, plan);
}

TEST(dependencies_are_missed) {
    tally n = {0};
    for (size_t k = 0; k < N_PLANS; k++) {
        scoped_trainer t = checked_trainer(ctx, tiny_net, plans[k]);
        for (int32_t i = 0; i < t->ready[0]->program->n_instructions; i++)
            for (int32_t d = 0; d < t->ready[0]->program->instructions[i].n_depends; d++)
                drop_dependency(ctx, plans[k], &t, i, d, &n);
    }
    if (n.n_refused < 120 || n.n_receive < 20 || n.n_all_reduce < 10)
        fail_msg("%d refused (%d with a receive, %d with an all-reduce), %d accepted", n.n_refused,
                 n.n_receive, n.n_all_reduce, n.n_accepted);
}

/* Each wait of a step once, those inside exchanges too. One that is accepted was implied by
 * others; the thread sanitizer, where it runs, would see it if it was not. */
TEST_CASE(waits_are_missed) {
    tally n = {0};
    for (size_t k = 0; k < N_PLANS; k++) {
        scoped_context ctx = test_context();
        wf_trainer *t = checked_trainer(ctx, tiny_net, plans[k]);
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
            t = checked_trainer(ctx, tiny_net, plans[k]);
        }
        wf_trainer_destroy(t);
    }
    if (n.n_refused < 120 || n.n_receive < 20 || n.n_all_reduce < 20 || n.n_gather_norm < 10 ||
        n.n_gather_stats < 2)
        fail_msg("%d refused: %d with a receive, %d all_reduce, %d gather_norm, %d gather_stats",
                 n.n_refused, n.n_receive, n.n_all_reduce, n.n_gather_norm, n.n_gather_stats);
}

static wf_status do_nothing(void *self, void *argument) {
    return WF_OK;
}

/* A task that reaches a stream on another way than through issue.c. */
TEST(stray_task) {
    scoped_trainer t = checked_trainer(ctx, tiny_net, "pp=2");
    wfi_executor *e = t->ready[0]->executor;
    wfi_issue_begin(e);
    TEST_OK(ctx, wfi_stream_push(t->workers[1].streams[WFI_STREAM_COPY], do_nothing, NULL, NULL));
    TEST_REFUSED(
        ctx, wfi_issue_end(e), WF_BUG,
        "stream copy of rank 1 was given 1 tasks in this step, of which the checker saw 0");
}

TEST_FIXTURE(test_check_events, NULL)
