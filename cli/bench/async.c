/* weft bench async: synchronous, asynchronous and local updates of the same recipe, each a row: its
 * speed, its losses and the staleness of its gradients, with even workers and with a slow one. Rows
 * take turns. Each has a prediction from one worker's times.
 */
#include "bench/async.h"
#include "common/text.h"
#include "job/report.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_ROWS        40
#define MAX_WORKERS     64
#define USUAL_STALENESS 4
#define USUAL_STEPS     60

typedef struct bench_async {
    rounds all;
    async_costs costs;
} bench_async;

/* ---- rows ---- */

/* Gives each lane to the worker that would end first with it; each has at least one. Returns
 * whether the shares differ. */
static bool share_lanes(const wf_recipe *r, double slow, int64_t *shares) {
    for (int64_t k = 0; k < r->n_workers; k++) shares[k] = 1;
    for (int64_t n = r->n_workers; n < r->n_lanes; n++) {
        int64_t best = 0;
        for (int64_t k = 1; k < r->n_workers; k++)
            if ((double)shares[k] + 1 < (double)(shares[best] + 1) * (best ? 1 : slow)) best = k;
        shares[best]++;
    }
    return shares[0] != shares[1];
}

/* Worker 0 is the slow one. `shares` of lanes by the workers' speeds; NULL: even. Refuses a plan
 * that no run accepts, before any run. */
static exit_status add(rounds *b, wf_update_mode update, double slow, int64_t n_servers,
                       const int64_t *shares, const char *name) {
    static const char *const updates[] = {
        [WF_UPDATE_SYNC] = "sync", [WF_UPDATE_ASYNC] = "async", [WF_UPDATE_LOCAL] = "local"};
    const wf_recipe *r = &b->c->o.recipe;
    char text[400];
    wf_plan *plan;
    snprintf(text, sizeof text, "dp=%lld", (long long)r->n_workers);
    if (n_servers) TEXT_ADD(text, ",ps=%lld", (long long)n_servers);
    for (int64_t k = 0; shares && k < r->n_workers; k++)
        TEXT_ADD(text, "%s%lld", k ? "+" : ",lanes=", (long long)shares[k]);
    wf_status status = wf_plan_parse(b->c->ctx, text, &plan);
    if (status != WF_OK) return complain_of(b->c, status);
    wf_plan_destroy(plan);
    json_int_t each = r->n_lanes / r->n_workers;
    return rounds_add(
        b,
        json_pack(
            "{s:s, s:i, s:I, s:I, s:[], s:s, s:s, s:s, s:f, s:I, s:n, s:n, s:n, s:n, s:n, s:n, "
            "s:n, s:n, s:n}",
            ".name", name, ".update", (int)update, ".slow_lanes",
            shares ? (json_int_t)shares[0] : each, ".most_lanes",
            shares ? (json_int_t)shares[1] : each, ".staleness", "update", updates[update], "name",
            name, "plan", text, "slow", slow, "servers", (json_int_t)n_servers,
            "samples_per_second", "predicted", "runs", "server_busy_predicted", "loss",
            "seconds_to_loss", "test_accuracy", "staleness", "losses"),
        MAX_ROWS);
}

static exit_status add_async(rounds *b, double slow, int64_t n_servers, bool is_bounded) {
    char name[60], bound[40] = "no bound";
    if (is_bounded)
        snprintf(bound, sizeof bound, "staleness %lld", (long long)b->c->o.recipe.staleness);
    snprintf(name, sizeof name, "async, %s, %lld server%s", bound, (long long)n_servers,
             n_servers == 1 ? "" : "s");
    exit_status bad = add(b, WF_UPDATE_ASYNC, slow, n_servers, NULL, name);
    if (is_bounded)
        json_object_set_new(json_array_get(b->rows, json_array_size(b->rows) - 1), ".bounded",
                            json_true());
    return bad;
}

static exit_status add_updates(rounds *b, double slow) {
    const wf_recipe *r = &b->c->o.recipe;
    int64_t n_most = b->c->o.servers, shares[MAX_WORKERS];
    char name[60];
    exit_status bad = add(b, WF_UPDATE_SYNC, slow, 0, NULL, "sync");
    if (!bad && slow > 1 && share_lanes(r, slow, shares))
        bad = add(b, WF_UPDATE_SYNC, slow, 0, shares, "sync, uneven lanes");
    if (!bad) bad = add_async(b, slow, 1, true);
    for (int64_t n = 1; n < n_most && !bad; n *= 2) bad = add_async(b, slow, n, false);
    if (!bad) bad = add_async(b, slow, n_most, false);
    snprintf(name, sizeof name, "local, %lld steps", (long long)r->local_steps);
    return bad ? bad : add(b, WF_UPDATE_LOCAL, slow, 0, NULL, name);
}

