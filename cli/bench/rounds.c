#include "bench/rounds.h"
#include "checkpoint/checkpoint.h"
#include "common/text.h"
#include "job/report.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- rows ---- */

static exit_status open_rounds(rounds *b, cli *c) {
    b->c = c;
    b->rows = json_array();
    exit_status bad = apart_check_alone(c);
    if (!bad) bad = report_check(c);
    if (!bad && c->o.out) bad = checkpoint_folder(c);
    if (!bad) bad = apart_open(c, &b->run);
    if (!bad) interrupt_watch();
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

exit_status rounds_once(rounds *b, const char *verb, size_t first, int round, rounds_run *run) {
    size_t n = json_array_size(b->rows);
    exit_status bad = EXIT_DONE;
    for (size_t i = first; i < n && !bad; i++) {
        json_t *row = json_array_get(b->rows, round % 2 ? first + n - 1 - i : i);
        char text[150];
        if (interrupt_status())
            return complain(interrupt_status(), "interrupted; no results have been written");
        snprintf(text, sizeof text, "%s %d/%d  %.100s", verb, b->n_runs_done + 1, b->n_runs,
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
        bad = rounds_once(b, "run", 0, round, parts->run);
        if (!round && !bad && parts->after_first) bad = parts->after_first(b);
    }
    progress_clear(&b->bar);
    return bad;
}

/* ---- the bench ---- */

static json_t *create_report(const rounds *b) {
    const options *o = &b->c->o;
    json_t *rows = json_array();
    for (json_t *row = NULL; (row = next_row(b->rows, row));)
        json_array_append_new(rows, row_public(row));
    json_t *report = json_pack("{s:s, s:O, s:I, s:I, s:i, s:o}", "weft", WEFT_VERSION, "recipe",
                               b->recipe, "steps", (json_int_t)o->steps, "repeat",
                               (json_int_t)o->repeat, "cores", apart_n_cores(), "rows", rows);
    if (!(option_about(OPT_steps).commands & b->c->command)) json_object_del(report, "steps");
    effort_report(&b->spent, report);
    return report;
}

static exit_status finish(rounds *b, const bench *parts) {
    exit_status bad = parts->finish ? parts->finish(b) : EXIT_DONE;
    if (!bad) bad = complain_of(b->c, effort_since(b->c, &b->begin, &b->spent));
    if (bad) return bad;
    parts->say_rows(b);
    effort_say(b->c, &b->spent);
    if (b->c->o.out && parts->plot) bad = parts->plot(b);
    if (bad) return bad;
    json_t *report = create_report(b);
    if (parts->report) bad = parts->report(b, report);
    if (!bad) return report_write(b->c, report);
    json_decref(report);
    return bad;
}

exit_status rounds_bench(rounds *b, cli *c, const bench *parts) {
    exit_status bad = open_rounds(b, c);
    if (!bad) bad = parts->add_rows(b);
    if (!bad) bad = run_all(b, parts);
    if (!bad) bad = finish(b, parts);
    rounds_close(b);
    return bad;
}

void rounds_close(rounds *b) {
    json_decref(b->rows);
    json_decref(b->recipe);
    apart_close(&b->run);
}

/* ---- rows and their fields ---- */

json_t *row_public(const json_t *row) {
    json_t *copy = json_object(), *value;
    const char *key;
    json_object_foreach((json_t *)(uintptr_t)row, key, value) {
        if (*key != '.') json_object_set(copy, key, value);
    }
    return copy;
}

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
    double most = NAN;
    for (size_t i = 0; i < json_array_size(value); i++)
        most = fmax(most, json_number_value(json_array_get(value, i)));
    return json_is_number(value) ? json_number_value(value) : most;
}

double row_statistic(const json_t *row, const char *name,
                     double (*statistic)(const samples *s, size_t first)) {
    const json_t *list = json_object_get(row, name);
    samples s = {0};
    for (size_t i = 0; i < json_array_size(list); i++)
        (void)samples_add(&s, json_number_value(json_array_get(list, i)));
    double value = statistic(&s, 0);
    samples_release(&s);
    return value;
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

void row_append_peak(json_t *peaks, const wf_trainer_memory *memory) {
    json_array_append_new(json_object_get(peaks, "planned"),
                          json_integer((json_int_t)memory->planned_peak_bytes));
    json_array_append_new(json_object_get(peaks, "measured"),
                          json_integer((json_int_t)memory->measured_peak_bytes));
}

/* ---- tables and pictures ---- */

static void say_cell(const cli *c, const column *k, const json_t *row) {
    const json_t *value = row_value(row, k->field);
    double number = row_number(row, k->field);
    char text[200] = "-";
    if (json_is_string(value))
        snprintf(text, sizeof text, "%s", json_string_value(value));
    else if (isnan(number))
        strcpy(text, "-");
    else if (k->as == AS_BYTES)
        text_of_bytes(text, number);
    else if (k->as == AS_ERROR)
        snprintf(text, sizeof text, "%+.1f %%", 100 * number);
    else
        snprintf(text, sizeof text, "%.*f", k->as == AS_TEXT ? 0 : k->as, number);
    say(c, "%*s", k->width, text);
}

void say_columns(const cli *c, const json_t *rows, const column *columns, int n) {
    for (int k = 0; k < n; k++) say(c, "%s%*s", k ? " " : "", columns[k].width, columns[k].head);
    say(c, "\n");
    for (json_t *row = NULL; (row = next_row(rows, row));) {
        if (json_object_get(row, ".begins")) say(c, "\n");
        for (int k = 0; k < n; k++) {
            if (k) say(c, " ");
            say_cell(c, &columns[k], row);
        }
        say(c, "\n");
    }
}

static void write_cell(FILE *csv, const json_t *row, const char *field) {
    const json_t *value = row_value(row, field);
    if (json_is_string(value) && strpbrk(json_string_value(value), ", "))
        fprintf(csv, "\"%s\"", json_string_value(value));
    else if (json_is_string(value))
        fputs(json_string_value(value), csv);
    else
        fprintf(csv, "%.17g", row_number(row, field));
}

void chart_row(FILE *csv, const json_t *row, const char *fields) {
    char field[60];
    for (const char *at = fields; *at; at += strcspn(at, ","), at += *at == ',') {
        snprintf(field, sizeof field, "%.*s", (int)strcspn(at, ","), at);
        if (at > fields) fputc(',', csv);
        write_cell(csv, row, field);
    }
    fputc('\n', csv);
}
