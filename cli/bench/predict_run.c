/* weft bench predict: costs of one rank, and a run of one row. */
#include "bench/predict.h"
#include "common/speed.h"
#include "job/report.h"

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
    for (int64_t n = 0; n <= b->all.c->o.steps && s->status == WF_OK; n++) {
        double begin_s = now_seconds();
        s->status =
            wf_trainer_step(s->trainer, b->feeds, b->n_feeds, b->all.c->o.recipe.batch, &ignored);
        if (n) s->fastest_ms = fmin(s->fastest_ms, (now_seconds() - begin_s) * 1e3);
    }
    return NULL;
}

static wf_status create(const bench_predict *b, const wf_plan *plan, wf_trainer **trainer_out) {
    wf_trainer_config config = WF_TRAINER_CONFIG_INIT;
    config.trace = 1;
    return wf_trainer_create(b->all.c->ctx, b->j.model, &b->all.c->o.recipe, plan, &config,
                             trainer_out);
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
        return wf_context_fail(b->all.c->ctx, WF_NO_MEMORY, "no memory left to measure copies");
    rates.message_us = speed.latency_us;
    rates.copy_us_per_byte = speed.link_us_per_byte;
    rates.host_us_per_byte = speed.memory_us_per_byte;
    rates.reduce_us_per_byte = speed.sum_us_per_byte;
    wf_costs_set_rates(costs, rates);
    return WF_OK;
}

static wf_status create_alone(const bench_predict *b, const char *text, wf_trainer **trainer_out) {
    wf_plan *plan;
    wf_status status = wf_plan_parse(b->all.c->ctx, text, &plan);
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
        return wf_context_fail(b->all.c->ctx, WF_NO_MEMORY, "no thread for a second rank");
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

static void keep_least(json_t *row, const char *field, double ms) {
    row_set(row, field, fmin(row_number(row, field), ms));
}

static wf_status keep(json_t *row, const wf_trainer *trainer, const wf_costs *costs) {
    const wf_program *program = wf_trainer_program(trainer);
    bool is_first = isnan(row_number(row, "measured_ms"));
    wf_timeline *measured, *predicted;
    for (int k = 0; k < wf_program_n_ranks(program) && is_first; k++) {
        wf_trainer_memory memory = wf_trainer_memory_of(trainer, k);
        report_add_peaks(row, &memory, 1);
    }
    wf_status status = wf_trainer_replay(trainer, &measured);
    if (status != WF_OK) return status;
    keep_least(row, "measured_ms", wf_timeline_step_us(measured) / 1e3);
    wf_timeline_destroy(measured);
    status = wf_program_simulate(program, costs, &predicted);
    if (status != WF_OK) return status;
    keep_least(row, "predicted_ms", wf_timeline_step_us(predicted) / 1e3);
    wf_timeline_destroy(predicted);
    return WF_OK;
}

static wf_status measure_row(const bench_predict *b, json_t *row, const wf_costs *costs) {
    wf_plan *plan = b->plans[(int)row_number(row, ".plan")];
    bool is_first = json_is_null(json_object_get(row, "plan"));
    stepping steps = {.b = b};
    wf_status status = is_first ? wf_plan_use_costs(plan, costs) : WF_OK;
    if (status == WF_OK) status = create(b, plan, &steps.trainer);
    if (status != WF_OK) return status;
    json_object_set_new(row, "plan", json_string(wf_plan_text(plan)));
    take_steps(&steps);
    keep_least(row, "fastest_ms", steps.fastest_ms);
    status = steps.status == WF_OK ? keep(row, steps.trainer, costs) : steps.status;
    wf_trainer_destroy(steps.trainer);
    return status;
}

exit_status predict_run(rounds *all, json_t *row) {
    const bench_predict *b = (const bench_predict *)all;
    wf_costs *costs = NULL;
    wf_status status = measure_costs(b, &costs);
    if (status == WF_OK) status = measure_row(b, row, costs);
    wf_costs_destroy(costs);
    if (status != WF_OK) progress_clear(&all->bar);
    return complain_of(all->c, status);
}
