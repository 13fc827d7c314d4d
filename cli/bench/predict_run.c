/* weft bench predict: costs of one rank, and a run of one row. */
#include "bench/predict.h"
#include "common/speed.h"

#include <math.h>
#include <pthread.h>

/* ---- steps ---- */

typedef struct stepping {
    const bench_predict *b;
    wf_trainer *trainer;
    wf_status status;
    double fastest_ms; /* of all steps but the first */
} stepping;

static void *take_steps(void *self) {
    stepping *s = self;
    const bench_predict *b = s->b;
    wf_step_result ignored;
    s->fastest_ms = NAN;
    for (int64_t n = 0; n <= b->c->o.steps && s->status == WF_OK; n++) {
        double begin_s = now_seconds();
        s->status =
            wf_trainer_step(s->trainer, b->feeds, b->n_feeds, b->c->o.recipe.batch, &ignored);
        if (n) s->fastest_ms = fmin(s->fastest_ms, (now_seconds() - begin_s) * 1e3);
    }
    return NULL;
}

static wf_status create(const bench_predict *b, const wf_plan *plan, wf_trainer **trainer_out) {
    wf_trainer_config config = WF_TRAINER_CONFIG_INIT;
    config.trace = 1;
    return wf_trainer_create(b->c->ctx, b->j.model, &b->c->o.recipe, plan, &config, trainer_out);
}

/* ---- one rank ---- */

#define N_ALONE 2

/* Forward and both gradients at once are those of the first trainer. The second one has computed
 * the gradients apart, and forward again. */
static wf_status join_costs(wf_trainer *const *alone, wf_costs **costs_out) {
    wf_costs *parts;
    wf_status status = wf_trainer_costs(alone[0], costs_out);
    if (status == WF_OK) status = wf_trainer_costs(alone[1], &parts);
    if (status != WF_OK) return status;
    for (int u = 0; u < wf_costs_n_units(parts); u++) {
        wf_unit_cost cost = wf_costs_unit(*costs_out, u), part = wf_costs_unit(parts, u);
        cost.backward_us = part.backward_us;
        cost.weight_us = part.weight_us;
        cost.recompute_scale = part.recompute_scale;
        wf_costs_set_unit(*costs_out, u, cost);
    }
    wf_costs_destroy(parts);
    return WF_OK;
}

/* One rank sends nothing, so copies between two cores are measured instead. */
static wf_status add_rates(const bench_predict *b, wf_costs *costs) {
    memory_speed speed;
    wf_rates rates = wf_costs_rates(costs);
    if (!speed_of_memory(&speed))
        return wf_context_fail(b->c->ctx, WF_NO_MEMORY, "no memory left to measure copies");
    rates.message_us = speed.latency_us;
    rates.copy_us_per_byte = speed.link_us_per_byte;
    rates.host_us_per_byte = speed.memory_us_per_byte;
    rates.reduce_us_per_byte = speed.sum_us_per_byte;
    wf_costs_set_rates(costs, rates);
    return WF_OK;
}

static wf_status create_alone(const bench_predict *b, const char *text, wf_trainer **trainer_out) {
    wf_plan *plan;
    wf_status status = wf_plan_parse(b->c->ctx, text, &plan);
    if (status != WF_OK) return status;
    status = create(b, plan, trainer_out);
    wf_plan_destroy(plan);
    return status;
}

/* Two trainers of one rank take their steps at the same time. */
static wf_status step_together(const bench_predict *b, wf_trainer *const *alone) {
    stepping own = {.b = b, .trainer = alone[0]}, other = {.b = b, .trainer = alone[1]};
    pthread_t thread;
    if (pthread_create(&thread, NULL, take_steps, &other))
        return wf_context_fail(b->c->ctx, WF_NO_MEMORY, "no thread for a second rank");
    take_steps(&own);
    pthread_join(thread, NULL);
    return own.status != WF_OK ? own.status : other.status;
}

static wf_status measure_costs(const bench_predict *b, wf_costs **costs_out) {
    static const char *const plans[N_ALONE] = {"", "recompute=all,schedule=zb1"};
    wf_trainer *alone[N_ALONE] = {NULL};
    wf_status status = WF_OK;
    for (int k = 0; k < N_ALONE && status == WF_OK; k++)
        status = create_alone(b, plans[k], &alone[k]);
    if (status == WF_OK) status = step_together(b, alone);
    if (status == WF_OK) status = join_costs(alone, costs_out);
    for (int k = 0; k < N_ALONE; k++) wf_trainer_destroy(alone[k]);
    return status == WF_OK ? add_rates(b, *costs_out) : status;
}

/* ---- a row ---- */

static void keep_least(double *least_ms, wf_timeline *timeline) {
    *least_ms = fmin(*least_ms, wf_timeline_step_us(timeline) / 1e3);
    wf_timeline_destroy(timeline);
}

static void keep_bytes(predict_row *r, const wf_trainer *trainer) {
    if (r->planned) return; /* every run has the same */
    r->planned = json_array();
    r->measured = json_array();
    for (int k = 0; k < r->n_ranks; k++) {
        wf_trainer_memory memory = wf_trainer_memory_of(trainer, k);
        json_array_append_new(r->planned, json_integer((json_int_t)memory.planned_peak_bytes));
        json_array_append_new(r->measured, json_integer((json_int_t)memory.measured_peak_bytes));
    }
}

static wf_status keep(predict_row *r, const wf_trainer *trainer, const wf_costs *costs) {
    wf_timeline *timeline;
    wf_status status = wf_trainer_replay(trainer, &timeline);
    if (status == WF_OK) keep_least(&r->measured_ms, timeline);
    if (status == WF_OK)
        status = wf_program_simulate(wf_trainer_program(trainer), costs, &timeline);
    if (status == WF_OK) keep_least(&r->predicted_ms, timeline);
    keep_bytes(r, trainer);
    return status;
}

static wf_status measure_row(const bench_predict *b, predict_row *r, const wf_costs *costs) {
    stepping steps = {.b = b};
    wf_status status = r->planned ? WF_OK : wf_plan_use_costs(r->plan, costs);
    if (status == WF_OK) status = create(b, r->plan, &steps.trainer);
    if (status != WF_OK) return status;
    take_steps(&steps);
    r->fastest_ms = fmin(r->fastest_ms, steps.fastest_ms);
    status = steps.status == WF_OK ? keep(r, steps.trainer, costs) : steps.status;
    wf_trainer_destroy(steps.trainer);
    return status;
}

wf_status predict_run(const bench_predict *b, predict_row *r) {
    wf_costs *costs = NULL;
    wf_status status = measure_costs(b, &costs);
    if (status == WF_OK) status = measure_row(b, r, costs);
    wf_costs_destroy(costs);
    return status;
}
