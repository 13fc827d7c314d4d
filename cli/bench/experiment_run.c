/* One row, once: plan, trainer, an untimed batch, timed ones. */
#include "bench/experiment.h"
#include "common/tuned.h"
#include "job/report.h"

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

/* ---- costs and plan ---- */

static int ranks_of(const json_t *row) {
    return (int)json_array_size(json_object_get(row, "rank_times"));
}

/* A single device has one core, as each of two has: its streams inherit this thread's. */
static bool take_core(const experiment *e, const json_t *row, cpu_set_t *all_out) {
    return ranks_of(row) == 1 && !e->devices && cores_take(1, all_out);
}

static wf_trainer_config config_of(const experiment *e, const json_t *row) {
    wf_trainer_config config = WF_TRAINER_CONFIG_INIT;
    config.devices = ranks_of(row) > 1 || !e->devices ? e->devices : e->device;
    return config;
}

static wf_recipe recipe_of(const experiment *e, const json_t *row) {
    wf_recipe recipe = e->all.c->o.recipe;
    recipe.n_micro = (int64_t)row_number(row, "micro");
    return recipe;
}

/* Measures the times of the units at the row's split on as many ranks, once. */
static wf_status learn(experiment *e, const json_t *row, const wf_costs **costs_out) {
    wf_context *ctx = e->all.c->ctx;
    int64_t split = (int64_t)row_number(row, "split");
    wf_recipe recipe = recipe_of(e, row);
    wf_trainer_config config = config_of(e, row);
    wf_plan *plan;
    cpu_set_t cores;
    split_costs *s = e->costs;
    while (s < e->costs + e->n_costs && (s->split != split || s->n_ranks != ranks_of(row))) s++;
    *costs_out = s->costs;
    if (s < e->costs + e->n_costs) return WF_OK;
    TRY(wf_plan_parse(ctx, ranks_of(row) == 1 ? "" : "pp=2", &plan));
    *s = (split_costs){split, ranks_of(row), NULL};
    bool taken = take_core(e, row, &cores);
    wf_status status = wf_costs_measure(ctx, e->j.model, &recipe, plan, &config, &s->costs);
    if (taken) cores_give_back(&cores);
    wf_plan_destroy(plan);
    *costs_out = s->costs;
    e->n_costs += status == WF_OK;
    return status;
}

static wf_status make_plan(experiment *e, const json_t *row, wf_plan **plan_out) {
    const char *cut = row_text(row, "cut");
    bool is_cut = strcmp(cut, "balanced") != 0;
    char text[100] = "";
    const wf_costs *costs;
    if (ranks_of(row) > 1)
        snprintf(text, sizeof text, "pp=2,schedule=%s%s%s", row_text(row, "schedule"),
                 is_cut ? ",cut=" : "", is_cut ? cut : "");
    TRY(learn(e, row, &costs));
    TRY(wf_plan_parse(e->all.c->ctx, text, plan_out));
    wf_status status = wf_plan_use_devices(*plan_out, config_of(e, row).devices);
    if (status == WF_OK) status = wf_plan_use_costs(*plan_out, costs);
    if (status != WF_OK) wf_plan_destroy(*plan_out);
    return status;
}

/* ---- steps ---- */

/* Adds to a mean over the repeats. */
static void add(const experiment *e, json_t *to, const char *field, double seconds) {
    row_set(to, field, row_number(to, field) + seconds / (double)e->all.c->o.repeat);
}

/* Where the time of the batch went. */
static wf_status add_time(const experiment *e, json_t *row, const wf_trainer *trainer) {
    json_t *times = json_object_get(row, "rank_times");
    wf_timeline *timeline;
    TRY(wf_trainer_timeline(trainer, &timeline));
    for (int rank = 0; rank < ranks_of(row); rank++) {
        wf_rank_time now = wf_timeline_rank(timeline, rank);
        json_t *to = json_array_get(times, (size_t)rank);
        add(e, to, "compute", now.compute_us / 1e6);
        add(e, to, "bubble", now.bubble_us / 1e6);
        add(e, to, "transfer", now.transfer_us / 1e6);
        add(e, to, "wait", now.wait_us / 1e6);
    }
    wf_timeline_destroy(timeline);
    return WF_OK;
}

