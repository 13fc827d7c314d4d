#include "plans/units.h"
#include "common/fold.h"
#include "common/text.h"
#include "job/report.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#define LINE_BYTES 200

/* ---- names ---- */

/* A unit's parts follow it. */
static void find_names(unit_table *table) {
    const wf_costs *costs = wf_program_costs(table->program);
    const char *own = "";
    for (int k = 0, n_own = 0; k < table->n_all; k++) {
        const char *name = wf_costs_unit(costs, k).name;
        bool is_part = n_own && !strncmp(name, own, (size_t)n_own) && name[n_own] == '.';
        if (!is_part || table->c->o.verbose) own = name, n_own = (int)strlen(name);
        table->name_bytes[k] = n_own;
        if (n_own > table->width) table->width = n_own;
    }
}

int units_name_bytes(const unit_table *table, const char *name) {
    const wf_costs *costs = wf_program_costs(table->program);
    for (int k = 0; k < table->n_all; k++)
        if (!strcmp(wf_costs_unit(costs, k).name, name)) return table->name_bytes[k];
    return (int)strlen(name);
}

/* ---- lines ---- */

/* A unit and its parts, added up. */
typedef struct line {
    const char *name;
    int name_bytes;
    char figures[LINE_BYTES];
    double us;
} line;

static void add(const wf_unit_summary *u, wf_unit_summary *sum) {
    sum->n_parameters += u->n_parameters;
    sum->forward_flops += u->forward_flops;
    sum->backward_flops += u->backward_flops;
    sum->activation_bytes += u->activation_bytes;
    sum->forward_us += u->forward_us + u->recompute_us + u->backward_us + u->weight_us;
}

static void format_line(const wf_unit_summary *sum, const char *name, int name_bytes, line *out) {
    char params[TEXT_BYTES], forward[TEXT_BYTES], backward[TEXT_BYTES], kept[TEXT_BYTES];
    *out = (line){.name = name, .name_bytes = name_bytes, .us = sum->forward_us};
    snprintf(out->figures, LINE_BYTES, "%10s %12s %10s %11s",
             text_of_count(params, (double)sum->n_parameters),
             text_of_count(forward, sum->forward_flops),
             text_of_count(backward, sum->backward_flops),
             text_of_bytes(kept, (double)sum->activation_bytes));
}

/* ---- equal neighbours ---- */

/* Whether b's name is a's with one number raised by one. */
static bool is_next(const line *a, const line *b) {
    int at = 0, n = 0, m = 0;
    while (at < a->name_bytes && at < b->name_bytes && a->name[at] == b->name[at]) at++;
    while (at > 0 && isdigit((unsigned char)a->name[at - 1])) at--;
    long one = strtol(a->name + at, NULL, 10), other = strtol(b->name + at, NULL, 10);
    while (isdigit((unsigned char)a->name[at + n])) n++;
    while (isdigit((unsigned char)b->name[at + m])) m++;
    int rest = a->name_bytes - at - n;
    return n && m && other == one + 1 && rest == b->name_bytes - at - m &&
           !strncmp(a->name + at + n, b->name + at + m, (size_t)rest);
}

/* Equal neighbours; their time is the mean, as measured times differ a little. */
typedef struct row {
    line first, last;
    double us;
    int n;
} row;

static void write_row(const unit_table *table, FILE *out, const row *r) {
    char name[200], times[TEXT_BYTES] = "", time[TEXT_BYTES];
    const line *first = &r->first, *last = &r->last;
    snprintf(name, sizeof name, "%.*s", first->name_bytes, first->name);
    if (r->n > 1) {
        size_t n = strlen(name);
        snprintf(name + n, sizeof name - n, " ... %.*s", last->name_bytes, last->name);
        snprintf(times, sizeof times, "%d x", r->n);
    }
    fprintf(out, "%-*s %5s %s %9s\n", 2 * table->width + 5, name, times, first->figures,
            text_of_us(time, r->us / r->n));
}

/* Adds the unit to the row, or ends that and begins the next one. */
static void add_line(const unit_table *table, FILE *out, const line *now, row *r) {
    if (r->n && is_next(&r->last, now) && !strcmp(r->first.figures, now->figures)) {
        r->last = *now;
        r->us += now->us;
        r->n++;
        return;
    }
    if (r->n) write_row(table, out, r);
    *r = (row){*now, *now, now->us, 1};
}

