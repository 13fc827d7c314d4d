/* Starting failed ranks again, and the history of a run over its restarts.
 *
 * The launcher and rank 0 of weft train share a history: anonymous memory that ranks inherit. Rank
 * 0 stores its progress there. The launcher reads whether an attempt made progress, and the next
 * attempt reads how many steps it repeats. */
#pragma once

#include "restart/elastic.h"

#define RESTART_ENV "WEFT_RESTART"    /* number of restarts before this start */
#define HISTORY_ENV "WEFT_HISTORY_FD" /* descriptor of the history */
#define N_MARKS     16                /* more checkpoints than can be under way at a time */

/* The useful seconds up to the checkpoint of `step`. */
typedef struct restart_mark {
    int64_t step;
    double useful_s;
} restart_mark;

typedef struct history {
    uint64_t magic;
    int64_t first_step;        /* step at which the run began; -1: it has not begun */
    int64_t n_done;            /* steps, by the latest attempt */
    int64_t most_done;         /* steps, by any attempt; -1: none */
    int64_t n_repeated;        /* steps that were made again */
    double begun_s;            /* when the first attempt began its steps, by now_seconds */
    double attempt_s;          /* the same of the latest attempt */
    double base_s;             /* useful seconds before the latest attempt */
    double failed_s;           /* when the latest failure was noticed */
    int64_t n_restarts;        /* up to now */
    int keeps_ranks;           /* killed ranks are started again alone */
    restart_mark snapshots[2]; /* of the latest ones */
    restart_mark marks[N_MARKS];
    int64_t n_marks;
    uint64_t identity; /* of recipe and data; 0: no attempt has resolved them yet */
    int is_final;      /* a failure that would repeat */
    int is_reported;   /* rank 0 has reported the interruption, and saved if possible */
    int stop_signal;   /* the launcher was interrupted: the ranks save a snapshot and end; or 0 */
    double grace_s;    /* that is left for that */
    int64_t n_retries; /* failures before a new step that need not repeat */
    roster roster;
} history;

/* ---- the launcher's side ---- */

/* Calls wf_launch, and again after failures, at most --restarts times; with `e` (may be NULL), of
 * as many ranks as are left. If the ranks have a history and snapshots, and not `e`, a killed rank
 * is started again alone. Prints each restart. Returns status and result of the last launch; an
 * interruption between two launches is a result, too. */
wf_status restart_launch(const cli *c, wf_launch_config *config, elastic *e,
                         wf_launch_result *result_out);

/* Creates the history; *fd_out is the descriptor that ranks inherit. NULL: errno has the reason. */
history *history_create(int *fd_out);

/* ---- rescue.c, the launcher's side ---- */

/* Reports an interruption that rank 0 has not reported, after it has saved the newest snapshot if
 * no checkpoint is as new. Returns the exit status. */
exit_status rescue(const cli *c, wf_launch_config *config, const wf_launch_result *result);

/* ---- the ranks' side ---- */

/* Returns the descriptor in the environment variable, or -1. */
int restart_descriptor(const char *variable);
/* Returns the number of restarts before this process; 0 without --restarts. */
int64_t restart_number(void);
/* Maps the history that the ranks inherit; NULL: there is none. */
history *history_find(void);

/* These functions accept NULL. history_begin: an attempt begins, after `n_done` steps. */
void history_begin(history *h, int64_t n_done);
void history_step(history *h, int64_t n_done);
/* Returns whether this attempt has the recipe and the data of the first one. */
bool history_is_same_run(history *h, const char *recipe, const char *data_hash);
/* A checkpoint of `n_done` steps is being written, or is written. */
void history_mark(history *h, int64_t n_done);
/* A snapshot of `n_done` steps is being taken. The snapshot may be whole before its rank 0
 * notices. */
void history_mark_snapshot(history *h, int64_t n_done);
/* Passes the number of restarts on to this process, which was not started again itself. */
void history_follow(const history *h);
/* Rank 0 has reported the interruption. */
void history_report(history *h);
void history_release(history *h);
/* A failure that would repeat: no restart helps. */
void history_give_up(history *h);
/* A failure before a new step that need not repeat: its cause is gone. */
void history_retry(history *h);
/* Returns the lost seconds, and all seconds, from the first attempt's first step to now. Zeros
 * without a history. */
void history_seconds(const history *h, double *lost_s_out, double *all_s_out);
