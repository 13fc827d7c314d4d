/* Streams and events of the CPU device; the null device's proof of order. */
#include "comm/transport/remote.h"
#include "test.h"

#include <pthread.h>
#include <time.h>

static void end_device(wfi_device **device) {
    wfi_device_destroy(*device);
}
static void end_stream(wfi_stream_queue **stream) {
    wfi_stream_destroy(*stream);
}
#define scoped_device __attribute__((cleanup(end_device))) wfi_device *
#define scoped_stream __attribute__((cleanup(end_stream))) wfi_stream_queue *

static wfi_failure failure; /* of the devices of one test */

static wfi_device *make_device(wf_context *ctx, const wfi_device_class *kind, int64_t timeout_ms) {
    const wfi_owner owner = {.ctx = ctx, .timeout_ms = timeout_ms, .failure = &failure};
    wfi_device *device;
    wfi_failure_clear(&failure);
    TEST_OK(ctx, wfi_device_create(&owner, kind, 0, 1, &device));
    return device;
}

static wf_status append(void *self, void *argument) {
    int *list = self;
    list[++list[0]] = (int)(intptr_t)argument;
    return WF_OK;
}

static wf_status nap(void *self, void *argument) {
    struct timespec time = {0, (long)(intptr_t)argument * 1000000};
    nanosleep(&time, NULL);
    return WF_OK;
}

/* Until *self is set. */
static wf_status hold(void *self, void *argument) {
    const struct timespec nap = {0, 1000000};
    while (!__atomic_load_n((int *)self, __ATOMIC_ACQUIRE)) nanosleep(&nap, NULL);
    return WF_OK;
}

static wf_status fails(void *self, void *argument) {
    return wfi_fail(self, WF_DEVICE, "this task fails");
}

/* Waiters poll long only while each stream can have a core. */
TEST(waiters_poll_less_if_crowded) {
    scoped_device device = make_device(ctx, &wfi_device_cpu, TEST_TIMEOUT_MS);
    int n_cores = wf_info_limits().n_cores, n_spins = 0;
    wfi_stream_queue **all = calloc((size_t)n_cores + 1, sizeof(void *));
    assert_non_null(all);
    for (int i = 0; i <= n_cores; i++) {
        TEST_OK(ctx, wfi_stream_create(device, "compute", 0, NULL, &all[i]));
        if (!i) n_spins = wfi_stream_n_spins();
        assert_true(wfi_stream_n_spins() == n_spins || i == n_cores);
    }
    assert_true(wfi_stream_n_spins() < n_spins);
    for (int i = 0; i <= n_cores; i++) wfi_stream_destroy(all[i]);
    assert_int_equal(wfi_stream_n_spins(), n_spins);
    free(all);
}

/* More tasks than the queue holds run in order. */
TEST(in_order) {
    scoped_device device = make_device(ctx, &wfi_device_cpu, TEST_TIMEOUT_MS);
    scoped_stream stream;
    TEST_OK(ctx, wfi_stream_create(device, "compute", 0, NULL, &stream));
    static int list[20001];
    list[0] = 0;
    for (intptr_t i = 1; i <= 20000; i++)
        TEST_OK(ctx, wfi_stream_push(stream, append, list, (void *)i));
    TEST_OK(ctx, wfi_event_wait(wfi_stream_record(stream)));
    for (int i = 0; i <= 20000; i++) assert_int_equal(list[i], i ? i : 20000);
}

