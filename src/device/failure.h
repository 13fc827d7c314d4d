/* The first failure of several devices that share a fate. Private.
 *
 * One rank's failure makes what the others still do worthless, so they share this cell:
 * all streams look here before each task. The first to fail leaves its sentence; what
 * fails later, most likely because of it, leaves none. It holds no lock and no address, so
 * it can lie in memory that several processes share; all zero is its beginning. To the process
 * whose own work failed it has the status of that; to the others it is REMOTE, unless their own
 * work would have ended in the same way (a plan that does not fit, an argument).
 *
 * Who fails takes an entry of its own, fills it, and then makes it the first, if there is none: a
 * process that is killed in between takes its entry with it and nothing else. So when
 * wfi_failure_set returns, something has failed for all who look.
 */
#ifndef WFI_FAILURE_H
#define WFI_FAILURE_H

#include "base/base.h"

#define WFI_FAILURE_ENTRIES 8

typedef struct wfi_failure_entry {
    int status;  /* wf_status */
    int64_t pid; /* the process whose failure it was; 0: one of another machine */
    char sentence[WFI_SENTENCE_BYTES];
} wfi_failure_entry;

typedef struct wfi_failure {
    uint32_t n_taken; /* atomic access: entries that were ever taken */
    uint32_t first;   /* atomic access: the entry that counts, from 1 on; 0: nothing has failed */
    wfi_failure_entry entries[WFI_FAILURE_ENTRIES];
} wfi_failure;

wf_status wfi_failure_status(const wfi_failure *failure);
/* The same, and its sentence becomes the calling thread's. */
wf_status wfi_failure_check(wf_context *ctx, const wfi_failure *failure);
/* What has failed, as it was to whom it happened; NULL: nothing. */
const wfi_failure_entry *wfi_failure_first(const wfi_failure *failure);
/* Keeps `status` and `sentence` if nothing has failed before. */
void wfi_failure_set(wfi_failure *failure, wf_status status, const char *sentence);
/* The same for what has been heard of a process of another machine. */
void wfi_failure_hear(wfi_failure *failure, int status, const char *sentence);
/* Nothing has failed. Nobody else looks at it. */
void wfi_failure_clear(wfi_failure *failure);

#endif
