/* weft bench predict: the step of several plans, predicted and measured.
 *
 * The costs of units come from one rank, alone and while another core runs the same: cores share
 * caches and memory. A row's step is simulated with them and measured with the ranks of its plan.
 * Both count CPU time: each instruction takes its least of all steps, and the simulation puts these
 * together in the program's order. So other programs do not count.
 */
#include "bench/rounds.h"
#include "common/speed.h"
#include "job/job.h"
#include "job/report.h"

#include <math.h>
#include <pthread.h>
#include <string.h>

#define PREDICT_MAX_ROWS 64

/* A row's ".plan" is its place in `plans`. Its times are the least of the rounds; "fastest_ms" is a
 * step by the clock, with all that disturbed it. */
typedef struct bench_predict {
    rounds all;
    job j;
    wf_loader *loader;
    wf_feed feeds[WF_WORKER_MAX_FEEDS]; /* of all steps */
    int n_feeds;
    memory_speed speed;               /* of this round */
    wf_plan *plans[PREDICT_MAX_ROWS]; /* with the first round's costs, which choose their cuts */
} bench_predict;

#define ALONE_BYTES 1000
/* The steps of a turn: the first ones of a small model find the caches full of another trainer's.
 */
#define TURN_S 0.02

/* The trainers of a row. The first takes its turns alone, the next two at the same time. */
enum { ALONE, CROWDED, OTHER, ROW, N_TRAINERS };

typedef struct run {
    const bench_predict *b;
    json_t *row;
    wf_trainer *trainers[N_TRAINERS]; /* NULL: not yet */
    wf_costs *costs;
    double fastest_ms;
} run;

static wf_context *context_of(const run *r) {
    return r->b->all.c->ctx;
}

/* ---- steps ---- */

typedef struct turn {
    const run *r;
    wf_trainer *trainer;
    wf_status status;
    double fastest_ms;
} turn;

static void *take_turn(void *self) {
    turn *t = self;
    const bench_predict *b = t->r->b;
    wf_step_result ignored;
    for (double begin_s = now_seconds(), now_s = begin_s;
         t->status == WF_OK && now_s - begin_s < TURN_S;) {
        double step_s = now_s;
        t->status =
            wf_trainer_step(t->trainer, b->feeds, b->n_feeds, b->all.c->o.recipe.batch, &ignored);
        now_s = now_seconds();
        t->fastest_ms = fmin(t->fastest_ms, (now_s - step_s) * 1e3);
    }
    return NULL;
}

static turn turn_of(const run *r, int k) {
    return (turn){r, r->trainers[k], WF_OK, INFINITY};
}

/* One rank alone, then two that do the same at the same time. */
static wf_status turn_alone(const run *r) {
    turn alone = turn_of(r, ALONE), crowded = turn_of(r, CROWDED), other = turn_of(r, OTHER);
    pthread_t thread;
    take_turn(&alone);
    if (alone.status != WF_OK) return alone.status;
    if (pthread_create(&thread, NULL, take_turn, &other))
        return wf_context_fail(context_of(r), WF_NO_MEMORY, "no thread for a second rank");
    take_turn(&crowded);
    pthread_join(thread, NULL);
    return crowded.status != WF_OK ? crowded.status : other.status;
}

static wf_status create(run *r, const wf_plan *plan, int k) {
    const bench_predict *b = r->b;
    wf_trainer_config config = WF_TRAINER_CONFIG_INIT;
    config.trace = 1;
    return wf_trainer_create(context_of(r), b->j.model, &b->all.c->o.recipe, plan, &config,
                             &r->trainers[k]);
}

/* ---- one rank ---- */

/* One rank that computes as those of the row: it recomputes the same, it has a loss of its own if
 * they do, and it computes the gradients of weights apart if their schedule does. These decide
 * which operands a kernel finds in the cache.
 */
