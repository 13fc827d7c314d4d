/* --cluster: predictions for a cluster that need not be here. */
#pragma once

#include "job/job.h"

/* Predicts the job's plan. Complains. */
exit_status cluster_predict(const job *j, wf_prediction *prediction_out);
/* With --cluster, finds whether the prediction alone answers: the plan does not fit, or takes about
 * a second to be lowered, and --proof full is not given. Otherwise --device-memory becomes that of
 * the cluster, if it is not given. Complains. */
exit_status cluster_begin(job *j, bool *is_predicted_out);

/* Returns whether --draw shows the plans of a search, not the timeline of the plan. */
bool cluster_draws_search(const options *o);
/* Draws these plans. Complains. */
exit_status cluster_draw_search(const job *j);
/* Prints the prediction, and adds it to the report. */
void cluster_say(const job *j, const wf_prediction *p);
void cluster_report(const job *j, const wf_prediction *p, json_t *report);
/* Refuses a plan that is lowered, if it lacks host memory or disk of the cluster. */
exit_status cluster_check_shares(const job *j);
/* Moves proposals that fit on the cluster to the front, if there is one, and sets their predicted
 * steps, the shortest first. Returns how many fit. */
int cluster_keep_fitting(const job *j, wf_proposal *found, int n);
/* The answer of weft plan for a plan that is not lowered. */
exit_status cluster_show(job *j);

/* "gpt, batch 256, cluster dgx-a100: 8 devices". Returns `text`. */
#define CLUSTER_TITLE_BYTES 200
char *cluster_title(const job *j, char text[CLUSTER_TITLE_BYTES]);
/* The terms of a step's time, in its order. */
typedef struct cluster_term {
    const char *name, *words;
    double ms;
} cluster_term;
#define CLUSTER_N_TERMS 9
void cluster_terms(const wf_prediction *p, cluster_term terms[CLUSTER_N_TERMS]);
/* The term that makes `slow` longer than `fast` the most, in words: "1.20 s more of pipeline
 * bubble". Returns `text`. */
#define CLUSTER_WHY_BYTES 120
char *cluster_why(const wf_prediction *fast, const wf_prediction *slow,
                  char text[CLUSTER_WHY_BYTES]);
/* "1.20 GiB more than a device has", or "... more host memory than its share". Returns `text`. */
char *cluster_missing(const wf_prediction *p, char text[CLUSTER_WHY_BYTES]);
json_t *cluster_times_json(const wf_prediction *p);
