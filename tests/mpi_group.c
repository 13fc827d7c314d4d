/* Groups of processes that share no memory, under mpirun, Open MPI's and MPICH's, whichever is
 * there: every collective has the bits of a plain loop over one tree; groups are made, split and
 * ended many times; who disagrees or does not come is named; and a rank that dies ends the job.
 *
 * label: serial once
 */
#include "group_cases.h"
#include "mpi_start.h"

static const char *check_algorithms(ranks_one *one) {
    static const char *const algorithms[] = {"auto", "direct", "ring", "pairwise", "engine"};
    const char *wrong = NULL;
    for (int i = 0; i < 5 && !wrong; i++) {
        wf_group_config config = WF_GROUP_CONFIG_INIT;
        config.algorithm = algorithms[i];
        config.order_free = 1;
        RANKS_TRY(one, wf_group_create(one->job, &config, &one->group));
        RANKS_CHECK(one, !strcmp(wf_group_wire(one->group), "mpi"));
        RANKS_CHECK(one, i < 2 || !strcmp(wf_group_algorithm(one->group, 9), algorithms[i]));
        one->self = (void *)algorithms[i];
        wrong = check_all(one);
        wf_group_destroy(one->group);
    }
    return wrong;
}

static const char *check_life(ranks_one *one) {
    wf_group *all, *g;
    RANKS_TRY(one, wf_group_create(one->job, NULL, &all));
    RANKS_CHECK(one, wf_group_local_rank(all) == one->rank);
    RANKS_CHECK(one, wf_group_n_local_ranks(all) == one->n);
    for (int i = 0; i < 20; i++) {
        int32_t x = one->rank;
        RANKS_TRY(one, wf_group_split(all, one->rank > 0, -one->rank, NULL, &g));
        RANKS_TRY(one, wf_group_all_reduce(WF_HERE(g), &x, &x, 1, WF_I32, WF_SUM, NULL));
        RANKS_CHECK(one, x == (one->rank ? one->n * (one->n - 1) / 2 : 0));
        wf_group_destroy(g);
    }
    static int64_t big[300000], got[300000]; /* more than what MPI sends at once without asking */
    int right = (one->rank + 1) % one->n, left = (one->rank + one->n - 1) % one->n;
    wf_work *work;
    big[299999] = one->rank;
    if (one->rank == 0)
        RANKS_TRY(one, wf_group_recv(WF_HERE(all), got, 300000, WF_I64, left, NULL));
    RANKS_TRY(one, wf_group_send(WF_HERE(all), big, 300000, WF_I64, right, &work));
    RANKS_TRY(one, wf_work_wait(work));
    if (one->rank) RANKS_TRY(one, wf_group_recv(WF_HERE(all), got, 300000, WF_I64, left, NULL));
    RANKS_CHECK(one, got[299999] == left);
    wf_group_config config = WF_GROUP_CONFIG_INIT;
    config.algorithm = "engine";
    RANKS_REFUSED(one, wf_group_split(all, one->rank > 0, 0, &config, &g), WF_UNSUPPORTED,
                  one->n == 2 || !one->rank ? "'inproc' has none"
                                            : "only a group of all ranks of the job can have it");
    if (one->n > 2)
        RANKS_REFUSED(one, wf_group_create(one->job, &config, &g), WF_UNSUPPORTED,
                      "'engine' adds in an order that rotates");
    wf_group_destroy(all);
    return NULL;
}

