/* The simulator against what one can compute by hand: stages of equal units, costs of round
 * numbers, transfers that take no time.
 *
 * label: serial
 */
#include "execute/trace.h"
#include "plan/balance.h"
#include "plan/costs.h"
#include "program/rate.h"
#include "sim/cores.h"
#include "test_program.h"

#include <jansson.h>
#include <math.h>
#include <unistd.h>

#define FORWARD  30.0
#define BACKWARD 40.0
#define WEIGHT   20.0

/* Four units of one linear layer. */
static void four(wf_graph *g, const void *config) {
    wf_tensor x = wf_input(g, "x", WF_F32, WF_SHAPE(8));
    wf_tensor y = wf_input(g, "y", WF_I32, WF_SCALAR);
    wf_tensor h = wf_cut(wf_relu(wf_linear(x, "a", 8)), "b");
    h = wf_cut(wf_relu(wf_linear(h, "b", 8)), "c");
    h = wf_cut(wf_relu(wf_linear(h, "c", 8)), "d");
    wf_loss(wf_cross_entropy(wf_linear(h, "d", 5), y));
}

static wf_program *make_program_of(wf_context *ctx, const char *plan_text, int64_t n_micro,
                                   int n_lanes) {
    wf_recipe recipe = TEST_RECIPE(.batch = n_micro, .n_micro = n_micro, .n_lanes = n_lanes,
                                   .kernels = WF_KERNELS_REFERENCE);
    wf_model *model = test_model(ctx, "four", four, NULL, 0);
    wf_program *p = test_program(ctx, model, &recipe, plan_text);
    wf_model_destroy(model);
    return p;
}

static wf_program *make_program(wf_context *ctx, const char *plan_text, int64_t n_micro) {
    return make_program_of(ctx, plan_text, n_micro, 1);
}

/* Every unit the same; a message takes `message_us`, bytes take none. */
static wf_costs *equal_costs(wf_context *ctx, const wf_program *p, double message_us) {
    wf_costs *costs;
    TEST_OK(ctx, wfi_costs_create(ctx, p->graph, &costs));
    for (int32_t u = 0; u < costs->n_units; u++) {
        costs->units[u].forward_us = FORWARD;
        costs->units[u].backward_us = BACKWARD;
        costs->units[u].weight_us = WEIGHT;
        costs->units[u].backward_weight_us = BACKWARD + WEIGHT;
    }
    costs->rates = (wf_rates){.message_us = message_us};
    return costs;
}

static wf_timeline *simulate(wf_context *ctx, const char *plan_text, int64_t n_micro,
                             double message_us) {
    wf_program *p = make_program(ctx, plan_text, n_micro);
    wf_costs *costs = equal_costs(ctx, p, message_us);
    wf_timeline *t;
    TEST_OK(ctx, wf_program_simulate(p, costs, &t));
    wf_costs_destroy(costs);
    wf_program_destroy(p);
    return t;
}

static double step_us(wf_context *ctx, const wf_program *p, const wf_costs *costs) {
    wf_timeline *t;
    TEST_OK(ctx, wf_program_simulate(p, costs, &t));
    double us = wf_timeline_step_us(t);
    wf_timeline_destroy(t);
    return us;
}

/* (m + stages - 1) (F + B) of a stage, for gpipe and for 1f1b; a rank computes m of them. */
TEST(closed_formula) {
    static const char *const schedules[] = {"gpipe", "1f1b"};
    for (int s = 0; s < 2; s++)
        for (int stages = 1; stages <= 4; stages *= 2)
            for (int64_t m = 1; m <= 8; m += m < 2 ? 1 : 3) {
                char plan[60];
                snprintf(plan, sizeof plan, "pp=%d,schedule=%s%s", stages, schedules[s],
                         stages == 2 ? ",cut=c" : "");
                scoped_timeline t = simulate(ctx, plan, m, 0);
                double one = 4.0 / stages * (FORWARD + BACKWARD + WEIGHT);
                assert_float_equal(wf_timeline_step_us(t), (double)(m + stages - 1) * one, 1e-6);
                for (int r = 0; r < stages; r++) {
                    wf_rank_time time = wf_timeline_rank(t, r);
                    assert_float_equal(time.compute_us, (double)m * one, 1e-6);
                    assert_float_equal(time.bubble_us, (double)(stages - 1) * one, 1e-6);
                    assert_float_equal(time.wait_us + time.transfer_us, 0, 1e-6);
                }
            }
}

