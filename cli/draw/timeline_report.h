/* Timelines in the output, reports and files of commands. */
#pragma once

#include "draw/draw.h"
#include "job/report.h"

/* The picture as text and, for each rank, how it spends the step. */
void timeline_say(const cli *c, const drawing *d);
/* {step_ms, ranks: [{compute_ms, bubble_ms, transfer_ms, wait_ms}]} */
json_t *timeline_json(const wf_timeline *timeline);

/* Memory of the rank with most on its device at some moment: {rank, peak_bytes, peak_ms, time_ms:
 * [...], and for each kind of memory its bytes: [...]}, the n-th from the n-th time on. */
json_t *timeline_bytes_json(const wf_timeline *timeline);

/* weft plan: adds "simulated" and "bytes_over_time" to the report, prints if there are
 * several ranks, writes --trace and draws to `draw`, if it is not NULL. */
exit_status timeline_plan(const cli *c, const wf_plan *plan, const wf_timeline *simulated,
                          const char *draw, json_t *report);
/* Whether --trace, if given, can be written: before the work. */
exit_status timeline_check(const cli *c);
/* weft train and weft bench train with --trace: the last step of the full batch, beside its
 * simulation, is printed, reported as "timeline" and "bytes_over_time", and written. */
exit_status timeline_trace(const cli *c, const wf_plan *plan, const wf_trainer *trainer,
                           json_t *report);
/* The same for the timeline of --update async or local, which has no simulation. Collective;
 * `report` NULL: this is not rank 0. */
exit_status timeline_trace_workers(const cli *c, const wf_plan *plan, wf_workers *workers,
                                   json_t *report);
/* Creates names of rows: those of `word`, such as "worker 0", then "server 0" and so on. The caller
 * frees the array. NULL: no memory. */
const char **timeline_worker_names(const char *word, int n_workers, int n_rows);
/* Returns the names of words_out, to be freed, if the timeline is one of workers. NULL: it is not,
 * or there is no memory. */
const char **timeline_words(const wf_trace_part *part, drawing_words *words_out);
