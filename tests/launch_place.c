/* Which rank a process is, for the environments of all launchers, their mixtures, and junk.
 *
 * label: serial
 */
#include "comm/place/launcher.h"
#include "test.h"

#include <sys/wait.h>
#include <unistd.h>

#define TORCH   "RANK=5 WORLD_SIZE=8 LOCAL_RANK=1 LOCAL_WORLD_SIZE=4 GROUP_RANK=1 "
#define MASTER  "MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 "
#define OPENMPI "OMPI_COMM_WORLD_RANK=2 OMPI_COMM_WORLD_SIZE=4 "
#define OMPI_ON "OMPI_COMM_WORLD_LOCAL_RANK=0 OMPI_COMM_WORLD_LOCAL_SIZE=2 "
#define HYDRA   "PMI_RANK=3 PMI_SIZE=4 MPI_LOCALRANKID=1 MPI_LOCALNRANKS=2 "
#define STEP    "SLURM_STEP_ID=0 SLURM_JOB_ID=17 SLURM_PROCID=9 SLURM_NTASKS=11 SLURM_LOCALID=1 "
#define NODES   "SLURM_NODEID=2 SLURM_TASKS_PER_NODE=4(x2),3 "

typedef struct place_case {
    const char *environment; /* words NAME=VALUE */
    wf_place place;          /* n_ranks 0: refused */
    const char *words;       /* in the sentence, or the job's name; NULL: any */
} place_case;