static wf_status run_batches(const experiment *e, json_t *row, wf_trainer *trainer,
                             double *seconds_out, double *loss_out) {
    *seconds_out = 0;
    for (size_t n = 0; n <= ROW_BATCHES; n++) {
        wf_feed feeds[] = {{"x", e->x + n * e->x_bytes, e->x_bytes},
                           {"y", e->y + n * e->y_bytes, e->y_bytes}};
        wf_step_result result;
        effort start = effort_now();
        wf_status status = wf_trainer_step(trainer, feeds, 2, e->all.c->o.recipe.batch, &result);
        effort end = effort_now();
        if (n) *seconds_out += end.wall_s - start.wall_s;
        if (n) add(e, row, "cpu_seconds", end.cpu_s - start.cpu_s);
        if (n && status == WF_OK) status = add_time(e, row, trainer);
        if (status != WF_OK) return status;
        *loss_out = result.loss;
    }
    return WF_OK;
}

/* Stores the properties that all repeats share. */
static wf_status describe(json_t *row, const wf_plan *plan, const wf_trainer *trainer) {
    const wf_program *program = wf_trainer_program(trainer);
    wf_timeline *timeline;
    json_object_set_new(row, "plan", json_string(wf_plan_text(plan)));
    if (ranks_of(row) > 1) {
        const char *name = wf_program_unit(program, 1, 0).name;
        json_object_set_new(row, "second_stage", json_string(name));
    }
    for (int rank = 0; rank < ranks_of(row); rank++) {
        wf_trainer_memory memory = wf_trainer_memory_of(trainer, rank);
        report_add_peaks(row, &memory, 1);
    }
    TRY(wf_program_simulate(program, NULL, &timeline));
    row_set(row, "predicted_seconds", ROW_BATCHES * wf_timeline_step_us(timeline) / 1e6);
    wf_timeline_destroy(timeline);
    return WF_OK;
}

/* Tracing stays on while batches are timed: it reads a clock twice an instruction, which
 * takes microseconds of seconds, and so the division of the time is of the very batches. */
static wf_status run_row(experiment *e, json_t *row, double *seconds_out, double *loss_out) {
    const cli *c = e->all.c;
    bool is_first = !json_array_size(json_object_get(row, "seconds"));
    wf_recipe recipe = recipe_of(e, row);
    wf_trainer_config config = config_of(e, row);
    wf_trainer *trainer = NULL;
    wf_plan *plan;
    cpu_set_t cores;
    config.trace = 1;
    TRY(make_plan(e, row, &plan));
    bool taken = take_core(e, row, &cores);
    wf_status status = wf_trainer_create(c->ctx, e->j.model, &recipe, plan, &config, &trainer);
    if (status == WF_OK && is_first && row == json_array_get(e->all.rows, 0))
        tuned_warn(c, wf_trainer_program(trainer));
    if (status == WF_OK) status = run_batches(e, row, trainer, seconds_out, loss_out);
    if (status == WF_OK && is_first) status = describe(row, plan, trainer);
    wf_trainer_destroy(trainer);
    if (taken) cores_give_back(&cores);
    wf_plan_destroy(plan);
    return status;
}

/* The same recipe gives the same bits under every plan: rows of one split agree. */
static exit_status check_loss(const rounds *b, const json_t *row) {
    for (json_t *other = NULL; (other = next_row(b->rows, other));)
        if (row_number(other, "split") == row_number(row, "split") &&
            !json_is_null(json_object_get(other, "loss")) &&
            !json_equal(json_object_get(other, "loss"), json_object_get(row, "loss")))
            return complain(EXIT_FAILED,
                            "split %.0f: the loss is %.17g under plan %s and %.17g under plan %s; "
                            "this is a bug of weft",
                            row_number(row, "split"), row_number(row, "loss"),
                            row_text(row, "plan"), row_number(other, "loss"),
                            row_text(other, "plan"));
    return EXIT_DONE;
}

exit_status experiment_run(rounds *b, json_t *row) {
    double seconds = 0, loss = 0;
    wf_status status = run_row((experiment *)b, row, &seconds, &loss);
    if (status != WF_OK) progress_clear(&b->bar);
    if (status != WF_OK) return complain_of(b->c, status);
    row_set(row, "loss", loss);
    TRY(check_loss(b, row));
    return row_append(row, "seconds", seconds);
}