/* One microbatch after the other: the two ranks never compute at once. */
TEST(naive_does_not_overlap) {
    scoped_timeline t = simulate(ctx, "pp=2,cut=c,schedule=naive", 3, 0);
    double work = 3 * 4 * (FORWARD + BACKWARD + WEIGHT);
    assert_float_equal(wf_timeline_step_us(t), work, 1e-6);
    for (int i = 0; i < wf_timeline_n_spans(t); i++)
        for (int k = 0; k < i; k++) {
            wf_span a = wf_timeline_span(t, i), b = wf_timeline_span(t, k);
            if (a.rank == b.rank || strcmp(a.stream, "compute") || strcmp(b.stream, "compute"))
                continue;
            assert_true(fmin(a.end_us, b.end_us) - fmax(a.begin_us, b.begin_us) < 1e-6);
        }
}

/* The measured scale of what is computed again counts once, whether the plan has the costs or only
 * the simulation. */
TEST(scale_of_recompute) {
    wf_recipe recipe = TEST_RECIPE(.batch = 2, .n_micro = 2, .kernels = WF_KERNELS_REFERENCE);
    scoped_model model = test_model(ctx, "four", four, NULL, 0);
    scoped_program without = test_program(ctx, model, &recipe, "recompute=all");
    scoped_program with = NULL;
    scoped_costs costs = equal_costs(ctx, without, 0);
    scoped_plan plan = test_plan(ctx, "recompute=all");
    double plain_us = step_us(ctx, without, costs);
    for (int32_t u = 0; u < costs->n_units; u++) costs->units[u].recompute_scale = 3;
    double scaled_us = step_us(ctx, without, costs);
    TEST_OK(ctx, wf_plan_use_costs(plan, costs));
    TEST_OK(ctx, wf_program_create(ctx, model, &recipe, plan, WF_PROGRAM_TRAIN, &with));
    assert_true(scaled_us > plain_us);
    assert_float_equal(step_us(ctx, with, costs), scaled_us, 1e-6);
    assert_float_equal(step_us(ctx, with, NULL), scaled_us, 1e-6);
}

/* Costs of a trace have the measured time of what is computed again, and its scale. */
TEST(traced_recompute) {
    wf_recipe recipe = TEST_RECIPE(.batch = 2, .n_micro = 2, .kernels = WF_KERNELS_REFERENCE);
    scoped_model model = test_model(ctx, "four", four, NULL, 0);
    scoped_program p = test_program(ctx, model, &recipe, "recompute=all");
    scoped_costs costs = NULL;
    wfi_trace *trace;
    int n_again = 0;
    TEST_OK(ctx, wfi_trace_create(p, -1, &trace));
    for (int32_t i = 0; i < p->n_instructions; i++)
        trace->least_ns[i] = p->instructions[i].part == WFI_PART_R ? 7000 : 30000;
    TEST_OK(ctx, wfi_trace_costs(trace, NULL, &costs));
    wfi_trace_destroy(trace);
    for (int32_t u = 0; u < costs->n_units; u++) {
        if (!(p->costs->units[u].recompute_us > 0)) continue;
        assert_float_equal(costs->units[u].recompute_us, 7, 1e-9);
        assert_float_equal(wfi_costs_recompute(costs, p->costs, u), 7, 1e-9);
        n_again++;
    }
    assert_true(n_again > 0);
}

