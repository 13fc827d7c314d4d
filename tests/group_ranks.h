/* Ranks of a job as threads of the test, or as processes that it starts. */
#pragma once

#include "comm/job/control.h"
#include "fake_network.h"
#include "test.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#define RANKS_MOST 11

typedef struct ranks_one {
    wf_context *ctx;
    wf_job *job;
    wf_group *group;
    int rank, n;
    void *self;
} ranks_one;

/* One rank's part: NULL, or what went wrong (static or leaked; the test is over). */
typedef const char *(*ranks_body)(ranks_one *one);

typedef struct ranks_call {
    ranks_one one;
    const char *name;
    const wf_group_config *config;
    ranks_body body;
    const char *wrong;
    fake_net *net; /* that carries messages between ranks that share nothing; or NULL */
} ranks_call;

/* One of the last 64 texts. */
static inline const char *ranks_text(const char *format, ...) {
    static char texts[64][2048];
    static atomic_uint n;
    char *text = texts[atomic_fetch_add(&n, 1) % 64];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof *texts, format, args);
    va_end(args);
    return text;
}

#define RANKS_TRY(one, call)                                                                       \
    do {                                                                                           \
        wf_status ranks_status_ = (call);                                                          \
        if (ranks_status_ != WF_OK)                                                                \
            return ranks_text("%s:%d: rank %d: %s: %s", __FILE__, __LINE__, (one)->rank,           \
                              wf_status_name(ranks_status_), wf_context_error((one)->ctx));        \
    } while (0)

/* The call is refused with `status` and a sentence that contains `words`. */
#define RANKS_REFUSED(one, call, status, words)                                                    \
    do {                                                                                           \
        wf_status ranks_status_ = (call);                                                          \
        if (ranks_status_ != (status) || !strstr(wf_context_error((one)->ctx), words))             \
            return ranks_text("%s:%d: rank %d: %s: %s, not %s: '%s'", __FILE__, __LINE__,          \
                              (one)->rank, wf_status_name(ranks_status_),                          \
                              wf_context_error((one)->ctx), wf_status_name(status), words);        \
    } while (0)

