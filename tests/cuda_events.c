/* Events of CUDA devices, through the stand-in for the driver: they order streams, whose threads go
 * on meanwhile.
 *
 * label: stand_in
 */
#include "test.h"

#include "base/clock.h"
#include "device/device.h"
#include "kernel/gpu/gpu.h"

#include <sched.h>

#define N_ROUNDS 300 /* more than may be in flight */
#define N_BYTES  4096

static wfi_failure failure;

typedef struct bench {
    wf_context *ctx;
    wfi_device *devices[2];
    wfi_stream_queue *streams[2];
    char *memory[2], *list; /* the second has room for what the first held in each round */
    int64_t begin_ns[N_ROUNDS], end_ns[N_ROUNDS];
    uint64_t n_seen;
    int32_t n_told;
    int n_ahead; /* tasks queued before what they follow was done */
} bench;

static void begin(bench *b) {
    static wfi_owner owners[2];
    *b = (bench){.ctx = test_context()};
    wfi_failure_clear(&failure);
    for (int d = 0; d < 2; d++) {
        owners[d] = (wfi_owner){
            .ctx = b->ctx, .rank = d, .timeout_ms = TEST_TIMEOUT_MS, .failure = &failure};
        TEST_OK(b->ctx, wfi_device_create(&owners[d], &wfi_device_cuda, d, 2, &b->devices[d]));
        TEST_OK(b->ctx, wfi_stream_create(b->devices[d], "compute", 0, NULL, &b->streams[d]));
    }
    void *at[2];
    const size_t bytes[] = {N_BYTES, (size_t)N_ROUNDS * N_BYTES};
    for (int d = 0; d < 2; d++) {
        TEST_OK(b->ctx,
                wfi_device_cuda.memory_create(b->devices[d], WFI_SPACE_DEVICE, bytes[d], &at[d]));
        b->memory[d] = at[d];
    }
}

static void end(bench *b) {
    for (int d = 0; d < 2; d++) wfi_stream_finish(b->streams[d]);
    for (int d = 0; d < 2; d++) {
        wfi_stream_destroy(b->streams[d]);
        wfi_device_cuda.memory_destroy(b->devices[d], WFI_SPACE_DEVICE, b->memory[d], 0);
        wfi_device_destroy(b->devices[d]);
    }
    test_context_end(b->ctx);
}

static void wait_for(const bench *b, int d) {
    TEST_OK(b->ctx, wfi_event_wait(wfi_stream_record(b->streams[d])));
}

static wf_status fill(void *self, void *argument) {
    bench *b = self;
    intptr_t round = (intptr_t)argument;
    wfi_stream_mark(b->streams[0], &b->begin_ns[round]);
    wf_status status = wfi_memory_fill(b->devices[0], b->streams[0], b->memory[0], WFI_SPACE_DEVICE,
                                       (int)round & 127, N_BYTES);
    wfi_stream_mark(b->streams[0], &b->end_ns[round]);
    return status;
}

static wf_status keep(void *self, void *argument) {
    bench *b = self;
    intptr_t round = (intptr_t)argument;
    b->n_ahead += wfi_stream_n_done(b->streams[0]) <= (uint64_t)round;
    return wfi_memory_fetch(b->streams[1], b->memory[1] + round * N_BYTES, b->devices[0],
                            b->memory[0], N_BYTES);
}

/* Each round's bytes are kept before the next round writes: no thread waits for that. */
TEST_WITH(bench, b, devices_wait) {
    for (intptr_t round = 0; round < N_ROUNDS; round++) {
        TEST_OK(b->ctx, wfi_stream_wait(b->streams[0], wfi_stream_record(b->streams[1])));
        TEST_OK(b->ctx, wfi_stream_push(b->streams[0], fill, b, (void *)round));
        TEST_OK(b->ctx, wfi_stream_wait(b->streams[1], wfi_stream_record(b->streams[0])));
        TEST_OK(b->ctx, wfi_stream_push(b->streams[1], keep, b, (void *)round));
    }
    for (int d = 0; d < 2; d++) wait_for(b, d);
    static char seen[N_ROUNDS * N_BYTES];
    TEST_OK(b->ctx, wfi_memory_copy(b->devices[1], NULL, seen, WFI_SPACE_HOST, b->memory[1],
                                    WFI_SPACE_DEVICE, sizeof seen));
    for (int i = 0; i < N_ROUNDS * N_BYTES; i++) assert_int_equal(seen[i], i / N_BYTES & 127);
    assert_true(b->n_ahead > N_ROUNDS / 10);
    for (int round = 0; round < N_ROUNDS; round++) {
        assert_true(round == 0 || b->begin_ns[round] >= b->end_ns[round - 1]);
        assert_true(b->begin_ns[round] > 0 && b->begin_ns[round] <= b->end_ns[round]);
    }
    assert_true(b->end_ns[N_ROUNDS - 1] <= wfi_now_ns());
}

