/* Progress on standard error: a bar on a terminal, a line every few seconds elsewhere. */
#include "job/progress.h"
#include "common/text.h"

#include <langinfo.h>
#include <locale.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define BAR_EVERY_S  0.1
#define LINE_EVERY_S 5.0
#define WAIT_FIRST_S 2.0 /* of calls, elsewhere than on a terminal */
#define WAIT_EVERY_S 10.0
#define BAR_CELLS    24
#define SMOOTHING    0.05

/* Whether the user's locale is UTF-8; the rest of the program ignores the locale. */
static bool has_utf8(void) {
    locale_t users = newlocale(LC_CTYPE_MASK, "", (locale_t)0);
    bool has = users && !strcmp(nl_langinfo_l(CODESET, users), "UTF-8");
    if (users) freelocale(users);
    return has;
}

/* Columns of the terminal of standard error, or of the launcher; 0: there is none. */
static int terminal_columns(void) {
    if (isatty(STDERR_FILENO)) return columns_of(stderr, 1, 10000);
    const char *columns = getenv(WF_LAUNCH_TERMINAL);
    return columns ? atoi(columns) : 0;
}

void progress_open(progress *p, bool is_on) {
    *p = (progress){.is_on = is_on};
    const char *term = getenv("TERM"), *no_color = getenv("NO_COLOR");
    p->is_bar = terminal_columns() > 0 && term && strcmp(term, "dumb");
    p->has_color = p->is_bar && !(no_color && *no_color);
    p->is_utf8 = has_utf8();
    p->start_s = p->shown_s = now_seconds();
    p->every_s = p->is_bar ? BAR_EVERY_S : LINE_EVERY_S;
}

void progress_begin(progress *p, const job *j, int64_t first_step) {
    progress_open(p, !j->c->o.quiet);
    p->j = j;
    p->first_step = first_step;
}

/* "epoch 1/2  step 230/938", and the remaining time. */
static int status_text(const progress *p, int64_t step, int64_t epoch, char *text, size_t bytes) {
    const job *j = p->j;
    char left[TEXT_BYTES], rate[TEXT_BYTES], accuracy[TEXT_BYTES] = "";
    double elapsed = now_seconds() - p->start_s;
    int64_t done = step - p->first_step, n_epochs = (j->n_steps - 1) / j->n_epoch + 1;
    double left_s = done > 0 ? elapsed / (double)done * (double)(j->n_steps - step) : NAN;
    double per_second = elapsed > 0 ? p->items / elapsed : 0;
    if (!isnan(p->accuracy))
        snprintf(accuracy, sizeof accuracy, "  acc %.1f %%", 100 * p->accuracy);
    snprintf(rate, sizeof rate, "%.*f", per_second < 100 ? 1 : 0, per_second);
    return snprintf(text, bytes, "epoch %lld/%lld  step %lld/%lld  loss %.4f%s  %s %s/s  %s left",
                    (long long)epoch + 1, (long long)(n_epochs > epoch ? n_epochs : epoch + 1),
                    (long long)step, (long long)j->n_steps, p->loss, accuracy, rate,
                    j->is_tokens ? "tokens" : "images", text_of_seconds(left, left_s));
}

/* Written in one piece, because a terminal must not show half of it. `part` below 0: no bar. */
static void draw_bar(progress *p, double part, const char *text) {
    char bar[600];
    int columns = terminal_columns(), n = (int)strlen(text), n_bar = 0;
    int cells = part < 0 ? 0 : columns - n - 4 < BAR_CELLS ? columns - n - 4 : BAR_CELLS;
    int full = cells > 0 ? (int)((double)cells * part) : 0;
    n_bar = snprintf(bar, sizeof bar, "\r\033[K");
    if (cells >= 6) {
        if (p->has_color) n_bar += snprintf(bar + n_bar, sizeof bar - (size_t)n_bar, "\033[36m");
        for (int i = 0; i < cells; i++)
            n_bar += snprintf(bar + n_bar, sizeof bar - (size_t)n_bar, "%s",
                              i < full ? (p->is_utf8 ? "━" : "#") : (p->is_utf8 ? "╌" : "."));
        n_bar += snprintf(bar + n_bar, sizeof bar - (size_t)n_bar, "%s  ",
                          p->has_color ? "\033[0m" : "");
    }
    snprintf(bar + n_bar, sizeof bar - (size_t)n_bar, "%.*s", columns - 1, text);
    fputs(bar, stderr);
    fflush(stderr);
    p->is_drawn = true;
}

static bool is_due(progress *p) {
    double now = now_seconds();
    if (!p->is_on || now - p->shown_s < p->every_s) return false;
    p->shown_s = now;
    return true;
}

static void draw(progress *p, double part, const char *text) {
    if (p->is_bar)
        draw_bar(p, part, text);
    else
        fprintf(stderr, "%s\n", text);
}

void progress_step(progress *p, int64_t step, int64_t epoch, double loss, double accuracy,
                   double items) {
    double n_before = (double)(step - p->first_step - 1);
    double weight = n_before * SMOOTHING < 1 ? 1 / (n_before + 1) : SMOOTHING;
    p->loss += weight * (loss - p->loss);
    p->accuracy += weight * (accuracy - p->accuracy);
    p->items += items;
    if (!is_due(p)) return;
    char text[200];
    status_text(p, step, epoch, text, sizeof text);
    draw(p, (double)step / (double)p->j->n_steps, text);
}

void progress_show(progress *p, double part, const char *text) {
    char line[200], left[TEXT_BYTES];
    double elapsed = now_seconds() - p->start_s;
    if (!is_due(p)) return;
    text_of_seconds(left, part > 0 ? elapsed / part * (1 - part) : NAN);
    snprintf(line, sizeof line, "%.150s  %s left", text, left);
    draw(p, part, line);
}

void progress_wait(cli *c, progress *p) {
    progress_open(p, !c->o.quiet);
    if (!p->is_bar) {
        p->every_s = WAIT_EVERY_S;
        p->shown_s += WAIT_FIRST_S - WAIT_EVERY_S;
    }
    c->waiting = p;
}

void progress_part(progress *p, const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(p->part, sizeof p->part, format, args);
    va_end(args);
    if (p->is_bar) p->shown_s = 0; /* at once: its first step may take long */
    progress_step_of_call(p, p->part);
}

void progress_step_of_call(progress *p, const char *step) {
    char line[200], elapsed[TEXT_BYTES];
    if (!strncmp(step, "trying ", 7)) snprintf(p->part, sizeof p->part, "%s", step);
    if (!is_due(p)) return;
    text_of_seconds(elapsed, now_seconds() - p->start_s);
    snprintf(line, sizeof line, "%.150s, %s so far", *p->part ? p->part : step, elapsed);
    draw(p, -1, line);
}

void progress_wait_end(cli *c) {
    progress_clear(c->waiting);
    c->waiting = NULL;
}

void progress_clear(progress *p) {
    if (p->is_drawn) fputs("\r\033[K", stderr);
    p->is_drawn = false;
}