/* The most even of the cuts with the lightest heaviest stage. Stages of 6, 2 and 3 would be more
 * even. No border is moved: there are too many microbatches. */
TEST(heaviest_stage_is_light) {
    static const double us[] = {1, 5, 2, 3};
    static const int32_t want[] = {0, 1, 2, 4};
    scoped_program p = make_program(ctx, "pp=3", 3);
    scoped_costs costs = equal_costs(ctx, p, 0);
    int32_t first_unit[4];
    for (int32_t u = 0; u < costs->n_units; u++)
        costs->units[u] = (wf_unit_cost){.name = costs->units[u].name, .forward_us = us[u]};
    TEST_OK(ctx, wfi_balance(p->plan, p->graph, costs, 1 << 20, first_unit));
    assert_memory_equal(first_unit, want, sizeof want);
}

/* One microbatch on two stages: each of the two transfers on its way is waited for, by the one
 * that needs it. Loading the input and reporting the loss are messages as well. */
TEST(transfers) {
    scoped_timeline t = simulate(ctx, "pp=2,cut=c,schedule=1f1b", 1, 7);
    double work = 4 * (FORWARD + BACKWARD + WEIGHT);
    wf_rank_time first = wf_timeline_rank(t, 0), second = wf_timeline_rank(t, 1);
    assert_float_equal(wf_timeline_step_us(t), 7 + work + 7 + 7, 1e-6);
    assert_float_equal(first.transfer_us, 7 + 7, 1e-6); /* input, gradient */
    assert_float_equal(first.bubble_us, 7 + 2 * (FORWARD + BACKWARD + WEIGHT), 1e-6);
    assert_float_equal(second.transfer_us, 7 + 7, 1e-6); /* activation; then the gradient leaves */
    assert_float_equal(second.bubble_us, wf_timeline_step_us(t) - second.compute_us - 14, 1e-6);
}

/* Each unit's gradient is summed after its last microbatch, by both replicas at once. */
TEST(replicas_reduce_together) {
    scoped_timeline t = NULL;
    wf_recipe recipe = TEST_RECIPE(.batch = 4, .n_micro = 4, .kernels = WF_KERNELS_REFERENCE);
    scoped_model model = test_model(ctx, "four", four, NULL, 0);
    scoped_program p = test_program(ctx, model, &recipe, "dp=2,bucket=1");
    scoped_costs costs = equal_costs(ctx, p, 5);
    TEST_OK(ctx, wf_program_simulate(p, costs, &t));
    int64_t n_spans = wf_timeline_n_spans(t);
    int n_reduce = 0;
    for (int i = 0; i < n_spans / 2; i++) {
        wf_span a = wf_timeline_span(t, i), b = wf_timeline_span(t, i + n_spans / 2);
        if (a.kind != WF_SPAN_REDUCE) continue;
        n_reduce++;
        assert_string_equal(a.name, b.name);
        assert_float_equal(a.begin_us, b.begin_us, 1e-9);
        assert_float_equal(a.end_us - a.begin_us, 5, 1e-9);
    }
    assert_int_equal(n_reduce, 4);
}

static double work_us(const wf_timeline *t, wf_span_kind first, wf_span_kind last) {
    double us = 0;
    for (int64_t i = 0; i < wf_timeline_first_span(t, 1); i++) {
        wf_span span = wf_timeline_span(t, i);
        if (span.kind >= first && span.kind <= last) us += span.end_us - span.begin_us;
    }
    return us;
}

/* On CPUs, sums over ranks take cores from the kernels beside them: with one core a rank, a step is
 * as long as all of its work; with more, as without shared cores. */
