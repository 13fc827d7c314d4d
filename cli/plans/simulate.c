/* weft simulate: the cost of a pipeline schedule for given times. No model, no devices. */
#include "plans/simulate.h"
#include "common/cli.h"
#include "common/text.h"
#include "job/report.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* ---- a schedule as text: a row a stage, time from left to right ---- */

#define MIN_COLUMNS 40
#define MAX_COLUMNS 1000

typedef struct look {
    const char *name, *color, *meaning;
} look;

static const look looks[] = {
    [WF_SPAN_FORWARD] = {"F", "\033[30;44m", "forward"},
    [WF_SPAN_BACKWARD] = {"B", "\033[30;46m", "gradient of the input"},
    [WF_SPAN_WEIGHT] = {"W", "\033[30;42m", "gradient of the weights"},
    [WF_SPAN_BACKWARD_WEIGHT] = {"BW", "\033[30;46m", "both"},
};

/* The most that fits: "BW12", "B12", "B"; nothing if there is no room. */
static void print_box(FILE *out, const wf_schedule_action *action, int n_columns, bool color) {
    const look *as = &looks[action->kind];
    char text[40];
    int n = snprintf(text, sizeof text, "%s%d", as->name, action->micro);
    if (n > n_columns) n = snprintf(text, sizeof text, "%c%d", as->name[0], action->micro);
    if (n > n_columns) n = snprintf(text, sizeof text, "%c", as->name[0]);
    if (n > n_columns) return;
    for (char *at = text; *at && action->chunk % 2; at++) *at = (char)tolower((unsigned char)*at);
    fprintf(out, "%s%s", color ? as->color : "", text);
    for (; n < n_columns; n++) fputc(color ? ' ' : '-', out);
    if (color) fputs("\033[0m", out);
}

static void print_stage(FILE *out, const wf_schedule_result *result, int stage, int n_columns,
                        double ms_per_column, bool color) {
    int n_actions = wf_schedule_result_stage(result, stage).n_actions, column = 0;
    for (int i = 0; i < n_actions && ms_per_column > 0; i++) {
        wf_schedule_action action = wf_schedule_result_action(result, stage, i);
        int begin = (int)(action.begin_ms / ms_per_column + 0.5);
        int end = (int)(action.end_ms / ms_per_column + 0.5);
        for (; column < begin; column++) fputc(color ? ' ' : '.', out);
        print_box(out, &action, end - begin, color);
        column = end;
    }
    for (; column < n_columns; column++) fputc(color ? ' ' : '.', out);
    fputc('\n', out);
}

static void print_legend(FILE *out, bool color, bool splits, bool has_chunks) {
    for (int kind = WF_SPAN_FORWARD; kind <= WF_SPAN_BACKWARD_WEIGHT; kind++) {
        bool is_used = kind == WF_SPAN_FORWARD || (kind == WF_SPAN_BACKWARD_WEIGHT) != splits;
        if (is_used)
            fprintf(out, "  %s%s%s %s", color ? looks[kind].color : "", looks[kind].name,
                    color ? "\033[0m" : "", looks[kind].meaning);
    }
    fputs(has_chunks ? "  lower case: every other chunk\n" : "\n", out);
}

/* As wide as the terminal, or 80 columns; in colour on a terminal. The first `n_rows` stages. */
static void say_schedule(const cli *c, const wf_schedule_result *result, int n_rows) {
    if (c->o.quiet) return;
    FILE *out = c->say;
    bool color = has_color(out), splits = false;
    int digits = snprintf(NULL, 0, "%d", n_rows - 1);
    int n_columns = columns_of(out, MIN_COLUMNS, MAX_COLUMNS) - digits - 1;
    double ms = wf_schedule_result_summary(result).makespan_ms / n_columns;
    for (int i = 0; i < wf_schedule_result_stage(result, 0).n_actions && !splits; i++)
        splits = wf_schedule_result_action(result, 0, i).kind == WF_SPAN_WEIGHT;
    for (int s = 0; s < n_rows; s++) {
        fprintf(out, "%*d ", digits, s);
        print_stage(out, result, s, n_columns, ms, color);
    }
    print_legend(out, color, splits, wf_schedule_result_summary(result).n_chunks > 1);
}

#define MAX_ROWS 64 /* of the table and the picture */

