/* weft advise: the decision table of strategies for a model, a cluster and a batch. */
#include "common/text.h"
#include "draw/draw.h"
#include "job/report.h"
#include "plans/choices.h"
#include "plans/cluster.h"

#include <math.h>
#include <string.h>

/* The simpler row, which comes first, is recommended if steps differ by less. */
#define TIE 0.01

#define WHY_BYTES 700

typedef struct table {
    const job *j;
    wf_choice rows[WF_N_STRATEGIES];
    int recommended;                      /* -1: nothing fits */
    double device_bytes[WF_N_STRATEGIES]; /* of a device that a prediction may have; 0: all */
    int n_tries[WF_N_STRATEGIES];         /* plans that need more than was predicted */
    char why[WHY_BYTES];
} table;

static int find_recommended(const table *t) {
    double least = INFINITY;
    for (int k = 0; k < WF_N_STRATEGIES; k++)
        if (t->rows[k].prediction.fits) least = fmin(least, t->rows[k].prediction.step_ms);
    for (int k = 0; k < WF_N_STRATEGIES; k++) {
        const wf_prediction *p = &t->rows[k].prediction;
        if (p->fits && (1 - TIE) * p->step_ms <= least) return k;
    }
    return -1;
}

/* ---- the recommended plan, lowered ---- */

static size_t peak_of(const wf_program *p) {
    size_t peak = 0;
    for (int r = 0; r < wf_program_n_ranks(p); r++)
        if (wf_program_rank(p, r).peak_bytes > peak) peak = wf_program_rank(p, r).peak_bytes;
    return peak;
}

/* Sets *peak_out to the planned peak, or to 0 if the plan is too large to be lowered here. */
static wf_status lower(const job *j, const wf_choice *row, size_t *peak_out) {
    wf_context *ctx = j->c->ctx;
    wf_recipe recipe = j->c->o.recipe;
    wf_program *p = NULL;
    wf_plan *plan;
    *peak_out = 0;
    recipe.n_micro = row->n_micro;
    recipe.n_lanes = row->n_lanes;
    recipe.n_slices = row->n_slices;
    TRY(wf_plan_parse(ctx, row->plan, &plan));
    wf_status status = WF_OK;
    if (!job_is_large(j, row->prediction.n_ranks, row->n_micro / row->n_lanes))
        status = wf_program_create_short(ctx, j->model, &recipe, plan, WF_PROGRAM_TRAIN, &p);
    if (status == WF_OK && p) *peak_out = peak_of(p);
    wf_program_destroy(p);
    wf_plan_destroy(plan);
    return status;
}

/* A plan that needs more than was predicted is replaced by one that leaves these bytes, if there is
 * one. */
#define MOST_TRIES 4
static wf_status replace(table *t, int k, size_t peak) {
    wf_choice rows[WF_N_STRATEGIES] = {WF_CHOICE_INIT};
    wf_prediction_request q = job_request(t->j);
    wf_prediction *p = &t->rows[k].prediction;
    double all = p->memory_bytes - p->library_bytes, missing = (double)peak - all;
    double *most = &t->device_bytes[k];
    wf_status status = WF_OK;
    *most = q.device_bytes = fmax(1, (*most > 0 ? *most : all) - missing);
    if (t->n_tries[k]++ < MOST_TRIES) status = wf_cluster_advise(t->j->c->ctx, &q, rows);
    if (status != WF_OK) return status;
    if (rows[k].prediction.fits) {
        t->rows[k] = rows[k];
        return WF_OK;
    }
    p->peak_bytes = (double)peak + p->library_bytes;
    p->short_by_bytes = missing;
    p->lacks = "device memory";
    p->fits = 0;
    return WF_OK;
}

/* Finds the row to recommend. A prediction may be too low, so the plan is lowered if that is quick.
 */
static exit_status recommend(table *t) {
    wf_status status = WF_OK;
    bool fits = false;
    while (!fits && (t->recommended = find_recommended(t)) >= 0 && status == WF_OK) {
        wf_choice *row = &t->rows[t->recommended];
        wf_prediction *p = &row->prediction;
        size_t peak;
        status = lower(t->j, row, &peak);
        if (status == WF_INVALID_ARG || status == WF_UNSUPPORTED) {
            snprintf(row->why, sizeof row->why, "%.190s", wf_context_error(t->j->c->ctx));
            *row->plan = 0;
            p->fits = 0;
            status = WF_OK;
            continue;
        }
        if (status != WF_OK) break;
        fits = (double)peak + p->library_bytes <= p->memory_bytes;
        if (!fits) status = replace(t, t->recommended, peak);
    }
    return complain_of(t->j->c, status);
}