TEST(streams_share_cores) {
    enum { SUM = 25, N_UNITS = 4 };
    scoped_program p = make_program_of(ctx, "dp=2,bucket=1", 4, 2);
    double *us = calloc((size_t)p->n_instructions, sizeof *us);
    double *begin_us = calloc((size_t)p->n_instructions, sizeof *us);
    double *end_us = calloc((size_t)p->n_instructions, sizeof *us);
    double work = 0;
    for (int32_t i = 0; i < p->n_instructions; i++) {
        const wfi_instruction *now = &p->instructions[i];
        if (now->kind == WFI_FORWARD) us[i] = FORWARD;
        if (now->kind == WFI_BACKWARD_WEIGHT) us[i] = BACKWARD + WEIGHT;
        if (now->kind == WFI_CHANGE) us[i] = SUM;
        if (now->kind == WFI_UPDATE) us[i] = 1;
        if (!now->rank) work += us[i];
    }
    assert_float_equal(work, N_UNITS * (2 * (FORWARD + BACKWARD + WEIGHT) + SUM + 1), 1e-9);
    for (int cores = 1; cores <= 2; cores++) {
        double step_us = 0;
        TEST_OK(ctx, wfi_simulate_cores(p, cores, us, NULL, 0, begin_us, end_us));
        for (int32_t i = 0; i < p->n_instructions; i++) {
            assert_true(end_us[i] - begin_us[i] >= us[i] - 1e-6);
            for (int32_t d = 0; d < p->instructions[i].n_depends; d++)
                assert_true(begin_us[i] >= end_us[p->instructions[i].depends[d]]);
            step_us = fmax(step_us, end_us[i]);
        }
        /* The sums of three units hide behind the backward of the unit before. */
        assert_float_equal(step_us, cores == 1 ? work : work - (N_UNITS - 1) * SUM, 1e-3);
    }
    free(us);
    free(begin_us);
    free(end_us);
}

/* A transfer without bytes takes no time, though another stream works when it begins. */
TEST(nothing_takes_no_time) {
    scoped_program p = make_program(ctx, "pp=2", 1);
    scoped_costs costs = equal_costs(ctx, p, 0);
    costs->rates.update_us_per_byte = 0.01;
    double us = step_us(ctx, p, costs);
    costs->shares_cores = true;
    assert_float_equal(step_us(ctx, p, costs), us, 1e-3);
}

/* The costs of two ranks that work at the same time: units take twice as long, updates ten times.
 */
static wf_costs *crowded_costs(wf_context *ctx, const wf_program *p, double update_us_per_byte) {
    wf_costs *costs = equal_costs(ctx, p, 0), *crowded = equal_costs(ctx, p, 0);
    costs->shares_cores = true;
    costs->rates.update_us_per_byte = update_us_per_byte;
    crowded->rates.update_us_per_byte = 10 * update_us_per_byte;
    for (int32_t u = 0; u < crowded->n_units; u++) {
        crowded->units[u].forward_us *= 2;
        crowded->units[u].backward_weight_us *= 2;
    }
    TEST_OK(ctx, wf_costs_set_crowded(costs, crowded));
    TEST_OK(ctx, wf_costs_set_crowded(costs, crowded)); /* replaces the first */
    crowded->n_units--;
    TEST_REFUSED(ctx, wf_costs_set_crowded(costs, crowded), WF_INVALID_ARG, "4 units");
    crowded->n_units++;
    wf_costs_destroy(crowded);
    return costs;
}

static double update_us(const wf_program *p, double rate, const char *unit) {
    double us = 0;
    for (int32_t i = 0; i < p->n_instructions; i++) {
        const wfi_instruction *now = &p->instructions[i];
        if (now->kind != WFI_UPDATE) continue;
        if (!unit || !strcmp(p->graph->units[now->unit].name, unit))
            us += rate * wfi_instruction_bytes(p, now);
    }
    return us;
}

