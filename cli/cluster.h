/* --cluster: predictions for a cluster that need not be here. */
#ifndef CLI_CLUSTER_H
#define CLI_CLUSTER_H

#include "job.h"

/* A request for the job's model and recipe on the job's cluster. */
wf_prediction_request cluster_request(const job *j);
/* Predicts the job's plan. Complains. */
exit_status cluster_predict(const job *j, wf_prediction *prediction_out);
/* With --cluster, finds whether the prediction alone answers: the plan does not fit, or takes about
 * a second to be lowered, and --proof full is not given. Otherwise --device-memory becomes that of
 * the cluster, if it is not given. Complains. */
exit_status cluster_begin(job *j, bool *is_predicted_out);

/* Returns whether another choice of --plan auto replaces the plan, as that is refused or its
 * program does not fit. The program is then destroyed. *status becomes that of the new recipe. */
bool cluster_take_another(job *j, wf_status *status, wf_program **program);

/* Prints the prediction, and adds it to the report. */
void cluster_say(const job *j, const wf_prediction *p);
void cluster_report(const job *j, const wf_prediction *p, json_t *report);
/* The answer of weft plan for a plan that is not lowered. */
exit_status cluster_show(job *j);

/* The term that makes `slow` longer than `fast` the most, in words: "1.20 s more of pipeline
 * bubble". Returns `text`. */
#define CLUSTER_WHY_BYTES 100
char *cluster_why(const wf_prediction *fast, const wf_prediction *slow,
                  char text[CLUSTER_WHY_BYTES]);

#endif
