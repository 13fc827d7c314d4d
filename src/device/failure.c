#include "device/failure.h"

#include <stdio.h>

void wfi_failure_init(wfi_failure *failure) {
    failure->status = WF_OK;
    pthread_mutex_init(&failure->lock, NULL);
}

void wfi_failure_release(wfi_failure *failure) {
    pthread_mutex_destroy(&failure->lock);
}

wf_status wfi_failure_status(const wfi_failure *failure) {
    return (wf_status)__atomic_load_n(&failure->status, __ATOMIC_ACQUIRE);
}

void wfi_failure_set(wfi_failure *failure, wf_status status, const char *sentence) {
    pthread_mutex_lock(&failure->lock);
    if (failure->status == WF_OK) {
        snprintf(failure->sentence, sizeof failure->sentence, "%s", sentence);
        __atomic_store_n(&failure->status, (int)status, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&failure->lock);
}
