/* How ranks find each other: by the environment, a port or a file; again and again; and what is
 * said to those who do not. Ranks are threads here, each with a job of its own, and processes
 * where the environment has to differ. */
#include "comm/job/control.h"
#include "test.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define N_ROUNDS 20
#define N_RANKS  3

extern char **environ;
static char folder[64], port_url[64], file_url[128];

/* ---- ranks as threads ---- */

typedef struct rank {
    wf_context *ctx;
    wf_job_config config;
    int n_rounds, stop; /* stop: a reason to stop, or 0 */
    bool runs;          /* it begins a run, too, and is asked to stop before */
    wf_status status;
    char sentence[400];
    int is_done; /* atomic access */
} rank;

static wf_status join_often(rank *r) {
    for (int round = 0; round < r->n_rounds; round++) {
        wf_job *job;
        wf_status status = wf_job_join(r->ctx, &r->config, &job);
        if (status) return status;
        status = wf_job_rank(job) == r->config.rank && wf_job_n_ranks(job) == r->config.n_ranks &&
                         wf_job_local_rank(job) == r->config.rank &&
                         wf_job_n_local_ranks(job) == r->config.n_ranks
                     ? wf_job_barrier(job)
                     : WF_BUG;
        if (r->stop) wf_job_request_stop(job, r->stop);
        if (r->runs) (void)wfi_control_begin_run(job, 7, "run 7");
        wf_job_leave(job);
        if (status) return status;
    }
    return WF_OK;
}

static void *be_thread(void *self) {
    rank *r = self;
    r->status = join_often(r);
    if (r->status) snprintf(r->sentence, sizeof r->sentence, "%s", wf_context_error(r->ctx));
    __atomic_store_n(&r->is_done, 1, __ATOMIC_RELEASE);
    return NULL;
}

static void prepare(wf_context *ctx, rank *ranks, int n, const char *init, const char *name) {
    for (int r = 0; r < n; r++) {
        wf_job_config config = WF_JOB_CONFIG_INIT;
        config.rank = r;
        config.n_ranks = n;
        config.init = init;
        config.name = name;
        ranks[r] = (rank){.ctx = ctx, .config = config, .n_rounds = 1};
    }
}

static void run(rank *ranks, int n) {
    pthread_t threads[8];
    for (int r = n - 1; r >= 0; r--)
        assert_int_equal(pthread_create(&threads[r], NULL, be_thread, &ranks[r]), 0);
    for (int r = 0; r < n; r++) pthread_join(threads[r], NULL);
}

static void expect_ok(const rank *ranks, int n) {
    for (int r = 0; r < n; r++)
        if (ranks[r].status) fail_msg("rank %d: %s", r, ranks[r].sentence);
}

/* NULL if the rank was refused with that status and words, else what is wrong. */
static const char *differs(const rank *r, wf_status status, const char *words) {
    static char text[1000];
    if (r->status == status && strstr(r->sentence, words)) return NULL;
    snprintf(text, sizeof text, "rank %d: %s '%s', not %s '%s'", r->config.rank,
             wf_status_name(r->status), r->sentence, wf_status_name(status), words);
    return text;
}

static void expect(const rank *r, wf_status status, const char *words) {
    const char *wrong = differs(r, status, words);
    if (wrong) fail_msg("%s", wrong);
}

TEST(again_and_again) {
    const char *const ways[] = {NULL, port_url, file_url};
    for (int way = 0; way < 3; way++) {
        rank ranks[N_RANKS];
        char name[64];
        int n_open = test_descriptors();
        snprintf(name, sizeof name, "meet-%d", (int)getpid());
        prepare(ctx, ranks, N_RANKS, ways[way], ways[way] ? NULL : name);
        for (int r = 0; r < N_RANKS; r++) ranks[r].n_rounds = N_ROUNDS;
        run(ranks, N_RANKS);
        expect_ok(ranks, N_RANKS);
        assert_int_equal(test_descriptors(), n_open);
        assert_int_equal(access(file_url + strlen("file://"), F_OK), -1);
    }
}