/* Two streams append to one list without a lock: only events keep them apart. */
TEST(events_order_streams) {
    scoped_device device = make_device(ctx, &wfi_device_cpu, TEST_TIMEOUT_MS);
    scoped_stream a;
    scoped_stream b;
    TEST_OK(ctx, wfi_stream_create(device, "compute", 0, NULL, &a));
    TEST_OK(ctx, wfi_stream_create(device, "copy", 0, NULL, &b));
    int list[101] = {0};
    for (intptr_t i = 1; i <= 100; i++) {
        wfi_stream_queue *now = i % 2 ? a : b, *other = i % 2 ? b : a;
        TEST_OK(ctx, wfi_stream_wait(now, wfi_stream_record(other)));
        if (i % 10 == 0) TEST_OK(ctx, wfi_stream_push(now, nap, NULL, (void *)1));
        TEST_OK(ctx, wfi_stream_push(now, append, list, (void *)i));
    }
    TEST_OK(ctx, wfi_event_wait(wfi_stream_record(a)));
    TEST_OK(ctx, wfi_event_wait(wfi_stream_record(b)));
    for (int i = 0; i <= 100; i++) assert_int_equal(list[i], i ? i : 100);
}

/* The first failure is sticky; what follows is skipped, and every wait returns it. */
TEST(failure_is_sticky) {
    scoped_device device = make_device(ctx, &wfi_device_cpu, TEST_TIMEOUT_MS);
    scoped_stream stream;
    int list[3] = {0};
    TEST_OK(ctx, wfi_stream_create(device, "compute", 0, NULL, &stream));
    TEST_OK(ctx, wfi_stream_push(stream, fails, ctx, NULL));
    /* Refused if the failure is known by now, skipped if not. */
    (void)!wfi_stream_push(stream, append, list, (void *)1);
    TEST_REFUSED(ctx, wfi_event_wait(wfi_stream_record(stream)), WF_DEVICE, "this task fails");
    assert_int_equal(list[0], 0);
}

TEST(waits_have_deadlines) {
    scoped_device device = make_device(ctx, &wfi_device_cpu, 20);
    scoped_stream stream;
    int go_on = 0;
    TEST_OK(ctx, wfi_stream_create(device, "compute", 0, NULL, &stream));
    TEST_OK(ctx, wfi_stream_push(stream, hold, &go_on, NULL));
    TEST_REFUSED(ctx, wfi_event_wait(wfi_stream_record(stream)), WF_TIMEOUT,
                 "waited 20 ms for stream compute of rank 0, which has done 0 of 1 tasks");
    __atomic_store_n(&go_on, 1, __ATOMIC_RELEASE);
}

/* ---- what counts as progress ---- */

#define N_LOOKS                                                                                    \
    10 /* each comes after a part of the deadline: it is missed if they do not count               \
        */

typedef struct moving {
    bool moves;            /* something of the job does, whenever somebody looks */
    int n_looks;           /* atomic access */
    wfi_shared_epoch done; /* of a stream elsewhere: one task after so many looks */
} moving;

static uint64_t progress(const void *self) {
    moving *m = (moving *)(uintptr_t)self;
    int n = __atomic_add_fetch(&m->n_looks, 1, __ATOMIC_SEQ_CST);
    if (m->moves && n >= N_LOOKS) __atomic_store_n(&m->done.epoch, 1, __ATOMIC_SEQ_CST);
    return m->moves ? (uint64_t)n : 0;
}

static void explain(const void *self, const wfi_event *event, bool is_host, const char *how_long,
                    char *text, size_t bytes) {
    snprintf(text, bytes, "nothing moves");
}

static wf_status takes_looks(void *self, void *argument) {
    const moving *m = self;
    while (__atomic_load_n(&m->n_looks, __ATOMIC_SEQ_CST) < N_LOOKS) nap(NULL, (void *)1);
    return WF_OK;
}

/* The awaited stream does nothing for many deadlines: it may, as long as anything of the job moves.
 * The host waits, or a stream; for a stream of this process, or of another. */
