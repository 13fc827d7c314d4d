/* A test that starts itself again as the ranks of a job, and reads what each says. */
#ifndef TESTS_RANK_PROCESSES_H
#define TESTS_RANK_PROCESSES_H

#include "test.h"

#include <fcntl.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
#include <weft/job.h>

#define MAX_PROCESSES 8
#define MAX_WORDS     4

extern char **environ;

typedef struct rank_process {
    pid_t pid;
    int out;
    char said[4000];
    int status;
} rank_process;

static inline void rank_start(rank_process *p, char *const *argv) {
    int ends[2];
    posix_spawn_file_actions_t actions;
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    assert_int_equal(posix_spawn_file_actions_init(&actions), 0);
    posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
    assert_int_equal(posix_spawn(&p->pid, "/proc/self/exe", &actions, NULL, argv, environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    p->out = ends[0];
}

static inline void rank_finish(rank_process *p) {
    size_t n = 0;
    ssize_t got;
    while ((got = read(p->out, p->said + n, sizeof p->said - 1 - n)) > 0) n += (size_t)got;
    p->said[n] = 0;
    close(p->out);
    waitpid(p->pid, &p->status, 0);
}

/* Runs main of this program as rank 0, 1, ...: argv is name, rank, ranks, job, then `words`. */
static inline void run_ranks(rank_process *p, int n_ranks, const char *const words[MAX_WORDS]) {
    static int n_jobs;
    char name[64], rank[16], size[16];
    snprintf(name, sizeof name, "test-%d-%d", (int)getpid(), n_jobs++);
    snprintf(size, sizeof size, "%d", n_ranks);
    for (int r = n_ranks - 1; r >= 0; r--) {
        snprintf(rank, sizeof rank, "%d", r);
        char *argv[4 + MAX_WORDS + 1] = {(char *)(uintptr_t) "rank", rank, size, name};
        for (int k = 0; k < MAX_WORDS && words[k]; k++) argv[4 + k] = (char *)(uintptr_t)words[k];
        rank_start(&p[r], argv);
    }
    for (int r = 0; r < n_ranks; r++) rank_finish(&p[r]);
}

/* The rank's side: joins the job. */
static inline wf_job *join_ranks(wf_context *ctx, char **argv) {
    wf_job_config meeting = WF_JOB_CONFIG_INIT;
    wf_job *job;
    meeting.rank = atoi(argv[1]);
    meeting.n_ranks = atoi(argv[2]);
    meeting.name = argv[3];
    if (wf_job_join(ctx, &meeting, &job) == WF_OK) return job;
    printf("error %s\n", wf_context_error(ctx));
    exit(1);
}

#endif