#define RANKS_CHECK(one, condition)                                                                \
    do {                                                                                           \
        if (!(condition))                                                                          \
            return ranks_text("%s:%d: rank %d: not %s", __FILE__, __LINE__, (one)->rank,           \
                              #condition);                                                         \
    } while (0)

static inline wf_status ranks_join(ranks_call *call) {
    ranks_one *one = &call->one;
    wf_job_config meeting = WF_JOB_CONFIG_INIT;
    meeting.rank = one->rank;
    meeting.n_ranks = one->n;
    meeting.name = call->name;
    return wf_job_join(one->ctx, &meeting, &one->job);
}

static inline wf_status ranks_join_network(ranks_call *call, fake_rank *box) {
    ranks_one *one = &call->one;
    *box = (fake_rank){call->net, one->rank};
    wfi_network mail = fake_network(box);
    return wfi_control_join_network(one->ctx, &mail, one->rank, one->n, TEST_TIMEOUT_MS, &one->job);
}

/* Joins, makes the group, and does the body's work. */
static inline void *ranks_run(void *self) {
    ranks_call *call = self;
    ranks_one *one = &call->one;
    fake_rank box;
    wf_status status = call->net ? ranks_join_network(call, &box) : ranks_join(call);
    if (status == WF_OK) status = wf_group_create(one->job, call->config, &one->group);
    call->wrong = status == WF_OK ? call->body(one) : ranks_text("%s", wf_context_error(one->ctx));
    wf_group_destroy(one->group);
    wf_job_leave(one->job);
    return NULL;
}

static inline void ranks_name(char name[64]) {
    static int number; /* tests start their ranks one set after the other */
    snprintf(name, 64, "test-%d-%d", (int)getpid(), ++number);
}

/* Runs `body` on n ranks that are threads and share a context; with a net, nothing else. NULL, or
 * what is wrong. */
static inline const char *ranks_try_threads(wf_context *ctx, int n, const wf_group_config *config,
                                            ranks_body body, void *self, fake_net *net) {
    ranks_call calls[RANKS_MOST];
    pthread_t threads[RANKS_MOST];
    char name[64];
    ranks_name(name);
    for (int r = 0; r < n; r++) {
        calls[r] = (ranks_call){{ctx, NULL, NULL, r, n, self}, name, config, body, NULL, net};
        assert_int_equal(pthread_create(&threads[r], NULL, ranks_run, &calls[r]), 0);
    }
    for (int r = 0; r < n; r++) pthread_join(threads[r], NULL);
    for (int r = 0; r < n; r++)
        if (calls[r].wrong)
            return ranks_text("%d threads%s: %s", n, net ? " by messages" : "", calls[r].wrong);
    return NULL;
}

static inline void ranks_expect(const char *wrong) {
    if (wrong) fail_msg("%s", wrong);
}

static inline void ranks_threads_in(wf_context *ctx, int n, const wf_group_config *config,
                                    ranks_body body, void *self) {
    ranks_expect(ranks_try_threads(ctx, n, config, body, self, NULL));
}

/* Destroys the context of ranks that have ended; returns `wrong`. A rank that went wrong keeps what
 * it has allocated. */
static inline const char *ranks_context_end(wf_context *ctx, const char *wrong) {
    if (wrong)
        wf_context_destroy(ctx);
    else
        test_context_end(ctx);
    return wrong;
}

/* The same without shared memory: the wire is `mpi`, and a net of the test carries its messages. */
static inline const char *ranks_try_messages(int n, const wf_group_config *config, ranks_body body,
                                             void *self) {
    const wf_group_config defaults = WF_GROUP_CONFIG_INIT;
    wf_group_config own = config ? *config : defaults;
    fake_net net = {.lock = PTHREAD_MUTEX_INITIALIZER, .n_ranks = n};
    wf_context *ctx = test_context();
    own.wire = "mpi";
    const char *wrong = ranks_try_threads(ctx, n, &own, body, self, &net);
    if (!wrong && net.first) wrong = "messages are left under way";
    return ranks_context_end(ctx, wrong);
}

static inline void ranks_messages(int n, const wf_group_config *config, ranks_body body,
                                  void *self) {
    ranks_expect(ranks_try_messages(n, config, body, self));
}

static inline void ranks_threads(int n, const wf_group_config *config, ranks_body body,
                                 void *self) {
    wf_context *ctx = test_context();
    ranks_threads_in(ctx, n, config, body, self);
    test_context_end(ctx);
}

/* Runs `body` on n ranks that are processes; `n_killed` of them end by a signal. The test has no
 * other threads then. NULL, or what is wrong. */
static inline const char *ranks_try_processes(int n, const wf_group_config *config, ranks_body body,
                                              void *self, int n_killed) {
    pid_t processes[RANKS_MOST];
    char name[64], wrong[4096] = "";
    int says[2], status, n_signals = 0;
    ranks_name(name);
    assert_int_equal(pipe(says), 0);
    for (int r = 0; r < n; r++) {
        processes[r] = fork();
        assert_true(processes[r] >= 0);
        if (processes[r]) continue;
        ranks_call call = {
            {test_context(), NULL, NULL, r, n, self}, name, config, body, NULL, NULL};
        ranks_run(&call);
        if (!call.wrong && wf_context_memory(call.one.ctx).n_live)
            call.wrong = "blocks were never freed";
        if (call.wrong && write(says[1], call.wrong, strlen(call.wrong)) < 0) _exit(2);
        _exit(call.wrong ? 1 : 0);
    }
    close(says[1]);
    for (int r = 0; r < n; r++) {
        assert_int_equal(waitpid(processes[r], &status, 0), processes[r]);
        n_signals += WIFSIGNALED(status) != 0;
    }
    ssize_t n_wrong = read(says[0], wrong, sizeof wrong - 1);
    close(says[0]);
    if (n_wrong > 0) return ranks_text("%d processes: %s", n, wrong);
    if (n_signals != n_killed)
        return ranks_text("%d of %d processes were killed, not %d", n_signals, n, n_killed);
    return NULL;
}

static inline void ranks_processes(int n, const wf_group_config *config, ranks_body body,
                                   void *self, int n_killed) {
    ranks_expect(ranks_try_processes(n, config, body, self, n_killed));
}

typedef enum ranks_way { THREADS, MESSAGES, PROCESSES } ranks_way;

/* The thread sanitizer sees what orders ranks only where one process has all of it, each word at
 * one address: by messages. Ranks of a segment map it each for itself; the happens-before checker
 * has looked at those (WEFT_CHECK_EVENTS). */
#if defined(__SANITIZE_THREAD__)
#define FIRST_WAY MESSAGES
#define LAST_WAY  MESSAGES
#else
#define FIRST_WAY THREADS
#define LAST_WAY  PROCESSES
#endif

static inline void ranks_as(ranks_way how, int n, ranks_body body, void *self) {
    if (how == THREADS) ranks_threads(n, NULL, body, self);
    if (how == MESSAGES) ranks_messages(n, NULL, body, self);
    if (how == PROCESSES) ranks_processes(n, NULL, body, self, 0);
}