TEST_CASE(deadline_is_the_jobs) {
    for (int k = 0; k < 8; k++) {
        scoped_context ctx = test_context();
        moving m = {.moves = k & 2};
        wfi_watch watch = {.ctx = ctx, .progress = progress, .explain = explain, .self = &m};
        const wfi_owner owner = {ctx, 0, 20, &failure, &watch};
        const wfi_remote remote = {.owner = owner, .counters = &m.done};
        scoped_device device;
        scoped_device here;
        scoped_stream stream;
        scoped_stream waits;
        wfi_failure_clear(&failure);
        TEST_OK(ctx, wfi_device_create(&owner, &wfi_device_cpu, 0, 1, &device));
        TEST_OK(ctx, wfi_device_create(&owner, &wfi_device_cpu, 0, 1, &here));
        TEST_OK(ctx, k & 1 ? wfi_remote_stream_create(&remote, "compute", 0, &stream)
                           : wfi_stream_create(device, "compute", 0, NULL, &stream));
        TEST_OK(ctx, wfi_stream_create(here, "copy", 0, NULL, &waits));
        TEST_OK(ctx, wfi_stream_push(stream, takes_looks, &m, NULL));
        wfi_event event = wfi_stream_record(stream);
        if (k & 4) {
            TEST_OK(ctx, wfi_stream_wait(waits, event));
            wfi_stream_finish(waits);
        }
        wf_status status = k & 4 ? wfi_owner_check(&here->owner) : wfi_event_wait(event);
        if (m.moves)
            TEST_OK(ctx, status);
        else
            TEST_REFUSED(ctx, status, WF_TIMEOUT, "nothing moves");
        __atomic_store_n(&m.n_looks, N_LOOKS, __ATOMIC_SEQ_CST);
    }
}

/* Who has been suspended for longer than the deadline has not waited for so long. */
TEST_CASE(clock_of_waits_knows_suspension) {
    wfi_wait_clock clock = wfi_wait_begin();
    clock.read_ms -= 3600 * 1000;
    assert_int_equal(wfi_wait_ms(&clock), WFI_WAIT_GAP_MS);
    clock.read_ms -= WFI_WAIT_GAP_MS / 2;
    assert_true(wfi_wait_ms(&clock) >= WFI_WAIT_GAP_MS + WFI_WAIT_GAP_MS / 2);
}

/* What fails elsewhere is told with its sentence by whatever touches a remote stream next. */
TEST(remote_failure_is_told) {
    wfi_shared_epoch epochs[2] = {{0}};
    const wfi_remote remote = {.owner = {ctx, 0, TEST_TIMEOUT_MS, &failure, NULL},
                               .counters = epochs};
    scoped_stream a;
    scoped_stream b;
    wfi_failure_clear(&failure);
    TEST_OK(ctx, wfi_remote_stream_create(&remote, "compute", 0, &a));
    TEST_OK(ctx, wfi_remote_stream_create(&remote, "copy", 1, &b));
    TEST_OK(ctx, wfi_stream_push(a, append, NULL, NULL));
    wfi_failure_set(&failure, WF_UNSUPPORTED, "the first says why");
    TEST_REFUSED(ctx, wfi_stream_push(a, append, NULL, NULL), WF_UNSUPPORTED, "the first says why");
    wfi_fail(ctx, WF_BUG, "something else");
    TEST_REFUSED(ctx, wfi_stream_wait(b, wfi_stream_record(a)), WF_UNSUPPORTED,
                 "the first says why");
    wfi_fail(ctx, WF_BUG, "something else");
    TEST_REFUSED(ctx, wfi_event_wait((wfi_event){a, 1}), WF_UNSUPPORTED, "the first says why");
}

