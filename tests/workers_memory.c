/* Memory and traffic of workers and servers: the plan has the measured figures.
 *
 * label: serial
 */
#include "workers_case.h"

static void get_ranks(wf_context *ctx, const one_case *c, const char *plan, int plan_only,
                      int n_ranks, wf_workers_rank *ranks) {
    scoped_crew crew;
    case_crew_init(&crew, c);
    crew.config.plan_only = plan_only;
    TEST_OK(ctx, case_try_crew(ctx, &crew, plan));
    if (!plan_only)
        TEST_OK(ctx, wf_workers_run(crew.workers, c->n_steps, crew.results, &crew.n_done));
    for (int r = 0; r < n_ranks; r++) TEST_OK(ctx, wf_workers_rank_get(crew.workers, r, &ranks[r]));
}

static void check_rank(const wf_workers_rank *plan, const wf_workers_rank *ran) {
    assert_int_equal(ran->memory.planned_host_peak_bytes, plan->memory.planned_host_peak_bytes);
    assert_int_equal(ran->memory.measured_host_peak_bytes, plan->memory.planned_host_peak_bytes);
    assert_int_equal(ran->memory.measured_peak_bytes, plan->memory.planned_peak_bytes);
    assert_int_equal(ran->sent_bytes, plan->sent_bytes);
    assert_int_equal(ran->received_bytes, plan->received_bytes);
}

TEST(planned_is_measured) {
    static const struct {
        const char *plan;
        int n_ranks;
    } plans[] = {{"dp=2,ps=2", 4}, {"dp=2,ps=2@workers", 2}, {"dp=2", 2}, {"dp=4,ps=1", 5}};
    for (int local = 0; local < 2; local++)
        for (size_t p = local ? 2 : 0; p < WFI_COUNT(plans) - (size_t)local; p++) {
            wf_workers_rank plan[5], ran[5], processes[5];
            one_case c = async_case(80000, 4, 0);
            c.net.has_norm = 1;
            c.recipe.update = local ? WF_UPDATE_LOCAL : WF_UPDATE_ASYNC;
            c.recipe.local_steps = c.n_steps;
            get_ranks(ctx, &c, plans[p].plan, 0, plans[p].n_ranks, ran);
            get_ranks(ctx, &c, plans[p].plan, 1, plans[p].n_ranks, plan);
            get_ranks(ctx, &c, plans[p].plan, 2, plans[p].n_ranks, processes);
            for (int r = 0; r < plans[p].n_ranks; r++) check_rank(&plan[r], &ran[r]);
            /* Processes share no messages and no common parameters. */
            size_t threads = plan[local].memory.planned_host_peak_bytes;
            assert_true(processes[local].memory.planned_host_peak_bytes > threads ||
                        plans[p].n_ranks > 2);
        }
}

/* Rank 0 tests: what many samples at once need is planned for it, and for no other rank. */
TEST(tests_are_planned) {
    size_t peaks[2][2];
    one_case c = async_case(80000, 4, 0);
    for (int tests = 0; tests < 2; tests++) {
        scoped_crew crew;
        wf_workers_rank of;
        case_crew_init(&crew, &c);
        crew.config.plan_only = 1;
        crew.config.n_test = crew.config.n_test_at_once = tests ? 5000 : 0;
        TEST_OK(ctx, case_try_crew(ctx, &crew, "dp=2"));
        for (int r = 0; r < 2; r++) {
            TEST_OK(ctx, wf_workers_rank_get(crew.workers, r, &of));
            peaks[tests][r] = of.memory.planned_peak_bytes;
        }
    }
    assert_true(peaks[1][0] > peaks[0][0]);
    assert_int_equal(peaks[1][1], peaks[0][1]);
}

/* A normalization of 64 channels has 128 parameters and 128 running statistics. */
TEST(averages_of_statistics_are_sent) {
    wf_workers_rank with[2], without[2];
    one_case c = async_case(80000, 4, 0);
    c.recipe.update = WF_UPDATE_LOCAL;
    c.recipe.local_steps = 1;
    c.net = (case_net){.n_hidden = 64, .has_norm = 1};
    get_ranks(ctx, &c, "dp=2", 1, 2, with);
    c.net.has_norm = 0;
    get_ranks(ctx, &c, "dp=2", 1, 2, without);
    assert_int_equal(with[0].sent_bytes - without[0].sent_bytes, 256 * sizeof(float));
}
