/* Progress on standard error: a bar on a terminal, a line every few seconds elsewhere. */
#pragma once

#include "common/clock.h"
#include "job/job.h"

typedef struct progress {
    const job *j;
    bool is_on, is_bar, is_utf8, has_color, is_drawn;
    double start_s, shown_s; /* when it began, when it was last shown */
    double every_s;          /* how often */
    char part[160];          /* of the work that is under way, shown in place of its steps; or "" */
    double loss, accuracy;   /* smoothed over about 20 steps */
    double items;            /* since start_s */
    int64_t first_step;      /* steps done before */
} progress;

void progress_begin(progress *p, const job *j, int64_t first_step);
/* After each step: `step` of j->n_steps are done. `accuracy` may be NAN. */
void progress_step(progress *p, int64_t step, int64_t epoch, double loss, double accuracy,
                   double items);
/* For work that is no training: begins, and shows that `part` of it (0 to 1) is done, beside
 * `text` and the time that is left. */
void progress_open(progress *p, bool is_on);
void progress_show(progress *p, double part, const char *text);
/* For calls that do not know how long they take: shows the step that begins, and the time so far,
 * from the log's topic "progress"; on a terminal as a line that changes, elsewhere from the second
 * second on every ten. A step that begins with "trying" has steps of its own, which are not shown;
 * so has the part that progress_part names. */
void progress_wait(cli *c, progress *p);
void progress_part(progress *p, const char *format, ...) __attribute__((format(printf, 2, 3)));
void progress_step_of_call(progress *p, const char *step);
void progress_wait_end(cli *c);
/* Takes the bar away, so that something else can be printed. */
void progress_clear(progress *p);