static const place_case cases[] = {
    {"", {0, 1, 0, 1, "", ""}, ""},
    {"MASTER_ADDR=a MASTER_PORT=1 GROUP_RANK=3 WEFT=1", {0, 1, 0, 1, "", ""}, ""},
    /* torchrun */
    {TORCH MASTER, {5, 8, 1, 4, "torchrun", ""}, "torchrun:127.0.0.1:29500::"},
    {TORCH MASTER "TORCHELASTIC_RUN_ID=x TORCHELASTIC_RESTART_COUNT=2",
     {5, 8, 1, 4, "torchrun", ""},
     "torchrun:127.0.0.1:29500:x:2"},
    {"RANK=1 WORLD_SIZE=2", {1, 2, 1, 2, "torchrun", ""}, "process:"},
    {"RANK=1 WORLD_SIZE=2 WEFT_CONTROL_FD=3", {1, 2, 1, 2, "weft run", ""}, "process:"},
    {"RANK=0 WORLD_SIZE=1 " MASTER, {0, 1, 0, 1, "torchrun", ""}, ""},
    {"RANK=1", {0}, "RANK=1, but WORLD_SIZE is not set"},
    {"WORLD_SIZE=2", {0}, "WORLD_SIZE=2, but RANK is not set"},
    {"LOCAL_RANK=0", {0}, "LOCAL_RANK=0, but LOCAL_WORLD_SIZE is not set"},
    {"LOCAL_RANK=0 LOCAL_WORLD_SIZE=2", {0}, "neither RANK nor WORLD_SIZE"},
    {"RANK=1 WORLD_SIZE=2 LOCAL_RANK=1", {0}, "LOCAL_RANK=1, but LOCAL_WORLD_SIZE is not set"},
    {"RANK=2 WORLD_SIZE=2", {0}, "RANK=2, but WORLD_SIZE=2: ranks count from 0"},
    {"RANK=0 WORLD_SIZE=0", {0}, "WORLD_SIZE=0"},
    {"RANK=1 WORLD_SIZE=2 LOCAL_RANK=1 LOCAL_WORLD_SIZE=1", {0}, "LOCAL_RANK=1"},
    {"RANK=1 WORLD_SIZE=2 LOCAL_RANK=1 LOCAL_WORLD_SIZE=4", {0}, "LOCAL_WORLD_SIZE=4 gives"},
    {"RANK=-1 WORLD_SIZE=2", {0}, "RANK='-1' is not a position in a job"},
    {"RANK=one WORLD_SIZE=2", {0}, "RANK='one'"},
    {"RANK=0x1 WORLD_SIZE=2", {0}, "RANK='0x1'"},
    {"RANK=+1 WORLD_SIZE=2", {0}, "RANK='+1'"},
    {"RANK=1 WORLD_SIZE=99999999999999999999", {0}, "WORLD_SIZE='99999999999999999999'"},
    {"RANK=1 WORLD_SIZE=2147483647", {0}, "a whole number from 0 to 999999999"},
    {"RANK=1 WORLD_SIZE=2 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 GROUP_RANK=1", {0}, "GROUP_RANK=1 means"},
    {"RANK=1 WORLD_SIZE=2 GROUP_RANK=x", {0}, "GROUP_RANK='x'"},
    {"RANK= WORLD_SIZE= ", {0, 1, 0, 1, "", ""}, ""},
    /* Open MPI */
    {OPENMPI OMPI_ON "OMPI_MCA_ess_base_jobid=77 OMPI_MCA_orte_hnp_uri=77.0;tcp://1:2 PMIX_RANK=2",
     {2, 4, 0, 2, "Open MPI", ""},
     "openmpi:77:77.0;tcp://1:2"},
    {OPENMPI OMPI_ON "PMIX_NAMESPACE=prterun-host-1@1",
     {2, 4, 0, 2, "Open MPI", ""},
     "openmpi:prterun-host-1@1"},
    {OPENMPI OMPI_ON "PMIX_RANK=3", {0}, "OMPI_COMM_WORLD_RANK=2 (Open MPI) and PMIX_RANK=3"},
    {"OMPI_COMM_WORLD_RANK=0", {0}, "OMPI_COMM_WORLD_SIZE is not set"},
    /* PMI and PMIx */
    {HYDRA, {3, 4, 1, 2, "PMI", ""}, "process:"},
    {"PMI_RANK=3 PMI_SIZE=4 PMI_LOCAL_RANK=0 PMI_LOCAL_SIZE=1 PMI_JOBID=5.0",
     {3, 4, 0, 1, "PMI", ""},
     "pmi:5.0"},
    {"PMI_RANK=0", {0}, "PMI_SIZE is not set"},
    {"PMI_RANK=0 PMI_SIZE=2 MPI_LOCALRANKID=0", {0}, "MPI_LOCALNRANKS is not set"},
    {"PMIX_RANK=1", {0}, "the number of ranks is not set"},
    /* Slurm */
    {STEP NODES, {9, 11, 1, 3, "Slurm", ""}, "slurm:17:0:"},
    {STEP "SLURM_NODEID=0 SLURM_TASKS_PER_NODE=4(x2),3", {9, 11, 1, 4, "Slurm", ""}, NULL},
    {STEP NODES "SLURM_STEP_NUM_TASKS=10 SLURM_STEP_TASKS_PER_NODE=2(x5)",
     {9, 10, 1, 2, "Slurm", ""},
     NULL},
    {STEP NODES "PMIX_RANK=9 PMIX_NAMESPACE=slurm.pmix.17.0",
     {9, 11, 1, 3, "Slurm", ""},
     "pmix:slurm.pmix.17.0"},
    {"SLURM_JOB_ID=17 SLURM_PROCID=0 SLURM_NTASKS=8 SLURM_LOCALID=0", {0, 1, 0, 1, "", ""}, ""},
    {"SLURM_STEP_ID=4294967291 SLURM_PROCID=0 SLURM_NTASKS=8", {0, 1, 0, 1, "", ""}, ""},
    {STEP "SLURM_TASKS_PER_NODE=4", {0}, "SLURM_NODEID, the number of this node, is not set"},
    {STEP "SLURM_NODEID=3 SLURM_TASKS_PER_NODE=4(x2),3", {0}, "has 3 nodes only"},
    {STEP "SLURM_NODEID=0 SLURM_TASKS_PER_NODE=4(x", {0}, "not a list of tasks"},
    {STEP "SLURM_NODEID=0 SLURM_TASKS_PER_NODE=4(x2", {0}, "not a list of tasks"},
    {STEP "SLURM_NODEID=0 SLURM_TASKS_PER_NODE=4;3", {0}, "not a list of tasks"},
    {STEP "SLURM_NODEID=1 SLURM_TASKS_PER_NODE=4,", {0}, "not a list of tasks"},
    {STEP "SLURM_NODEID=9999999 SLURM_TASKS_PER_NODE=1(x999999),1(x999999999)",
     {0},
     "not a list of tasks"},
    {"SLURM_STEP_ID=0 SLURM_PROCID=x SLURM_NTASKS=2", {0}, "SLURM_PROCID='x'"},
    /* several launchers: the first of torchrun, Open MPI, PMI, Slurm, if the others agree */
    {"RANK=2 WORLD_SIZE=4 " OPENMPI OMPI_ON MASTER, {2, 4, 0, 2, "torchrun", ""}, "torchrun:"},
    {"RANK=2 WORLD_SIZE=4 LOCAL_RANK=0 LOCAL_WORLD_SIZE=4 " OPENMPI OMPI_ON,
     {0},
     "LOCAL_WORLD_SIZE=4 (torchrun) and OMPI_COMM_WORLD_LOCAL_SIZE=2 (Open MPI) disagree"},
    {TORCH HYDRA, {0}, "RANK=5 (torchrun) and PMI_RANK=3 (PMI) disagree"},
    {OPENMPI HYDRA, {0}, "OMPI_COMM_WORLD_RANK=2 (Open MPI) and PMI_RANK=3 (PMI) disagree"},
    {HYDRA STEP NODES, {0}, "PMI_RANK=3 (PMI) and SLURM_PROCID=9 (Slurm) disagree"},
    {"RANK=9 WORLD_SIZE=12 " STEP NODES, {0}, "WORLD_SIZE=12 (torchrun) and SLURM_NTASKS=11"},
    {"PMI_RANK=9 PMI_SIZE=11 PMI_JOBID=17.0 " STEP NODES, {9, 11, 1, 3, "PMI", ""}, "pmi:17.0"},
    {TORCH "RANK= OMPI_COMM_WORLD_RANK=5 OMPI_COMM_WORLD_SIZE=8", {0}, "RANK is not set"},
    /* srun torchrun: Slurm counts the torchruns, one a machine */
    {TORCH "GROUP_WORLD_SIZE=2 SLURM_STEP_ID=0 SLURM_JOB_ID=1 SLURM_PROCID=1 SLURM_NTASKS=2 "
           "SLURM_LOCALID=0 SLURM_NODEID=1 SLURM_TASKS_PER_NODE=1(x2) PMIX_RANK=1 " MASTER,
     {5, 8, 1, 4, "torchrun", ""},
     "torchrun:"},
    {"RANK=1 WORLD_SIZE=4 GROUP_RANK=0 GROUP_WORLD_SIZE=1 SLURM_STEP_ID=0 SLURM_PROCID=0 "
     "SLURM_NTASKS=1 SLURM_LOCALID=0 SLURM_NODEID=0 SLURM_TASKS_PER_NODE=1",
     {1, 4, 1, 4, "torchrun", ""},
     NULL},
    {TORCH "GROUP_WORLD_SIZE=2 SLURM_STEP_ID=0 SLURM_PROCID=0 SLURM_NTASKS=2", {0}, "disagree"},
};