/* ---- options ---- */

static exit_status check_counts(const options *o) {
    static const option_id needed[] = {OPT_stages, OPT_n_micro, OPT_forward_ms, OPT_backward_ms,
                                       OPT_weight_ms};
    char name[TEXT_BYTES], text[TEXT_BYTES];
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++)
        if (!option_is_given(o, needed[i]))
            return complain(EXIT_USAGE, "%s is missing: %s %s", option_name(name, needed[i]),
                            option_about(needed[i]).argument, option_about(needed[i]).help);
    if (o->stages < 1 || o->stages > WF_SCHEDULE_MAX_STAGES)
        return complain(EXIT_USAGE, "--stages: %lld; a pipeline has 1 to %d", (long long)o->stages,
                        WF_SCHEDULE_MAX_STAGES);
    int64_t most = WF_SCHEDULE_MAX_CELLS / o->stages;
    if (o->recipe.n_micro < 1 || o->recipe.n_micro > most)
        return complain(EXIT_USAGE, "--micro: %s; with %lld stages there may be 1 to %lld",
                        option_text(o, OPT_n_micro, text), (long long)o->stages, (long long)most);
    if (option_is_given(o, OPT_memory_limit) && o->memory_limit < 1)
        return complain(EXIT_USAGE, "--memory-limit: a stage must hold 1 microbatch at least");
    if (option_is_given(o, OPT_chunks) && (o->chunks < 1 || o->chunks > most / o->recipe.n_micro))
        return complain(EXIT_USAGE, "--chunks: %s; with so many stages and microbatches 1 to %lld",
                        option_text(o, OPT_chunks, text), (long long)(most / o->recipe.n_micro));
    if (!(o->weight_held >= 0 && o->weight_held <= 1))
        return complain(EXIT_USAGE, "--weight-held: %g is not from 0 to 1", o->weight_held);
    if (!(o->transfer_ms >= 0 && o->transfer_ms <= WF_SCHEDULE_MAX_TIME_MS))
        return complain(EXIT_USAGE, "--transfer-ms: %g is not from 0 to %g", o->transfer_ms,
                        WF_SCHEDULE_MAX_TIME_MS);
    return EXIT_DONE;
}

exit_status simulate_read_time(option_id id, const char *text, size_t n, double *time_out) {
    char word[64] = "", name[TEXT_BYTES];
    if (n < sizeof word) memcpy(word, text, n);
    if (text_to_real(word, time_out) && *time_out >= 0 && *time_out <= WF_SCHEDULE_MAX_TIME_MS)
        return EXIT_DONE;
    return complain(EXIT_USAGE, "%s: '%.*s' is not a time from 0 to %g ms", option_name(name, id),
                    (int)(n < 60 ? n : 60), text, WF_SCHEDULE_MAX_TIME_MS);
}

/* "X" for all stages or "X,Y,..." with one for each, into the field at `offset` of each. */
static exit_status read_times(const options *o, option_id id, const char *text,
                              wf_stage_times *times, size_t offset) {
    char name[TEXT_BYTES], *field = (char *)times + offset;
    int64_t n = 0;
    option_name(name, id);
    for (const char *at = text;; at++) {
        size_t length = strcspn(at, ",");
        double time;
        TRY(simulate_read_time(id, at, length, &time));
        if (n < o->stages) memcpy(field + n * (int64_t)sizeof *times, &time, sizeof time);
        n++;
        at += length;
        if (!*at) break;
    }
    if (n != 1 && n != o->stages)
        return complain(EXIT_USAGE, "%s has %lld times for %lld stages; give 1, or one a stage",
                        name, (long long)n, (long long)o->stages);
    for (int64_t s = n; s < o->stages; s++)
        memcpy(field + s * (int64_t)sizeof *times, field, sizeof(double));
    return EXIT_DONE;
}

static exit_status read_all_times(const options *o, wf_stage_times *times) {
    exit_status bad =
        read_times(o, OPT_forward_ms, o->forward_ms, times, offsetof(wf_stage_times, forward_ms));
    if (!bad)
        bad = read_times(o, OPT_backward_ms, o->backward_ms, times,
                         offsetof(wf_stage_times, backward_ms));
    if (!bad)
        bad =
            read_times(o, OPT_weight_ms, o->weight_ms, times, offsetof(wf_stage_times, weight_ms));
    return bad;
}

