/* The public face of a job's control segment. */
#include "base/env.h"
#include "comm/job/control.h"

wf_status wf_job_join(wf_context *ctx, const wf_job_config *config, wf_job **job_out) {
    WF_TRY(wfi_check_struct(ctx, config, sizeof *config, "wf_job_config"));
    int64_t timeout_ms = config->timeout_ms;
    if (!timeout_ms) WF_TRY(wfi_env_count(ctx, WFI_WEFT_TIMEOUT_MS, &timeout_ms));
    if (timeout_ms < 1)
        return wfi_fail(ctx, WF_INVALID_ARG, "a timeout of %lld ms; every wait needs a deadline",
                        (long long)timeout_ms);
    return wfi_control_meet_job(ctx, config, timeout_ms, job_out);
}

void wf_job_leave(wf_job *job) {
    wfi_control_leave(job);
}

int wf_job_rank(const wf_job *job) {
    return wfi_control_rank_number(job);
}

int wf_job_n_ranks(const wf_job *job) {
    return wfi_control_n_ranks(job);
}

void wf_job_request_stop(wf_job *job, int reason) {
    wfi_control_request_stop(job, reason);
}

int wf_job_local_rank(const wf_job *job) {
    return wfi_control_n_local(job, wfi_control_rank_number(job));
}

int wf_job_n_local_ranks(const wf_job *job) {
    return wfi_control_n_local(job, wfi_control_n_ranks(job));
}

wf_status wf_job_broadcast(wf_job *job, void *data, size_t n_bytes) {
    for (size_t done = 0; done < n_bytes;) {
        size_t n = n_bytes - done < WFI_CONTROL_TOLD ? n_bytes - done : WFI_CONTROL_TOLD;
        WF_TRY(wfi_control_broadcast(job, "a broadcast", (char *)data + done, n));
        done += n;
    }
    return WF_OK;
}

wf_status wf_job_barrier(wf_job *job) {
    return wfi_control_meet(job, "a barrier");
}