static wf_status settle(void *self, void *argument) {
    bench *b = self;
    uint64_t *n_done = argument;
    wfi_stream_settle(b->streams[0]);
    *n_done = wfi_stream_n_done(b->streams[0]);
    return WF_OK;
}

/* Others may wait for them. */
TEST_WITH(bench, b, earlier_tasks_count_before_a_task_waits) {
    uint64_t n_done = 0;
    for (intptr_t i = 0; i < 20; i++)
        TEST_OK(b->ctx, wfi_stream_push(b->streams[0], fill, b, (void *)i));
    TEST_OK(b->ctx, wfi_stream_push(b->streams[0], settle, b, &n_done));
    wait_for(b, 0);
    assert_int_equal(n_done, 20);
}

static wf_status fill_by(void *self, void *argument) {
    const bench *b = self;
    wfi_stream_queue *stream = argument;
    return wfi_memory_fill(stream->device, stream, b->memory[0], WFI_SPACE_DEVICE, 1, N_BYTES);
}

/* Captures, and keeps what it could; or replays or forgets that. */
static wf_status capture(void *self, void *argument) {
    enum { FILL, SETTLE, REPLAY };
    static void *kept;
    bench *b = self;
    switch ((intptr_t)argument) {
    case FILL:
        kept = wfi_device_cuda.capture(b->streams[0], fill_by, b, b->streams[0]);
        break;
    case SETTLE:
        if (wfi_device_cuda.capture(b->streams[0], settle, b, &b->n_seen)) return WF_BUG;
        break;
    case REPLAY:
        return wfi_device_cuda.replay(b->streams[0], kept);
    default:
        wfi_device_cuda.forget(b->devices[0], kept);
    }
    return kept ? WF_OK : WF_BUG;
}

static char first_byte(const bench *b) {
    char seen;
    wait_for(b, 0);
    TEST_OK(b->ctx, wfi_memory_copy(b->devices[0], NULL, &seen, WFI_SPACE_HOST, b->memory[0],
                                    WFI_SPACE_DEVICE, 1));
    return seen;
}

/* What waits is not captured, and does no harm: what is captured is done when it is replayed. */
TEST_WITH(bench, b, what_is_captured_is_replayed) {
    for (intptr_t k = 0; k < 5; k++) {
        static const intptr_t order[] = {0, 1, 2, 2, 3};
        if (k == 3) TEST_OK(b->ctx, wfi_stream_push(b->streams[0], fill, b, (void *)(intptr_t)7));
        if (k == 3) assert_int_equal(first_byte(b), 7);
        TEST_OK(b->ctx, wfi_stream_push(b->streams[0], capture, b, (void *)order[k]));
        assert_int_equal(first_byte(b), k >= 2);
    }
}

#define N_TOLD 3 /* in each round */

static void listen(void *self, int32_t number, const int32_t words[WFI_LAUNCH_WORDS]) {
    bench *b = self;
    assert_int_equal(number, b->n_seen++);
    assert_int_equal(words[0], 0);
}

static wf_status tell(void *self, void *argument) {
    bench *b = self;
    int32_t round = (int32_t)(intptr_t)argument;
    b->n_ahead += b->n_seen < (uint64_t)round * N_TOLD;
    for (int32_t k = 0; k < N_TOLD; k++)
        WF_TRY(wfi_device_cuda.report_words(b->streams[0], listen, b, round * N_TOLD + k));
    return WF_OK;
}

static wf_status tell_many(void *self, void *argument) {
    bench *b = self;
    for (int32_t k = 0; k < N_ROUNDS; k++)
        WF_TRY(wfi_device_cuda.report_words(b->streams[0], listen, b, b->n_told++));
    return WF_OK;
}

/* More than there is room for, in their order; nobody waits for what can be told later. */
TEST_WITH(bench, b, all_words_are_told) {
    for (intptr_t round = 0; round < N_ROUNDS; round++)
        TEST_OK(b->ctx, wfi_stream_push(b->streams[0], tell, b, (void *)round));
    wait_for(b, 0);
    assert_int_equal(b->n_seen, N_ROUNDS * N_TOLD);
    assert_true(b->n_ahead > N_ROUNDS / 10);
    b->n_seen = b->n_ahead = 0;
    for (int32_t k = 0; k < 2; k++) /* in one task */
        TEST_OK(b->ctx, wfi_stream_push(b->streams[0], tell_many, b, NULL));
    wait_for(b, 0);
    assert_int_equal(b->n_seen, 2 * N_ROUNDS);
}

static wf_status nothing(void *self, void *argument) {
    return WF_OK;
}

