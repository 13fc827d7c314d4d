#include "device/failure.h"

#include <stdio.h>

wf_status wfi_failure_status(const wfi_failure *failure) {
    return (wf_status)__atomic_load_n(&failure->status, __ATOMIC_ACQUIRE);
}

void wfi_failure_set(wfi_failure *failure, wf_status status, const char *sentence) {
    int nobody = 0;
    if (!__atomic_compare_exchange_n(&failure->is_claimed, &nobody, 1, false, __ATOMIC_ACQ_REL,
                                     __ATOMIC_ACQUIRE))
        return;
    snprintf(failure->sentence, sizeof failure->sentence, "%s", sentence);
    __atomic_store_n(&failure->status, (int)status, __ATOMIC_RELEASE);
}
