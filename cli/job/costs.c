/* Measurements before a run: unit times, from which stages are balanced, the schedule auto is made,
 * and --micro auto is chosen. */
#include "common/text.h"
#include "job/progress.h"

#include <math.h>

wf_recipe job_recipe_of_a_step(const job *j) {
    wf_recipe recipe = j->c->o.recipe;
    recipe.lr_schedule = WF_LR_CONSTANT;
    recipe.schedule_steps = 0;
    if (recipe.n_micro == MICRO_AUTO) recipe.n_micro = 0;
    return recipe;
}

static wf_trainer_config config_of(const job *j) {
    wf_trainer_config config = WF_TRAINER_CONFIG_INIT;
    config.devices = j->c->o.devices;
    config.job = j->c->job;
    config.device_memory_bytes = j->c->o.device_memory;
    return config;
}

static wf_status measure(const job *j, const wf_recipe *recipe, wf_costs **costs_out) {
    wf_trainer_config config = config_of(j);
    return wf_costs_measure(j->c->ctx, j->model, recipe, j->plan, &config, costs_out);
}

/* The plan's program with these costs: how long a step takes; NAN if it does not fit. */
static wf_status predict(const job *j, const wf_recipe *recipe, const wf_costs *costs,
                         double *ms_out) {
    wf_context *ctx = j->c->ctx;
    wf_timeline *timeline;
    wf_program *program;
    wf_plan *plan;
    *ms_out = NAN;
    TRY(wf_plan_parse(ctx, wf_plan_text(j->plan), &plan));
    wf_status status = job_use_devices(j->c, plan);
    if (status == WF_OK) status = wf_plan_use_costs(plan, costs);
    if (status == WF_OK)
        status = wf_program_create(ctx, j->model, recipe, plan, WF_PROGRAM_TRAIN, &program);
    wf_plan_destroy(plan);
    if (status != WF_OK) return status;
    bool fits = true;
    for (int r = 0; r < wf_program_n_ranks(program) && j->c->o.device_memory; r++)
        fits &= wf_program_rank(program, r).peak_bytes <= j->c->o.device_memory;
    if (fits) status = wf_program_simulate(program, NULL, &timeline);
    if (fits && status == WF_OK) {
        *ms_out = wf_timeline_step_us(timeline) / 1e3;
        wf_timeline_destroy(timeline);
    }
    wf_program_destroy(program);
    return status;
}

static wf_status use_measured(job *j) {
    wf_costs *costs;
    wf_recipe recipe = job_recipe_of_a_step(j);
    TRY(job_resolve(j, &recipe));
    TRY(measure(j, &recipe, &costs));
    wf_status status = wf_plan_use_costs(j->plan, costs);
    wf_costs_destroy(costs);
    return status;
}

/* ---- --micro auto ---- */

/* Fewer leave stages idle, more are small and gain nothing. */
#define LEAST_PER_STAGE 1
#define MOST_PER_STAGE  16
/* So much slower than the best: even smaller ones will not be faster. */
#define ENOUGH 1.3

static void say_tried(const job *j, int64_t n_micro, double ms, bool is_refused) {
    char step[TEXT_BYTES];
    progress_clear(j->c->waiting);
    if (is_refused)
        say(j->c, "micro   %lld: %s\n", (long long)n_micro, wf_context_error(j->c->ctx));
    else if (isnan(ms))
        say(j->c, "micro   %lld would not fit\n", (long long)n_micro);
    else
        say(j->c, "micro   %lld would take %s a step\n", (long long)n_micro,
            text_of_us(step, ms * 1e3));
}

/* Tries one count. One that the model or the memory refuses is passed over: *ms_out NAN.
 * Otherwise *costs_out is the caller's. */
static wf_status try_micro(const job *j, int64_t n_micro, int64_t n_lanes, double *ms_out,
                           wf_costs **costs_out) {
    wf_recipe recipe = job_recipe_of_a_step(j);
    wf_costs *costs;
    *ms_out = NAN;
    *costs_out = NULL;
    recipe.n_micro = n_micro;
    recipe.n_lanes = n_lanes;
    wf_status status = job_resolve(j, &recipe);
    if (status == WF_OK) status = measure(j, &recipe, &costs);
    if (status == WF_OK) {
        status = predict(j, &recipe, costs, ms_out);
        if (status == WF_OK && !isnan(*ms_out))
            *costs_out = costs;
        else
            wf_costs_destroy(costs);
    }
    bool is_refused = status == WF_INVALID_ARG || status == WF_SHAPE;
    if (status != WF_OK && status != WF_DOES_NOT_FIT && !is_refused) return status;
    if (j->c->o.verbose) say_tried(j, n_micro, *ms_out, is_refused);
    return WF_OK;
}

