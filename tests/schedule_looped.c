/* Schedules made by hand that put two stages on each rank: they are legal, proved, shorter, and
 * train with one rank's bits.
 *
 * label: serial
 */
#include "api/trainer.h"
#include "lower/schedule.h"
#include "plan/schedule/timing.h"
#include "small_models.h"
#include "test_program.h"

#include <math.h>

/* Breadth first: all microbatches of a stage before the device's next one. */
static void breadth_first(const wfi_schedule_request *r, int device, wfi_action_list *list) {
    for (int s = 0; s < r->n_stages; s++)
        for (int m = 0; m < r->n_micro && wfi_request_device_of(r, s) == device; m++)
            wfi_action_push(list, WFI_ACTION_F, s, m);
    for (int s = r->n_stages - 1; s >= 0; s--)
        for (int m = 0; m < r->n_micro && wfi_request_device_of(r, s) == device; m++)
            wfi_action_push(list, WFI_ACTION_BW, s, m);
}

/* B at once, W at the end. */
static void split(const wfi_schedule_request *r, int device, wfi_action_list *list) {
    breadth_first(r, device, list);
    int n = list->n;
    for (int k = 0; k < n; k++) {
        if (list->actions[k].kind != WFI_ACTION_BW) continue;
        list->actions[k].kind = WFI_ACTION_B;
        wfi_action_push(list, WFI_ACTION_W, list->actions[k].stage, list->actions[k].micro);
    }
}

static const wfi_schedule schedules[] = {
    {.name = "looped", .help = "", .rule = breadth_first, .n_chunks = 2},
    {.name = "v", .help = "", .rule = breadth_first, .n_chunks = 2, .is_v = true},
    {.name = "split", .help = "", .splits_weight = true, .rule = split, .n_chunks = 2},
    {.name = "v split",
     .help = "",
     .splits_weight = true,
     .rule = split,
     .n_chunks = 2,
     .is_v = true},
};

/* Of stages that take as long in sum as those of a schedule with one a device. */
static double makespan(wf_context *ctx, const wfi_schedule *schedule, int n_devices) {
    wfi_stage_times times[8];
    int device_of[8], n = n_devices * wfi_schedule_n_chunks(schedule, 0);
    for (int s = 0; s < n; s++) {
        times[s] = (wfi_stage_times){8.0 / n, 8.0 / n, 8.0 / n};
        device_of[s] = wfi_schedule_device_of(schedule, n_devices, s);
    }
    wfi_schedule_request request = {.n_stages = n,
                                    .n_micro = 4,
                                    .times = times,
                                    .hold = 4,
                                    .n_devices = n_devices,
                                    .device_of = device_of};
    wfi_action_list *lists;
    wfi_timing timing;
    TEST_OK(ctx, wfi_schedule_make(ctx, schedule, &request, &lists));
    TEST_OK(ctx, wfi_timing_init(ctx, &request, &timing));
    TEST_OK(ctx, wfi_timing_run(&request, lists, &timing));
    double found = timing.makespan;
    for (int d = 0; d < n_devices; d++) assert_true(timing.span[d] <= found && timing.peak[d] > 0);
    /* An action of a stage that is on another device has no place in the list. */
    lists[0].actions[0].stage = 1;
    TEST_REFUSED(ctx, wfi_timing_run(&request, lists, &timing), WF_INVALID_ARG,
                 "has an action of stage 1");
    wfi_timing_release(&timing);
    wfi_schedule_free(ctx, lists, n_devices);
    return found;
}

/* Half the stage, half the bubble (Lamy-Poirier, 2022). */
TEST(shorter_bubbles) {
    double work = 4 * 8 * 3.0 / 4, one = makespan(ctx, &wfi_schedule_gpipe, 4) - work;
    assert_float_equal(makespan(ctx, &schedules[0], 4) - work, one / 2, 1e-9);
    assert_true(makespan(ctx, &schedules[1], 4) - work > 0);
}

static void train(wf_context *ctx, const wfi_schedule *schedule, const char *plan_text,
                  const char *devices, char hex_out[65]) {
    wf_recipe recipe = SMALL_RECIPE(.n_micro = 8, .n_lanes = 4, .clip_norm = 1);
    wf_trainer_config config = WF_TRAINER_CONFIG_INIT;
    wf_trainer *t;
    wf_timeline *timeline;
    config.devices = devices;
    wf_model *model = test_model(ctx, "small", small_net, NULL, 0);
    wf_plan *plan = test_plan(ctx, plan_text);
    if (schedule) plan->schedule = schedule;
    TEST_OK(ctx, wf_trainer_create(ctx, model, &recipe, plan, &config, &t));
    const wf_program *p = wf_trainer_program(t);
    if (schedule) {
        assert_int_equal(p->n_stages, 2 * p->mesh.pp);
        for (int32_t s = 0; s < p->n_stages; s++)
            assert_int_equal(p->stages[s].pp, wfi_schedule_device_of(schedule, p->mesh.pp, s));
    }
    TEST_OK(ctx, wf_program_simulate(p, NULL, &timeline));
    assert_true(wf_timeline_step_us(timeline) > 0);
    wf_timeline_destroy(timeline);
    for (int s = 0; s < 2; s++) (void)small_step(ctx, t, s);
    TEST_OK(ctx, wf_trainer_weights_sha256(t, hex_out));
    wf_trainer_destroy(t);
    wf_model_destroy(model);
    wf_plan_destroy(plan);
}