static void write_alone(const char *plan, char text[ALONE_BYTES]) {
    for (size_t n, at = 0; *plan; plan += n + (plan[n] == ',')) {
        n = strcspn(plan, ",");
        bool recomputes = !strncmp(plan, "recompute=", 10);
        bool splits = !strncmp(plan, "schedule=", 9) && strchr("azv", plan[9]);
        bool has_loss = !strncmp(plan, "dataparallel=", 13);
        if (!recomputes && !splits && !has_loss) continue;
        const char *part = recomputes ? plan : splits ? "schedule=zb1" : "dataparallel=1";
        at += (size_t)snprintf(text + at, ALONE_BYTES - at, "%s%.*s", at ? "," : "",
                               recomputes ? (int)n : (int)strlen(part), part);
        if (at >= ALONE_BYTES) return;
    }
}

static wf_status create_alone(run *r) {
    char text[ALONE_BYTES] = "";
    wf_plan *plan;
    write_alone(row_text(r->row, ".name"), text);
    wf_status status = wf_plan_parse(context_of(r), text, &plan);
    if (status != WF_OK) return status;
    for (int k = ALONE; k <= OTHER && status == WF_OK; k++) status = create(r, plan, k);
    wf_plan_destroy(plan);
    return status;
}

/* One rank sends nothing, so copies between two cores are measured instead. */
static wf_status find_part(const run *r, int k, wf_costs **costs_out) {
    TRY(wf_trainer_costs(r->trainers[k], costs_out));
    wf_rates rates = wf_costs_rates(*costs_out);
    rates.message_us = r->b->speed.latency_us;
    rates.copy_us_per_byte = r->b->speed.link_us_per_byte;
    rates.host_us_per_byte = r->b->speed.memory_us_per_byte;
    rates.reduce_us_per_byte = r->b->speed.sum_us_per_byte;
    wf_costs_set_rates(*costs_out, rates);
    return WF_OK;
}

static wf_status find_costs(run *r) {
    wf_costs *crowded = NULL;
    wf_costs_destroy(r->costs);
    r->costs = NULL;
    wf_status status = find_part(r, ALONE, &r->costs);
    if (status == WF_OK) status = find_part(r, CROWDED, &crowded);
    if (status == WF_OK) status = wf_costs_set_crowded(r->costs, crowded);
    wf_costs_destroy(crowded);
    return status;
}

/* ---- a row ---- */

static void keep_least(json_t *row, const char *field, double ms) {
    row_set(row, field, fmin(row_number(row, field), ms));
}

/* The least of the rounds, and a list of all of them. */
static exit_status keep_step(json_t *row, const char *field, const char *list,
                             const wf_timeline *timeline) {
    double ms = wf_timeline_step_us(timeline) / 1e3;
    keep_least(row, field, ms);
    return row_append(row, list, ms);
}

static wf_status keep(run *r) {
    const wf_trainer *trainer = r->trainers[ROW];
    const wf_program *program = wf_trainer_program(trainer);
    bool is_first = isnan(row_number(r->row, "measured_ms"));
    wf_timeline *measured = NULL, *predicted = NULL;
    for (int k = 0; k < wf_program_n_ranks(program) && is_first; k++) {
        wf_trainer_memory memory = wf_trainer_memory_of(trainer, k);
        report_add_peaks(r->row, &memory, 1);
    }
    keep_least(r->row, "fastest_ms", r->fastest_ms);
    wf_status status = wf_trainer_replay(trainer, &measured);
    if (status == WF_OK) status = wf_program_simulate(program, r->costs, &predicted);
    if (status == WF_OK && (keep_step(r->row, "measured_ms", "measured_rounds_ms", measured) ||
                            keep_step(r->row, "predicted_ms", "predicted_rounds_ms", predicted)))
        status = WF_NO_MEMORY;
    wf_timeline_destroy(measured);
    wf_timeline_destroy(predicted);
    return status;
}

/* The first costs choose the cuts of the plan. */
static wf_status create_row(run *r) {
    wf_plan *plan = r->b->plans[(int)row_number(r->row, ".plan")];
    wf_status status = WF_OK;
    if (json_is_null(json_object_get(r->row, "plan"))) {
        status = find_costs(r);
        if (status == WF_OK) status = wf_plan_use_costs(plan, r->costs);
    }
    if (status == WF_OK) status = create(r, plan, ROW);
    if (status == WF_OK) json_object_set_new(r->row, "plan", json_string(wf_plan_text(plan)));
    return status;
}

