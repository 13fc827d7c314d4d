/* The first failure of several devices that stop together. Private.
 *
 * One rank's failure makes the other ranks' work worthless, so all ranks share this cell: all
 * streams check it before each task. The first failure leaves its message. Later failures, most
 * likely its consequences, leave none. The cell has no lock and no address, so it can be in memory
 * that several processes share; initially it is zero. In the process that failed, the failure has
 * its own status. On the other ranks it is REMOTE, unless their own work would have failed in the
 * same way (a plan that does not fit, an argument).
 *
 * A failing rank takes an entry, fills it, and then makes it the first if there is none. A process
 * that is killed in between loses only its entry. So when wfi_failure_set returns, every rank sees
 * a failure.
 */
#pragma once

#include "base/base.h"

#define WFI_FAILURE_ENTRIES 8

typedef struct wfi_failure_entry {
    int status;  /* wf_status */
    int64_t pid; /* the process that failed; 0: a process of another machine */
    char sentence[WFI_SENTENCE_BYTES];
} wfi_failure_entry;

typedef struct wfi_failure {
    uint32_t n_taken; /* atomic access: entries ever taken */
    uint32_t first;   /* atomic access: the entry that applies, from 1; 0: no failure */
    wfi_failure_entry entries[WFI_FAILURE_ENTRIES];
} wfi_failure;

wf_status wfi_failure_status(const wfi_failure *failure);
/* The same, and its message becomes the calling thread's. */
wf_status wfi_failure_check(wf_context *ctx, const wfi_failure *failure);
/* The first failure, with the status in its own process; NULL: none. */
const wfi_failure_entry *wfi_failure_first(const wfi_failure *failure);
/* Records `status` and `sentence` unless there is an earlier failure. */
void wfi_failure_set(wfi_failure *failure, wf_status status, const char *sentence);
/* The same for a failure that a message from another machine reports. */
void wfi_failure_receive(wfi_failure *failure, int status, const char *sentence);
/* Clears the failure. No other thread may access it meanwhile. */
void wfi_failure_clear(wfi_failure *failure);
