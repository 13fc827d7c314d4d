#include "device/failure.h"

#include <stdio.h>
#include <unistd.h>

static bool is_shared_by_all(wf_status status) {
    return status == WF_INVALID_ARG || status == WF_SHAPE || status == WF_UNSUPPORTED ||
           status == WF_DOES_NOT_FIT || status == WF_TIMEOUT;
}

wf_status wfi_failure_elsewhere(wf_status status) {
    return is_shared_by_all(status) ? status : WF_REMOTE;
}

wf_status wfi_failure_status(const wfi_failure *failure) {
    wf_status status = (wf_status)__atomic_load_n(&failure->status, __ATOMIC_ACQUIRE);
    if (status == WF_OK) return status;
    return failure->pid == getpid() ? status : wfi_failure_elsewhere(status);
}

/* The sentence may be another process's, cut off where that died. */
wf_status wfi_failure_check(wf_context *ctx, const wfi_failure *failure) {
    wf_status status = wfi_failure_status(failure);
    if (status == WF_OK) return WF_OK;
    return wfi_fail(ctx, status, "%.*s", (int)sizeof failure->sentence - 1, failure->sentence);
}

void wfi_failure_set(wfi_failure *failure, wf_status status, const char *sentence) {
    int nobody = 0;
    if (!__atomic_compare_exchange_n(&failure->is_claimed, &nobody, 1, false, __ATOMIC_ACQ_REL,
                                     __ATOMIC_ACQUIRE))
        return;
    failure->pid = getpid();
    snprintf(failure->sentence, sizeof failure->sentence, "%s", sentence);
    __atomic_store_n(&failure->status, (int)status, __ATOMIC_RELEASE);
}