/* Tasks that are done elsewhere are counted in the counter of their stream. */
TEST(remote_tasks_are_counted) {
    scoped_device device = make_device(ctx, &wfi_device_cpu, TEST_TIMEOUT_MS);
    wfi_shared_epoch epochs[2] = {{0}};
    const wfi_remote remote = {.owner = {ctx, 5, TEST_TIMEOUT_MS, &failure, NULL},
                               .counters = epochs};
    scoped_stream local;
    scoped_stream a;
    scoped_stream b;
    int list[4] = {0};
    TEST_OK(ctx, wfi_stream_create(device, "send", 3, NULL, &local));
    TEST_OK(ctx, wfi_remote_stream_create(&remote, "compute", 0, &a));
    TEST_OK(ctx, wfi_remote_stream_create(&remote, "copy", 1, &b));
    TEST_OK(ctx, wfi_stream_push(local, append, list, NULL));
    TEST_OK(ctx, wfi_stream_push(local, append, list, NULL));
    TEST_OK(ctx, wfi_stream_wait(a, wfi_stream_record(local)));
    TEST_OK(ctx, wfi_stream_push(a, append, NULL, NULL));
    TEST_OK(ctx, wfi_stream_wait(b, wfi_stream_record(a)));
    TEST_OK(ctx, wfi_stream_wait(local, wfi_stream_record(a)));
    TEST_OK(ctx, wfi_stream_push(local, append, list, NULL));
    assert_int_equal(wfi_stream_n_done(a), 0);
    __atomic_store_n(&epochs[0].epoch, 1, __ATOMIC_SEQ_CST);
    assert_int_equal(wfi_stream_n_done(a), 1);
    TEST_OK(ctx, wfi_event_wait(wfi_stream_record(local)));
}

/* Processes that were killed while they said why they failed: waits still fail. */
TEST_CASE(a_failure_half_told) {
    const uint32_t n_killed[] = {1, WFI_FAILURE_ENTRIES, 100};
    for (size_t k = 0; k < sizeof n_killed / sizeof *n_killed; k++) {
        scoped_context ctx = test_context();
        scoped_device device = make_device(ctx, &wfi_device_cpu, 20);
        scoped_stream stream;
        failure.n_taken = n_killed[k];
        TEST_OK(ctx, wfi_stream_create(device, "compute", 0, NULL, &stream));
        TEST_OK(ctx, wfi_stream_push(stream, nap, NULL, (void *)300));
        if (n_killed[k] < WFI_FAILURE_ENTRIES)
            TEST_REFUSED(ctx, wfi_event_wait(wfi_stream_record(stream)), WF_TIMEOUT,
                         "waited 20 ms for stream compute of rank 0");
        else
            TEST_REFUSED(ctx, wfi_event_wait(wfi_stream_record(stream)), WF_REMOTE,
                         "several ranks have died");
        assert_int_not_equal(wfi_failure_status(&failure), WF_OK);
    }
}

typedef struct teller {
    wfi_failure *failure;
    pthread_barrier_t *start;
    int number, n_missed;
} teller;

#define N_TELLERS 12 /* more than entries */
#define N_ROUNDS  300

static void *tell(void *self) {
    teller *t = self;
    for (int round = 0; round < N_ROUNDS; round++) {
        char sentence[32];
        snprintf(sentence, sizeof sentence, "task %d fails", t->number);
        pthread_barrier_wait(t->start);
        wfi_failure_set(&t->failure[round], WF_DEVICE, sentence);
        t->n_missed += wfi_failure_status(&t->failure[round]) != WF_DEVICE;
    }
    return NULL;
}

/* Whoever has said that it fails sees a failure, whether it was the first or not; and the sentence
 * is that of one of them. */
TEST_CASE(a_failure_is_seen_at_once) {
    static wfi_failure failures[N_ROUNDS];
    pthread_barrier_t start;
    pthread_t threads[N_TELLERS];
    teller tellers[N_TELLERS];
    pthread_barrier_init(&start, NULL, N_TELLERS);
    for (int k = 0; k < N_TELLERS; k++) {
        tellers[k] = (teller){.failure = failures, .start = &start, .number = k};
        assert_int_equal(pthread_create(&threads[k], NULL, tell, &tellers[k]), 0);
    }
    for (int k = 0; k < N_TELLERS; k++) {
        pthread_join(threads[k], NULL);
        assert_int_equal(tellers[k].n_missed, 0);
    }
    for (int round = 0; round < N_ROUNDS; round++)
        assert_non_null(strstr(wfi_failure_first(&failures[round])->sentence, " fails"));
    pthread_barrier_destroy(&start);
}