TEST(ranks_slow_each_other_down) {
    scoped_program alone = make_program_of(ctx, "", 4, 2);
    scoped_program replicas = make_program_of(ctx, "dp=2", 4, 2);
    scoped_program stages = make_program(ctx, "pp=2", 1);
    const double unit = FORWARD + BACKWARD + WEIGHT, rate = 0.01;
    double us = update_us(alone, rate, NULL);
    double late_us = update_us(alone, rate, "c") + update_us(alone, rate, "d");
    scoped_costs one = crowded_costs(ctx, alone, rate);
    scoped_costs two = crowded_costs(ctx, replicas, rate);
    scoped_costs three = crowded_costs(ctx, stages, rate);
    assert_float_equal(step_us(ctx, alone, one), 4 * 4 * unit + us, 1e-3);
    assert_float_equal(step_us(ctx, replicas, two), 2 * 4 * 2 * unit + 10 * us, 1e-3);
    /* Stages work one after the other. But the second one updates while the first one computes the
     * backward of b, which is half as fast then. The updates are as fast as alone. */
    assert_float_equal(step_us(ctx, stages, three), 4 * unit + us - late_us / 2, 1e-3);
}

/* Weights that a rank copies come from memory. A transfer has just been computed. */
TEST(copies_are_cold) {
    for (int k = 0; k < 2; k++) {
        scoped_program p =
            k ? make_program(ctx, "pp=2", 1) : make_program_of(ctx, "dp=2,zero=3", 4, 2);
        scoped_costs costs = equal_costs(ctx, p, 0);
        costs->shares_cores = true;
        double least_us = step_us(ctx, p, costs);
        costs->rates.host_us_per_byte = 1;
        assert_true((step_us(ctx, p, costs) > least_us) == !k);
    }
}

/* Two units use one weight. */
static void tied(wf_graph *g, const void *config) {
    wf_tensor x = wf_input(g, "x", WF_F32, WF_SHAPE(8));
    wf_tensor y = wf_input(g, "y", WF_I32, WF_SCALAR);
    wf_tensor h = wf_cut(wf_relu(wf_linear(x, "a", 8)), "b");
    wf_loss(wf_cross_entropy(wf_linear(h, "a", 8), y));
}

TEST(sums_of_a_tied_weight_have_a_rate) {
    wf_recipe recipe = TEST_RECIPE(.batch = 1, .kernels = WF_KERNELS_REFERENCE);
    scoped_model model = test_model(ctx, "tied", tied, NULL, 0);
    for (int k = 0; k < 2; k++) {
        scoped_program p = k ? test_program(ctx, model, &recipe, "") : make_program(ctx, "", 1);
        scoped_costs costs = equal_costs(ctx, p, 0);
        double least_us = step_us(ctx, p, costs);
        costs->rates.tie_us_per_byte = 1;
        assert_true((step_us(ctx, p, costs) > least_us) == k);
    }
}

/* With such times a simulation would not end. */
TEST(wrong_times) {
    const double wrong[] = {NAN, INFINITY, -1};
    scoped_program p = make_program_of(ctx, "dp=2", 4, 2);
    for (size_t k = 0; k < sizeof wrong / sizeof *wrong; k++) {
        scoped_costs costs;
        wf_timeline *t;
        TEST_OK(ctx, wfi_costs_copy(ctx, wf_program_costs(p), &costs));
        wf_unit_cost unit = wf_costs_unit(costs, 1);
        wf_rates rates = wf_costs_rates(costs);
        unit.weight_us = wrong[k];
        wf_costs_set_unit(costs, 1, unit);
        TEST_REFUSED(ctx, wf_program_simulate(p, costs, &t), WF_INVALID_ARG, "a time of unit b");
        unit.weight_us = 1;
        wf_costs_set_unit(costs, 1, unit);
        rates.sum_us_per_byte = wrong[k];
        wf_costs_set_rates(costs, rates);
        TEST_REFUSED(ctx, wf_program_simulate(p, costs, &t), WF_INVALID_ARG, "a rate is");
        scoped_costs right = equal_costs(ctx, p, 0);
        TEST_OK(ctx, wf_costs_set_crowded(right, costs));
        TEST_REFUSED(ctx, wf_program_simulate(p, right, &t), WF_INVALID_ARG, "a rate is");
    }
}