/* ---- a segment that ranks keep, as those of a launcher do ---- */

#define N_KEPT 8

typedef struct kept {
    wf_context *ctx;
    int fd, rank, n_rounds, pause_us;
    char wrong[400];
    pthread_t thread;
} kept;

static wf_status join_kept(kept *k, int round) {
    wf_job *job;
    WF_TRY(wfi_control_attach(k->ctx, k->fd, k->rank, N_KEPT, TEST_TIMEOUT_MS, &job));
    wf_status status = round % 3 ? wf_job_barrier(job) : WF_OK;
    wf_job_leave(job);
    return status;
}

static void *be_kept(void *self) {
    kept *k = self;
    for (int round = 0; round < k->n_rounds && !*k->wrong; round++) {
        if (k->pause_us && (round * 7 + k->rank * 3) % 11 == 0)
            usleep((unsigned)((round + k->rank) % 3 * k->pause_us));
        if (join_kept(k, round))
            snprintf(k->wrong, sizeof k->wrong, "join %d: %s", round, wf_context_error(k->ctx));
    }
    return NULL;
}

TEST(left_and_joined_again) {
    const char *text = getenv("TEST_ROUNDS");
    for (int pause_us = 0; pause_us <= 500; pause_us += 500) {
        kept ranks[N_KEPT];
        int fd;
        TEST_OK(ctx, wfi_control_segment(ctx, N_KEPT, &fd));
        for (int r = 0; r < N_KEPT; r++) {
            ranks[r] = (kept){ctx, fd, r, text ? atoi(text) : 400, pause_us, "", 0};
            assert_int_equal(pthread_create(&ranks[r].thread, NULL, be_kept, &ranks[r]), 0);
        }
        for (int r = 0; r < N_KEPT; r++) pthread_join(ranks[r].thread, NULL);
        for (int r = 0; r < N_KEPT; r++)
            if (*ranks[r].wrong) fail_msg("rank %d, %s", r, ranks[r].wrong);
        close(fd);
    }
}

/* One who has left is not taken for one who has come to the next job, nor for one who has left
 * that. */
TEST(who_comes_again_is_awaited) {
    kept ranks[N_KEPT], late;
    wf_job *job;
    int fd;
    TEST_OK(ctx, wfi_control_segment(ctx, N_KEPT, &fd));
    for (int round = 0; round < 2; round++) {
        for (int r = 0; r < N_KEPT; r++) {
            ranks[r] = (kept){ctx, fd, r, 1, 0, "", 0};
            if (r == 1 && round) ranks[r].n_rounds = 0;
            assert_int_equal(pthread_create(&ranks[r].thread, NULL, be_kept, &ranks[r]), 0);
        }
        late = (kept){.ctx = ctx, .fd = fd, .rank = 1};
        usleep(round * 100000); /* the others look for rank 1, which has left the first job */
        if (round && join_kept(&late, 0)) fail_msg("%s", wf_context_error(ctx));
        for (int r = 0; r < N_KEPT; r++) {
            pthread_join(ranks[r].thread, NULL);
            if (*ranks[r].wrong) fail_msg("round %d, rank %d, %s", round, r, ranks[r].wrong);
        }
    }
    TEST_REFUSED(ctx, wfi_control_attach(ctx, fd, 0, N_KEPT, 100, &job), WF_TIMEOUT,
                 "rank 1 has not arrived");
    TEST_REFUSED(ctx, wfi_control_attach(ctx, fd, N_KEPT, N_KEPT + 1, 100, &job), WF_INVALID_ARG,
                 "the job was started for");
    close(fd);
}

static void *fail_once(void *self) {
    kept *k = self;
    wf_job *job;
    wf_status status = wfi_control_attach(k->ctx, k->fd, k->rank, N_KEPT, TEST_TIMEOUT_MS, &job);
    if (status == WF_OK) {
        status = k->rank ? wf_job_barrier(job)
                         : wfi_control_fail_all(job, wfi_fail(k->ctx, WF_DEVICE, "it is broken"));
        wf_job_leave(job);
    }
    if (status != WF_DEVICE || !strstr(wf_context_error(k->ctx), "it is broken"))
        snprintf(k->wrong, sizeof k->wrong, "%s '%s'", wf_status_name(status),
                 wf_context_error(k->ctx));
    return NULL;
}

