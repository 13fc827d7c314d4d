/* One row, once: plan, trainer, an untimed batch, timed ones. */
#include "bench/experiment.h"
#include "common/tuned.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

wf_status experiment_draw(experiment *e) {
    wf_loader *loader;
    const wf_batch *batch;
    wf_status status = job_loader(&e->j, WF_DATA_TRAIN, 0, 0, &loader);
    if (status != WF_OK) return status;
    for (size_t n = 0; n <= ROW_BATCHES && status == WF_OK; n++) {
        status = wf_loader_next(loader, &batch);
        if (status != WF_OK) break;
        if (!n) {
            e->x_bytes = batch->x_bytes;
            e->y_bytes = batch->y_bytes;
            e->x = malloc((ROW_BATCHES + 1) * e->x_bytes);
            e->y = malloc((ROW_BATCHES + 1) * e->y_bytes);
        }
        if (!e->x || !e->y) {
            status = WF_NO_MEMORY;
            break;
        }
        memcpy(e->x + n * e->x_bytes, batch->x, e->x_bytes);
        memcpy(e->y + n * e->y_bytes, batch->y, e->y_bytes);
    }
    wf_loader_destroy(loader);
    return status;
}

/* ---- cores ---- */

/* A single device has one core, as each of two has: its streams inherit this thread's. */
static bool take_one_core(const experiment *e, const row *r, cpu_set_t *all_out) {
    cpu_set_t one;
    int core = CPU_SETSIZE - 1;
    if (r->n_ranks > 1 || e->devices || sched_getaffinity(0, sizeof *all_out, all_out))
        return false;
    while (core > 0 && !CPU_ISSET(core, all_out)) core--;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    return sched_setaffinity(0, sizeof one, &one) == 0;
}

static void give_back_cores(bool taken, const cpu_set_t *all) {
    if (taken) (void)sched_setaffinity(0, sizeof *all, all);
}

/* ---- costs and plan ---- */

static const split_costs *find_costs(const experiment *e, const row *r) {
    for (const split_costs *s = e->costs; s < e->costs + e->n_costs; s++)
        if (s->split == r->split && s->n_ranks == r->n_ranks) return s;
    return NULL;
}

static wf_trainer_config config_of(const experiment *e, const row *r) {
    wf_trainer_config config = WF_TRAINER_CONFIG_INIT;
    config.devices = r->n_ranks > 1 || !e->devices ? e->devices : e->device;
    return config;
}

static wf_recipe recipe_of(const experiment *e, const row *r) {
    wf_recipe recipe = e->c->o.recipe;
    recipe.n_micro = recipe.batch / r->split;
    return recipe;
}

exit_status experiment_learn(experiment *e, const row *r) {
    wf_recipe recipe = recipe_of(e, r);
    wf_trainer_config config = config_of(e, r);
    wf_plan *plan;
    cpu_set_t cores;
    if (find_costs(e, r)) return EXIT_DONE;
    wf_status status = wf_plan_parse(e->c->ctx, r->n_ranks == 1 ? "" : "pp=2", &plan);
    if (status != WF_OK) return complain_of(e->c, status);
    split_costs *s = &e->costs[e->n_costs];
    *s = (split_costs){r->split, r->n_ranks, NULL};
    bool taken = take_one_core(e, r, &cores);
    status = wf_costs_measure(e->c->ctx, e->j.model, &recipe, plan, &config, &s->costs);
    give_back_cores(taken, &cores);
    wf_plan_destroy(plan);
    if (status != WF_OK) return complain_of(e->c, status);
    e->n_costs++;
    return EXIT_DONE;
}

static wf_status make_plan(const experiment *e, const row *r, wf_plan **plan_out) {
    char text[100] = "";
    if (r->n_ranks > 1)
        snprintf(text, sizeof text, "pp=%d,schedule=%s%s%s", r->n_ranks, r->schedule,
                 *r->cut ? ",cut=" : "", r->cut);
    wf_status status = wf_plan_parse(e->c->ctx, text, plan_out);
    if (status != WF_OK) return status;
    status = wf_plan_use_devices(*plan_out, config_of(e, r).devices);
    if (status == WF_OK) status = wf_plan_use_costs(*plan_out, find_costs(e, r)->costs);
    if (status != WF_OK) wf_plan_destroy(*plan_out);
    return status;
}

/* ---- steps ---- */

/* Where the time of the batch went. */
static wf_status add_time(row *r, const wf_trainer *trainer) {
    wf_timeline *timeline;
    wf_status status = wf_trainer_timeline(trainer, &timeline);
    if (status != WF_OK) return status;
    for (int rank = 0; rank < r->n_ranks; rank++) {
        wf_rank_time now = wf_timeline_rank(timeline, rank);
        r->time[rank].compute += now.compute_us / 1e6;
        r->time[rank].transfer += now.transfer_us / 1e6;
        r->time[rank].bubble += now.bubble_us / 1e6;
        r->time[rank].wait += now.wait_us / 1e6;
    }
    wf_timeline_destroy(timeline);
    return WF_OK;
}

