/* Training by workers with parameters of their own: --update async and local. */
#pragma once

#include "job/job.h"

typedef struct progress progress;

typedef struct updates {
    const job *j;
    wf_workers *workers;
    wf_loader **loaders; /* [n] of each worker of this process; NULL: not read yet */
    int64_t *next;       /* [n] batch that its loader reads next */
    int n;
    progress *bar; /* of rank 0 */
    double *ms;    /* [n_stretch] times of the steps that are run now */
    int64_t first, n_stretch, n_timed;
    double timed_s; /* when the latest timed step was done */
} updates;

/* Returns whether the recipe has workers. */
static inline bool updates_need_workers(const options *o) {
    return o->recipe.update != WF_UPDATE_SYNC;
}
/* Refuses options that workers do not support, before the data is opened. Takes the number of
 * workers from the record of --replay, unless the recipe has one. Complains. */
exit_status updates_check(cli *c);
/* Checks that --record can be written, before the work. Complains. */
exit_status updates_check_record(const cli *c);
/* Warns, after a resume of local steps, that the run ended between two averages. */
void updates_warn(const updates *w, int64_t n_steps);

/* Prints the plan of workers, for weft plan. */
exit_status updates_plan(const job *j);

wf_status updates_open(const job *j, progress *bar, updates *updates_out);
void updates_close(updates *w);

/* Returns the steps from step `n_done` to the next test or checkpoint, which run at a stretch. */
int64_t updates_stretch(const job *j, int64_t n_done);
/* Runs n steps from step `first` on; results and their times [n]. Rank 0 times each step that the
 * library reports, and divides the time of several among them; other ranks know only the mean. */
wf_status updates_run(updates *w, int64_t first, int64_t n, wf_step_result *results, double *ms,
                      int64_t *n_ran_out);

/* Saves the state of workers that --resume needs besides the checkpoint. */
wf_status updates_save(const updates *w, int64_t n_steps);
/* Removes the files of steps other than these two. */
void updates_forget(const updates *w, int64_t step, int64_t other);
wf_status updates_load(const updates *w, int64_t n_steps);

/* Replaces memory and traffic in a report by those of all ranks. Collective; `report` NULL: this is
 * not rank 0. */
wf_status updates_report(const updates *w, json_t *report);
/* Prints the staleness of gradients. */
void updates_say(const updates *w);