/* The first two rows measure one worker: alone, and with a server. */
static exit_status add_rows(rounds *b) {
    exit_status bad = EXIT_DONE;
    for (int k = 0; k < 2 && !bad; k++)
        bad = rounds_add(b, json_pack("{s:s, s:b}", ".name", "one worker", ".served", k), 2);
    if (!bad) bad = add_updates(b, 1);
    return bad || b->c->o.slow <= 1 ? bad : add_updates(b, b->c->o.slow);
}

/* ---- a run ---- */

/* Adds the options of every run. update_words adds those of one kind of update. */
static void common_words(const rounds *b, words *w, int64_t n_parts) {
    const options *o = &b->c->o;
    rounds_words(b, "train", FOR_TRAIN, w);
    if (!option_is_given(o, OPT_data)) words_add(w, "--data=synthetic");
    words_add(w, "--batch=%lld", (long long)(o->recipe.batch / n_parts));
    words_add(w, "--lanes=%lld", (long long)(o->recipe.n_lanes / n_parts));
    words_add(w, "--steps=%lld", (long long)o->steps);
}

/* Adds the option if it was given. */
static void add_given(const rounds *b, words *w, option_id id) {
    char name[TEXT_BYTES], text[TEXT_BYTES];
    const options *o = &b->c->o;
    if (option_is_given(o, id))
        words_add(w, "%s=%s", option_name(name, id), option_text(o, id, text));
}

static void update_words(const rounds *b, const json_t *row, words *w) {
    const wf_recipe *r = &b->c->o.recipe;
    words_add(w, "--plan=%s", row_text(row, "plan"));
    if (async_update(row) == WF_UPDATE_SYNC) return;
    words_add(w, "--workers=%lld", (long long)r->n_workers);
    words_add(w, "--update=%s", row_text(row, "update"));
    if (json_object_get(row, ".bounded")) words_add(w, "--staleness=%lld", (long long)r->staleness);
    if (async_update(row) != WF_UPDATE_LOCAL) return;
    add_given(b, w, OPT_local_steps);
    add_given(b, w, OPT_outer_lr);
    add_given(b, w, OPT_outer_momentum);
}

/* Releases the words. Rank 0 is the slow one. */
static exit_status run(rounds *b, words *w, double slow, json_t **report_out) {
    char value[60] = "";
    if (slow > 1) snprintf(value, sizeof value, "0:%.9g", slow);
    setenv("WEFT_SLOW_RANK", value, 1);
    exit_status bad = apart_run(&b->run, APART_SELF, w, 0, apart_n_cores(), false, report_out);
    unsetenv("WEFT_SLOW_RANK");
    words_release(w);
    return bad;
}

/* Returns the update's time in a step, from a profile of all steps. */
static double update_ms(const json_t *report, int64_t n_steps) {
    const json_t *profile = json_object_get(report, "profile");
    double ms = 0;
    for (json_t *row = NULL; (row = next_row(profile, row));)
        if (!strcmp(row_text(row, "op"), "update")) ms += row_number(row, "ms");
    return ms / (double)n_steps;
}

static exit_status measure_one(rounds *b, json_t *row) {
    bool is_served = json_is_true(json_object_get(row, ".served"));
    words w = {0};
    json_t *report;
    common_words(b, &w, b->c->o.recipe.n_workers);
    if (is_served) words_add(&w, "--update=async");
    words_add(&w, is_served ? "--plan=dp=1,ps=1" : "--profile");
    exit_status bad = run(b, &w, 1, &report);
    if (bad) return bad;
    bad = row_append(row, "runs", row_number(report, "step_ms.median"));
    if (!bad) bad = row_append(row, ".update_ms", update_ms(report, b->c->o.steps));
    json_decref(report);
    return bad;
}

static double samples_per_second(const json_t *report) {
    double tokens = row_number(report, "tokens_per_second");
    if (isnan(tokens)) return row_number(report, "images_per_second");
    return tokens / row_number(report, "recipe.tokens");
}

/* Adds a run's histogram to the row's. */
static void add_staleness(json_t *row, const json_t *of_run) {
    json_t *sum = json_object_get(row, ".staleness");
    for (size_t k = 0; k < json_array_size(of_run); k++) {
        json_int_t n = json_integer_value(json_array_get(of_run, k));
        if (k == json_array_size(sum)) json_array_append_new(sum, json_integer(0));
        json_integer_set(json_array_get(sum, k), n + json_integer_value(json_array_get(sum, k)));
    }
}

