/* The first failure of several devices that work together. Private.
 *
 * One rank's failure makes what the others still do worthless, so they share this cell:
 * all streams look here before each task. The first to fail leaves its sentence; what
 * fails later, most likely because of it, leaves none.
 */
#ifndef WFI_FAILURE_H
#define WFI_FAILURE_H

#include "base/base.h"

#include <pthread.h>

typedef struct wfi_failure {
    int status; /* wf_status; atomic access */
    pthread_mutex_t lock;
    char sentence[WFI_SENTENCE_BYTES]; /* written once, before status */
} wfi_failure;

void wfi_failure_init(wfi_failure *failure);
void wfi_failure_release(wfi_failure *failure);

wf_status wfi_failure_status(const wfi_failure *failure);
/* Keeps `status` and `sentence` if nothing has failed before. */
void wfi_failure_set(wfi_failure *failure, wf_status status, const char *sentence);

#endif