static const char *check_faults(ranks_one *one, int timeout_ms) {
    wf_group_config config = WF_GROUP_CONFIG_INIT;
    float x[4] = {1, 2, 3, 4};
    config.timeout_ms = timeout_ms;
    config.algorithm = "tree";
    for (int k = 0; k < 3; k++) {
        RANKS_TRY(one, wf_group_create(one->job, &config, &one->group));
        if (k == 0) { /* too late */
            if (one->rank == 1) usleep((unsigned)timeout_ms * 1700);
            RANKS_REFUSED(one, wf_group_barrier(WF_HERE(one->group), NULL), WF_TIMEOUT,
                          "rank 1 has not arrived; it last called nothing");
        } else if (k == 1) {
            RANKS_REFUSED(one,
                          wf_group_all_reduce(WF_HERE(one->group), x, x, one->rank == 1 ? 3 : 4,
                                              WF_F32, WF_SUM, NULL),
                          WF_REMOTE, "rank 1 calls wf_group_all_reduce of 3 F32 (sum, tree) at ");
            RANKS_CHECK(one, x[0] == 1 && x[2] == 3);
        } else if (one->rank != 1) { /* has gone before */
            RANKS_REFUSED(one, wf_group_barrier(WF_HERE(one->group), NULL), WF_REMOTE,
                          "rank 1 has left the group; it last called nothing");
        }
        wf_group_destroy(one->group);
    }
    return NULL;
}

static const char *die(ranks_one *one) {
    RANKS_TRY(one, wf_group_create(one->job, NULL, &one->group));
    RANKS_TRY(one, wf_group_barrier(WF_HERE(one->group), NULL));
    if (one->rank == 1) kill(getpid(), SIGKILL);
    if (wf_group_barrier(WF_HERE(one->group), NULL) == WF_OK) return "a barrier without rank 1";
    _exit(3);
}

static int be_rank(const char *what, int timeout_ms) {
    ranks_one one = {.ctx = test_context()};
    wf_job_config config = WF_JOB_CONFIG_INIT;
    config.init = "env://";
    config.wire = "mpi";
    wf_status status = wf_job_join(one.ctx, &config, &one.job);
    if (status != WF_OK) {
        printf("joining: %s\n", wf_context_error(one.ctx));
        return 1;
    }
    one.rank = wf_job_rank(one.job);
    one.n = wf_job_n_ranks(one.job);
    const char *wrong = !strcmp(what, "all") ? check_algorithms(&one) : die(&one);
    if (!wrong) wrong = check_life(&one);
    if (!wrong) wrong = check_faults(&one, timeout_ms);
    if (wrong) printf("rank %d of %d: %s\n", one.rank, one.n, wrong);
    fflush(stdout);
    if (wrong) _exit(1);
    wf_job_leave(one.job);
    test_context_end(one.ctx);
    return 0;
}

/* ---- starting them ---- */

typedef struct attempt {
    const char *mpirun;
    int n;
} attempt;

static int start(const attempt *a, const char *what, int timeout_ms) {
    char words[64];
    snprintf(words, sizeof words, "%s %d%s", what, timeout_ms,
             strcmp(what, "die") ? "" : " >/dev/null 2>&1");
    return mpi_start(a->mpirun, a->n, words);
}

static const char *try_all(void *launch, int timeout_ms) {
    static char wrong[100];
    const attempt *a = launch;
    snprintf(wrong, sizeof wrong, "%s -np %d", a->mpirun, a->n);
    return start(a, "all", timeout_ms) ? wrong : NULL;
}

static void run_family(mpi_family family) {
    attempt a = {.mpirun = mpi_find(family)};
    if (!a.mpirun) {
        print_message("skipped: there is no such mpirun, or there is a sanitizer\n");
        skip();
    }
    for (a.n = 2; a.n <= 3; a.n++) test_deadlines(try_all, &a);
    a.n = 2;
    int status = start(&a, "die", TEST_TIMEOUT_MS);
    if (status == 0 || WEXITSTATUS(status) == 124)
        fail_msg("%s: a dead rank: %d", a.mpirun, status);
}

TEST_CASE(open_mpi) {
    run_family(OPEN_MPI);
}

/* Where Open MPI is, with WEFT_TEST_FULL=1 only. */
TEST_CASE(mpich) {
    if (test_is_full() || !mpi_find(OPEN_MPI)) run_family(MPICH);
}

int main(int argc, char **argv) {
    return argc > 2 ? be_rank(argv[1], atoi(argv[2])) : test_run(NULL, NULL);
}