static exit_status keep(rounds *b, json_t *row, const json_t *report) {
    double rate = samples_per_second(report);
    json_t *losses = json_object_get(report, "losses");
    if (!(rate > 0) || !json_array_size(losses))
        return complain(EXIT_FAILED, "a run of '%s' reports no speed or no losses",
                        row_text(row, "name"));
    if (!b->recipe) b->recipe = json_incref(json_object_get(report, "recipe"));
    if (!json_array_size(json_object_get(row, "losses"))) {
        json_object_set(row, "losses", losses);
        row_set(row, "test_accuracy", row_number(report, "test_accuracy"));
    }
    add_staleness(row, json_object_get(report, "staleness"));
    return row_append(row, "runs", rate);
}

static exit_status run_row(rounds *b, json_t *row) {
    words w = {0};
    json_t *report;
    if (json_object_get(row, ".served")) return measure_one(b, row);
    common_words(b, &w, 1);
    update_words(b, row, &w);
    exit_status bad = run(b, &w, row_number(row, "slow"), &report);
    if (bad) return bad;
    bad = keep(b, row, report);
    json_decref(report);
    return bad;
}

/* ---- results ---- */

/* Takes the rows of one worker away. */
static async_costs take_costs(rounds *b) {
    const json_t *alone = json_array_get(b->rows, 0), *served = json_array_get(b->rows, 1);
    double step_ms = row_median(alone, "runs");
    async_costs c = {.update_ms = fmin(row_median(alone, ".update_ms"), step_ms / 2)};
    c.compute_ms = step_ms - c.update_ms;
    c.transfer_ms = fmax(0, row_median(served, "runs") - step_ms) / 2;
    json_array_remove(b->rows, 1);
    json_array_remove(b->rows, 0);
    return c;
}

static size_t window_of(size_t n_steps) {
    return n_steps < 20 ? 1 : n_steps / 10;
}

double async_mean_loss(const json_t *row, size_t step) {
    const json_t *losses = json_object_get(row, "losses");
    size_t n = window_of(json_array_size(losses));
    double sum = 0;
    if (n > step + 1) n = step + 1;
    for (size_t k = step + 1 - n; k <= step; k++)
        sum += json_number_value(json_array_get(losses, k));
    return sum / (double)n;
}

/* Seconds until the mean loss reaches the target; NAN: it never does. */
static double seconds_to_target(const rounds *b, const json_t *row) {
    size_t n = json_array_size(json_object_get(row, "losses"));
    double each_s = (double)b->c->o.recipe.batch / row_median(row, "runs");
    for (size_t step = window_of(n) - 1; step < n; step++)
        if (async_mean_loss(row, step) <= b->c->o.target_loss) return (double)(step + 1) * each_s;
    return NAN;
}

/* ".old": mean and maximum of the steps that gradients were old. */
static void describe_staleness(json_t *row) {
    const json_t *list = json_object_get(row, ".staleness");
    char text[TEXT_BYTES];
    double n = 0, old = 0;
    size_t most = 0;
    for (size_t k = 0; k < json_array_size(list); k++) {
        double here = json_number_value(json_array_get(list, k));
        n += here;
        old += here * (double)k;
        if (here > 0) most = k;
    }
    snprintf(text, sizeof text, "%.2f, %zu", old / n, most);
    if (n > 0) json_object_set_new(row, ".old", json_string(text));
}

/* Synchronous gradients are never stale; local steps have no common parameters to compare with. */
static exit_status finish_rows(rounds *b) {
    options *o = &b->c->o;
    async_costs *costs = &((bench_async *)b)->costs;
    *costs = take_costs(b);
    wf_status status = async_predict(b, costs);
    size_t n_last = (size_t)o->steps - 1;
    if (!option_is_given(o, OPT_target_loss))
        o->target_loss = async_mean_loss(json_array_get(b->rows, 0), n_last);
    for (json_t *row = NULL; (row = next_row(b->rows, row));) {
        describe_staleness(row);
        json_object_set(row, "staleness", json_object_get(row, ".staleness"));
        if (async_update(row) == WF_UPDATE_SYNC)
            json_object_set_new(
                row, "staleness",
                json_pack("[I]", (json_int_t)(o->recipe.n_workers * o->steps * o->repeat)));
        row_set(row, "samples_per_second", row_median(row, "runs"));
        row_set(row, "loss", async_mean_loss(row, n_last));
        row_set(row, "seconds_to_loss", seconds_to_target(b, row));
    }
    return complain_of(b->c, status);
}

static void say_part(const rounds *b, double slow) {
    char head[60] = "even workers";
    if (slow > 1) snprintf(head, sizeof head, "worker 0 slowed %g x", slow);
    const column columns[] = {{head, "name", -31, AS_TEXT},
                              {"samples/s", "samples_per_second", 11, 1},
                              {"predicted", "predicted", 10, 1},
                              {"loss", "loss", 9, 4},
                              {"s to loss", "seconds_to_loss", 10, 3},
                              {"steps old", ".old", 12, AS_TEXT}};
    json_t *part = json_array();
    for (json_t *row = NULL; (row = next_row(b->rows, row));)
        if (row_number(row, "slow") == slow) json_array_append(part, row);
    say(b->c, "\n");
    SAY_COLUMNS(b->c, part, columns);
    json_decref(part);
}

