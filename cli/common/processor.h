/* The processor, and the shares of its time that this program and others have taken. */
#pragma once

#include "common/cli.h"

#include <jansson.h>

/* "Intel(R) Xeon(R) Processor", by the processor itself or by the system; or "unknown". */
const char *processor_name(char name[100]);
/* Sets of instructions that matter to kernels and that the system lets programs use, such as
 * "avx512_bf16" and "amx_tile"; empty where the processor is not x86. */
json_t *processor_instructions(void);

/* Time spent since a moment, by this process and the children that it has waited for. */
typedef struct effort {
    double wall_s, cpu_s, busy_s; /* busy: of the cores that this process may use, by anybody */
    int n_cores;
} effort;

effort effort_now(void);
/* Since `begin`; in a job the CPU time of all ranks, which all call it. Errors: those of groups. */
wf_status effort_since(const cli *c, const effort *begin, effort *spent_out);
/* The share of the cores' time that others have taken; NAN: not known. */
double effort_of_others(const effort *spent);
/* Whether others have taken so much, of a time long enough to judge by, that a rank of several
 * threads would be faster with one. */
bool effort_is_crowded(const effort *spent, int n_threads);
/* CPU time beside wall time, and a line if others took much. */
void effort_say(const cli *c, const effort *spent);
/* "processor", "wall_seconds", "cpu_seconds" and "taken_by_others" of a report. */
void effort_report(const effort *spent, json_t *report);