/* ---- results ---- */

static void say_result(const cli *c, const wf_schedule_result *result) {
    const options *o = &c->o;
    wf_schedule_summary sum = wf_schedule_result_summary(result);
    int n_rows = (int)(o->stages < MAX_ROWS ? o->stages : MAX_ROWS);
    bool chose = strcmp(sum.schedule, o->schedule) != 0;
    say(c, "%s%s%s, %lld stage%s", o->schedule, chose ? ": " : "", chose ? sum.schedule : "",
        (long long)o->stages, o->stages == 1 ? "" : "s");
    if (sum.n_chunks > 1) say(c, " of %d chunks", sum.n_chunks);
    say(c, ", %lld microbatch%s\n", (long long)o->recipe.n_micro,
        o->recipe.n_micro == 1 ? "" : "es");
    say(c, "step %.3f ms (longest of a stage), makespan %.3f ms, bubble %.2f %%\n\n", sum.step_ms,
        sum.makespan_ms, 100 * sum.bubble);
    say(c, "%5s %14s %14s %7s %5s\n", "stage", "span ms", "computes ms", "idle", "holds");
    for (int s = 0; s < n_rows; s++) {
        wf_schedule_stage stage = wf_schedule_result_stage(result, s);
        double idle = stage.span_ms > 0 ? 100 * (1 - stage.work_ms / stage.span_ms) : 0;
        say(c, "%5d %14.3f %14.3f %5.1f %% %5.4g\n", s, stage.span_ms, stage.work_ms,
            idle > 0 ? idle : 0, stage.held);
    }
    say(c, "\n");
    say_schedule(c, result, n_rows);
    if (n_rows < o->stages)
        say(c, "  the first %d of %lld stages; --json has all\n", n_rows, (long long)o->stages);
}

static exit_status write_result(const cli *c, const wf_schedule_result *result) {
    const options *o = &c->o;
    wf_schedule_summary sum = wf_schedule_result_summary(result);
    json_t *held = json_array();
    for (int s = 0; s < (int)o->stages; s++)
        json_array_append_new(held, json_real(wf_schedule_result_stage(result, s).held));
    return report_write(c, json_pack("{s:s, s:s, s:s, s:i, s:I, s:I, s:f, s:f, s:f, s:o}", "weft",
                                     WEFT_VERSION, "schedule", o->schedule, "chosen", sum.schedule,
                                     "chunks", sum.n_chunks, "stages", (json_int_t)o->stages,
                                     "micro", (json_int_t)o->recipe.n_micro, "bubble", sum.bubble,
                                     "step_ms", sum.step_ms, "makespan_ms", sum.makespan_ms,
                                     "peak_activations", held));
}

static exit_status simulate(cli *c, const wf_stage_times *times) {
    const options *o = &c->o;
    wf_schedule_request request = WF_SCHEDULE_REQUEST_INIT;
    request.schedule = o->schedule;
    request.n_stages = (int)o->stages;
    request.n_micro = (int)o->recipe.n_micro;
    request.times = times;
    request.transfer_ms = o->transfer_ms;
    request.n_chunks = (int)o->chunks;
    request.weight_held = o->weight_held;
    /* More than all of them is no limit. */
    request.max_in_flight =
        (int)(o->memory_limit < o->recipe.n_micro ? o->memory_limit : o->recipe.n_micro);
    wf_schedule_result *result;
    TRY(complain_of(c, wf_schedule_simulate(c->ctx, &request, &result)));
    say_result(c, result);
    exit_status bad = write_result(c, result);
    wf_schedule_result_destroy(result);
    return bad;
}

static exit_status run_schedule(cli *c) {
    TRY(check_counts(&c->o));
    wf_stage_times *times = calloc((size_t)c->o.stages, sizeof *times);
    if (!times) return complain(EXIT_FAILED, "no memory left");
    exit_status bad = read_all_times(&c->o, times);
    if (!bad) bad = simulate(c, times);
    free(times);
    return bad;
}

exit_status run_simulate(cli *c) {
    TRY(simulate_check_use(&c->o));
    return option_is_given(&c->o, OPT_sim_update) ? simulate_updates(c) : run_schedule(c);
}