static wf_status run_batches(const experiment *e, row *r, wf_trainer *trainer, double *seconds_out,
                             double *loss_out) {
    double seconds = 0;
    for (size_t n = 0; n <= ROW_BATCHES; n++) {
        wf_feed feeds[] = {{"x", e->x + n * e->x_bytes, e->x_bytes},
                           {"y", e->y + n * e->y_bytes, e->y_bytes}};
        wf_step_result result;
        if (interrupt_status()) return WF_INTERRUPTED;
        effort start = effort_now();
        wf_status status = wf_trainer_step(trainer, feeds, 2, e->c->o.recipe.batch, &result);
        effort end = effort_now();
        if (n) seconds += end.wall_s - start.wall_s;
        if (n) r->cpu_s += end.cpu_s - start.cpu_s;
        if (n && status == WF_OK) status = add_time(r, trainer);
        if (status != WF_OK) return status;
        *loss_out = result.loss;
    }
    *seconds_out = seconds;
    return WF_OK;
}

/* Stores the properties that all repeats share. */
static wf_status describe(row *r, const wf_plan *plan, const wf_trainer *trainer) {
    const wf_program *program = wf_trainer_program(trainer);
    wf_timeline *timeline;
    snprintf(r->plan, sizeof r->plan, "%s", wf_plan_text(plan));
    if (r->n_ranks > 1)
        snprintf(r->second_stage, sizeof r->second_stage, "%s",
                 wf_program_unit(program, 1, 0).name);
    for (int rank = 0; rank < r->n_ranks; rank++) {
        wf_trainer_memory memory = wf_trainer_memory_of(trainer, rank);
        r->planned_bytes[rank] = memory.planned_peak_bytes;
        r->measured_bytes[rank] = memory.measured_peak_bytes;
    }
    wf_status status = wf_program_simulate(program, NULL, &timeline);
    if (status != WF_OK) return status;
    r->predicted_s = ROW_BATCHES * wf_timeline_step_us(timeline) / 1e6;
    wf_timeline_destroy(timeline);
    return WF_OK;
}

/* Tracing stays on while batches are timed: it reads a clock twice an instruction, which
 * takes microseconds of seconds, and so the division of the time is of the very batches. */
static wf_status run_row(experiment *e, row *r, double *seconds_out, double *loss_out) {
    wf_recipe recipe = recipe_of(e, r);
    wf_trainer_config config = config_of(e, r);
    wf_trainer *trainer = NULL;
    wf_plan *plan;
    cpu_set_t cores;
    config.trace = 1;
    wf_status status = make_plan(e, r, &plan);
    if (status != WF_OK) return status;
    bool taken = take_one_core(e, r, &cores);
    status = wf_trainer_create(e->c->ctx, e->j.model, &recipe, plan, &config, &trainer);
    if (status == WF_OK && r == e->rows && !r->seconds.n)
        tuned_warn(e->c, wf_trainer_program(trainer));
    if (status == WF_OK) status = run_batches(e, r, trainer, seconds_out, loss_out);
    if (status == WF_OK && !r->seconds.n) status = describe(r, plan, trainer);
    wf_trainer_destroy(trainer);
    give_back_cores(taken, &cores);
    wf_plan_destroy(plan);
    return status;
}

/* The same recipe gives the same bits under every plan: rows of one split agree. */
static exit_status check_loss(const experiment *e, const row *r, double loss) {
    for (const row *other = e->rows; other < e->rows + e->n_rows; other++)
        if (other->split == r->split && other->seconds.n &&
            memcmp(&other->loss, &loss, sizeof loss))
            return complain(EXIT_FAILED,
                            "split %lld: the loss is %.17g under plan %s and %.17g under plan %s; "
                            "this is a bug of weft",
                            (long long)r->split, loss, r->plan, other->loss, other->plan);
    return EXIT_DONE;
}

exit_status experiment_run(experiment *e, row *r) {
    double seconds = 0, loss = 0;
    wf_status status = run_row(e, r, &seconds, &loss);
    if (status != WF_OK) progress_clear(&e->bar);
    if (status == WF_INTERRUPTED)
        return complain(interrupt_status(), "interrupted; no results have been written");
    if (status != WF_OK) return complain_of(e->c, status);
    exit_status bad = check_loss(e, r, loss);
    r->loss = loss;
    if (!samples_add(&r->seconds, seconds)) bad = complain(EXIT_FAILED, "no memory left");
    return bad;
}