/* ---- why ---- */

/* The fastest of some rows; or, if none fits, the one that lacks the fewest bytes. -1: no plan. */
static int find_best(const table *t, unsigned rows, int besides) {
    int best = -1;
    for (int k = 0; k < WF_N_STRATEGIES; k++) {
        const wf_prediction *p = &t->rows[k].prediction,
                            *b = best < 0 ? p : &t->rows[best].prediction;
        if (!(rows >> k & 1) || k == besides || !*t->rows[k].plan) continue;
        bool is_better = p->fits != b->fits ? p->fits
                         : p->fits          ? p->step_ms < b->step_ms
                                            : p->short_by_bytes < b->short_by_bytes;
        if (best < 0 || is_better) best = k;
    }
    return best;
}

/* "DDP needs 1.2 GiB more than a device has", or "... takes 12.0 % longer, 1.2 s more of ...". */
static void compare(table *t, int row) {
    const wf_choice *other = &t->rows[row];
    const wf_prediction *best = &t->rows[t->recommended].prediction;
    char bytes[CLUSTER_WHY_BYTES], why[CLUSTER_WHY_BYTES];
    double longer = other->prediction.step_ms / best->step_ms - 1;
    if (!other->prediction.fits)
        TEXT_ADD(t->why, "%s needs %s", other->strategy,
                 cluster_missing(&other->prediction, bytes));
    else if (fabs(longer) < 5e-4)
        TEXT_ADD(t->why, "%s takes as long", other->strategy);
    else if (longer > 0)
        TEXT_ADD(t->why, "%s takes %.1f %% longer, %s", other->strategy, 100 * longer,
                 cluster_why(best, &other->prediction, why));
    else
        TEXT_ADD(t->why, "%s is %.1f %% shorter, within the %.0f %% that count as equal",
                 other->strategy, -100 * longer, 100 * TIE);
}

static void compare_rule(table *t, int next) {
    unsigned rows;
    const char *words = wf_cluster_rule(t->j->cluster, t->rows, &rows);
    int rule = find_best(t, rows, -1);
    if (rows >> t->recommended & 1) {
        TEXT_ADD(t->why, "; the rule of thumb agrees (%s)", words);
        return;
    }
    TEXT_ADD(t->why, "; the rule of thumb (%s) would be ", words);
    const char *separator = "";
    for (int k = 0; k < WF_N_STRATEGIES; k++)
        if (rows >> k & 1)
            TEXT_ADD(t->why, "%s%s", separator, t->rows[k].strategy), separator = " or ";
    if (rule < 0) TEXT_ADD(t->why, ", but there is no such plan");
    if (rule >= 0 && rule != next) {
        TEXT_ADD(t->why, ", but ");
        compare(t, rule);
    }
}

static void explain(table *t) {
    const wf_choice *best = &t->rows[t->recommended < 0 ? 0 : t->recommended];
    char text[CLUSTER_WHY_BYTES];
    *t->why = 0;
    if (t->recommended < 0) {
        int least = find_best(t, ~0U, -1);
        TEXT_ADD(t->why, "nothing fits; %s lacks the fewest bytes: it needs %s",
                 t->rows[least].strategy, cluster_missing(&t->rows[least].prediction, text));
        return;
    }
    TEXT_ADD(t->why, "%s: %s a step, bound by %s", best->strategy,
             text_of_us(text, 1e3 * best->prediction.step_ms), best->prediction.bound);
    int next = find_best(t, ~0U, t->recommended);
    if (next >= 0) TEXT_ADD(t->why, "; ");
    if (next >= 0) compare(t, next);
    compare_rule(t, next);
}

/* ---- text and report ---- */