/* A stream whose thread waits for a stream of the host's, which waits for what the first has in
 * flight, which a third keeps up: all get through. */
TEST_WITH(bench, b, kinds_wait_for_each_other) {
    const wfi_owner owner = {.ctx = b->ctx, .timeout_ms = TEST_TIMEOUT_MS, .failure = &failure};
    wfi_device *cpu;
    wfi_stream_queue *host;
    TEST_OK(b->ctx, wfi_device_create(&owner, &wfi_device_cpu, 0, 1, &cpu));
    TEST_OK(b->ctx, wfi_stream_create(cpu, "host", 0, NULL, &host));
    for (intptr_t i = 0; i < N_ROUNDS; i++) {
        TEST_OK(b->ctx, wfi_stream_push(b->streams[0], fill, b, (void *)i));
        TEST_OK(b->ctx, wfi_stream_wait(host, wfi_stream_record(b->streams[0])));
        TEST_OK(b->ctx, wfi_stream_push(host, nothing, NULL, NULL));
        TEST_OK(b->ctx, wfi_stream_wait(b->streams[1], wfi_stream_record(host)));
        TEST_OK(b->ctx, wfi_stream_push(b->streams[1], keep, b, (void *)i));
        TEST_OK(b->ctx, wfi_stream_wait(b->streams[0], wfi_stream_record(b->streams[1])));
    }
    for (int d = 0; d < 2; d++) wait_for(b, d);
    assert_int_equal(b->n_ahead, 0);
    wfi_stream_destroy(host);
    wfi_device_destroy(cpu);
}

static wf_status fails(void *self, void *argument) {
    return wfi_fail(self, WF_DEVICE, "this task fails");
}

/* What is in flight when a task fails is done before anybody is told so, whatever is skipped. */
TEST_CASE(nothing_runs_on_behind_a_failure) {
    enum { N = 20 };
    bench b;
    setenv("STAND_IN_DELAY_US", "5000", 1);
    begin(&b);
    for (intptr_t i = 0; i < 3 * N; i++) {
        if (i == N) (void)wfi_stream_push(b.streams[0], fails, b.ctx, NULL);
        (void)wfi_stream_push(b.streams[0], fill, &b, (void *)i);
    }
    assert_int_equal(wfi_event_wait((wfi_event){b.streams[0], N}), WF_DEVICE);
    for (int i = 0; i < N; i++) assert_true(b.end_ns[i] > 0);
    assert_true(b.end_ns[N - 1] > b.begin_ns[0] + 100000);
    unsetenv("STAND_IN_DELAY_US");
    end(&b);
}

static wf_status hang(void *self, void *argument) {
    const bench *b = self;
    wfi_kernel_launch launch = {.source = &wfi_gpu_source, .entry = WFI_GPU_zero};
    launch.operands[WFI_GPU_OUT] = b->memory[0];
    return wfi_gpu_launch_elements(argument, &launch, 1);
}

/* Of a GPU that hangs nothing is given back: its driver would wait for it. */
__attribute__((visibility("default"))) const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void) {
    return "leak:cuEventCreate\nleak:cuModule\n";
}

/* Nor is anything done for those who have not seen it hang. */
TEST_WITH(bench, b, nothing_is_done_by_a_gpu_that_hangs) {
    static wfi_failure failures[2];
    static wfi_owner owners[2];
    static const wfi_task tasks[2] = {hang, fill_by};
    wfi_device *devices[2];
    wfi_stream_queue *streams[2];
    for (int k = 0; k < 2; k++) {
        owners[k] = (wfi_owner){.ctx = b->ctx, .timeout_ms = 400, .failure = &failures[k]};
        TEST_OK(b->ctx, wfi_device_create(&owners[k], &wfi_device_cuda, 0, 1, &devices[k]));
        TEST_OK(b->ctx, wfi_stream_create(devices[k], "compute", 0, NULL, &streams[k]));
    }
    for (int k = 0; k < 2; k++) {
        TEST_OK(b->ctx, wfi_stream_push(streams[k], tasks[k], b, streams[k]));
        /* The host's own deadline may pass before the device's. */
        while (wfi_failure_status(&failures[k]) == WF_OK) sched_yield();
        TEST_REFUSED(b->ctx, wfi_event_wait(wfi_stream_record(streams[k])), WF_TIMEOUT,
                     "GPU 0, Stand-in 0, hangs");
    }
    for (int k = 0; k < 2; k++) {
        wfi_stream_destroy(streams[k]);
        wfi_device_destroy(devices[k]);
    }
}

int main(void) {
    setenv("STAND_IN_HANG_AFTER", "0", 1); /* of launches, which the last test makes */
    return test_run(NULL, NULL);
}
