/* Rows of an experiment: their order, their results and their table. */
#include "bench/experiment.h"

#include <stdlib.h>
#include <string.h>

static bool is(const char *wanted, const json_t *row, const char *field) {
    return !wanted || !strcmp(wanted, row_text(row, field));
}

json_t *experiment_best(const rounds *b, const char *name, const char *schedule, const char *cut,
                        int64_t split) {
    json_t *best = NULL;
    for (json_t *row = NULL; (row = next_row(b->rows, row));)
        if (is(name, row, "name") && is(schedule, row, "schedule") && is(cut, row, "cut") &&
            (!split || row_number(row, "split") == (double)split) &&
            (!best || row_mean(row, "seconds") < row_mean(best, "seconds")))
            best = row;
    return best;
}

/* The next group's row is of another name, cut or schedule. */
static int compare_groups(const json_t *x, const json_t *y) {
    static const char order[] = "smp"; /* single device, model parallel, pipeline */
    int by = (int)(strchr(order, *row_text(x, "name")) - strchr(order, *row_text(y, "name")));
    if (!by) by = -strcmp(row_text(x, "cut"), row_text(y, "cut")); /* the tutorial's cut first */
    return by ? by : strcmp(row_text(x, "schedule"), row_text(y, "schedule"));
}

static int compare(const void *a, const void *b) {
    const json_t *x = *(json_t *const *)a, *y = *(json_t *const *)b;
    int by = compare_groups(x, y);
    double difference = row_number(x, "split") - row_number(y, "split");
    return by ? by : (difference > 0) - (difference < 0);
}

static void sort(json_t *rows) {
    json_t *sorted[MAX_ROWS];
    size_t n = json_array_size(rows);
    for (size_t i = 0; i < n; i++) sorted[i] = json_incref(json_array_get(rows, i));
    qsort(sorted, n, sizeof(json_t *), compare);
    json_array_clear(rows);
    for (size_t i = 0; i < n; i++) json_array_append_new(rows, sorted[i]);
}

exit_status experiment_finish(rounds *b) {
    const json_t *single = experiment_best(b, "single device", NULL, NULL, 0), *before = NULL;
    sort(b->rows);
    for (json_t *row = NULL; (row = next_row(b->rows, row)); before = row) {
        double mean = row_mean(row, "seconds");
        row_set(row, "seconds_mean", mean);
        row_set(row, "seconds_std", row_std(row, "seconds"));
        row_set(row, "speedup", row_mean(single, "seconds") / mean);
        row_set(row, "images_per_second", ROW_BATCHES * (double)b->c->o.recipe.batch / mean);
        if (before && compare_groups(before, row)) json_object_set_new(row, ".begins", json_true());
    }
    return EXIT_DONE;
}

/* ---- table ---- */

static void say_best(const rounds *b, const char *name, const char *schedule) {
    const json_t *row = experiment_best(b, schedule ? NULL : name, schedule, NULL, 0);
    char text[40];
    snprintf(text, sizeof text, "best %s", name);
    if (row)
        say(b->c, "%-22s%-38s split %-4.0f %8.3f s  %.2f x\n", text, row_text(row, "plan"),
            row_number(row, "split"), row_number(row, "seconds_mean"), row_number(row, "speedup"));
}

void experiment_say(const rounds *b) {
    static const column columns[] = {{"", "name", -14, AS_TEXT},
                                     {"schedule", "schedule", -9, AS_TEXT},
                                     {"2nd stage", ".stage", -10, AS_TEXT},
                                     {"split", "split", 6, AS_TEXT},
                                     {"seconds", "seconds_mean", 10, 3},
                                     {"std", "seconds_std", 8, 3},
                                     {"images/s", "images_per_second", 10, 1},
                                     {"speed-up", "speedup", 9, 2},
                                     {"predicted", "predicted_seconds", 11, 3}};
    say(b->c, "\n");
    SAY_COLUMNS(b->c, b->rows, columns);
    say(b->c, "\nseconds are those of %d batches of %lld images\n", ROW_BATCHES,
        (long long)b->c->o.recipe.batch);
    say_best(b, "single device", NULL);
    for (int s = 0; wf_schedule_name(s); s++) say_best(b, wf_schedule_name(s), wf_schedule_name(s));
    experiment_say_loss(b);
}
