/* The files of a save or a load in a job: finds the processes that see the same files, and combines
 * the digests of each tensor's parts. */
#include "api/state/state.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- which processes have the same file ---- */

static int descriptor(const wfi_state_call *x, int k, uint64_t *data_start_out) {
    return x->writer ? wfi_safetensors_writer_descriptor(x->writer, k, data_start_out)
                     : wfi_safetensors_descriptor(x->file, k);
}

/* No two files of two machines have this in common, nor have their shards. */
static void identify(const wfi_state_call *x, int64_t n_files, int64_t identity_out[4]) {
    uint64_t all[4] = {0};
    for (int k = 0; k < n_files; k++) {
        struct stat st = {0};
        (void)fstat(descriptor(x, k, NULL), &st);
        const uint64_t of[4] = {
            (uint64_t)st.st_ino, (uint64_t)st.st_size,
            (uint64_t)st.st_mtim.tv_sec * 1000000000 + (uint64_t)st.st_mtim.tv_nsec,
            (uint64_t)st.st_ctim.tv_sec * 1000000000 + (uint64_t)st.st_ctim.tv_nsec};
        for (int i = 0; i < 4; i++) all[i] = all[i] * UINT64_C(0x100000001B3) ^ of[i];
    }
    memcpy(identity_out, all, sizeof all);
}

/* By rank 0's process. Others may be in other folders, and this one may have been moved: hence the
 * name that the system knows. */
const char *wfi_state_sums(const wf_trainer *t, char text[WFI_SUMS_BYTES]) {
    const wf_recipe *r = &t->recipe;
    snprintf(text, WFI_SUMS_BYTES, "micro=%lld,lanes=%lld,slices=%lld", (long long)r->n_micro,
             (long long)r->n_lanes, (long long)r->n_slices);
    return text;
}

void wfi_state_describe(const wfi_state_call *x, int k, wfi_state_opened *o) {
    char own[40];
    identify(x, o->n_files, o->identity);
    snprintf(own, sizeof own, "/proc/self/fd/%d", descriptor(x, k, &o->data_start));
    ssize_t n = readlink(own, o->path, sizeof o->path);
    o->path[n < 0 || (size_t)n == sizeof o->path ? 0 : n] = 0;
}

wf_status wfi_state_tell(const wfi_state_call *x, wfi_state_opened *o) {
    return x->t->job ? wfi_control_broadcast(x->t->job, "open rank 0's file", o, sizeof *o) : WF_OK;
}

wf_status wfi_state_compare_files(const wfi_state_call *x, const wfi_state_opened *o) {
    const wf_trainer *t = x->t;
    const wfi_control_numbers *all;
    wfi_control_numbers own = {0};
    if (!t->job) return WF_OK;
    if (x->writer || x->file) {
        identify(x, o->n_files, own);
        own[0] = !memcmp(own, o->identity, sizeof o->identity);
    }
    WF_TRY(wfi_control_all_gather(t->job, "compare files", own, &all));
    for (int r = 0; r < t->n_workers; r++) x->sees[r] = all[r][0];
    return WF_OK;
}

/* ---- digests of tensors ---- */

#define DIGESTS_TOLD (sizeof(wfi_control_numbers) / (sizeof(uint32_t)))

wf_status wfi_state_create_digests(wfi_state_call *x) {
    size_t n = (size_t)x->list.n_tensors + DIGESTS_TOLD;
    x->digests = wfi_pool_alloc(&x->pool, n, sizeof *x->digests);
    return wfi_pool_status(&x->pool);
}

/* From those of each process's parts to those of all parts. */
wf_status wfi_state_gather_digests(wfi_state_call *x) {
    const wfi_control_numbers *all;
    wfi_control_numbers own;
    for (int32_t i = 0; i < x->list.n_tensors && x->t->job; i += (int32_t)DIGESTS_TOLD) {
        uint32_t sum[DIGESTS_TOLD] = {0}, of[DIGESTS_TOLD];
        memcpy(own, x->digests + i, sizeof own);
        WF_TRY(wfi_control_all_gather(x->t->job, "compare digests", own, &all));
        for (int r = 0; r < x->t->n_workers; r++) {
            memcpy(of, all[r], sizeof of);
            for (size_t k = 0; k < DIGESTS_TOLD; k++) sum[k] ^= of[k];
        }
        memcpy(x->digests + i, sum, sizeof sum);
    }
    return WF_OK;
}
