/* --ranks A:B: a job of B ranks that continues with fewer after it has lost some, at least A.
 *
 * The launcher has B places, each with a device of --devices. The launcher leaves out the places of
 * lost ranks, and takes as many replicas as the other places have room for. The launcher stores the
 * ranks of an attempt in the roster, a part of the history; the ranks read it before they use their
 * options. The recipe stays that of the first attempt, so the bits stay the same. */
#pragma once

#include "common/cli.h"

#include <signal.h>

#define PLAN_BYTES    1024
#define MOST_ATTEMPTS 1000 /* limit on the attempts in the report's list of ranks */

typedef struct roster {
    int n_ranks, n_places; /* of the latest attempt, and in all; 0: --ranks N */
    int place[WF_LAUNCH_MAX_RANKS];
    char plan[PLAN_BYTES]; /* instead of --plan, or "" */
    /* Values of the recipe; 0: no attempt has resolved them yet. */
    int64_t n_micro, n_lanes, n_workers;
    int n_threads;
    unsigned char is_faulty[WF_LAUNCH_MAX_RANKS]; /* ranks that --verify has named */
    int n_attempts, ranks_of[MOST_ATTEMPTS];
} roster;

/* The launcher's side. */
typedef struct elastic {
    wf_context *ctx;
    wf_recipe recipe;
    int n_least, n_most, n_ranks;
    int dp;                     /* of the plan for all places */
    char keys[PLAN_BYTES - 24]; /* of that plan, after dp; "": any number of ranks suits */
    char plan[PLAN_BYTES];      /* for n_ranks, or "" */
    char idle[100];             /* why places stay idle, or "" */
    bool was_short;             /* all places are used again, because too few were left */
    unsigned char is_out[WF_LAUNCH_MAX_RANKS], lost[WF_LAUNCH_MAX_RANKS];
    int place[WF_LAUNCH_MAX_RANKS];
    roster *roster, own;
    struct sigaction before;
} elastic;

/* ---- the launcher's side ---- */

/* Checks --ranks A:B, and with `is_own` (weft train) the plan. Complains. */
exit_status elastic_open(wf_context *ctx, const options *o, bool is_own, elastic *e);
/* From now on SIGUSR1 asks for all places. `shared`: NULL for programs without a history. */
void elastic_begin(elastic *e, roster *shared);
void elastic_end(const elastic *e);
/* Prepares an attempt. */
void elastic_start(elastic *e, wf_launch_config *config);
/* After an attempt that failed: leaves out the places of lost ranks. */
void elastic_lose(elastic *e);
/* All places are used again. */
void elastic_renew(elastic *e);
/* Returns whether SIGUSR1, and no other signal, has ended the attempt, and its state is saved. */
bool elastic_was_asked(const elastic *e, const wf_launch_result *result);
/* Returns whether SIGUSR1 came after the attempt had failed. */
bool elastic_is_asked(void);
/* Returns whether fewer ranks than there are places have failed for want of the others. */
bool elastic_is_short(const elastic *e, const wf_launch_result *result);
/* " with 3 of 4 ranks", and why others idle. */
const char *elastic_say(const elastic *e, char *text, size_t bytes);

/* ---- the ranks' side ---- */

/* Takes ranks, plan, devices and recipe from the roster, if there is one. */
exit_status roster_take(cli *c);
/* The state of this rank differs from that of most replicas: its place is left out. */
void roster_report_fault(const cli *c);
/* Rank 0 stores the resolved recipe. */
void roster_keep_recipe(const cli *c);
/* Adds the ranks of each attempt. */
void roster_report(const cli *c, json_t *report);