/* The next one is another job. */
TEST(a_failure_ends_with_its_job) {
    void *(*const bodies[])(void *) = {fail_once, be_kept};
    kept ranks[N_KEPT];
    int fd;
    TEST_OK(ctx, wfi_control_segment(ctx, N_KEPT, &fd));
    for (int round = 0; round < 4; round++) {
        for (int r = 0; r < N_KEPT; r++) {
            ranks[r] = (kept){ctx, fd, r, 2, 0, "", 0};
            assert_int_equal(pthread_create(&ranks[r].thread, NULL, bodies[round % 2], &ranks[r]),
                             0);
        }
        for (int r = 0; r < N_KEPT; r++) pthread_join(ranks[r].thread, NULL);
        for (int r = 0; r < N_KEPT; r++)
            if (*ranks[r].wrong) fail_msg("round %d, rank %d: %s", round, r, ranks[r].wrong);
    }
    close(fd);
}

TEST(a_job_of_one) {
    const char *const ways[] = {NULL, "env://", port_url, file_url};
    for (int way = 0; way < 4; way++) {
        rank one;
        prepare(ctx, &one, 1, ways[way], NULL);
        one.n_rounds = 3;
        run(&one, 1);
        expect_ok(&one, 1);
    }
}

/* One of several ways to meet, for attempts with a deadline. */
typedef struct attempt {
    wf_context *ctx;
    const char *way;
} attempt;

static const char *try_absent(void *self, int timeout_ms) {
    const attempt *a = self;
    rank ranks[4];
    char name[64], waited[64];
    snprintf(name, sizeof name, "absent-%d", (int)getpid());
    snprintf(waited, sizeof waited, "rank 3 waited %d ms", timeout_ms);
    prepare(a->ctx, ranks, 4, a->way, name);
    for (int r = 0; r < 4; r++) ranks[r].config.timeout_ms = timeout_ms;
    run(ranks, 2);
    const char *wrong = differs(&ranks[0], WF_TIMEOUT, "ranks 2, 3 of 4 have not arrived");
    if (!wrong && ranks[1].status == WF_OK) wrong = "rank 1 has joined";
    (void)be_thread(&ranks[3]);
    if (!wrong) wrong = differs(&ranks[3], WF_TIMEOUT, waited);
    if (!wrong && access(file_url + strlen("file://"), F_OK) == 0) wrong = "a file is left";
    return wrong;
}

TEST(who_does_not_come_is_named) {
    const char *const ways[] = {NULL, port_url, file_url};
    for (int way = 0; way < 3; way++) test_deadlines(try_absent, &(attempt){ctx, ways[way]});
}

static int n_interrupted; /* atomic access: of the next receives */

/* In place of libc's. The signal comes together with the message, which the kernel then keeps. */
ssize_t recvmsg(int fd, struct msghdr *message, int flags) {
    if (__atomic_sub_fetch(&n_interrupted, 1, __ATOMIC_SEQ_CST) < 0)
        return syscall(SYS_recvmsg, fd, message, flags);
    (void)poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, -1);
    errno = EINTR;
    return -1;
}

static const char *try_interrupted(void *self, int timeout_ms) {
    const attempt *a = self;
    rank ranks[2];
    char name[64];
    snprintf(name, sizeof name, "interrupted-%d", (int)getpid());
    prepare(a->ctx, ranks, 2, NULL, name);
    ranks[0].config.timeout_ms = ranks[1].config.timeout_ms = timeout_ms;
    __atomic_store_n(&n_interrupted, 2, __ATOMIC_SEQ_CST);
    run(ranks, 2);
    const char *wrong = differs(&ranks[0], WF_OK, "");
    return wrong ? wrong : differs(&ranks[1], WF_OK, "");
}