/* A step from the least CPU times of its instructions has the same instructions. */
TEST(replays_a_step) {
    float x[8 * 8] = {0};
    int32_t y[8] = {0};
    const wf_feed feeds[] = {{"x", x, sizeof x}, {"y", y, sizeof y}};
    scoped_program p = make_program_of(ctx, "dp=2", 8, 2);
    wf_trainer_config config = WF_TRAINER_CONFIG_INIT;
    scoped_timeline measured;
    scoped_timeline replayed;
    scoped_trainer trainer;
    wf_step_result result;
    config.trace = 1;
    scoped_model model = test_model(ctx, "four", four, NULL, 0);
    scoped_plan plan = test_plan(ctx, "dp=2");
    TEST_OK(ctx, wf_trainer_create(ctx, model, wf_program_recipe(p), plan, &config, &trainer));
    for (int s = 0; s < 3; s++) {
        if (s < 2)
            TEST_REFUSED(ctx, wf_trainer_replay(trainer, &replayed), WF_INVALID_ARG, "two steps");
        TEST_OK(ctx, wf_trainer_step(trainer, feeds, 2, 8, &result));
    }
    TEST_OK(ctx, wf_trainer_timeline(trainer, &measured));
    TEST_OK(ctx, wf_trainer_replay(trainer, &replayed));
    assert_int_equal(wf_timeline_n_spans(replayed), wf_timeline_n_spans(measured));
    assert_true(wf_timeline_step_us(replayed) > 0);
    assert_true(work_us(replayed, WF_SPAN_FORWARD, WF_SPAN_BACKWARD_WEIGHT) > 0);
}

TEST(costs_of_another_model) {
    scoped_program p = make_program(ctx, "", 1);
    scoped_costs costs = equal_costs(ctx, p, 0);
    wf_timeline *t;
    costs->n_units--;
    TEST_REFUSED(ctx, wf_program_simulate(p, costs, &t), WF_INVALID_ARG, "3 units");
    costs->n_units++;
}

/* ---- traces ---- */

static void same(const wf_timeline *a, const wf_timeline *b) {
    assert_int_equal(wf_timeline_n_ranks(a), wf_timeline_n_ranks(b));
    assert_int_equal(wf_timeline_n_spans(a), wf_timeline_n_spans(b));
    assert_float_equal(wf_timeline_step_us(a), wf_timeline_step_us(b), 1e-3);
    for (int r = 0; r < wf_timeline_n_ranks(a); r++) {
        assert_float_equal(wf_timeline_rank(a, r).compute_us, wf_timeline_rank(b, r).compute_us,
                           1e-3);
        assert_float_equal(wf_timeline_rank(a, r).bubble_us, wf_timeline_rank(b, r).bubble_us,
                           1e-3);
    }
    for (int i = 0; i < wf_timeline_n_spans(a); i++) {
        wf_span x = wf_timeline_span(a, i), y = wf_timeline_span(b, i);
        assert_int_equal(x.rank, y.rank);
        assert_string_equal(x.stream, y.stream);
        assert_float_equal(x.begin_us, y.begin_us, 2e-3);
        assert_float_equal(x.end_us, y.end_us, 2e-3);
        if (x.end_us <= x.begin_us) continue; /* instants may change places */
        assert_int_equal(x.kind, y.kind);
        assert_string_equal(x.name, y.name);
        assert_string_equal(x.unit, y.unit);
        assert_int_equal(x.micro, y.micro);
    }
    for (int r = 0; r < wf_timeline_n_ranks(a); r++) {
        assert_int_equal(wf_timeline_n_moments(a, r), wf_timeline_n_moments(b, r));
        assert_true(wf_timeline_n_moments(a, r) > 0);
        for (int i = 0; i < wf_timeline_n_moments(a, r); i++) {
            wf_memory_moment x = wf_timeline_moment(a, r, i), y = wf_timeline_moment(b, r, i);
            assert_float_equal(x.us, y.us, 2e-3);
            assert_memory_equal(x.bytes, y.bytes, sizeof x.bytes);
        }
    }
}

