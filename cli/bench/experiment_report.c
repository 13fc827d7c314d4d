/* The rows as a table and as JSON. */
#include "bench/experiment.h"
#include "output.h"
#include "report.h"

#include <string.h>

static double speedup(const experiment *e, const row *r) {
    const row *single = experiment_best(e, "single device", NULL, NULL);
    return single ? row_mean(single) / row_mean(r) : 0;
}

static double images_per_second(const experiment *e, const row *r) {
    return ROW_BATCHES * (double)e->c->o.recipe.batch / row_mean(r);
}

static bool begins_group(const row *r, const row *before) {
    return strcmp(r->name, before->name) || strcmp(r->cut, before->cut) ||
           strcmp(r->schedule, before->schedule);
}

static void say_best(const experiment *e, const char *what, const row *r) {
    if (r)
        say(e->c, "%-22s%-38s split %-4lld %8.3f s  %.2f x\n", what, r->plan, (long long)r->split,
            row_mean(r), speedup(e, r));
}

void experiment_say(const experiment *e) {
    say(e->c, "\n%-15s%-10s%-11s%6s %10s %8s %10s %9s %11s\n", "", "schedule", "2nd stage", "split",
        "seconds", "std", "images/s", "speed-up", "predicted");
    for (const row *r = e->rows; r < e->rows + e->n_rows; r++) {
        if (r > e->rows && begins_group(r, r - 1)) say(e->c, "\n");
        say(e->c, "%-15s%-10s%-11s%6lld %10.3f %8.3f %10.1f %9.2f %11.3f\n", r->name, r->schedule,
            r->n_ranks > 1 ? r->second_stage : "-", (long long)r->split, row_mean(r), row_std(r),
            images_per_second(e, r), speedup(e, r), r->predicted_s);
    }
    say(e->c, "\nseconds are those of %d batches of %lld images\n", ROW_BATCHES,
        (long long)e->c->o.recipe.batch);
    say_best(e, "best single device", experiment_best(e, "single device", NULL, NULL));
    for (int s = 0; wf_schedule_name(s); s++) {
        char what[40];
        snprintf(what, sizeof what, "best %s", wf_schedule_name(s));
        say_best(e, what, experiment_best(e, NULL, wf_schedule_name(s), NULL));
    }
}

static json_t *rank_json(const row *r, int rank) {
    rank_time t = row_time(r, rank);
    return json_pack("{s:f, s:f, s:f, s:f}", "compute", t.compute, "bubble", t.bubble, "transfer",
                     t.transfer, "wait", t.wait);
}

static json_t *row_json(const experiment *e, const row *r) {
    json_t *times = json_array(), *planned = json_array(), *measured = json_array();
    json_t *seconds = json_array();
    const char *cut = r->n_ranks == 1 ? "none" : *r->cut ? r->cut : "balanced";
    for (int rank = 0; rank < r->n_ranks; rank++) {
        json_array_append_new(times, rank_json(r, rank));
        json_array_append_new(planned, json_integer((json_int_t)r->planned_bytes[rank]));
        json_array_append_new(measured, json_integer((json_int_t)r->measured_bytes[rank]));
    }
    for (int i = 0; i < r->n_seconds; i++)
        json_array_append_new(seconds, json_number(r->seconds[i]));
    json_t *about =
        json_pack("{s:s, s:s, s:I, s:o, s:o, s:o}", "name", r->name, "schedule", r->schedule,
                  "split", (json_int_t)r->split, "seconds_mean", json_number(row_mean(r)),
                  "seconds_std", json_number(row_std(r)), "speedup", json_number(speedup(e, r)));
    json_object_set_new(about, "predicted_seconds", json_number(r->predicted_s));
    json_object_set_new(about, "images_per_second", json_number(images_per_second(e, r)));
    json_object_set_new(about, "seconds", seconds);
    json_object_set_new(about, "cpu_seconds", json_number(r->cpu_s / r->n_seconds));
    json_object_set_new(about, "loss", json_number(r->loss));
    json_object_set_new(about, "plan", json_string(r->plan));
    json_object_set_new(about, "micro", json_integer(e->c->o.recipe.batch / r->split));
    json_object_set_new(about, "cut", json_string(cut));
    json_object_set_new(about, "second_stage", json_string(r->second_stage));
    json_object_set_new(about, "rank_times", times);
    json_object_set_new(about, "peak_bytes",
                        json_pack("{s:o, s:o}", "planned", planned, "measured", measured));
    return about;
}

static json_t *report_of(const experiment *e) {
    loss_account account;
    json_t *rows = json_array();
    for (int i = 0; i < e->n_rows; i++) json_array_append_new(rows, row_json(e, &e->rows[i]));
    json_t *report = json_object();
    json_object_set_new(report, "weft", json_string(WEFT_VERSION));
    json_t *recipe = options_recipe(&e->c->o);
    json_object_del(recipe, "micro"); /* each row has its own */
    json_object_set_new(report, "recipe", recipe);
    json_object_set_new(report, "batches", json_integer(ROW_BATCHES));
    json_object_set_new(report, "repeat", json_integer(e->n_repeats));
    json_object_set_new(report, "rows", rows);
    effort_report(&e->spent, report);
    if (loss_of(e, &account)) json_object_set_new(report, "loss", loss_json(&account));
    return report;
}

static exit_status write_results(const cli *c, const json_t *report) {
    char path[4096];
    output out;
    snprintf(path, sizeof path, "%s/results.json", c->o.out);
    exit_status bad = output_begin(&out, c, "--out:", path);
    if (bad) return bad;
    if (!json_dumpf(report, out.stream, JSON_INDENT(1) | JSON_ENSURE_ASCII) &&
        fputc('\n', out.stream) != EOF)
        return output_end(&out);
    output_drop(&out);
    return complain(EXIT_FAILED, "no memory left");
}

exit_status experiment_write(const experiment *e) {
    json_t *report = report_of(e);
    exit_status bad = write_results(e->c, report);
    if (!bad) return report_write(e->c, report);
    json_decref(report);
    return bad;
}