/* What another machine says of its failure may be anything, but it is a failure. */
TEST_CASE(a_failure_of_no_status) {
    const int statuses[] = {WF_OK, 1, WF_BUG - 1, WF_DEVICE};
    for (size_t k = 0; k < sizeof statuses / sizeof *statuses; k++) {
        wfi_failure heard = {0};
        wfi_failure_receive(&heard, statuses[k], "words");
        assert_int_equal(wfi_failure_status(&heard), WF_REMOTE);
    }
}

TEST(null_device_sees_missing_events) {
    scoped_device device = make_device(ctx, &wfi_device_null, 1);
    scoped_stream a;
    scoped_stream b;
    int list[3] = {0};
    TEST_OK(ctx, wfi_stream_create(device, "compute", 0, NULL, &a));
    TEST_OK(ctx, wfi_stream_create(device, "copy", 0, NULL, &b));
    TEST_OK(ctx, wfi_stream_push(a, append, list, (void *)1));
    TEST_OK(ctx, wfi_stream_wait(b, (wfi_event){a, 1}));
    TEST_REFUSED(ctx, wfi_stream_wait(b, (wfi_event){a, 2}), WF_BUG, "waits for task 2");
}

/* Copies and fills, by the host and by a stream's task, between all spaces; not a byte beside. */
typedef struct moved {
    wfi_device *device;
    wfi_stream_queue *stream;
    char *to, *from;
    wfi_space to_space, from_space;
} moved;

static wf_status move_middle(void *self, void *argument) {
    const moved *m = self;
    WF_TRY(wfi_memory_fill(m->device, m->stream, m->from + 8, WFI_SPACE_DEVICE, 7, 16));
    return wfi_memory_copy(m->device, m->stream, m->to + 4, m->to_space, m->from + 8, m->from_space,
                           8);
}

TEST(memory_is_copied) {
    scoped_device device = make_device(ctx, &wfi_device_cpu, TEST_TIMEOUT_MS);
    scoped_stream stream;
    TEST_OK(ctx, wfi_stream_create(device, "copy", 0, NULL, &stream));
    for (int k = 0; k < 8; k++) {
        moved m = {.device = device,
                   .stream = k & 1 ? stream : NULL,
                   .to_space = k & 2 ? WFI_SPACE_HOST : WFI_SPACE_DEVICE,
                   .from_space = k & 4 ? WFI_SPACE_HOST : WFI_SPACE_DEVICE};
        void *to, *from;
        TEST_OK(ctx, device->kind->memory_create(device, m.to_space, 4096, &to));
        TEST_OK(ctx, device->kind->memory_create(device, m.from_space, 4096, &from));
        m.to = to;
        m.from = from;
        if (k & 1) {
            TEST_OK(ctx, wfi_stream_push(stream, move_middle, &m, NULL));
            TEST_OK(ctx, wfi_event_wait(wfi_stream_record(stream)));
        } else {
            TEST_OK(ctx, move_middle(&m, NULL));
        }
        for (int i = 0; i < 4096; i++) {
            assert_int_equal(m.to[i], i >= 4 && i < 12 ? 7 : 0);
            assert_int_equal(m.from[i], i >= 8 && i < 24 ? 7 : 0);
        }
        device->kind->memory_destroy(device, m.to_space, to, 4096);
        device->kind->memory_destroy(device, m.from_space, from, 4096);
    }
}

TEST_CASE(kinds_have_names) {
    assert_ptr_equal(wfi_device_kind("cpu:3", 3), &wfi_device_cpu);
    assert_ptr_equal(wfi_device_kind("null", 4), &wfi_device_null);
    /* What is no device, and none at all. */
    const char *const none[] = {"remote", "arrivals", "tpu", "cp", "cpux", ""};
    for (size_t k = 0; k < sizeof none / sizeof *none; k++)
        assert_null(wfi_device_kind(none[k], strlen(none[k])));
}