static void trace_path(char *path, size_t bytes) {
    const char *folder = getenv("TMPDIR");
    snprintf(path, bytes, "%.150s/weft-trace-%d.json", folder ? folder : "/tmp", (int)getpid());
}

/* Two parts into a file of that path. */
static void write_two(wf_context *ctx, int64_t n_micro, wf_trace_part parts[2], char path[200]) {
    trace_path(path, 200);
    parts[0] = (wf_trace_part){"measured", simulate(ctx, "pp=2,cut=c,schedule=gpipe", 3, 1.2345)};
    parts[1] =
        (wf_trace_part){"say \"what\"\n\x01", simulate(ctx, "pp=4,schedule=zb1", n_micro, 2)};
    TEST_OK(ctx, wf_trace_write(ctx, path, "a \\ title", parts, 2));
}

static void free_two(const wf_trace_part parts[2]) {
    for (int k = 0; k < 2; k++) wf_timeline_destroy((wf_timeline *)parts[k].timeline);
}

TEST(traces_are_read_back) {
    char path[200];
    wf_trace_part parts[2];
    write_two(ctx, 5, parts, path);
    wf_trace *trace;
    TEST_OK(ctx, wf_trace_read(ctx, path, &trace));
    assert_string_equal(wf_trace_title(trace), "a \\ title");
    assert_int_equal(wf_trace_n_parts(trace), 2);
    for (int k = 0; k < 2; k++) {
        assert_string_equal(wf_trace_get_part(trace, k).name, k ? "say \"what\"??" : "measured");
        same(parts[k].timeline, wf_trace_get_part(trace, k).timeline);
    }
    wf_trace_destroy(trace);
    assert_int_equal(unlink(path), 0);
    TEST_REFUSED(ctx, wf_trace_read(ctx, path, &trace), WF_IO, path);
    TEST_REFUSED(ctx, wf_trace_write(ctx, path, "", parts, 0), WF_INVALID_ARG, "1 to 8");
    TEST_REFUSED(ctx, wf_trace_write(ctx, "/nowhere/t.json", "", parts, 1), WF_IO, "/nowhere");
    free_two(parts);
}

/* Whether the event lies in a span of that kind of its own process and thread. */
static bool is_in_span(const json_t *events, const json_t *event, const char *kind) {
    size_t i;
    const json_t *span;
    double at = json_number_value(json_object_get(event, "ts"));
    json_array_foreach(events, i, span) {
        double begin = json_number_value(json_object_get(span, "ts")),
               end = begin + json_number_value(json_object_get(span, "dur"));
        const char *name = json_string_value(json_object_get(span, "name"));
        if (!strcmp(json_string_value(json_object_get(span, "ph")), "X") && begin <= at &&
            at <= end + 1e-9 && !strncmp(name, kind, strlen(kind)) &&
            json_equal(json_object_get(span, "pid"), json_object_get(event, "pid")) &&
            json_equal(json_object_get(span, "tid"), json_object_get(event, "tid")))
            return true;
    }
    return false;
}

/* Events of that phase with that id, of which the last one is *out. */
static int find_events(const json_t *events, const char *phase, json_int_t id, const json_t **out) {
    int n = 0;
    size_t i;
    const json_t *event;
    json_array_foreach(events, i, event) {
        if (strcmp(json_string_value(json_object_get(event, "ph")), phase) ||
            (id && json_integer_value(json_object_get(event, "id")) != id))
            continue;
        *out = event;
        n++;
    }
    return n;
}

/* As the format wants it: an arrow begins in a span and ends in one, which it names by bp, not
 * before it has begun, and no two of a file have one id; counters are numbers, in the order of
 * time. */
