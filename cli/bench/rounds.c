#include "bench/rounds.h"
#include "checkpoint/checkpoint.h"

#include <math.h>
#include <string.h>

/* ---- rows ---- */

static exit_status open_rounds(rounds *b, cli *c) {
    b->c = c;
    b->rows = json_array();
    exit_status bad = apart_check_alone(c);
    if (!bad && c->o.out) bad = checkpoint_folder(c);
    if (!bad) bad = cases_check(c);
    interrupt_end();
    b->begin = effort_now();
    return bad;
}

exit_status rounds_add(rounds *b, json_t *row, size_t most) {
    if (row && json_array_size(b->rows) == most) {
        json_decref(row);
        return complain(EXIT_USAGE, "there can be %zu rows", most);
    }
    if (json_array_append_new(b->rows, row)) return complain(EXIT_FAILED, "no memory left");
    return EXIT_DONE;
}

/* ---- rounds ---- */

exit_status rounds_once(rounds *b, size_t first, int round, rounds_run *run) {
    size_t n = json_array_size(b->rows);
    exit_status bad = EXIT_DONE;
    for (size_t i = first; i < n && !bad; i++) {
        json_t *row = json_array_get(b->rows, round % 2 ? first + n - 1 - i : i);
        char text[150];
        snprintf(text, sizeof text, "run %d/%d  %.100s", b->n_runs_done + 1, b->n_runs,
                 row_text(row, ".name"));
        progress_show(&b->bar, (double)b->n_runs_done++ / b->n_runs, text);
        bad = run(b, row);
    }
    return bad;
}

static exit_status run_all(rounds *b, const bench *parts) {
    exit_status bad = EXIT_DONE;
    int n_rounds = (int)b->c->o.repeat;
    progress_open(&b->bar, !b->c->o.quiet);
    for (int round = 0; round < n_rounds && !bad; round++) {
        b->n_runs = b->n_runs_done + (int)json_array_size(b->rows) * (n_rounds - round);
        bad = rounds_once(b, 0, round, parts->run);
        if (!round && !bad && parts->after_first) bad = parts->after_first(b);
    }
    progress_clear(&b->bar);
    return bad;
}

/* ---- the bench ---- */

static exit_status show(rounds *b, const bench *parts) {
    effort spent;
    TRY(complain_of(b->c, effort_since(b->c, &b->begin, &spent)));
    json_t *state = json_pack("{s:O, s:O}", "rows", b->rows, "recipe", b->recipe);
    if (parts->describe) json_object_update_new(state, parts->describe(b));
    return cases_show(b->c, state, &spent);
}

exit_status rounds_bench(rounds *b, cli *c, const bench *parts) {
    exit_status bad = open_rounds(b, c);
    if (!bad) bad = parts->add_rows(b);
    if (!bad) bad = run_all(b, parts);
    if (!bad) bad = show(b, parts);
    rounds_close(b);
    return bad;
}

void rounds_close(rounds *b) {
    json_decref(b->rows);
    json_decref(b->recipe);
}

/* ---- rows and their fields ---- */

json_t *next_row(const json_t *rows, const json_t *row) {
    size_t i = 0;
    while (row && json_array_get(rows, i++) != row) continue;
    return json_array_get(rows, i);
}

const char *row_text(const json_t *row, const char *field) {
    const char *text = json_string_value(json_object_get(row, field));
    return text ? text : "";
}

static const json_t *row_value(const json_t *row, const char *path) {
    char key[100];
    size_t n = strcspn(path + 1, ".") + 1; /* a dot may begin a name */
    snprintf(key, sizeof key, "%.*s", (int)n, path);
    const json_t *value = json_object_get(row, key);
    return path[n] ? row_value(value, path + n + 1) : value;
}

double row_number(const json_t *row, const char *path) {
    const json_t *value = row_value(row, path);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

double row_mean(const json_t *row, const char *name) {
    const json_t *list = json_object_get(row, name), *value;
    double sum = 0;
    size_t i;
    json_array_foreach(list, i, value) sum += json_number_value(value);
    return i ? sum / (double)i : NAN;
}

void row_set(json_t *row, const char *field, double value) {
    json_object_set_new(row, field, json_number(value));
}

exit_status row_append(json_t *row, const char *name, double value) {
    json_t *list = json_object_get(row, name);
    if (!json_is_array(list)) json_object_set_new(row, name, list = json_array());
    if (json_array_append_new(list, json_number(value)))
        return complain(EXIT_FAILED, "no memory left");
    return EXIT_DONE;
}
