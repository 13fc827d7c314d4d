#include "draw/picture.h"

#include <ctype.h>

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

void say_schedule(const cli *c, const wf_schedule_result *result, int n_rows) {
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
