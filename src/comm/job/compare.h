/* What all ranks of a job must have in common. Private.
 *
 * Each rank brings a statement: a list of settings, a name and a value each, in one order. The
 * statements' hashes are compared; only where they differ are the texts, to name the first setting
 * that is not the same.
 */
#ifndef WFI_COMPARE_H
#define WFI_COMPARE_H

#include "comm/job/control.h"

/* Adds a setting to the statement; an empty value means that it is not given, "true"
 * that it is, and no more. Characters that do
 * not print become \xNN, so a setting is one line whatever is in it. */
void wfi_setting_add(wfi_text *statement, const char *name, const char *format, ...)
    WFI_PRINTF(3, 4);
/* Waits for all, and finds that all ranks bring the same statement. Errors: REMOTE, on all ranks:
 * which setting of which rank differs from rank 0's; those of a barrier. */
wf_status wfi_control_compare(wfi_control *control, const wfi_text *statement);
/* The sentence's part about two statements: "rank 2 was started with --lr 0.1, rank 0 with
 * --lr 0.2". */
void wfi_difference_say(const char *first, const char *own, int rank, char *text, size_t bytes);

#endif
