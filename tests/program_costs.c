/* Costs decide when work is done, and no program is wrong because of them: also where units take no
 * time at all, or so little beside others that a sum does not show it.
 *
 * label: serial
 */
#include "broken_program.h"
#include "plan/costs.h"
#include "test_program.h"

#include <math.h>

static const struct {
    const char *plan;
    int64_t lanes;
} programs[] = {
    {"pp=2", 2},
    {"pp=3,schedule=gpipe", 2},
    {"pp=3,schedule=zb1", 1},
    {"dp=2,pp=2,schedule=auto", 2},
    {"dataparallel=4", 4},
    {"dataparallel=2,output=1", 2},
    {"first:dp=4,late:dataparallel=2", 4},
    {"middle:dp=2,late:dataparallel=2", 2},
};

typedef enum shape { NOTHING, ALL_ALIKE, ONE_BESIDE_LITTLE, LITTLE_BESIDE_ONE, N_SHAPES } shape;

static double time_of(shape how, int unit, int part) {
    switch (how) {
    case ALL_ALIKE:
        return 1;
    case ONE_BESIDE_LITTLE:
        return unit == 1 && part == 0 ? 1e18 : 1e-3;
    case LITTLE_BESIDE_ONE:
        return unit == 1 ? 1e-3 : 1e18;
    default:
        return 0;
    }
}

static wf_costs *make_costs(const wf_program *p, shape how, bool moves_at_once) {
    wf_costs *costs;
    TEST_OK(p->ctx, wfi_costs_copy(p->ctx, wf_program_costs(p), &costs));
    for (int u = 0; u < costs->n_units; u++) {
        wf_unit_cost *unit = &costs->units[u];
        unit->forward_us = time_of(how, u, 0);
        unit->backward_us = time_of(how, u, 1);
        unit->weight_us = time_of(how, u, 2);
        unit->backward_weight_us = unit->backward_us + unit->weight_us;
    }
    if (moves_at_once) costs->rates = (wf_rates){0};
    return costs;
}

TEST_CASE(no_cost_makes_a_program_wrong) {
    for (size_t k = 0; k < sizeof programs / sizeof *programs; k++)
        for (int n = 0; n < 2 * N_SHAPES; n++) {
            scoped_context ctx = test_context();
            scoped_program p = make_program(ctx, programs[k].plan, programs[k].lanes);
            scoped_program again;
            scoped_costs costs = make_costs(p, (shape)(n / 2), n % 2);
            TEST_OK(ctx, wf_plan_use_costs(p->plan, costs));
            wf_status status =
                wf_program_create(ctx, p->model, &p->recipe, p->plan, WF_PROGRAM_TRAIN, &again);
            if (status != WF_OK)
                fail_msg("plan '%s', costs %d: %s", programs[k].plan, n, wf_context_error(ctx));
        }
}

static double step_us(const wf_program *p, const wf_costs *costs) {
    scoped_timeline timeline;
    TEST_OK(p->ctx, wf_program_simulate(p, costs, &timeline));
    double us = wf_timeline_step_us(timeline);
    return us;
}

/* Rows of slices are joined under one plan and apart under the other (pass/join.c). */
TEST(costs_of_one_plan_suit_another) {
    static const char *const texts[] = {"tp=2", "tp=2,sp", "tp=2,recompute=all",
                                        "tp=2,sp,recompute=all"};
    wf_recipe recipe = WF_RECIPE_INIT;
    wf_program *p[4];
    TEST_OK(ctx, wf_recipe_parse(ctx, "batch=8,micro=4,slices=4", &recipe));
    scoped_model model =
        test_find_model(ctx, "gpt2-tiny", &TEST_MODEL(.n_tokens = 64, .n_classes = 256));
    for (int k = 0; k < 4; k++) p[k] = test_program(ctx, model, &recipe, texts[k]);
    for (int k = 0; k < 16; k++) {
        const wf_costs *other = wf_program_costs(p[k % 4]);
        scoped_program again;
        double us = step_us(p[k / 4], NULL), simulated_us = step_us(p[k / 4], other);
        TEST_OK(ctx, wf_plan_use_costs(p[k / 4]->plan, other));
        TEST_OK(ctx,
                wf_program_create(ctx, model, &recipe, p[k / 4]->plan, WF_PROGRAM_TRAIN, &again));
        double planned_us = step_us(again, NULL);
        bool are_alike = k / 8 == k % 4 / 2; /* or they recompute other parts */
        if (fabs(planned_us - us) > 1e-6 * us || (are_alike && fabs(simulated_us - us) > 1e-6 * us))
            fail_msg("'%s' with costs of '%s': %.1f and %.1f us instead of %.1f", texts[k / 4],
                     texts[k % 4], planned_us, simulated_us, us);
    }
    for (int k = 0; k < 4; k++) wf_program_destroy(p[k]);
}
