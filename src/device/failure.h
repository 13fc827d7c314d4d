/* The first failure of several devices that work together. Private.
 *
 * One rank's failure makes what the others still do worthless, so they share this cell:
 * all streams look here before each task. The first to fail leaves its sentence; what
 * fails later, most likely because of it, leaves none. It holds no lock and no address, so
 * it can lie in memory that several processes share; all zero is its beginning. To the process
 * whose own work failed it has the status of that; to the others it is REMOTE, unless their own
 * work would have ended in the same way (a plan that does not fit, an argument).
 */
#ifndef WFI_FAILURE_H
#define WFI_FAILURE_H

#include "base/base.h"

typedef struct wfi_failure {
    int is_claimed; /* atomic access: somebody is the first */
    int status;     /* wf_status; atomic access, written after the rest */
    int64_t pid;    /* the process whose failure it was */
    char sentence[WFI_SENTENCE_BYTES];
} wfi_failure;

wf_status wfi_failure_status(const wfi_failure *failure);
/* The same, and its sentence becomes the calling thread's. */
wf_status wfi_failure_check(wf_context *ctx, const wfi_failure *failure);
/* What a failure is to the others. */
wf_status wfi_failure_elsewhere(wf_status status);
/* Keeps `status` and `sentence` if nothing has failed before. */
void wfi_failure_set(wfi_failure *failure, wf_status status, const char *sentence);

#endif
