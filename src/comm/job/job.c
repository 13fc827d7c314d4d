/* The public interface of a job's control segment. */
#include "base/env.h"
#include "comm/job/compare.h"
#include "comm/job/control_kinds.h"
#include "comm/place/launcher.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <weft/weft.h>

static const char *const variables[] = {"TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT",
                                        "SLURM_JOB_ID",        "SLURM_STEP_ID",
                                        "SLURM_RESTART_COUNT", "PMIX_NAMESPACE",
                                        "PMI_JOBID",           "OMPI_MCA_ess_base_jobid"};

/* The inode of the segment from weft run, which is equal in all ranks of one launch. */
static unsigned long long launched_by(void) {
    struct stat about;
    const char *fd = wfi_launcher_text(WFI_CONTROL_ENV);
    bool is_segment = fd && wfi_control_room(atoi(fd)) && fstat(atoi(fd), &about) == 0;
    return is_segment ? (unsigned long long)about.st_ino : 0;
}

/* Adds a setting for each variable that identifies a launcher's job; its value is equal in all
 * ranks of one job. */
static void add_identity(wfi_text *statement) {
    for (size_t k = 0; k < WFI_COUNT(variables); k++) {
        const char *value = wfi_launcher_text(variables[k]);
        wfi_setting_add(statement, variables[k], "%s", value ? value : "");
    }
    if (launched_by()) wfi_setting_add(statement, "weft run, launch", "%llu", launched_by());
}

/* Detects two jobs at one port, file or name: their launchers identify them differently. */
static wf_status compare_identities(wf_context *ctx, wf_job *job) {
    wfi_text statement;
    wfi_text_init(&statement, ctx);
    wfi_setting_add(&statement, "version", WEFT_VERSION);
    add_identity(&statement);
    wf_status status = wfi_control_compare(job, &statement);
    wfi_free(ctx, statement.data);
    return status;
}

wf_status wf_job_join(wf_context *ctx, const wf_job_config *config, wf_job **job_out) {
    WF_TRY(wfi_check_struct(ctx, config, sizeof *config, "wf_job_config"));
    int64_t timeout_ms = config->timeout_ms;
    WF_TRY(wfi_env_timeout(ctx, &timeout_ms));
    wf_job *job;
    WF_TRY(wfi_control_join_job(ctx, config, timeout_ms, &job));
    job->wires_devices = config->wire && !strcmp(config->wire, "nccl");
    wf_status status = compare_identities(ctx, job);
    if (status != WF_OK) {
        wf_job_leave(job);
        return status;
    }
    *job_out = job;
    return WF_OK;
}

wf_status wf_job_compare(wf_job *job, const wf_setting *settings, int n_settings) {
    wfi_text statement;
    wfi_text_init(&statement, wfi_control_context(job));
    for (int k = 0; k < n_settings; k++)
        wfi_setting_add(&statement, settings[k].name, "%s",
                        settings[k].value ? settings[k].value : "");
    wf_status status = wfi_control_compare(job, &statement);
    wfi_free(wfi_control_context(job), statement.data);
    return status;
}

void wf_job_leave(wf_job *job) {
    wfi_control_leave(job);
}

int wf_job_rank(const wf_job *job) {
    return job->rank;
}

int wf_job_n_ranks(const wf_job *job) {
    return job->n_ranks;
}

const char *wf_job_wire(const wf_job *job) {
    return job->wires_devices ? "nccl" : job->transport ? "mpi" : "shm";
}

void wf_job_request_stop(wf_job *job, int reason) {
    wfi_control_request_stop(job, reason);
}

int wf_job_local_rank(const wf_job *job) {
    return wfi_control_n_local(job, wf_job_rank(job));
}

int wf_job_n_local_ranks(const wf_job *job) {
    return wfi_control_n_local(job, wf_job_n_ranks(job));
}

wf_status wf_job_broadcast(wf_job *job, void *data, size_t n_bytes) {
    char what[WFI_CONTROL_DOING];
    snprintf(what, sizeof what, "a broadcast of %zu bytes", n_bytes);
    return wfi_control_broadcast(job, what, data, n_bytes);
}

wf_status wf_job_barrier(wf_job *job) {
    return wfi_control_barrier(job, "a barrier");
}
