/* Waits of workers and servers for messages. */
#include "workers/run.h"

#include "base/clock.h"

#include <time.h>

#define FIRST_NAP_US 20
#define LAST_NAP_US  1000

wfi_nap wfi_nap_begin(wf_workers *w) {
    return (wfi_nap){w, wfi_now_ms(), FIRST_NAP_US};
}

wf_status wfi_nap_take(wfi_nap *nap, const char *missing) {
    wf_workers *w = nap->all;
    WF_TRY(wfi_failure_check(w->ctx, wfi_workers_failure(w)));
    if (wfi_now_ms() - nap->began_ms > w->timeout_ms)
        return wfi_fail(w->ctx, WF_TIMEOUT, "workers: no message of %s for %lld ms", missing,
                        (long long)w->timeout_ms);
    const struct timespec time = {0, nap->us * 1000};
    nanosleep(&time, NULL);
    if (nap->us < LAST_NAP_US) nap->us += nap->us / 2;
    return WF_OK;
}
