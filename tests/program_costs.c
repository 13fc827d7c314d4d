/* Costs decide when work is done, and no program is wrong because of them: also where units take no
 * time at all, or so little beside others that a sum does not show it.
 *
 * label: serial
 */
#include "broken_program.h"
#include "plan/costs.h"

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
            wf_context *ctx = test_context();
            wf_program *p = make_program(ctx, programs[k].plan, programs[k].lanes), *again;
            wf_costs *costs = make_costs(p, (shape)(n / 2), n % 2);
            TEST_OK(ctx, wf_plan_use_costs(p->plan, costs));
            wf_status status =
                wf_program_create(ctx, p->model, &p->recipe, p->plan, WF_PROGRAM_TRAIN, &again);
            if (status != WF_OK)
                fail_msg("plan '%s', costs %d: %s", programs[k].plan, n, wf_context_error(ctx));
            wf_program_destroy(again);
            wf_costs_destroy(costs);
            wf_program_destroy(p);
            test_context_end(ctx);
        }
}

TEST_MAIN(NULL, NULL)
