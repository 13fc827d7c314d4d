#include "device/failure.h"

#include <stdio.h>
#include <time.h>
#include <unistd.h>

/* How long a process waits for a first failure if all entries are taken. */
#define N_NAPS 100
#define NAP_MS 1
/* Replaces an entry's number if none was left. */
#define NO_ENTRY UINT32_MAX

static bool is_shared_by_all(wf_status status) {
    return status == WF_INVALID_ARG || status == WF_SHAPE || status == WF_UNSUPPORTED ||
           status == WF_DOES_NOT_FIT || status == WF_TIMEOUT;
}

/* The status of a failure on other ranks. */
static wf_status elsewhere(wf_status status) {
    return is_shared_by_all(status) ? status : WF_REMOTE;
}

const wfi_failure_entry *wfi_failure_first(const wfi_failure *failure) {
    static const wfi_failure_entry unknown = {
        .status = WF_REMOTE,
        .sentence = "several ranks have died while they reported why they failed"};
    uint32_t first = __atomic_load_n(&failure->first, __ATOMIC_ACQUIRE);
    if (!first) return NULL;
    return first <= WFI_FAILURE_ENTRIES ? &failure->entries[first - 1] : &unknown;
}

wf_status wfi_failure_status(const wfi_failure *failure) {
    const wfi_failure_entry *first = wfi_failure_first(failure);
    if (!first) return WF_OK;
    wf_status status = (wf_status)first->status;
    return first->pid == getpid() ? status : elsewhere(status);
}

/* The message may be another process's, cut off where that process died. */
wf_status wfi_failure_check(wf_context *ctx, const wfi_failure *failure) {
    wf_status status = wfi_failure_status(failure);
    if (status == WF_OK) return WF_OK;
    const char *sentence = wfi_failure_first(failure)->sentence;
    return wfi_fail(ctx, status, "%.*s", WFI_SENTENCE_BYTES - 1, sentence);
}

/* Entries of running threads become the first failure soon; entries of dead processes do not. */
static bool has_first_soon(const wfi_failure *failure) {
    const struct timespec nap = {0, NAP_MS * 1000000};
    for (int n = 0; n < N_NAPS && !wfi_failure_first(failure); n++) nanosleep(&nap, NULL);
    return wfi_failure_first(failure) != NULL;
}

static void set(wfi_failure *failure, wf_status status, const char *sentence, int64_t pid) {
    if (wfi_failure_first(failure)) return;
    uint32_t number = __atomic_fetch_add(&failure->n_taken, 1, __ATOMIC_ACQ_REL), nothing = 0;
    if (number < WFI_FAILURE_ENTRIES) {
        wfi_failure_entry *own = &failure->entries[number];
        own->status = (int)status;
        own->pid = pid;
        snprintf(own->sentence, sizeof own->sentence, "%.*s", WFI_SENTENCE_BYTES - 1, sentence);
        number++;
    } else {
        if (has_first_soon(failure)) return;
        number = NO_ENTRY;
    }
    (void)__atomic_compare_exchange_n(&failure->first, &nothing, number, false, __ATOMIC_ACQ_REL,
                                      __ATOMIC_ACQUIRE);
}

void wfi_failure_set(wfi_failure *failure, wf_status status, const char *sentence) {
    /* A failure with status OK is a bug. */
    set(failure, status == WF_OK ? WF_BUG : status, sentence, getpid());
}

void wfi_failure_receive(wfi_failure *failure, int status, const char *sentence) {
    bool is_known = status < WF_OK && status >= WF_BUG;
    set(failure, is_known ? (wf_status)status : WF_REMOTE, sentence, 0);
}

void wfi_failure_clear(wfi_failure *failure) {
    __atomic_store_n(&failure->n_taken, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&failure->first, 0, __ATOMIC_RELEASE);
}