TEST(arrows_and_counters) {
    char path[200];
    wf_trace_part parts[2];
    write_two(ctx, 6, parts, path);
    json_t *root = json_load_file(path, JSON_REJECT_DUPLICATES, NULL);
    assert_int_equal(unlink(path), 0);
    const json_t *events = json_object_get(root, "traceEvents"), *start, *end, *event;
    /* Forward and backward over each border, by each microbatch. */
    int n_arrows = 2 * 3 * 1 + 2 * 6 * 3;
    assert_int_equal(find_events(events, "s", 0, &start), n_arrows);
    assert_int_equal(find_events(events, "f", 0, &end), n_arrows);
    for (int id = 1; id <= n_arrows; id++) {
        assert_int_equal(find_events(events, "s", id, &start), 1);
        assert_int_equal(find_events(events, "f", id, &end), 1);
        assert_true(is_in_span(events, start, "send ") && is_in_span(events, end, "receive "));
        assert_string_equal(json_string_value(json_object_get(end, "bp")), "e");
        assert_true(json_equal(json_object_get(start, "name"), json_object_get(end, "name")));
        assert_true(json_equal(json_object_get(start, "cat"), json_object_get(end, "cat")));
        assert_false(json_equal(json_object_get(start, "pid"), json_object_get(end, "pid")));
        assert_true(json_number_value(json_object_get(start, "ts")) <=
                    json_number_value(json_object_get(end, "ts")));
    }
    size_t i;
    double before[2 + 4] = {0};
    json_array_foreach(events, i, event) {
        const char *key;
        const json_t *bytes;
        json_t *args = json_object_get(event, "args");
        if (strcmp(json_string_value(json_object_get(event, "ph")), "C")) continue;
        double *at = &before[json_integer_value(json_object_get(event, "pid"))],
               now = json_number_value(json_object_get(event, "ts"));
        assert_true(now >= *at && json_object_size(args) == WF_N_MEMORY_KINDS);
        *at = now;
        json_object_foreach(args, key, bytes)
            assert_true(json_is_integer(bytes) && json_integer_value(bytes) >= 0);
    }
    for (int r = 0; r < 2 + 4; r++) assert_true(before[r] > 0);
    json_decref(root);
    free_two(parts);
}

/* ---- the n-th allocation fails ---- */

typedef struct faulty {
    int64_t n_left; /* before the one that fails; < 0: none does */
} faulty;

static void *faulty_alloc(void *self, size_t bytes) {
    faulty *f = self;
    if (f->n_left == 0) return NULL;
    f->n_left--;
    return aligned_alloc(64, (bytes + 63) / 64 * 64);
}

static void faulty_free(void *self, void *block) {
    free(block);
}

static wf_status simulate_and_trace(wf_context *ctx, const wf_program *p, const char *path) {
    scoped_timeline t = NULL;
    wf_trace *trace;
    wf_status status = wf_program_simulate(p, NULL, &t);
    if (status != WF_OK) return status;
    status = wf_trace_write(ctx, path, "title", &(wf_trace_part){"simulated", t}, 1);
    if (status == WF_OK) status = wf_trace_read(ctx, path, &trace);
    if (status == WF_OK) wf_trace_destroy(trace);
    return status;
}

TEST_CASE(memory_runs_out) {
    faulty f = {-1};
    wf_context_config config = WF_CONTEXT_CONFIG_INIT;
    scoped_context ctx;
    char path[200];
    trace_path(path, sizeof path);
    config.allocator = (wf_allocator){faulty_alloc, faulty_free, &f};
    assert_int_equal(wf_context_create(&config, &ctx), WF_OK);
    scoped_program p = make_program(ctx, "pp=2", 2);
    uint64_t n_live = wf_context_memory(ctx).n_live;
    wf_status status = WF_NO_MEMORY;
    int n;
    for (n = 0; status != WF_OK; n++) {
        f.n_left = n;
        status = simulate_and_trace(ctx, p, path);
        if (status != WF_OK) assert_int_equal(status, WF_NO_MEMORY);
        assert_int_equal(wf_context_memory(ctx).n_live, n_live);
    }
    assert_true(n > 20);
    unlink(path);
}
