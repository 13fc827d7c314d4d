/* Training by workers with parameters of their own: --update async and local. */
#ifndef CLI_CREW_H
#define CLI_CREW_H

#include "job/job.h"

typedef struct progress progress;

typedef struct crew {
    const job *j;
    wf_workers *workers;
    wf_loader **loaders; /* [n] of each worker of this process; NULL: not read yet */
    int64_t *next;       /* [n] batch that its loader reads next */
    int n;
    progress *bar; /* of rank 0 */
    double *ms;    /* [n_stretch] times of the steps that are run now */
    int64_t first, n_stretch, n_timed;
    double timed_s; /* when the latest timed step was done */
} crew;

/* Returns whether the recipe has workers. */
static inline bool crew_is_needed(const options *o) {
    return o->recipe.update != WF_UPDATE_SYNC;
}
/* Refuses options that workers do not support, before the data is opened. Takes the number of
 * workers from the record of --replay, unless the recipe has one. Complains. */
exit_status crew_check(cli *c);
/* Checks that --record can be written, before the work. Complains. */
exit_status crew_check_record(const cli *c);
/* Warns, after a resume of local steps, that the run ended between two averages. */
void crew_warn(const crew *w, int64_t n_steps);

/* Prints the plan of workers, for weft plan. */
exit_status crew_plan(const job *j);

wf_status crew_open(const job *j, progress *bar, crew *crew_out);
void crew_close(crew *w);

/* Returns the steps from step `n_done` to the next test or checkpoint, which run at a stretch. */
int64_t crew_stretch(const job *j, int64_t n_done);
/* Runs n steps from step `first` on; results and their times [n]. Rank 0 times each step that the
 * library reports, and divides the time of several among them; other ranks know only the mean. */
wf_status crew_run(crew *w, int64_t first, int64_t n, wf_step_result *results, double *ms,
                   int64_t *n_ran_out);

/* Saves the state of workers that --resume needs besides the checkpoint. */
wf_status crew_save(const crew *w, int64_t n_steps);
/* Removes the files of steps other than these two. */
void crew_forget(const crew *w, int64_t step, int64_t other);
wf_status crew_load(const crew *w, int64_t n_steps);

/* Replaces memory and traffic in a report by those of all ranks. Collective; `report` NULL: this is
 * not rank 0. */
wf_status crew_report(const crew *w, json_t *report);
/* Prints the staleness of gradients. */
void crew_say(const crew *w);

#endif
