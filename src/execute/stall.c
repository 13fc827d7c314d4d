#include "execute/stall.h"
#include "base/env.h"
#include "execute/executor.h"

#include <stdio.h>

/* ---- following waits between streams ---- */

static const wfi_stream_queue *stream_of(const wfi_executor *e, int32_t i) {
    const wfi_instruction *now = &e->p->instructions[i];
    return e->workers[now->rank].streams[now->stream];
}

/* How many tasks its stream has before the instruction is done. */
static uint64_t n_left(const wfi_executor *e, int32_t i) {
    wfi_event done = wfi_executor_event(e, i, 0);
    uint64_t n_done = wfi_stream_n_done(done.stream);
    return done.epoch > n_done ? done.epoch - n_done : 0;
}

/* The instruction that the stream is at; -1: none. */
static int32_t find_current(const wfi_executor *e, const wfi_stream_queue *stream) {
    int32_t current = -1;
    for (int32_t i = 0; i < e->p->n_instructions; i++) {
        if (stream_of(e, i) != stream || !n_left(e, i)) continue;
        if (current < 0 || e->end[i] < e->end[current]) current = i;
    }
    return current;
}

/* Returns the member of the group of i with the most tasks left; if a send and its receive have one
 * each, the receive, which copies. */
static int32_t find_last_of_group(const wfi_executor *e, int32_t i) {
    int32_t last = i;
    for (int32_t m = 0; m < e->n_group[i]; m++) {
        int32_t k = e->p->order[e->first[i] + m];
        bool copies = e->p->instructions[i].kind == WFI_SEND && k != i;
        if (n_left(e, k) > n_left(e, last) || (copies && n_left(e, k))) last = k;
    }
    return last;
}

/* Returns the instruction that the current instruction i waits for; i itself: none. */
static int32_t find_blocker(const wfi_executor *e, int32_t i) {
    for (int32_t m = 0; m < e->n_group[i]; m++) {
        int32_t k = e->p->order[e->first[i] + m];
        const wfi_instruction *now = &e->p->instructions[k];
        for (int32_t d = 0; d < now->n_depends; d++) {
            int32_t before = now->depends[d];
            if (before != i && n_left(e, before)) return find_current(e, stream_of(e, before));
        }
        int32_t current = find_current(e, stream_of(e, k));
        if (current != k && current >= 0 && n_left(e, k)) return current;
    }
    return find_last_of_group(e, i);
}

/* Follows waits from the stream of `event` to the instruction that blocks it; -1: the stream has no
 * current instruction. */
static int32_t find_culprit(const wfi_executor *e, const wfi_event *event) {
    int32_t i = find_current(e, event->stream);
    int32_t most = e->p->n_ranks * WFI_N_STREAMS;
    for (int32_t n = 0; i >= 0 && n < most; n++) {
        int32_t next = find_blocker(e, i);
        if (next == i || next < 0) break; /* it may have got done meanwhile */
        i = next;
    }
    return i;
}

/* ---- in words ---- */

static void explain(const void *self, const wfi_event *event, bool is_host, const char *how_long,
                    char *text, size_t bytes) {
    const wfi_stall *stall = self;
    const wfi_executor *e =
        is_host ? stall->running : __atomic_load_n(&stall->issued, __ATOMIC_ACQUIRE);
    int32_t i = e ? find_culprit(e, event) : -1;
    int rank = i < 0 ? event->stream->owner->rank : e->p->instructions[i].rank;
    char doing[256] = "";
    if (stall->job && (i < 0 || !wfi_control_has_begun(stall->job, rank))) {
        wfi_control_describe_absent(stall->job, rank, how_long, text, bytes);
        return;
    }
    if (i >= 0) wfi_executor_name(e, i, doing, sizeof doing);
    if (!stall->job) { /* before the first step there is no instruction */
        snprintf(text, bytes, "rank %d has not moved%s%s%s", rank, how_long,
                 *doing ? "; it was last doing " : "", doing);
        return;
    }
    int64_t pid = wfi_control_rank_at(stall->job, rank)->pid;
    const char *run = wfi_control_rank_at(stall->job, wf_job_rank(stall->job))->state.doing;
    snprintf(text, bytes, "rank %d (process %lld) has not moved%s; it was last doing %s in %s%s",
             rank, (long long)pid, how_long, doing, run,
             wfi_control_process_state(stall->job, rank));
}

static void name(const void *self, const wfi_event *event, char *text, size_t bytes) {
    const wfi_stall *stall = self;
    const wfi_executor *e = __atomic_load_n(&stall->issued, __ATOMIC_ACQUIRE);
    int32_t i = e ? find_current(e, event->stream) : -1;
    if (i >= 0) wfi_executor_name(e, i, text, bytes);
}

/* ---- life ---- */

static uint64_t progress(const void *self) {
    const wfi_stall *stall = self;
    uint64_t n = 0;
    for (int r = 0; r < stall->n_workers; r++)
        for (int s = 0; s < WFI_N_STREAMS; s++)
            n += wfi_stream_n_done(stall->workers[r].streams[s]);
    return n;
}

wf_status wfi_stall_init(wfi_stall *stall, wf_context *ctx, wfi_control *job) {
    *stall = (wfi_stall){.job = job};
    stall->watch = (wfi_watch){
        .ctx = ctx, .progress = progress, .explain = explain, .name = name, .self = stall};
    return wfi_env_count(ctx, WFI_WEFT_STALL_MS, &stall->watch.stall_ms);
}

void wfi_stall_begin(wfi_stall *stall, const wfi_executor *e) {
    if (!stall) return;
    stall->running = e;
    wfi_watch_begin(&stall->watch);
}

void wfi_stall_issued(wfi_stall *stall) {
    if (stall) __atomic_store_n(&stall->issued, stall->running, __ATOMIC_RELEASE);
}

void wfi_stall_end(wfi_stall *stall) {
    if (!stall) return;
    stall->running = NULL;
    __atomic_store_n(&stall->issued, NULL, __ATOMIC_RELEASE);
}
