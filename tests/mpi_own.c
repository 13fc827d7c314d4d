/* A program that uses MPI itself, under Open MPI's mpirun: it starts MPI, joins one job after the
 * other and ends MPI. A program that does not may join once, and is told so. Each job has a group.
 *
 * label: once
 */
#include "comm/transport/mpi_library.h"
#include "mpi_start.h"

static int say(wf_context *ctx, const char *what) {
    printf("%s: %s\n", what, wf_context_error(ctx));
    return 1;
}

static wf_status join_once(wf_context *ctx) {
    wf_job_config config = WF_JOB_CONFIG_INIT;
    wf_job *job;
    config.init = "env://";
    config.wire = "mpi";
    wf_status status = wf_job_join(ctx, &config, &job);
    if (status != WF_OK) return status;
    status = wf_job_barrier(job);
    if (wf_job_n_local_ranks(job) != 2 || wf_job_local_rank(job) != wf_job_rank(job))
        status = WF_BUG;
    wf_group *group = NULL;
    float x = 1;
    if (status == WF_OK) status = wf_group_create(job, NULL, &group);
    if (status == WF_OK) status = wf_group_all_reduce(group, &x, &x, 1, WF_F32, WF_SUM, NULL);
    if (status == WF_OK && x != 2) status = WF_BUG;
    wf_group_destroy(group);
    wf_job_leave(job);
    return status;
}

static int be_rank(bool starts_mpi) {
    wf_context *ctx;
    wfi_mpi mpi;
    int level = 0;
    if (wf_context_create(NULL, &ctx)) return 1;
    if (starts_mpi) {
        if (wfi_mpi_load(ctx, &mpi)) return say(ctx, "loading");
        if (mpi.common.init_thread(NULL, NULL, WFI_MPI_MULTIPLE, &level)) return 1;
        for (int k = 0; k < 3; k++)
            if (join_once(ctx)) return say(ctx, "joining again");
        if (mpi.common.finalize()) return 1;
    } else {
        if (join_once(ctx)) return say(ctx, "joining");
        if (join_once(ctx) != WF_UNSUPPORTED ||
            !strstr(wf_context_error(ctx), "call MPI_Init_thread with MPI_THREAD_MULTIPLE"))
            return say(ctx, "joining a second time");
    }
    wf_context_destroy(ctx);
    return 0;
}

int main(int argc, char **argv) {
    if (argc > 1) return be_rank(!strcmp(argv[1], "own"));
    const char *mpirun = mpi_find(OPEN_MPI);
    if (!mpirun) {
        printf("skipped: mpirun is not Open MPI's, or there is a sanitizer\n");
        return 77;
    }
    return mpi_start(mpirun, 2, "own") || mpi_start(mpirun, 2, "ours");
}