/* Whether the count is tried: those that divide the batch, or the `uneven` others, of which a
 * sample is. */
static bool is_candidate(const job *j, int64_t n_micro, bool uneven) {
    int64_t n = (int64_t)wf_plan_dp(j->plan) * wf_plan_pp(j->plan);
    if ((j->c->o.recipe.batch % n_micro != 0) != uneven || n_micro < LEAST_PER_STAGE * n)
        return false;
    return !uneven || n_micro % n == 0;
}

/* Tries counts in multiples of the lanes. The best, *best_io, gives the plan its costs, so that the
 * program which runs is the one that was predicted. */
static exit_status try_all(job *j, int64_t n_lanes, bool uneven, int64_t *best_io) {
    const wf_recipe *r = &j->c->o.recipe;
    int64_t most = MOST_PER_STAGE * (int64_t)wf_plan_dp(j->plan) * wf_plan_pp(j->plan);
    int n = 0, n_tried = 0;
    double ms, best_ms = NAN;
    if (most > r->batch) most = r->batch;
    for (int64_t m = n_lanes; m <= most; m += n_lanes) n += is_candidate(j, m, uneven);
    for (int64_t m = n_lanes; m <= most; m += n_lanes) {
        wf_costs *costs;
        if (!is_candidate(j, m, uneven)) continue;
        if (interrupt_status()) {
            progress_clear(j->c->waiting);
            return complain(interrupt_status(), "interrupted while measuring");
        }
        progress_part(j->c->waiting, "measuring --micro %lld, %d of at most %d", (long long)m,
                      ++n_tried, n);
        wf_status status = try_micro(j, m, n_lanes, &ms, &costs);
        bool is_better = status == WF_OK && !isnan(ms) && !(ms >= best_ms);
        if (is_better) status = wf_plan_use_costs(j->plan, costs);
        wf_costs_destroy(costs);
        if (status != WF_OK) progress_clear(j->c->waiting);
        if (status != WF_OK) return complain_of(j->c, status);
        if (ms > ENOUGH * best_ms) break;
        if (is_better) best_ms = ms, *best_io = m;
    }
    return EXIT_DONE;
}

/* Counts that divide the batch; if there are none, any. */
static exit_status choose_micro(job *j) {
    wf_recipe *r = &j->c->o.recipe;
    wf_recipe open = job_recipe_of_a_step(j);
    int64_t best = 0;
    progress waiting;
    TRY(complain_of(j->c, job_resolve(j, &open)));
    /* The lanes are as without --micro: another number of microbatches keeps them. */
    progress_wait(j->c, &waiting);
    exit_status bad = try_all(j, open.n_lanes, false, &best);
    if (!bad && !best) bad = try_all(j, open.n_lanes, true, &best);
    progress_wait_end(j->c);
    if (bad) return bad;
    if (!best)
        return complain(EXIT_USAGE,
                        "--micro auto: no number of microbatches of a batch of %lld works by the "
                        "plan %s; give --micro N to see why",
                        (long long)r->batch, wf_plan_text(j->plan));
    r->n_micro = best;
    r->n_lanes = open.n_lanes;
    say(j->c, "micro   auto: %lld\n", (long long)best);
    return EXIT_DONE;
}

/* Shares of lanes, for lanes=measured. */
static wf_status measure_lanes(job *j) {
    wf_recipe recipe = job_recipe_of_a_step(j);
    wf_trainer_config config = config_of(j);
    TRY(job_resolve(j, &recipe));
    return wf_plan_measure_lanes(j->c->ctx, j->model, &recipe, j->plan, &config);
}

exit_status job_measure(job *j) {
    const options *o = &j->c->o;
    progress waiting;
    progress_wait(j->c, &waiting);
    wf_status shared = measure_lanes(j);
    progress_wait_end(j->c);
    if (shared != WF_OK) return complain_of(j->c, shared);
    if (o->recipe.n_micro == MICRO_AUTO) return choose_micro(j);
    if (o->costs != COSTS_MEASURED) return EXIT_DONE;
    progress_wait(j->c, &waiting);
    wf_status status = use_measured(j);
    progress_wait_end(j->c);
    return complain_of(j->c, status);
}