static void say_rows(const rounds *b) {
    const async_costs *costs = &((const bench_async *)b)->costs;
    const options *o = &b->c->o;
    char compute[TEXT_BYTES], transfer[TEXT_BYTES], update[TEXT_BYTES];
    say(b->c, "%s: %lld workers, batch %lld, %lld lanes; %lld round%s\n", o->model,
        (long long)o->recipe.n_workers, (long long)o->recipe.batch, (long long)o->recipe.n_lanes,
        (long long)o->repeat, o->repeat == 1 ? "" : "s");
    say_part(b, 1);
    if (o->slow > 1) say_part(b, o->slow);
    say(b->c,
        "\none worker: %s to compute a share of a batch, %s to send the parameters one way,\n"
        "%s to update them; the predictions use these\n",
        text_of_us(compute, costs->compute_ms * 1e3),
        text_of_us(transfer, costs->transfer_ms * 1e3), text_of_us(update, costs->update_ms * 1e3));
    say(b->c,
        "loss: mean of the last %zu of %lld steps; s to loss: seconds until such a mean is %.4f\n"
        "steps old: of gradients, mean and maximum\n",
        window_of((size_t)o->steps), (long long)o->steps, o->target_loss);
}

static exit_status add_to_report(const rounds *b, json_t *report) {
    const options *o = &b->c->o;
    const async_costs *costs = &((const bench_async *)b)->costs;
    json_object_update_new(report, json_pack("{s:I, s:o, s:{s:f, s:f, s:f}}", "workers",
                                             (json_int_t)o->recipe.n_workers, "target_loss",
                                             json_number(o->target_loss), "one_worker",
                                             "compute_ms", costs->compute_ms, "transfer_ms",
                                             costs->transfer_ms, "update_ms", costs->update_ms));
    return EXIT_DONE;
}

/* ---- the command ---- */

static exit_status check_counts(const options *o) {
    int64_t n = o->recipe.n_workers;
    if (n < 2 || n > MAX_WORKERS)
        return complain(EXIT_USAGE, "--workers %lld: there can be 2 to %d", (long long)n,
                        MAX_WORKERS);
    if (o->recipe.batch % n)
        return complain(EXIT_USAGE, "--batch %lld cannot be divided among %lld workers",
                        (long long)o->recipe.batch, (long long)n);
    if (o->servers < 1 || o->servers > MAX_WORKERS)
        return complain(EXIT_USAGE, "--servers %lld: there can be 1 to %d", (long long)o->servers,
                        MAX_WORKERS);
    if (!(o->slow >= 1) || o->slow > WF_SIMULATION_MAX_SLOW)
        return complain(EXIT_USAGE, "--slow must be 1 to %d", WF_SIMULATION_MAX_SLOW);
    if (o->steps < 2)
        return complain(EXIT_USAGE, "--steps must be at least 2: the first is not timed");
    if (o->recipe.n_lanes % n)
        return complain(EXIT_USAGE, "--lanes %lld cannot be divided among %lld workers",
                        (long long)o->recipe.n_lanes, (long long)n);
    return EXIT_DONE;
}

/* Uneven shares need several lanes a worker. */
static int64_t usual_lanes(const wf_recipe *r) {
    int64_t each = 4;
    while (each > 1 && r->n_workers && r->batch % (each * r->n_workers)) each /= 2;
    return each * r->n_workers;
}

static exit_status resolve(cli *c) {
    options *o = &c->o;
    exit_status bad = apart_resolve(c, 3);
    if (bad) return bad;
    int n_cores = apart_n_cores();
    if (!option_is_given(o, OPT_steps)) o->steps = USUAL_STEPS;
    if (!option_is_given(o, OPT_n_workers)) o->recipe.n_workers = n_cores < 2 ? 2 : n_cores;
    if (!option_is_given(o, OPT_n_lanes)) o->recipe.n_lanes = usual_lanes(&o->recipe);
    if (!option_is_given(o, OPT_staleness)) o->recipe.staleness = USUAL_STALENESS;
    if (!option_is_given(o, OPT_servers)) o->servers = 2;
    if (!option_is_given(o, OPT_slow)) o->slow = 3;
    return check_counts(o);
}

exit_status run_bench_async(cli *c) {
    static const bench parts = {add_rows, run_row,    NULL,         finish_rows,
                                say_rows, async_plot, add_to_report};
    bench_async a = {0};
    exit_status bad = resolve(c);
    return bad ? bad : rounds_bench(&a.all, c, &parts);
}
