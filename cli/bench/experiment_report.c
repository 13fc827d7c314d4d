/* The rows as a table and as JSON. */
#include "bench/experiment.h"
#include "job/report.h"

#include <string.h>

static double speedup(const experiment *e, const row *r) {
    const row *single = experiment_best(e, "single device", NULL, NULL, 0);
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
            r->n_ranks > 1 ? r->second_stage : "-", (long long)r->split, row_mean(r),
            samples_std(&r->seconds), images_per_second(e, r), speedup(e, r), r->predicted_s);
    }
    say(e->c, "\nseconds are those of %d batches of %lld images\n", ROW_BATCHES,
        (long long)e->c->o.recipe.batch);
    say_best(e, "best single device", experiment_best(e, "single device", NULL, NULL, 0));
    for (int s = 0; wf_schedule_name(s); s++) {
        char what[40];
        snprintf(what, sizeof what, "best %s", wf_schedule_name(s));
        say_best(e, what, experiment_best(e, NULL, wf_schedule_name(s), NULL, 0));
    }
}

static json_t *rank_json(const row *r, int rank) {
    rank_time t = row_time(r, rank);
    return json_pack("{s:f, s:f, s:f, s:f}", "compute", t.compute, "bubble", t.bubble, "transfer",
                     t.transfer, "wait", t.wait);
}

static json_t *row_json(const experiment *e, const row *r) {
    json_t *times = json_array(), *planned = json_array(), *measured = json_array();
    const char *cut = r->n_ranks == 1 ? "none" : *r->cut ? r->cut : "balanced";
    for (int rank = 0; rank < r->n_ranks; rank++) {
        json_array_append_new(times, rank_json(r, rank));
        json_array_append_new(planned, json_integer((json_int_t)r->planned_bytes[rank]));
        json_array_append_new(measured, json_integer((json_int_t)r->measured_bytes[rank]));
    }
    return json_pack(
        "{s:s, s:s, s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:s, s:I, s:s, s:s, s:o, s:{s:o, "
        "s:o}}",
        "name", r->name, "schedule", r->schedule, "split", (json_int_t)r->split, "seconds_mean",
        json_number(row_mean(r)), "seconds_std", json_number(samples_std(&r->seconds)), "speedup",
        json_number(speedup(e, r)), "predicted_seconds", json_number(r->predicted_s),
        "images_per_second", json_number(images_per_second(e, r)), "seconds",
        samples_json(&r->seconds), "cpu_seconds", json_number(r->cpu_s / (double)r->seconds.n),
        "loss", json_number(r->loss), "plan", r->plan, "micro",
        (json_int_t)(e->c->o.recipe.batch / r->split), "cut", cut, "second_stage", r->second_stage,
        "rank_times", times, "peak_bytes", "planned", planned, "measured", measured);
}

static json_t *report_of(const experiment *e) {
    loss_account account;
    json_t *rows = json_array();
    for (int i = 0; i < e->n_rows; i++) json_array_append_new(rows, row_json(e, &e->rows[i]));
    json_t *recipe = options_recipe(&e->c->o);
    json_object_del(recipe, "micro"); /* each row has its own */
    json_t *report = json_pack("{s:s, s:o, s:i, s:i, s:o}", "weft", WEFT_VERSION, "recipe", recipe,
                               "batches", ROW_BATCHES, "repeat", e->n_repeats, "rows", rows);
    if (e->devices) json_object_set_new(report, "devices", json_string(e->devices));
    effort_report(&e->spent, report);
    if (loss_of(e, &account)) json_object_set_new(report, "loss", loss_json(&account));
    return report;
}

exit_status experiment_write(const experiment *e) {
    char path[4096];
    json_t *report = report_of(e);
    snprintf(path, sizeof path, "%s/results.json", e->c->o.out);
    exit_status bad = report_put(e->c, report, "--out:", path);
    if (!bad) return report_write(e->c, report);
    json_decref(report);
    return bad;
}