static void write_units(const unit_table *table, FILE *out) {
    row r = {.n = 0};
    for (int k = 0; k < table->n_all;) {
        const char *name = table->all[k].name;
        int n = table->name_bytes[k], first = k;
        wf_unit_summary sum = {.name = name};
        for (; k < table->n_all && table->name_bytes[k] == n; k++) {
            const char *other = table->all[k].name;
            if (name && other && strncmp(name, other, (size_t)n)) break;
            if (k > first && other && !other[n]) break; /* a unit of its own */
            add(&table->all[k], &sum);
        }
        line now;
        format_line(&sum, name, n, &now);
        if (name) add_line(table, out, &now, &r);
    }
    if (r.n) write_row(table, out, &r);
}

/* ---- the table ---- */

bool units_begin(const cli *c, const wf_program *p, unit_table *table) {
    int n = wf_costs_n_units(wf_program_costs(p));
    *table = (unit_table){.c = c, .program = p, .n_all = n};
    table->all = calloc((size_t)n + 1, sizeof *table->all);
    table->name_bytes = calloc((size_t)n + 1, sizeof *table->name_bytes);
    table->texts = calloc((size_t)wf_program_n_ranks(p), sizeof *table->texts);
    if (!table->all || !table->name_bytes || !table->texts) return false;
    find_names(table);
    return true;
}

/* --verbose: a line for each unit. */
static char *text_of(const unit_table *table, const wf_unit_summary *units, int n) {
    char *text = NULL, time[TEXT_BYTES];
    size_t n_bytes;
    FILE *out = open_memstream(&text, &n_bytes);
    if (!out) return NULL;
    for (int k = 0; k < n; k++) {
        wf_unit_summary sum = {.name = units[k].name};
        line now;
        add(&units[k], &sum);
        format_line(&sum, sum.name, (int)strlen(sum.name), &now);
        fprintf(out, "%s%-*s %s %9s", k ? "\n" : "", table->width, now.name, now.figures,
                text_of_us(time, now.us));
    }
    if (!fclose(out)) return text;
    free(text);
    return NULL;
}

/* A rank's units are in the order of the program's. */
void units_add(int rank, const wf_unit_summary *units, int n, unit_table *table, char *range,
               size_t bytes) {
    const wf_costs *costs = wf_program_costs(table->program);
    int first = -1, last = -1;
    if (table->c->o.verbose) table->texts[rank] = text_of(table, units, n);
    for (int k = 0, at = 0; k < n && at < table->n_all; at++) {
        if (strcmp(wf_costs_unit(costs, at).name, units[k].name) != 0) continue;
        table->all[at] = units[k++];
        if (first < 0) first = at;
        last = at;
    }
    snprintf(range, bytes, "-");
    if (first < 0) return;
    const char *one = table->all[first].name, *other = table->all[last].name;
    int n_one = table->name_bytes[first], n_other = table->name_bytes[last];
    if (n_one == n_other && !strncmp(one, other, (size_t)n_one))
        snprintf(range, bytes, "%.*s", n_one, one);
    else
        snprintf(range, bytes, "%.*s ... %.*s", n_one, one, n_other, other);
}

void units_release(unit_table *table) {
    free(table->texts);
    free(table->name_bytes);
    free(table->all);
    *table = (unit_table){NULL};
}

void units_say(unit_table *table) {
    const cli *c = table->c;
    char heading[LINE_BYTES], *text = NULL;
    size_t n_bytes;
    int width = c->o.verbose ? table->width : 2 * table->width + 11;
    snprintf(heading, sizeof heading, "%-*s %10s %12s %10s %11s %9s", width, "unit", "parameters",
             "forward FLOP", "backward", "activations", costs_text(table->program));
    say(c, "\n");
    if (c->o.verbose) {
        say_by_rank(c, NULL, heading, table->texts, wf_program_n_ranks(table->program), 0);
        table->texts = NULL;
    } else {
        FILE *out = open_memstream(&text, &n_bytes);
        if (out) write_units(table, out);
        if (out && !fclose(out)) say(c, "%s\n%s", heading, text);
        free(text);
    }
    say(c, "FLOP, activations and time of one microbatch%s\n",
        c->o.verbose ? "" : "; --verbose prints the parts of units, by rank");
}
