/* The transport of rank 0. The test is its peers, mostly rank 1 alone, and writes messages by hand:
 * epochs of an earlier trainer are ignored, and requests are sent before a later state. */
#include "comm/transport/parts.h"

#include "fake_network.h"
#include "test.h"

#include <unistd.h>

/* The progress thread stops where it next asks the network while `gate` is locked. */
typedef struct peer {
    fake_net net;
    fake_rank boxes[3];
    pthread_mutex_t gate;
    bool is_stopped; /* atomic access */
    uint32_t magic;
    wf_context *ctx;
    wfi_failure failure;
    wfi_control_rank ranks[3];
    wfi_transport *transport;
} peer;

static wf_status test_at_gate(void *self, wfi_network_handle *handle, bool *done_out) {
    peer *p = self;
    if (pthread_mutex_trylock(&p->gate)) {
        __atomic_store_n(&p->is_stopped, true, __ATOMIC_RELEASE);
        pthread_mutex_lock(&p->gate);
        __atomic_store_n(&p->is_stopped, false, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&p->gate);
    return fake_test(&p->boxes[0], handle, done_out);
}

static wf_status start_0(void *self, wf_context *ctx, int *rank_out, int *n_ranks_out) {
    return fake_start(&((peer *)self)->boxes[0], ctx, rank_out, n_ranks_out);
}
static wf_status send_0(void *self, int to, int tag, const void *data, size_t bytes,
                        wfi_network_handle *handle_out) {
    return fake_send(&((peer *)self)->boxes[0], to, tag, data, bytes, handle_out);
}
static wf_status receive_0(void *self, int from, int tag, void *data, size_t bytes,
                           wfi_network_handle *handle_out) {
    return fake_receive(&((peer *)self)->boxes[0], from, tag, data, bytes, handle_out);
}
static void cancel_0(void *self, wfi_network_handle *handle) {
    fake_cancel(&((peer *)self)->boxes[0], handle);
}

/* ---- the peer's part ---- */

static void finish(peer *p, wfi_network_handle *handle) {
    for (bool done = false; !done; usleep(100)) fake_test(&p->boxes[1], handle, &done);
}

static wfi_message hear_at(peer *p, int rank) {
    wfi_message m;
    wfi_network_handle handle;
    fake_receive(&p->boxes[rank], 0, 0, &m, sizeof m, &handle);
    finish(p, &handle);
    p->magic = m.magic;
    return m;
}

static wfi_message hear(peer *p) {
    return hear_at(p, 1);
}

static void tell_from(peer *p, int rank, wfi_message m) {
    wfi_network_handle handle;
    m.magic = p->magic;
    fake_send(&p->boxes[rank], 0, 0, &m, sizeof m, &handle);
    finish(p, &handle);
}

static void tell(peer *p, wfi_message m) {
    tell_from(p, 1, m);
}

/* That rank 1's stream 0 of trainer 0 has done so many tasks. */
static void tell_epoch(peer *p, uint64_t generation, uint64_t epoch) {
    wfi_message m = {.kind = WFI_MESSAGE_EPOCHS};
    m.streams.generation = generation;
    m.streams.epochs[0] = epoch;
    tell(p, m);
}

/* ---- begin and end ---- */

static bool has_left(const void *job, int rank) {
    const peer *p = job;
    return __atomic_load_n(&p->ranks[rank].pid, __ATOMIC_ACQUIRE) < 0;
}

static void begin_ranks(peer *p, int n_ranks) {
    *p = (peer){.net = {.lock = PTHREAD_MUTEX_INITIALIZER, .n_ranks = n_ranks},
                .gate = PTHREAD_MUTEX_INITIALIZER,
                .ctx = test_context()};
    for (int r = 0; r < n_ranks; r++) p->boxes[r] = (fake_rank){&p->net, r};
    wfi_network network = fake_network(&p->boxes[0]);
    network.self = p;
    network.start = start_0;
    network.send = send_0;
    network.receive = receive_0;
    network.test = test_at_gate;
    network.cancel = cancel_0;
    TEST_OK(p->ctx, wfi_transport_create(p->ctx,
                                         &(wfi_transport_config){.rank = 0,
                                                                 .n_ranks = n_ranks,
                                                                 .timeout_ms = TEST_TIMEOUT_MS,
                                                                 .failure = &p->failure,
                                                                 .ranks = p->ranks,
                                                                 .network = network,
                                                                 .is_lost = has_left,
                                                                 .job = p},
                                         &p->transport));
}

static void begin(peer *p) {
    begin_ranks(p, 2);
}

static void *hear_leave(void *self) {
    const peer *p = self;
    for (int rank = 1; rank < p->net.n_ranks; rank++)
        if (hear_at(self, rank).kind != WFI_MESSAGE_LEAVE) abort();
    return NULL;
}

static void end(peer *p) {
    pthread_t thread;
    for (int rank = 1; rank < p->net.n_ranks; rank++)
        tell_from(p, rank, (wfi_message){.kind = WFI_MESSAGE_LEAVE});
    assert_int_equal(pthread_create(&thread, NULL, hear_leave, p), 0);
    assert_true(wfi_transport_destroy(p->transport));
    pthread_join(thread, NULL);
    test_context_end(p->ctx);
}

/* ---- tests ---- */

/* The streams of a new trainer count from 0. What still comes of the one before is too high. */
TEST_WITH(peer, p, epochs_of_an_earlier_trainer) {
    TEST_OK(p->ctx, wfi_transport_reset(p->transport, 0));
    wfi_transport_publish(p->transport);
    assert_int_equal(hear(p).kind, WFI_MESSAGE_STATE);
    tell_epoch(p, 0, 50);
    tell_epoch(p, 1, 3);
    tell_epoch(p, 2, 9); /* one after it comes when its streams count, too */
    tell(p, (wfi_message){.kind = WFI_MESSAGE_STATE, .state = {.pid = 7}});
    while (!__atomic_load_n(&p->ranks[1].pid, __ATOMIC_ACQUIRE)) usleep(100);
    assert_int_equal(p->ranks[1].epochs[0][0].epoch, 3);
}

static bool has_taken_posted(wfi_transport *t) {
    pthread_mutex_lock(&t->lock);
    bool has = !t->posted;
    pthread_mutex_unlock(&t->lock);
    return has;
}

/* Stops the thread, posts so many requests that it is busy with them for a while, and waits until
 * it is. */
static void make_busy(peer *p) {
    pthread_mutex_lock(&p->gate);
    while (!__atomic_load_n(&p->is_stopped, __ATOMIC_ACQUIRE)) usleep(100);
    for (int k = 0; k < 20000; k++) TEST_OK(p->ctx, wfi_transport_reset(p->transport, 0));
    pthread_mutex_unlock(&p->gate);
    while (!has_taken_posted(p->transport)) continue;
}

/* A rank that has come to a barrier has sent all that it was to send before, also what was posted
 * between two looks of the thread. */
TEST_WITH(peer, p, requests_before_the_state) {
    wfi_transport_publish(p->transport);
    (void)hear(p);
    for (unsigned round = 1; round <= 5; round++) {
        make_busy(p);
        TEST_OK(p->ctx, wfi_transport_send(p->transport, 9, 1, "words", 6));
        p->ranks[0].barriers.epoch++;
        wfi_transport_publish(p->transport);
        wfi_message first = hear(p), second = hear(p);
        assert_int_equal(first.kind, WFI_MESSAGE_GROUP);
        assert_string_equal(first.group.bytes, "words");
        assert_int_equal(second.kind, WFI_MESSAGE_STATE);
        assert_int_equal(second.state.n_barriers, round);
    }
}

static bool is_under_way(wfi_transport *t, int to) {
    pthread_mutex_lock(&t->queues_lock);
    const wfi_request *first = t->peers[to].puts[WFI_TRANSPORT_HOST].first;
    bool is = first && first->is_under_way;
    pthread_mutex_unlock(&t->queues_lock);
    return is;
}

static void *open_gate_later(void *self) {
    usleep(200000);
    pthread_mutex_unlock(&((peer *)self)->gate);
    return NULL;
}

static void put(peer *p, int to) {
    wfi_route route = {.peer = to, .reads_in = WFI_TRANSPORT_HOST};
    TEST_OK(p->ctx, wfi_transport_put(p->transport, &route, "abc", 4));
    while (!is_under_way(p->transport, to)) usleep(100);
}

static void take(peer *p, int rank) {
    char bytes[4];
    wfi_network_handle handle;
    fake_receive(&p->boxes[rank], 0, 1 + WFI_TRANSPORT_HOST, bytes, sizeof bytes, &handle);
    finish(p, &handle);
}

/* A rank leaves when it has its last bytes. The sender's thread takes note of that later than of
 * the leaving, which is no failure. */
TEST_WITH(peer, p, leaving_after_the_last_bytes) {
    pthread_t thread;
    wfi_transport_publish(p->transport);
    (void)hear(p);
    put(p, 1);
    pthread_mutex_lock(&p->gate);
    take(p, 1);
    __atomic_store_n(&p->ranks[1].pid, -7, __ATOMIC_RELEASE);
    assert_int_equal(pthread_create(&thread, NULL, open_gate_later, p), 0);
    TEST_OK(p->ctx, wfi_event_wait(wfi_transport_departure(p->transport, WFI_TRANSPORT_HOST)));
    pthread_join(thread, NULL);
}

/* A rank that leaves without them is lost. */
TEST_WITH(peer, p, leaving_without_the_last_bytes) {
    wfi_transport_publish(p->transport);
    (void)hear(p);
    put(p, 1);
    __atomic_store_n(&p->ranks[1].pid, -7, __ATOMIC_RELEASE);
    TEST_REFUSED(p->ctx, wfi_event_wait(wfi_transport_departure(p->transport, WFI_TRANSPORT_HOST)),
                 WF_REMOTE, "rank 1 has left the job");
    assert_int_equal(hear(p).kind, WFI_MESSAGE_FAILURE);
}

static void *open_gate_and_take(void *self) {
    open_gate_later(self);
    usleep(200000);
    take(self, 2);
    return NULL;
}

/* Another rank takes its bytes after that: it has not left. */
TEST_CASE(leaving_before_another_has_its_bytes) {
    static peer p;
    pthread_t thread;
    begin_ranks(&p, 3);
    wfi_transport_publish(p.transport);
    for (int rank = 1; rank < 3; rank++) (void)hear_at(&p, rank), put(&p, rank);
    pthread_mutex_lock(&p.gate);
    take(&p, 1);
    __atomic_store_n(&p.ranks[1].pid, -7, __ATOMIC_RELEASE);
    assert_int_equal(pthread_create(&thread, NULL, open_gate_and_take, &p), 0);
    TEST_OK(p.ctx, wfi_event_wait(wfi_transport_departure(p.transport, WFI_TRANSPORT_HOST)));
    pthread_join(thread, NULL);
    end(&p);
}
