/* The consistency check of settings that all ranks of a job must share. Private.
 *
 * Each rank has a statement: an ordered list of settings with a name and a value each. The ranks
 * compare the hashes of their statements. Only if these differ are the texts compared, to name the
 * first setting that differs.
 */
#pragma once

#include "comm/job/control.h"

/* Adds a setting to the statement. An empty value stands for an option that is not given, "true"
 * for an option without a value. Non-printing characters become \xNN, so every setting is one line.
 */
void wfi_setting_add(wfi_text *statement, const char *name, const char *format, ...)
    WFI_PRINTF(3, 4);
/* Waits for all ranks and checks that their statements are equal. Errors: REMOTE, on all ranks: the
 * first setting that differs from rank 0's, and the rank; those of a barrier. */
wf_status wfi_control_compare(wfi_control *control, const wfi_text *statement);
/* Formats the first difference of two statements: "rank 2 was started with --lr 0.1, rank 0 with
 * --lr 0.2". */
void wfi_difference_describe(const char *first, const char *own, int rank, char *text,
                             size_t bytes);