static void set_environment(const char *text) {
    char *copy = strdup(text), *rest = copy;
    clearenv();
    for (char *word; (word = strsep(&rest, " ")) != NULL;) {
        char *equals = strchr(word, '=');
        if (!equals) continue;
        *equals = 0;
        setenv(word, equals + 1, 1);
    }
    free(copy);
}

TEST_CASE(every_environment) {
    for (size_t i = 0; i < WFI_COUNT(cases); i++) {
        const place_case *want = &cases[i];
        scoped_context ctx = test_context();
        wf_place got;
        set_environment(want->environment);
        wf_status status = wf_launch_place(ctx, &got);
        if (!want->place.n_ranks) {
            if (status != WF_INVALID_ARG || !strstr(wf_context_error(ctx), want->words))
                fail_msg("'%s': %s '%s', expected '%s'", want->environment, wf_status_name(status),
                         wf_context_error(ctx), want->words);
        } else if (status != WF_OK) {
            fail_msg("'%s': %s", want->environment, wf_context_error(ctx));
        } else if (got.rank != want->place.rank || got.n_ranks != want->place.n_ranks ||
                   got.local_rank != want->place.local_rank ||
                   got.n_local_ranks != want->place.n_local_ranks ||
                   strcmp(got.source, want->place.source) != 0) {
            fail_msg("'%s': rank %d of %d, locally %d of %d, by '%s'", want->environment, got.rank,
                     got.n_ranks, got.local_rank, got.n_local_ranks, got.source);
        } else if (want->words && strncmp(got.job, want->words, strlen(want->words)) != 0) {
            fail_msg("'%s': the job is called '%s'", want->environment, got.job);
        }
        if (status == WF_OK && !*got.job != (got.n_ranks == 1))
            fail_msg("'%s': %d ranks, job '%s'", want->environment, got.n_ranks, got.job);
    }
}