/* Turns alternate, so that all trainers meet the same noise. The first turn does not count. */
static wf_status take_turns(run *r) {
    int64_t n_turns = r->b->all.c->o.steps + 1;
    wf_status status = create_alone(r);
    for (int64_t n = 0; n < 2 && status == WF_OK; n++) status = turn_alone(r);
    if (status == WF_OK) status = create_row(r);
    for (int64_t n = 0; n < n_turns && status == WF_OK; n++) {
        turn own = turn_of(r, ROW);
        take_turn(&own);
        status = own.status;
        if (n) r->fastest_ms = fmin(r->fastest_ms, own.fastest_ms);
        if (n > 1 && status == WF_OK) status = turn_alone(r);
    }
    return status == WF_OK ? find_costs(r) : status;
}

/* Measures one rank and the row. Complains. */
static exit_status run_row(rounds *all, json_t *row) {
    bench_predict *b = (bench_predict *)all;
    run r = {.b = b, .row = row, .fastest_ms = INFINITY};
    bool begins = (all->n_runs_done - 1) % (int)json_array_size(all->rows) == 0;
    wf_status status = WF_OK;
    if (begins && !speed_of_memory(&b->speed))
        status = wf_context_fail(all->c->ctx, WF_NO_MEMORY, "no memory left to measure copies");
    if (status == WF_OK) status = take_turns(&r);
    if (status == WF_OK) status = keep(&r);
    for (int k = 0; k < N_TRAINERS; k++) wf_trainer_destroy(r.trainers[k]);
    wf_costs_destroy(r.costs);
    if (status != WF_OK) progress_clear(&all->bar);
    return complain_of(all->c, status);
}

#define USUAL                                                                                      \
    "dp=2;dp=2,zero=1;dp=2,zero=2;dp=2,zero=3;pp=2;pp=2,schedule=zb1;dp=2,recompute=all;"          \
    "pp=2,recompute=all;dp=2,offload=state"
#define USUAL_SLICED USUAL ";tp=2;tp=2,sp" /* where the recipe has slices */

static exit_status add(bench_predict *b, const char *text, size_t n) {
    size_t place = json_array_size(b->all.rows);
    exit_status bad = rounds_add(
        &b->all,
        json_pack("{s:I, s:s%, s:n, s:n, s:n, s:n, s:n, s:n, s:{s:[], s:[]}}", ".plan",
                  (json_int_t)place, ".name", text, n, "plan", "measured_ms", "predicted_ms",
                  "error", "spread", "fastest_ms", "peak_bytes", "planned", "measured"),
        PREDICT_MAX_ROWS);
    if (bad) return bad;
    const char *name = row_text(json_array_get(b->all.rows, place), ".name");
    return complain_of(b->all.c, wf_plan_parse(b->all.c->ctx, name, &b->plans[place]));
}

/* All steps train on the first batch. */
static exit_status add_rows(rounds *all) {
    bench_predict *b = (bench_predict *)all;
    const options *o = &all->c->o;
    const wf_batch *batch;
    TRY(job_open(all->c, o->steps + 1, &b->j));
    all->recipe = options_recipe(o);
    TRY(complain_of(all->c, job_loader(&b->j, WF_DATA_TRAIN, 0, 0, &b->loader)));
    TRY(complain_of(all->c, wf_loader_next(b->loader, &batch)));
    b->n_feeds = job_feeds(batch, b->feeds);
    const char *usual = o->recipe.n_slices > 1 ? USUAL_SLICED : USUAL;
    for (const char *at = o->plans ? o->plans : usual; at;) {
        size_t n = strcspn(at, ";");
        TRY(add(b, at, n));
        at = at[n] ? at + n + 1 : NULL;
    }
    return EXIT_DONE;
}

exit_status run_bench_predict(cli *c) {
    static const bench parts = {add_rows, run_row, NULL, NULL};
    bench_predict b = {.loader = NULL};
    exit_status bad = apart_resolve(c, 3);
    if (!bad) bad = rounds_bench(&b.all, c, &parts);
    wf_loader_destroy(b.loader);
    for (int k = 0; k < PREDICT_MAX_ROWS; k++) wf_plan_destroy(b.plans[k]);
    job_close(&b.j);
    return bad;
}