/* Signals come while a rank waits for what rank 0 sends it once. */
TEST(who_is_interrupted_joins) {
    test_deadlines(try_interrupted, &(attempt){ctx, NULL});
}

TEST(two_of_one_rank) {
    rank ranks[3], twin;
    pthread_t threads[3];
    char name[64];
    snprintf(name, sizeof name, "twice-%d", (int)getpid());
    prepare(ctx, ranks, 3, NULL, name);
    twin = ranks[1];
    assert_int_equal(pthread_create(&threads[0], NULL, be_thread, &ranks[1]), 0);
    assert_int_equal(pthread_create(&threads[1], NULL, be_thread, &twin), 0);
    assert_int_equal(pthread_create(&threads[2], NULL, be_thread, &ranks[0]), 0);
    while (!__atomic_load_n(&ranks[1].is_done, __ATOMIC_ACQUIRE) &&
           !__atomic_load_n(&twin.is_done, __ATOMIC_ACQUIRE))
        usleep(1000);
    (void)be_thread(&ranks[2]);
    for (int k = 0; k < 3; k++) pthread_join(threads[k], NULL);
    expect(ranks[1].status ? &ranks[1] : &twin, WF_INVALID_ARG,
           "another process is rank 1 of the job");
    expect_ok(ranks[1].status ? &twin : &ranks[1], 1);
    expect_ok(&ranks[0], 1);
    expect_ok(&ranks[2], 1);
}

static const char *try_numbers(void *self, int timeout_ms) {
    const attempt *a = self;
    rank ranks[2];
    prepare(a->ctx, ranks, 2, a->way, NULL);
    ranks[1].config.n_ranks = 3;
    ranks[0].config.timeout_ms = ranks[1].config.timeout_ms = timeout_ms;
    run(ranks, 2);
    const char *wrong = differs(&ranks[0], WF_INVALID_ARG, "in use by a job of 3 ranks");
    return wrong ? differs(&ranks[1], WF_INVALID_ARG, "in use by a job of 2 ranks") : NULL;
}

TEST(they_disagree_on_their_number) {
    rank ranks[2];
    prepare(ctx, ranks, 2, port_url, NULL);
    ranks[1].config.n_ranks = 3;
    run(ranks, 2);
    expect(&ranks[0], WF_INVALID_ARG, "rank 1 gives the job");
    expect(&ranks[1], WF_INVALID_ARG, "rank 1 is one of 3");
    test_deadlines(try_numbers, &(attempt){ctx, file_url});
}

/* Both jobs' rank 0 come: one is refused at once, the other waits for its rank 1, and gets it. */
TEST(two_jobs_at_one_place) {
    const char *const ways[] = {NULL, port_url, file_url};
    const char *const words[] = {"is another job of that name running?",
                                 "port 29500 is taken, by another job or another program",
                                 "another process is rank 0 there; do two jobs use this file?"};
    for (int way = 0; way < 3; way++) {
        rank ranks[2], second[2];
        pthread_t threads[2];
        char name[64];
        snprintf(name, sizeof name, "both-%d", (int)getpid());
        prepare(ctx, ranks, 2, ways[way], name);
        prepare(ctx, second, 2, ways[way], name);
        assert_int_equal(pthread_create(&threads[0], NULL, be_thread, &ranks[0]), 0);
        assert_int_equal(pthread_create(&threads[1], NULL, be_thread, &second[0]), 0);
        while (!__atomic_load_n(&ranks[0].is_done, __ATOMIC_ACQUIRE) &&
               !__atomic_load_n(&second[0].is_done, __ATOMIC_ACQUIRE))
            usleep(1000);
        (void)be_thread(&ranks[1]);
        for (int k = 0; k < 2; k++) pthread_join(threads[k], NULL);
        expect_ok(&ranks[1], 1);
        expect(ranks[0].status ? &ranks[0] : &second[0], WF_INVALID_ARG, words[way]);
        expect_ok(ranks[0].status ? &second[0] : &ranks[0], 1);
    }
}