/* Long names are cut, but still differ. */
TEST(long_names_differ) {
    wf_place a, b, again;
    char id[201];
    memset(id, 'x', 200);
    id[200] = 0;
    set_environment("RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=1");
    setenv("TORCHELASTIC_RUN_ID", id, 1);
    TEST_OK(ctx, wf_launch_place(ctx, &a));
    TEST_OK(ctx, wf_launch_place(ctx, &again));
    id[199] = 'y';
    setenv("TORCHELASTIC_RUN_ID", id, 1);
    TEST_OK(ctx, wf_launch_place(ctx, &b));
    assert_string_equal(a.job, again.job);
    assert_string_not_equal(a.job, b.job);
    assert_int_equal(strlen(a.job), 87); /* and fit into the address of a socket */
}

/* Two children of ours, one of them behind a process in between that has the variable too. */
static void job_of_child(bool is_deeper, int fd) {
    char *const environment[] = {"PMI_RANK=1", "PMI_SIZE=2", NULL};
    char self[] = "/proc/self/exe", number[12];
    snprintf(number, sizeof number, "%d", fd);
    char *const argv[] = {self, "name", number, is_deeper ? "deeper" : NULL, NULL};
    pid_t pid = fork();
    if (!pid) {
        execve(self, argv, environment);
        _exit(1);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

static int tell_name(int fd, bool is_deeper) {
    wf_context *ctx;
    wf_place place;
    if (is_deeper) {
        pid_t pid = fork();
        if (pid) return waitpid(pid, NULL, 0) == pid ? 0 : 1;
    }
    if (wf_context_create(NULL, &ctx) || wf_launch_place(ctx, &place)) return 1;
    bool is_written = write(fd, place.job, sizeof place.job) == (ssize_t)sizeof place.job;
    wf_context_destroy(ctx);
    return !is_written;
}

TEST_CASE(nameless_launchers_are_found) {
    int ends[2];
    char a[96], b[96], own[40];
    assert_int_equal(pipe(ends), 0);
    job_of_child(false, ends[1]);
    job_of_child(true, ends[1]);
    assert_int_equal(read(ends[0], a, sizeof a), sizeof a);
    assert_int_equal(read(ends[0], b, sizeof b), sizeof b);
    snprintf(own, sizeof own, "process:%d:", (int)getpid());
    assert_memory_equal(a, own, strlen(own));
    assert_string_equal(a, b);
    assert_true(strtoull(a + strlen(own), NULL, 10) > 0);
    close(ends[0]);
    close(ends[1]);
}

int main(int argc, char **argv) {
    if (argc > 2 && !strcmp(argv[1], "name")) return tell_name(atoi(argv[2]), argc > 3);
    return test_run(NULL, NULL);
}
