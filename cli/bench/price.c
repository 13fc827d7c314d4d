/* weft bench price: CPU time and memory that lanes and slices cost one rank, which needs neither.
 * Each row is a recipe on one rank, trained by weft bench train; rows take turns.
 */
#include "bench/rounds.h"
#include "job/report.h"

#include <string.h>

static const char *const asked[][4] = {
    {"--lanes=1", "--micro=1", "--slices=1"}, {"--slices=1"}, {NULL}};
#define N_ROWS (sizeof asked / sizeof *asked)

static exit_status run_row(rounds *b, json_t *row) {
    const char *const *more = asked[(int)row_number(row, ".asked")];
    words w = {0};
    json_t *report;
    char text[100];
    rounds_words(b, "bench train", FOR_BENCH, &w);
    for (int i = 0; more[i]; i++) words_add(&w, "%s", more[i]);
    words_add(&w, "--repeat=%lld", (long long)b->c->o.steps);
    exit_status bad = rounds_weft(b, row, &w, &report);
    if (bad) return bad;
    json_t *recipe = json_object_get(report, "recipe");
    snprintf(text, sizeof text, "--lanes %.0f --micro %.0f --slices %.0f",
             row_number(recipe, "lanes"), row_number(recipe, "micro"),
             row_number(recipe, "slices"));
    json_object_set_new(row, "recipe", json_string(text));
    json_object_set(row, "peak_bytes", json_object_get(report, "peak_bytes"));
    if (!more[0]) {
        json_decref(b->recipe);
        b->recipe = json_incref(recipe);
    }
    double cpu_ms = row_number(report, "cpu_ms");
    json_decref(report);
    if (!(cpu_ms > 0)) return complain(EXIT_FAILED, "a run reports no CPU time");
    return row_append(row, "runs", cpu_ms);
}

/* Only a run knows its defaults, so equal rows are found after the first round. */
static exit_status remove_same(rounds *b) {
    for (size_t i = json_array_size(b->rows) - 1; i > 0; i--)
        for (size_t k = 0; k < i; k++)
            if (!strcmp(row_text(json_array_get(b->rows, i), "recipe"),
                        row_text(json_array_get(b->rows, k), "recipe"))) {
                json_array_remove(b->rows, i);
                break;
            }
    return EXIT_DONE;
}

static void say_rows(const rounds *b) {
    static const column columns[] = {{"recipe", "recipe", -36, AS_TEXT},
                                     {"CPU ms a step", "cpu_ms", 14, 2},
                                     {"over", "over", 10, AS_PERCENT},
                                     {"planned peak", "peak_bytes.planned", 14, AS_BYTES}};
    double base = row_least(json_array_get(b->rows, 0), "runs");
    for (json_t *row = NULL; (row = next_row(b->rows, row));) {
        row_set(row, "cpu_ms", row_least(row, "runs"));
        row_set(row, "over", row_least(row, "runs") / base - 1);
    }
    SAY_COLUMNS(b->c, b->rows, columns);
}

static exit_status add_rows(rounds *b) {
    const options *o = &b->c->o;
    exit_status bad = EXIT_DONE;
    say(b->c, "%s on one rank; %lld rounds; a run is an untimed and %lld timed steps\n\n", o->model,
        (long long)o->repeat, (long long)o->steps);
    for (size_t i = 0; i < N_ROWS && !bad; i++)
        bad = rounds_add(b,
                         json_pack("{s:i, s:i, s:n, s:n, s:n, s:n}", ".asked", (int)i, "ranks", 1,
                                   "plan", "recipe", "cpu_ms", "over"),
                         N_ROWS);
    return bad;
}

exit_status run_bench_price(cli *c) {
    static const bench parts = {add_rows, run_row, remove_same, .say_rows = say_rows};
    rounds b = {0};
    exit_status bad = apart_resolve(c, 3);
    return bad ? bad : rounds_bench(&b, c, &parts);
}