static const char *try_tokens(void *self, int timeout_ms) {
    const attempt *a = self;
    rank ranks[2];
    prepare(a->ctx, ranks, 2, a->way, NULL);
    ranks[0].config.token = "one";
    ranks[1].config.token = "other";
    ranks[0].config.timeout_ms = timeout_ms;
    run(ranks, 2);
    const char *wrong = differs(&ranks[0], WF_TIMEOUT, "rank 1 of 2 has not arrived");
    return wrong ? wrong : differs(&ranks[1], WF_INVALID_ARG, "refused rank 1's token");
}

TEST(tokens) {
    rank ranks[2];
    prepare(ctx, ranks, 2, port_url, NULL);
    ranks[0].config.token = ranks[1].config.token = "one";
    run(ranks, 2);
    expect_ok(ranks, 2);
    test_deadlines(try_tokens, &(attempt){ctx, port_url});
    prepare(ctx, ranks, 2, file_url, NULL);
    ranks[0].config.token = "one";
    (void)be_thread(&ranks[0]);
    expect(&ranks[0], WF_INVALID_ARG, "only tcp:// takes one");
}

TEST(what_is_refused) {
    rank one;
    prepare(ctx, &one, 1, "mpi://", NULL);
    (void)be_thread(&one);
    expect(&one, WF_INVALID_ARG, "joined by env://, tcp://127.0.0.1:PORT or file:///path");
    prepare(ctx, &one, 1, "env://", NULL);
    one.config.n_ranks = 2;
    (void)be_thread(&one);
    expect(&one, WF_INVALID_ARG, "so its job is unknown");
    setenv("RANK", "1", 1);
    setenv("WORLD_SIZE", "2", 1);
    (void)be_thread(&one);
    expect(&one, WF_INVALID_ARG, "rank 0 of 2 is given, but by torchrun this is rank 1 of 2");
    setenv("WORLD_SIZE", "x", 1);
    (void)be_thread(&one);
    expect(&one, WF_INVALID_ARG, "WORLD_SIZE='x' is not a position in a job");
    unsetenv("RANK");
    unsetenv("WORLD_SIZE");
}

static void try_early_leave(int stop, bool runs, const char *words) {
    scoped_context ctx = test_context();
    rank ranks[2];
    pthread_t other;
    wf_job *job;
    prepare(ctx, ranks, 2, file_url, NULL);
    ranks[1].stop = stop;
    ranks[1].runs = runs;
    assert_int_equal(pthread_create(&other, NULL, be_thread, &ranks[1]), 0);
    TEST_OK(ctx, wf_job_join(ctx, &ranks[0].config, &job));
    TEST_OK(ctx, wf_job_barrier(job));
    TEST_REFUSED(ctx, wf_job_barrier(job), WF_REMOTE, words);
    wf_job_leave(job);
    pthread_join(other, NULL);
    expect_ok(&ranks[1], 1);
}

TEST_CASE(who_leaves_early_is_named) {
    try_early_leave(0, false, "rank 1 has left the job; its last call: a barrier");
    try_early_leave(15, false, "rank 1 was asked to stop before the first step");
    try_early_leave(15, true, "rank 1 has left the job; its last call: run 7");
}

static void *run_then_stop(void *self) {
    rank *r = self;
    wf_job *job;
    int stop = -1;
    r->status = wf_job_join(r->ctx, &r->config, &job);
    if (r->status) return NULL;
    (void)wfi_control_begin_run(job, 7, "run 7");
    r->status = wfi_control_end_run(job, &stop);
    wf_job_request_stop(job, 15);
    wf_job_leave(job);
    return NULL;
}

