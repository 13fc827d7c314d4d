/* What goes wrong among ranks: who disagrees, is late, dies or leaves is named on all of them, with
 * what it last called; buffers stay as they were; and the group stays broken. */
#include "comm/group/operation.h"
#include "comm/transport/transport.h"
#include "group_ranks.h"

#include <limits.h>
#include <sched.h>
#include <sys/mman.h>

/* What ranks, threads or processes, have in common beside the group. */
typedef struct common {
    int n_failed; /* atomic access */
    int n_met;    /* atomic access: calls of `meet` */
    int number;   /* of a case */
} common;

static common *make_common(int number) {
    common *c = mmap(NULL, sizeof *c, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(c, MAP_FAILED);
    c->number = number;
    return c;
}

static void add_failed(common *c, int n) {
    __atomic_fetch_add(&c->n_failed, n, __ATOMIC_SEQ_CST);
}

static void wait_until_failed(common *c, int n) {
    while (__atomic_load_n(&c->n_failed, __ATOMIC_ACQUIRE) < n) sched_yield();
}

/* All ranks complete a barrier before any rank goes on. A failure of the next call could reach a
 * rank that still waits in the barrier: messages of different ranks overtake each other. */
static wf_status meet(ranks_one *one) {
    common *c = one->self;
    wf_status status = wf_group_barrier(WF_HERE(one->group), NULL);
    int n = __atomic_add_fetch(&c->n_met, 1, __ATOMIC_SEQ_CST);
    int all = (n + one->n - 1) / one->n * one->n; /* of this run and the earlier ones */
    while (__atomic_load_n(&c->n_met, __ATOMIC_ACQUIRE) < all) sched_yield();
    return status;
}

/* What else is wrong with a rank: nobody waits for it any longer. */
static const char *give_up(common *c, const char *wrong) {
    if (wrong) add_failed(c, RANKS_MOST);
    return wrong;
}

/* As threads, as processes and by messages, with a group's deadline that is the number. */
typedef struct late {
    int n;
    ranks_body body;
} late;

static const char *try_late(void *self, int timeout_ms) {
    const late *l = self;
    common *c = make_common(timeout_ms);
    wf_group_config config = WF_GROUP_CONFIG_INIT;
    config.timeout_ms = timeout_ms;
    const char *wrong = ranks_try_processes(l->n, &config, l->body, c, 0);
    c->n_failed = 0;
    if (!wrong) {
        wf_context *ctx = test_context();
        wrong = ranks_context_end(ctx, ranks_try_threads(ctx, l->n, &config, l->body, c, NULL));
    }
    c->n_failed = 0;
    config.algorithm = "direct"; /* as "auto" is where memory is shared */
    if (!wrong) wrong = ranks_try_messages(l->n, &config, l->body, c);
    munmap(c, sizeof *c);
    return wrong;
}

static void on_all(int n, const wf_group_config *config, ranks_body body, int number) {
    common *c = make_common(number);
    ranks_processes(n, config, body, c, 0);
    c->n_failed = 0;
    ranks_threads(n, config, body, c);
    c->n_failed = 0;
    wf_group_config direct = WF_GROUP_CONFIG_INIT;
    if (config) direct = *config;
    direct.algorithm = "direct"; /* as "auto" is where memory is shared */
    ranks_messages(n, &direct, body, c);
    munmap(c, sizeof *c);
}

/* ---- ranks that disagree ---- */

enum { COUNT, DTYPE, OP, COLLECTIVE, ROOT, BARRIER, AHEAD, N_DISAGREEMENTS };

typedef struct buffers {
    float in[64], out[64];
} buffers;

static wf_status usual_call(wf_group *g, buffers *b, int number) {
    return number == ROOT ? wf_group_broadcast(WF_HERE(g), b->in, b->out, 5, WF_F32, 0, NULL)
                          : wf_group_all_reduce(WF_HERE(g), b->in, b->out, 5, WF_F32, WF_SUM, NULL);
}

static wf_status other_call(wf_group *g, buffers *b, int number) {
    switch (number) {
    case COUNT:
        return wf_group_all_reduce(WF_HERE(g), b->in, b->out, 6, WF_F32, WF_SUM, NULL);
    case DTYPE:
        return wf_group_all_reduce(WF_HERE(g), b->in, b->out, 5, WF_I32, WF_SUM, NULL);
    case OP:
        return wf_group_all_reduce(WF_HERE(g), b->in, b->out, 5, WF_F32, WF_MAX, NULL);
    case COLLECTIVE:
        return wf_group_all_gather(WF_HERE(g), b->in, b->out, 5, WF_F32, NULL);
    case ROOT:
        return wf_group_broadcast(WF_HERE(g), b->in, b->out, 5, WF_F32, 1, NULL);
    case BARRIER:
        return wf_group_barrier(WF_HERE(g), NULL);
    default: /* one barrier less than the others */
        return usual_call(g, b, number);
    }
}

static const char *check_disagreement(ranks_one *one) {
    static const char *const usual[] = {[ROOT] =
                                            " calls wf_group_broadcast of 5 F32 with root 0 at ",
                                        [AHEAD] = " calls wf_group_barrier at "};
    static const char *const others[] = {
        "rank 1 calls wf_group_all_reduce of 6 F32 (sum, direct) at ",
        "rank 1 calls wf_group_all_reduce of 5 I32 (sum, direct) at ",
        "rank 1 calls wf_group_all_reduce of 5 F32 (max, direct) at ",
        "rank 1 calls wf_group_all_gather of 5 F32 at ",
        "rank 1 calls wf_group_broadcast of 5 F32 with root 1 at ",
        "rank 1 calls wf_group_barrier at ",
        "rank 1 calls wf_group_all_reduce of 5 F32 (sum, direct) at ",
    };
    const common *c = one->self;
    const char *mine = usual[c->number] ? usual[c->number]
                                        : " calls wf_group_all_reduce of 5 F32 (sum, direct) at ";
    wf_group *g = one->group;
    buffers *b, before;
    RANKS_TRY(one, wf_group_alloc(g, sizeof *b, (void **)&b));
    for (int i = 0; i < 64; i++) b->in[i] = (float)i, b->out[i] = -1;
    before = *b;
    RANKS_TRY(one, meet(one));
    bool is_ahead = c->number == AHEAD && one->rank != 1;
    wf_status status = one->rank == 1 ? other_call(g, b, c->number)
                       : is_ahead     ? wf_group_barrier(WF_HERE(g), NULL)
                                      : usual_call(g, b, c->number);
    RANKS_CHECK(one, status == WF_REMOTE);
    const char *sentence = wf_context_error(one->ctx);
    if (!strstr(sentence, mine) || !strstr(sentence, others[c->number]) ||
        !strstr(sentence, "group_faults.c:"))
        return ranks_text("'%s' does not say '%s' and '%s'", sentence, mine, others[c->number]);
    RANKS_CHECK(one, !memcmp(b, &before, sizeof before));
    /* The group is broken for good, and says why. */
    RANKS_REFUSED(one, wf_group_barrier(WF_HERE(g), NULL), WF_REMOTE, others[c->number]);
    wf_work *work;
    RANKS_TRY(one, wf_group_all_reduce(WF_HERE(g), b->in, b->out, 5, WF_F32, WF_SUM, &work));
    RANKS_REFUSED(one, wf_work_wait(work), WF_REMOTE, others[c->number]);
    RANKS_REFUSED(one, wf_group_send(WF_HERE(g), b->in, 5, WF_F32, (one->rank + 1) % one->n, NULL),
                  WF_REMOTE, "disagree");
    RANKS_CHECK(one, !memcmp(b, &before, sizeof before));
    wf_group_free(g, b);
    return NULL;
}

TEST_CASE(disagreement_is_told) {
    for (int number = 0; number < N_DISAGREEMENTS; number++)
        on_all(3, NULL, check_disagreement, number);
}

static const char *check_message(ranks_one *one) {
    float x[8] = {0};
    wf_status status = one->rank == 0 ? wf_group_send(WF_HERE(one->group), x, 5, WF_F32, 1, NULL)
                                      : wf_group_recv(WF_HERE(one->group), x, 6, WF_F32, 0, NULL);
    const char *sentence = wf_context_error(one->ctx);
    if (status != WF_REMOTE || !strstr(sentence, "rank 1 calls wf_group_recv of 6 F32 at ") ||
        !strstr(sentence, "rank 0 calls wf_group_send of 5 F32 at "))
        return ranks_text("%s: %s", wf_status_name(status), sentence);
    return NULL;
}

TEST_CASE(messages_that_disagree_are_told) {
    on_all(2, NULL, check_message, 0);
}

/* ---- who does not come ---- */

static const char *be_late(ranks_one *one) {
    common *c = one->self;
    char waited[80];
    float x[4] = {1, 2, 3, 4};
    snprintf(waited, sizeof waited, "waited %d ms in wf_group_all_reduce of 4 F32 (sum, direct) at",
             c->number);
    RANKS_TRY(one, wf_group_broadcast(WF_HERE(one->group), x, x, 4, WF_F32, 0, NULL));
    if (one->rank == 2) wait_until_failed(c, 2);
    RANKS_REFUSED(one, wf_group_all_reduce(WF_HERE(one->group), x, x, 4, WF_F32, WF_SUM, NULL),
                  WF_TIMEOUT, waited);
    RANKS_REFUSED(one, wf_group_barrier(WF_HERE(one->group), NULL), WF_TIMEOUT,
                  "but rank 2 has not arrived; it last called wf_group_broadcast at");
    add_failed(c, 1);
    return NULL;
}

static const char *check_late(ranks_one *one) {
    return give_up(one->self, be_late(one));
}

static const char *be_absent_sender(ranks_one *one) {
    common *c = one->self;
    int32_t x;
    if (one->rank == 0)
        wait_until_failed(c, 1);
    else
        RANKS_REFUSED(one, wf_group_recv(WF_HERE(one->group), &x, 1, WF_I32, 0, NULL), WF_TIMEOUT,
                      "but rank 0 has not arrived; it last called nothing");
    add_failed(c, 1);
    return NULL;
}

static const char *check_absent_sender(ranks_one *one) {
    return give_up(one->self, be_absent_sender(one));
}

TEST_CASE(who_is_late_is_named) {
    test_deadlines(try_late, &(late){3, check_late});
    test_deadlines(try_late, &(late){2, check_absent_sender});
}

/* Ranks come one after the other, the last long after the deadline: it is one, whoever is awaited.
 */
static const char *check_stragglers(ranks_one *one) {
    int64_t ms = (int64_t)one->rank * *(const int *)one->self * 6 / 10;
    const struct timespec time = {ms / 1000, ms % 1000 * 1000000};
    RANKS_TRY(one, wf_group_barrier(WF_HERE(one->group), NULL));
    nanosleep(&time, NULL);
    wf_status status = wf_group_barrier(WF_HERE(one->group), NULL);
    if (status != WF_TIMEOUT || !strstr(wf_context_error(one->ctx), "rank 3 has not arrived"))
        return ranks_text("rank %d: %s: %s", one->rank, wf_status_name(status),
                          wf_context_error(one->ctx));
    return NULL;
}

static const char *try_stragglers(void *self, int timeout_ms) {
    wf_group_config config = WF_GROUP_CONFIG_INIT;
    wf_context *ctx = test_context();
    config.timeout_ms = timeout_ms;
    const char *wrong = ranks_try_threads(ctx, 4, &config, check_stragglers, &timeout_ms, NULL);
    return ranks_context_end(ctx, wrong);
}

TEST_CASE(deadline_is_one) {
    test_deadlines(try_stragglers, NULL);
}

/* A rank comes, but what it sends does not. */
static const char *check_silent(ranks_one *one) {
    float x[96] = {0}; /* a slice for each rank */
    char waited[80];
    snprintf(waited, sizeof waited,
             "waited %d ms in wf_group_all_reduce of 96 F32 (sum, direct) at ",
             *(const int *)one->self);
    wf_status status = wf_group_all_reduce(WF_HERE(one->group), x, x, 96, WF_F32, WF_SUM, NULL);
    const char *sentence = wf_context_error(one->ctx);
    /* Whoever says it first: one of those that it keeps waiting, or itself. */
    if (status != WF_TIMEOUT || !strstr(sentence, waited) ||
        (!strstr(sentence,
                 "but rank 1 has not sent its part; it last called wf_group_all_reduce at") &&
         !strstr(sentence, "has not taken what it needs; it last called wf_group_all_reduce at")))
        return ranks_text("%s: %s", wf_status_name(status), sentence);
    RANKS_REFUSED(one, wf_group_barrier(WF_HERE(one->group), NULL), WF_TIMEOUT, waited);
    return NULL;
}

static const char *try_silent(void *self, int timeout_ms) {
    wf_group_config config = WF_GROUP_CONFIG_INIT;
    fake_net net = {.lock = PTHREAD_MUTEX_INITIALIZER, .n_ranks = 3};
    wf_context *ctx = test_context();
    config.wire = "mpi";
    config.algorithm = "direct";
    config.timeout_ms = timeout_ms;
    net.silent_from = WFI_TAG_GROUPS;
    const char *wrong = ranks_try_threads(ctx, 3, &config, check_silent, &timeout_ms, &net);
    if (!wrong && net.first) wrong = "messages are left under way";
    return ranks_context_end(ctx, wrong);
}

TEST_CASE(who_sends_nothing_is_named) {
    test_deadlines(try_silent, NULL);
}

/* Long before the deadline a line says whom the others wait for. */
static void hear(void *self, wf_log_level level, const char *topic, const char *line) {
    common *c = self;
    if (level == WF_LOG_WARN && !strcmp(topic, "wait") &&
        strstr(line, "rank 1 has not arrived for 0.05 s; it last called wf_group_broadcast at "))
        add_failed(c, 1);
}

static const char *check_stall(ranks_one *one) {
    int32_t x = 1;
    RANKS_TRY(one, wf_group_broadcast(WF_HERE(one->group), &x, &x, 1, WF_I32, 0, NULL));
    if (one->rank == 1) wait_until_failed(one->self, 1); /* the line is there */
    RANKS_TRY(one, wf_group_barrier(WF_HERE(one->group), NULL));
    return NULL;
}

TEST_CASE(who_lets_others_wait_is_told) {
    common c = {0};
    scoped_context ctx;
    wf_context_config config = WF_CONTEXT_CONFIG_INIT;
    config.log = hear;
    config.log_self = &c;
    assert_int_equal(wf_context_create(&config, &ctx), WF_OK);
    setenv("WEFT_STALL_MS", "50", 1);
    ranks_threads_in(ctx, 2, NULL, check_stall, &c);
    unsetenv("WEFT_STALL_MS");
}

static const char *check_leaver(ranks_one *one) {
    RANKS_TRY(one, meet(one));
    if (one->rank == 1) return NULL;
    RANKS_REFUSED(one, wf_group_barrier(WF_HERE(one->group), NULL), WF_REMOTE,
                  "rank 1 has left the group; it last called wf_group_barrier at");
    return NULL;
}

TEST_CASE(who_leaves_is_named) {
    on_all(3, NULL, check_leaver, 0);
}

/* ---- who dies ---- */

static const char *check_death(ranks_one *one) {
    static float x[100000];
    const common *c = one->self;
    RANKS_TRY(one, wf_group_barrier(WF_HERE(one->group), NULL));
    /* The one that dies: before a call, or while its thread is in the middle of one. */
    wf_work *work = NULL;
    if (one->rank == 1 && c->number)
        RANKS_TRY(one,
                  wf_group_all_reduce(WF_HERE(one->group), x, x, 100000, WF_F32, WF_SUM, &work));
    if (one->rank == 1) kill(getpid(), SIGKILL);
    wf_status status = WF_OK;
    for (int i = 0; i < 2 && status == WF_OK; i++)
        status = wf_group_all_reduce(WF_HERE(one->group), x, x, 100000, WF_F32, WF_SUM, NULL);
    const char *sentence = wf_context_error(one->ctx);
    if (status != WF_REMOTE || !strstr(sentence, "rank 1 has died; it last called wf_"))
        return ranks_text("%s: %s", wf_status_name(status), sentence);
    return NULL;
}

TEST_CASE(who_dies_is_named) {
    for (int i = 0; i < 6; i++) {
        common *c = make_common(i % 2);
        ranks_processes(3, NULL, check_death, c, 1);
        munmap(c, sizeof *c);
    }
}

/* One rank dies in the middle of a broadcast, the root hears of it and ends its group, and the
 * third is still copying from the root's memory: it has to get through, and be told. */
static struct {
    char *out;
    common *c;
    int rank;
} slow;

enum { SLOW_BYTES = 64 << 10 };

static void on_first_write(int number) {
    int *amid = &slow.c->number; /* rank 1 is, and does not hear before it has copied */
    while (slow.rank == 2 && !__atomic_load_n(amid, __ATOMIC_ACQUIRE)) sched_yield();
    if (slow.rank == 2) kill(getpid(), SIGKILL);
    __atomic_store_n(amid, 1, __ATOMIC_RELEASE);
    wait_until_failed(slow.c, 1);
    mprotect(slow.out, SLOW_BYTES, PROT_READ | PROT_WRITE);
}

static const char *check_end_amid(ranks_one *one) {
    char *in, *out;
    wf_group *g;
    out = mmap(NULL, SLOW_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    RANKS_TRY(one, wf_group_split(one->group, 0, 0, NULL, &g));
    RANKS_TRY(one, wf_group_alloc(g, SLOW_BYTES, (void **)&in));
    memset(in, 7, SLOW_BYTES);
    if (one->rank) {
        slow.out = out, slow.c = one->self, slow.rank = one->rank;
        signal(SIGSEGV, on_first_write);
        RANKS_REFUSED(one, wf_group_broadcast(WF_HERE(g), in, out, SLOW_BYTES, WF_U8, 0, NULL),
                      WF_REMOTE, "rank 2 has died");
        for (int i = 0; i < SLOW_BYTES; i++) RANKS_CHECK(one, out[i] == 7);
    } else {
        RANKS_REFUSED(one, wf_group_broadcast(WF_HERE(g), in, in, SLOW_BYTES, WF_U8, 0, NULL),
                      WF_REMOTE, "rank 2 has died");
    }
    wf_group_free(g, in);
    wf_group_destroy(g);
    add_failed(one->self, 1);
    munmap(out, SLOW_BYTES);
    return NULL;
}

TEST_CASE(a_broken_group_keeps_its_memory) {
    common *c = make_common(0);
    ranks_processes(3, NULL, check_end_amid, c, 1);
    munmap(c, sizeof *c);
}

/* ---- threads ---- */

static int n_looks;           /* of a millisecond */
static int root_has_returned; /* atomic access */
static bool was_left_alone;

/* Of the rank that copies: until the root has failed, and longer. */
static void on_slow_write(int number) {
    for (int k = 0; k < n_looks && !was_left_alone; k++) {
        usleep(1000);
        was_left_alone = __atomic_load_n(&root_has_returned, __ATOMIC_ACQUIRE) != 0;
    }
    mprotect(slow.out, SLOW_BYTES, PROT_READ | PROT_WRITE);
}

/* The root's deadline passes while the other thread copies from its buffer, which is the caller's
 * again when the call has returned. */
static const char *check_late_amid(ranks_one *one) {
    static char in[SLOW_BYTES];
    if (one->rank == 0) {
        memset(in, 7, SLOW_BYTES);
        wf_status status =
            wf_group_broadcast(WF_HERE(one->group), in, in, SLOW_BYTES, WF_U8, 0, NULL);
        __atomic_store_n(&root_has_returned, 1, __ATOMIC_RELEASE);
        memset(in, 9, SLOW_BYTES);
        RANKS_CHECK(one, status == WF_TIMEOUT);
        return NULL;
    }
    slow.out = mmap(NULL, SLOW_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    signal(SIGSEGV, on_slow_write);
    wf_status ignored =
        wf_group_broadcast(WF_HERE(one->group), in, slow.out, SLOW_BYTES, WF_U8, 0, NULL);
    (void)ignored; /* it has all it wants, or hears of the other's failure */
    signal(SIGSEGV, SIG_DFL);
    RANKS_CHECK(one, !was_left_alone);
    for (int i = 0; i < SLOW_BYTES; i++) RANKS_CHECK(one, slow.out[i] == 7);
    munmap(slow.out, SLOW_BYTES);
    return NULL;
}

static const char *try_late_amid(void *self, int timeout_ms) {
    wf_group_config config = WF_GROUP_CONFIG_INIT;
    wf_context *ctx = test_context();
    config.timeout_ms = timeout_ms;
    n_looks = 3 * timeout_ms;
    root_has_returned = 0;
    was_left_alone = false;
    const char *wrong = ranks_try_threads(ctx, 2, &config, check_late_amid, NULL, NULL);
    return ranks_context_end(ctx, wrong);
}

TEST_CASE(a_failed_call_gives_its_buffer_back) {
    test_deadlines(try_late_amid, NULL);
}

/* ---- calls as they are told ---- */

/* What it reads of a rank that is something else, or was killed while it wrote. */
TEST_CASE(a_torn_note_is_told) {
    char text[WFI_CALL_TEXT];
    for (unsigned collective = 0; collective < 256; collective++)
        for (unsigned rest = 0; rest < 256; rest++) {
            wfi_group_call note;
            memset(&note, (int)(0x55 + rest), sizeof note);
            note.word[0] = collective | (uint64_t)rest << 8 | (uint64_t)rest << 16 |
                           (uint64_t)rest << 24 | (uint64_t)rest << 32;
            note.word[2] = 1;
            assert_memory_equal(wfi_call_describe(&note, text), "wf_", 3);
            assert_memory_equal(wfi_call_name(&note, text), "wf_", 3);
        }
}