TEST(one_ranks_bits) {
    static const char *const plans[][2] = {
        {"pp=2", "cpu:2"}, {"pp=1", "cpu:1"}, {"dp=2,pp=2,bucket=1", "cpu:4"}};
    char one[65], many[65];
    train(ctx, NULL, "", "cpu:1", one);
    for (size_t k = 0; k < WFI_COUNT(schedules); k++)
        for (size_t p = 0; p < WFI_COUNT(plans); p++) {
            train(ctx, &schedules[k], plans[p][0], plans[p][1], many);
            if (strcmp(one, many)) fail_msg("%s, %s: other bits", schedules[k].name, plans[p][0]);
        }
}

/* ---- schedule=auto chooses how many ---- */

/* Equal units: so many stages are as good as each other. */
static void chain(wf_graph *g, const void *config) {
    wf_tensor h = wf_input(g, "x", WF_F32, WF_SHAPE(512));
    wf_tensor y = wf_input(g, "y", WF_I32, WF_SCALAR);
    for (int u = 0; u < *(const int *)config; u++) {
        char name[16];
        snprintf(name, sizeof name, "unit%d", u);
        h = wf_relu(wf_linear(u ? wf_cut(h, name) : h, name, 512));
    }
    wf_loss(wf_cross_entropy(h, y));
}

typedef struct looked {
    char plan[80];
    int n_stages;
    double step_us;
    bool splits;
} looked;

static looked look_at(wf_context *ctx, const char *plan_text, int n_units) {
    wf_recipe recipe = TEST_RECIPE(.batch = 512, .n_micro = 8, .n_lanes = 1);
    scoped_program p;
    wf_program *again;
    scoped_timeline timeline;
    looked found = {.n_stages = 0};
    scoped_model model = test_model(ctx, "chain", chain, &n_units, sizeof n_units);
    wf_plan *plan = test_plan(ctx, plan_text);
    TEST_OK(ctx, wf_program_create(ctx, model, &recipe, plan, WF_PROGRAM_TRAIN, &p));
    TEST_OK(ctx, wf_program_simulate(p, NULL, &timeline));
    snprintf(found.plan, sizeof found.plan, "%s", wf_program_plan(p));
    found.n_stages = p->n_stages;
    found.step_us = wf_timeline_step_us(timeline);
    found.splits = p->code->splits_weight;
    assert_true(found.splits == p->plan->schedule->splits_weight);
    /* What is held is counted in what a microbatch takes at most on all stages of a rank. */
    wfi_schedule_request r;
    wfi_pool pool;
    wfi_pool_init(&pool, ctx);
    TEST_OK(ctx, wfi_program_request(p, p->first_unit, &pool, &r));
    for (int d = 0; d < r.n_devices; d++) {
        double most = 0;
        for (int s = 0; s < r.n_stages; s++)
            if (r.device_of[s] == d)
                most += fmax(r.memory[s].until_backward, r.memory[s].until_weight);
        assert_float_equal(most, 1, 1e-9);
    }
    wfi_pool_release(&pool);
    /* The plan that was chosen gives the same program. */
    wf_plan_destroy(plan);
    plan = test_plan(ctx, found.plan);
    TEST_OK(ctx, wf_program_create(ctx, model, &recipe, plan, WF_PROGRAM_TRAIN, &again));
    assert_int_equal(again->n_instructions, p->n_instructions);
    /* And a test finds the stages where they are. */
    wf_program_destroy(again);
    TEST_OK(ctx, wf_program_create_like(p, WF_PROGRAM_FORWARD, 64, &again));
    assert_int_equal(again->n_stages, p->n_stages);
    wf_program_destroy(again);
    wf_plan_destroy(plan);
    return found;
}

TEST(auto_chooses) {
    looked one = look_at(ctx, "pp=4,schedule=auto,chunks=1,hold=4", 16);
    looked some = look_at(ctx, "pp=4,schedule=auto,hold=4", 16);
    assert_int_equal(one.n_stages, 4);
    assert_true(some.n_stages > 4 && strcmp(some.plan, "dp=1,pp=4,schedule=auto,hold=4"));
    assert_true(some.step_us < 0.99 * one.step_us);
    /* Not with fewer units than that, nor where stages are named or one is enough. */
    looked few = look_at(ctx, "pp=4,schedule=auto,hold=4", 6);
    assert_string_equal(few.plan, "dp=1,pp=4,schedule=auto,hold=4");
    looked cut = look_at(ctx, "pp=2,schedule=auto,cut=unit8", 16);
    assert_string_equal(cut.plan, "dp=1,pp=2,schedule=auto,cut=unit8");
    looked alone = look_at(ctx, "schedule=auto", 16);
    assert_string_equal(alone.plan, "dp=1,pp=1,schedule=auto");
}

static size_t peak_of(wf_context *ctx, const char *plan_text) {
    wf_recipe recipe = TEST_RECIPE(.batch = 120, .n_micro = 24, .n_lanes = 1);
    size_t most = 0;
    scoped_model model = test_find_model(ctx, "resnet50", &TEST_MODEL(.height = 128, .width = 128));
    scoped_program p = test_program(ctx, model, &recipe, plan_text);
    for (int r = 0; r < p->n_ranks; r++) {
        size_t peak = wf_program_rank(p, r).peak_bytes;
        if (peak > most) most = peak;
    }
    return most;
}

/* A ResNet's first units save most: cuts that look at time alone need 1.6 times 1F1B's memory. */
TEST(cuts_look_at_memory) {
    double one = (double)peak_of(ctx, "pp=4"), v = (double)peak_of(ctx, "pp=4,schedule=zbv");
    assert_true(v < 1.25 * one);
}