static void say_row(const table *t, int k) {
    const wf_choice *row = &t->rows[k];
    const wf_prediction *p = &row->prediction;
    char step[TEXT_BYTES], fits[TEXT_BYTES + 16], bytes[TEXT_BYTES], lacks[32];
    if (!*row->plan) {
        say(t->j->c, "  %-16s no plan: %s\n", row->strategy, row->why);
        return;
    }
    bool lacks_elsewhere = p->lacks && strcmp(p->lacks, "device memory") != 0;
    if (lacks_elsewhere) snprintf(lacks, sizeof lacks, "lacks %s", p->lacks);
    snprintf(fits, sizeof fits, "%s%s", p->fits ? "" : "-",
             text_of_bytes(bytes, p->fits ? p->memory_bytes - p->peak_bytes : p->short_by_bytes));
    say(t->j->c, "%c %-16s %10s %10s  %-29s %s --micro %lld\n", k == t->recommended ? '*' : ' ',
        row->strategy, text_of_us(step, 1e3 * p->step_ms), fits, lacks_elsewhere ? lacks : p->bound,
        row->plan, (long long)row->n_micro);
}

/* A strategy without a plan has no figures. */
static json_t *row_json(const wf_choice *row) {
    const wf_prediction *p = &row->prediction;
    if (!*row->plan)
        return json_pack("{s:s, s:b, s:s, s:n, s:n, s:n, s:n, s:n, s:n, s:n, s:n, s:n, s:n}",
                         "strategy", row->strategy, "fits", 0, "why", row->why, "plan",
                         "short_by_bytes", "lacks", "step_ms", "bound", "micro", "lanes", "slices",
                         "peak_bytes", "mfu");
    json_t *json =
        json_pack("{s:s, s:b, s:s, s:f, s:s?, s:f, s:s, s:I, s:I, s:I, s:f, s:f, s:o}", "strategy",
                  row->strategy, "fits", p->fits, "plan", row->plan, "short_by_bytes",
                  p->short_by_bytes, "lacks", p->lacks, "step_ms", p->step_ms, "bound", p->bound,
                  "micro", (json_int_t)row->n_micro, "lanes", (json_int_t)row->n_lanes, "slices",
                  (json_int_t)row->n_slices, "peak_bytes", p->peak_bytes, "mfu", p->mfu, "times_ms",
                  cluster_times_json(p));
    return json;
}

static exit_status write_report(const table *t) {
    json_t *rows = json_array();
    for (int k = 0; k < WF_N_STRATEGIES; k++) json_array_append_new(rows, row_json(&t->rows[k]));
    json_t *report = json_pack("{s:s, s:s, s:o, s:s}", "weft", WEFT_VERSION, "cluster",
                               wf_cluster_name(t->j->cluster), "rows", rows, "why", t->why);
    json_object_set_new(report, "recommended",
                        t->recommended < 0 ? json_null()
                                           : json_string(t->rows[t->recommended].strategy));
    return report_write(t->j->c, report);
}

static exit_status draw(const table *t) {
    char title[CLUSTER_TITLE_BYTES];
    if (!t->j->c->o.draw) return EXIT_DONE;
    return choices_draw_rows(t->j->c, t->j->c->o.draw, cluster_title(t->j, title), t->rows,
                             WF_N_STRATEGIES, t->recommended);
}

static exit_status show(table *t) {
    TRY(recommend(t));
    explain(t);
    say(t->j->c, "  %-16s %10s %10s  %-29s %s\n", "strategy", "step", "spare", "bound by", "plan");
    for (int k = 0; k < WF_N_STRATEGIES; k++) say_row(t, k);
    say(t->j->c, "%s\n", t->why);
    exit_status drawn = draw(t), written = write_report(t);
    if (drawn) return drawn;
    return written ? written : t->recommended < 0 ? EXIT_DOES_NOT_FIT : EXIT_DONE;
}

exit_status run_advise(cli *c) {
    table t = {.rows = {WF_CHOICE_INIT}};
    job j;
    if (!c->o.cluster)
        return complain(EXIT_USAGE, "--cluster is missing, for example --cluster dgx-a100");
    if (c->o.draw) TRY(draw_check_picture(c->o.draw));
    TRY(job_open(c, 0, &j));
    wf_prediction_request q = job_request(&j);
    t.j = &j;
    if (c->o.recipe.n_micro == MICRO_AUTO) c->o.recipe.n_micro = 0;
    exit_status bad = complain_of(c, wf_cluster_advise(c->ctx, &q, t.rows));
    if (!bad && find_best(&t, ~0U, -1) < 0)
        bad = complain(EXIT_USAGE, "no plan on this cluster suits --batch %lld and --micro %lld",
                       (long long)c->o.recipe.batch, (long long)c->o.recipe.n_micro);
    if (!bad) bad = show(&t);
    job_close(&j);
    return bad;
}