/* A request after a run is not one of that run, even if its rank has left before others read it. */
TEST(late_request) {
    rank ranks[2];
    pthread_t other;
    wf_job *job;
    int stop = -1;
    prepare(ctx, ranks, 2, file_url, NULL);
    assert_int_equal(pthread_create(&other, NULL, run_then_stop, &ranks[1]), 0);
    TEST_OK(ctx, wf_job_join(ctx, &ranks[0].config, &job));
    (void)wfi_control_begin_run(job, 7, "run 7");
    pthread_join(other, NULL);
    TEST_OK(ctx, ranks[1].status);
    TEST_OK(ctx, wfi_control_end_run(job, &stop));
    assert_int_equal(stop, 0);
    wf_job_leave(job);
}

/* ---- ranks as processes that somebody starts by hand ---- */

static int be_process(const char *init) {
    wf_context *ctx = test_context();
    wf_job_config config = WF_JOB_CONFIG_INIT;
    int n_open = test_descriptors();
    config.init = init;
    for (int round = 0; round < N_ROUNDS; round++) {
        wf_job *job;
        wf_status status = wf_job_join(ctx, &config, &job);
        if (status == WF_OK) status = wf_job_barrier(job);
        if (status != WF_OK) {
            fprintf(stderr, "%s\n", wf_context_error(ctx));
            return 1;
        }
        if (wf_job_n_ranks(job) != N_RANKS || wf_job_rank(job) != atoi(getenv("RANK"))) return 2;
        wf_job_leave(job);
    }
    test_context_end(ctx);
    return test_descriptors() == n_open ? 0 : 3;
}

TEST_CASE(programs_started_by_hand) {
    const char *const ways[] = {"env://", port_url, file_url};
    char port[16], number[16];
    snprintf(port, sizeof port, "%d", 20000 + (int)(getpid() % 20000));
    setenv("MASTER_ADDR", "localhost", 1);
    setenv("MASTER_PORT", port, 1);
    setenv("WORLD_SIZE", "3", 1);
    for (int way = 0; way < 3; way++) {
        pid_t pids[N_RANKS];
        for (int r = 0; r < N_RANKS; r++) {
            char *argv[] = {(char *)(uintptr_t) "meet", (char *)(uintptr_t)ways[way], NULL};
            snprintf(number, sizeof number, "%d", r);
            setenv("RANK", number, 1);
            assert_int_equal(posix_spawn(&pids[r], "/proc/self/exe", NULL, NULL, argv, environ), 0);
        }
        for (int r = 0; r < N_RANKS; r++) {
            int status;
            assert_int_equal(waitpid(pids[r], &status, 0), pids[r]);
            if (status) fail_msg("%s: rank %d ended with %d", ways[way], r, status);
        }
    }
    unsetenv("MASTER_ADDR");
    unsetenv("MASTER_PORT");
    unsetenv("WORLD_SIZE");
    unsetenv("RANK");
}

/* The launcher's segment serves one job after the other. */
TEST(ranks_of_a_launcher) {
    char *argv[] = {(char *)(uintptr_t) "meet", (char *)(uintptr_t) "env://", NULL};
    wf_launch_config config = WF_LAUNCH_CONFIG_INIT;
    wf_launch_result result;
    config.n_ranks = N_RANKS;
    config.program = "/proc/self/exe";
    config.argv = argv;
    TEST_OK(ctx, wf_launch(ctx, &config, &result));
    if (result.failed_rank >= 0) fail_msg("%s", result.sentence);
}

static int make_places(void **state) {
    int pid = (int)getpid();
    snprintf(folder, sizeof folder, "/tmp/weft-test-XXXXXX");
    if (!mkdtemp(folder)) return -1;
    snprintf(file_url, sizeof file_url, "file://%s/job", folder);
    /* All of 127.0.0.0/8 is this machine: an address of one's own needs no free port. */
    snprintf(port_url, sizeof port_url, "tcp://127.%d.%d.%d:29500", 64 + (pid >> 16) % 64,
             pid >> 8 & 255, 1 + pid % 250);
    return 0;
}

/* Fails if a job has left its file. */
static int remove_places(void **state) {
    return rmdir(folder);
}

int main(int argc, char **argv) {
    if (argc > 1) return be_process(argv[1]);
    return test_run(make_places, remove_places);
}
