/* The report of a run: what --json writes. */
#pragma once

#include "common/record.h"
#include "job/job.h"

/* The fields that all runs have. `first`: the first step that is timed. Errors: those of
 * reading the weights. */
wf_status report_create(const job *j, wf_trainer *trainer, const record *r, size_t first,
                        json_t **report_out);

/* The training data: samples, the normalization of pixels, the hash if there is one yet. */
json_t *report_data(const job *j);

/* Appends the peaks of a rank to "planned" and "measured" of "peak_bytes", and with 3 places of
 * "host_peak_bytes" and "disk_peak_bytes". A measured peak is null where the part with most memory
 * has not run. */
void report_add_peaks(json_t *report, const wf_trainer_memory *memory, int n_places);

/* "computed" or "measured". */
const char *costs_text(const wf_program *program);
/* Whether o->json can be written, before the work; leaves the file as it is. */
exit_status report_check(const cli *c);
/* Writes to `path`; messages call it `what`; leaves no half of a report. */
exit_status report_put(const cli *c, const json_t *report, const char *what, const char *path);
/* Writes to o->json, if it was given, and releases the report. */
exit_status report_write(const cli *c, json_t *report);

/* The profile as a table on c->say and as "profile" in the report. */
void report_profile(const cli *c, wf_trainer *trainer, json_t *report);

/* "peak 312.4 MiB planned, 312.4 MiB measured", a line for ranks that are equal; before the run,
 * unless it is verbose, the largest rank only. */
void report_say_memory(const cli *c, wf_trainer *trainer, bool has_run);
