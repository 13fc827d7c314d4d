/* A run of weft train: train_begin.c sets it up, train.c makes its steps, train_save.c saves and
 * tests, train_finish.c reports. All functions complain, with the reason. */
#pragma once

#include "checkpoint/checkpoint.h"
#include "job/log.h"
#include "job/progress.h"
#include "restart/snapshot.h"
#include "train/updates.h"

typedef struct run {
    cli *c;
    job j;
    wf_trainer *trainer; /* NULL: another rank has the workers' state */
    wf_loader *loader;   /* NULL: workers read their data themselves */
    updates updates;     /* of --update async and local; otherwise empty */
    record record;
    run_log log;
    progress bar;
    resumed from;          /* contents of the checkpoint */
    int lock;              /* on --out */
    position next;         /* the batch after the last step */
    int64_t n_done;        /* steps, those before a resume included */
    int64_t saved_step;    /* of the last checkpoint; -1: there is none */
    int64_t verified_step; /* of the last comparison of replicas; -1 */
    int64_t kept_step;     /* of the last checkpoint that was kept; -1 */
    int64_t tested_step;   /* of the last test of this process; -1 */
    bool cannot_save;      /* to --out, which has been said */
    int64_t n_bad;         /* steps in a row that were not finite */
    int64_t n_left_out;    /* steps that the latest one leaves out */
    bool is_crowded;       /* by other programs, which has been said */
    double test_loss, test_accuracy;
    double begun_s, draw_s; /* the loop; and after how long the curve is drawn again */
    scores tests;
} run;

/* Only rank 0 writes it. */
static inline history *train_history(const run *r) {
    return r->c->is_root ? r->c->history : NULL;
}

/* Returns whether the launcher has started the ranks to save a snapshot and end. */
static inline bool train_is_rescue(const cli *c) {
    return c->history && c->history->stop_signal;
}

/* Returns whether a multiple of `every` is above `before` and at most `now`. */
static inline bool train_passes(int64_t before, int64_t now, int64_t every) {
    return now / every > before / every;
}

/* Returns whether the tests say that it is not worth going on. */
static inline bool train_has_lost_patience(const run *r) {
    return r->c->o.patience && r->tests.n_since >= r->c->o.patience;
}

/* ---- train_begin.c ---- */

exit_status train_prepare(run *r);

/* ---- train_save.c ---- */

/* Compares the replicas, if --verify is given and these steps have not been compared. */
exit_status train_verify(run *r);
/* Saves a checkpoint, unless the steps have been saved. */
exit_status train_save(run *r);
/* Waits for the end of writes in the background. */
exit_status train_settle(run *r);
/* Keeps the last checkpoint for --keep and --keep-best. */
exit_status train_keep(run *r);
/* Copies the state to memory, for a restart. */
exit_status train_take_snapshot(run *r);
/* Tests on the test split, if there is one. */
exit_status train_test(run *r, int64_t epoch);
/* Makes the test that is due after the steps since `before`; the best one is saved. */
exit_status train_score(run *r, int64_t before);
/* Saves the steps done so far; all ranks stop. Returns the exit status of the signal. */
exit_status train_interrupted(run *r);

/* ---- train_finish.c ---- */

exit_status train_finish(run *r);
