/* What is the same however the processes of a job reach each other: meeting, naming who does not
 * come. */
#include "comm/job/control_kinds.h"

#include "base/clock.h"

#include <stdio.h>
#include <string.h>

#define NAP_MS 50

int wfi_control_rank_number(const wfi_control *c) {
    return c->rank;
}

int wfi_control_n_ranks(const wfi_control *c) {
    return c->n_ranks;
}

bool wfi_control_is_local(const wfi_control *c, int rank) {
    const wfi_control_rank *ranks = c->shared->ranks;
    return __atomic_load_n(&ranks[rank].host, __ATOMIC_RELAXED) == ranks[c->rank].host;
}

wf_context *wfi_control_context(const wfi_control *c) {
    return c->ctx;
}

int64_t wfi_control_timeout_ms(const wfi_control *c) {
    return c->timeout_ms;
}

bool wfi_control_is_here(const wfi_control *c, int rank) {
    const wfi_control_rank *ranks = c->shared->ranks;
    int64_t pid = __atomic_load_n(&ranks[rank].pid, __ATOMIC_ACQUIRE);
    return wfi_control_is_local(c, rank) && pid == ranks[c->rank].pid;
}

wfi_control_rank *wfi_control_rank_at(const wfi_control *c, int rank) {
    return &c->shared->ranks[rank];
}

wfi_failure *wfi_control_failure(const wfi_control *c) {
    return &c->shared->failure;
}

double *wfi_control_records(const wfi_control *c, int half) {
    return &c->shared->records[half & 1][0][0];
}

/* ---- runs ---- */

/* A rank writes a half again two runs later, and by then all have read it: they have begun the
 * run between, or there would be nothing to read for it. */
void wfi_control_begin_run(wfi_control *c, const char *what) {
    wfi_control_rank *own = &c->shared->ranks[c->rank];
    snprintf(own->doing, sizeof own->doing, "%s", what);
    int stop = __atomic_load_n(&c->stop, __ATOMIC_RELAXED);
    __atomic_store_n(&own->stop[c->n_runs & 1], stop, __ATOMIC_RELEASE);
    __atomic_store_n(&own->not_finite[c->n_runs & 1], 0, __ATOMIC_RELEASE);
    __atomic_store_n(&own->n_runs, ++c->n_runs, __ATOMIC_RELEASE);
    wfi_control_publish(c);
}

int wfi_control_stop_reason(const wfi_control *c) {
    int largest = 0;
    for (int r = 0; r < c->n_ranks && c->n_runs; r++) {
        const int32_t *stop = &c->shared->ranks[r].stop[(c->n_runs - 1) & 1];
        largest = (int)wfi_max_i64(largest, __atomic_load_n(stop, __ATOMIC_ACQUIRE));
    }
    return largest;
}

int64_t *wfi_control_own_not_finite(wfi_control *c) {
    return &c->shared->ranks[c->rank].not_finite[(c->n_runs - 1) & 1];
}

int64_t wfi_control_not_finite(const wfi_control *c) {
    int64_t largest = 0;
    for (int r = 0; r < c->n_ranks; r++) {
        const int64_t *cell = &c->shared->ranks[r].not_finite[(c->n_runs - 1) & 1];
        largest = wfi_max_i64(largest, __atomic_load_n(cell, __ATOMIC_ACQUIRE));
    }
    return largest;
}

bool wfi_control_has_begun(const wfi_control *c, int rank) {
    return __atomic_load_n(&c->shared->ranks[rank].n_runs, __ATOMIC_ACQUIRE) >= c->n_runs;
}

void wfi_control_request_stop(wfi_control *c, int reason) {
    __atomic_store_n(&c->stop, reason, __ATOMIC_RELAXED);
}

/* ---- meeting ---- */

bool wfi_control_is_lost(const void *self, int rank) {
    const wfi_control *c = self;
    return c->kind->is_lost(c, rank);
}

wf_status wfi_control_fail_all(wfi_control *c, wf_status status) {
    wfi_failure_set(&c->shared->failure, status, wf_context_error(c->ctx));
    return status;
}

static wf_status absent(wfi_control *c, int rank, const char *what) {
    char text[256];
    wfi_control_say_absent(c, rank, "", text, sizeof text);
    return wfi_fail(c->ctx, WF_TIMEOUT, "rank %d waited %lld ms to %s, but %s", c->rank,
                    (long long)c->timeout_ms, what, text);
}

/* Before the deadline: a line to whoever looks on, when it is due; then less and less often. */
static void warn(const wfi_control *c, int rank, int64_t waited_ms, int64_t *due_ms) {
    char text[256], how_long[48];
    if (!*due_ms || waited_ms < *due_ms) return;
    snprintf(how_long, sizeof how_long, " for %g s", (double)*due_ms / 1000);
    wfi_control_say_absent(c, rank, how_long, text, sizeof text);
    wfi_log(c->ctx, WF_LOG_WARN, "wait", "%s", text);
    *due_ms *= 6;
}

/* Without coming to this meeting. */
static bool has_left(const wfi_control *c, int rank, uint64_t n_meetings) {
    const wfi_control_rank *other = &c->shared->ranks[rank];
    return __atomic_load_n(&other->pid, __ATOMIC_ACQUIRE) < 0 &&
           __atomic_load_n(&other->meetings.epoch, __ATOMIC_ACQUIRE) < n_meetings;
}

/* Who leaves because of a failure has said it before. */
static wf_status say_left(wfi_control *c, int rank) {
    WF_TRY(wfi_failure_check(c->ctx, &c->shared->failure));
    char doing[WFI_CONTROL_DOING];
    wfi_control_doing(c, rank, doing);
    return wfi_control_fail_all(
        c,
        wfi_fail(c->ctx, WF_REMOTE, "rank %d has left the job; it last came to %s", rank, doing));
}

static wf_status wait_for(wfi_control *c, int rank, uint64_t n_meetings, const char *what,
                          wfi_wait_clock *clock) {
    wfi_control_rank *other = &c->shared->ranks[rank];
    int64_t due_ms = c->stall_ms;
    for (;;) {
        uint64_t seen = __atomic_load_n(&other->meetings.epoch, __ATOMIC_ACQUIRE);
        if (seen >= n_meetings) return WF_OK;
        WF_TRY(wfi_failure_check(c->ctx, &c->shared->failure));
        if (c->kind->find_process) c->kind->find_process(c, rank);
        if (has_left(c, rank, n_meetings)) return say_left(c, rank);
        if (wfi_control_is_lost(c, rank) &&
            __atomic_load_n(&other->meetings.epoch, __ATOMIC_ACQUIRE) < n_meetings)
            return wfi_control_fail_all(
                c,
                wfi_fail(c->ctx, WF_REMOTE, "rank %d (process %lld) has died; it last came to %.*s",
                         rank, (long long)other->pid, WFI_CONTROL_DOING, other->doing));
        int64_t waited_ms = wfi_wait_ms(clock);
        if (waited_ms > c->timeout_ms) return wfi_control_fail_all(c, absent(c, rank, what));
        warn(c, rank, waited_ms, &due_ms);
        wfi_shared_epoch_sleep(&other->meetings, seen, NAP_MS);
    }
}

/* The courier may be writing there. */
static void read_text(const char from[WFI_CONTROL_DOING], char text_out[WFI_CONTROL_DOING]) {
    for (int k = 0; k < WFI_CONTROL_DOING; k++)
        text_out[k] = __atomic_load_n(&from[k], __ATOMIC_RELAXED);
    text_out[WFI_CONTROL_DOING - 1] = 0;
}

/* A rank writes a purpose again two meetings later, and by then all have compared this one: they
 * have come to the meeting between. */
static wf_status compare_purposes(wfi_control *c, uint64_t n_meetings) {
    char first[WFI_CONTROL_DOING], other[WFI_CONTROL_DOING];
    read_text(c->shared->ranks[0].purpose[n_meetings & 1], first);
    for (int r = 1; r < c->n_ranks; r++) {
        read_text(c->shared->ranks[r].purpose[n_meetings & 1], other);
        if (strcmp(first, other) != 0)
            return wfi_control_fail_all(
                c, wfi_fail(c->ctx, WF_REMOTE,
                            "rank %d has come to %s, rank 0 to %s: all ranks have to do the same "
                            "in the same order",
                            r, other, first));
    }
    return WF_OK;
}

wf_status wfi_control_meet(wfi_control *c, const char *what) {
    wfi_control_rank *own = &c->shared->ranks[c->rank];
    uint64_t n = own->meetings.epoch + 1;
    snprintf(own->doing, sizeof own->doing, "%s", what);
    snprintf(own->purpose[n & 1], sizeof own->purpose[0], "%s", what);
    __atomic_store_n(&own->meetings.epoch, n, __ATOMIC_SEQ_CST);
    wfi_shared_epoch_wake(&own->meetings);
    wfi_control_publish(c);
    wfi_wait_clock clock = wfi_wait_begin();
    for (int r = 0; r < c->n_ranks; r++) WF_TRY(wait_for(c, r, n, what, &clock));
    return compare_purposes(c, n);
}

/* Nobody begins to tell for the second time from now before all have read this time's. */
wf_status wfi_control_exchange(wfi_control *c, const char *what,
                               const int64_t own[WFI_CONTROL_NUMBERS],
                               int64_t (*all_out)[WFI_CONTROL_NUMBERS]) {
    int half = (int)(c->n_told++ & 1);
    memcpy(c->shared->ranks[c->rank].numbers[half], own, sizeof *all_out);
    WF_TRY(wfi_control_meet(c, what));
    for (int r = 0; r < c->n_ranks; r++)
        for (int k = 0; k < WFI_CONTROL_NUMBERS; k++)
            all_out[r][k] =
                __atomic_load_n(&c->shared->ranks[r].numbers[half][k], __ATOMIC_RELAXED);
    return WF_OK;
}

/* ---- what only rank 0 knows ---- */

wf_status wfi_control_broadcast(wfi_control *c, const char *what, void *data, size_t bytes) {
    if (c->rank == 0) memcpy(c->shared->told, data, bytes);
    for (int r = 1; r < c->n_ranks; r++)
        WF_TRY(wfi_control_move(c, 0, r, c->shared->told, c->shared->told, bytes));
    WF_TRY(wfi_control_moved(c));
    WF_TRY(wfi_control_meet(c, what));
    memcpy(data, c->shared->told, bytes);
    return wfi_control_meet(c, "go on");
}

/* ---- how they reach each other ---- */

void wfi_control_doing(const wfi_control *c, int rank, char doing_out[WFI_CONTROL_DOING]) {
    read_text(c->shared->ranks[rank].doing, doing_out);
}

void wfi_control_publish(wfi_control *c) {
    if (c->kind->publish) c->kind->publish(c);
}

const char *wfi_control_process_state(const wfi_control *c, int rank) {
    if (!wfi_control_is_local(c, rank)) return "";
    return wfi_process_state(__atomic_load_n(&c->shared->ranks[rank].pid, __ATOMIC_ACQUIRE));
}

int wfi_control_n_local(const wfi_control *c, int below) {
    int n = 0;
    for (int r = 0; r < below; r++) n += wfi_control_is_local(c, r);
    return n;
}

wf_status wfi_control_arena_create(wfi_control *c, size_t bytes, void **base_out) {
    return c->kind->arena_create(c, bytes, base_out);
}

wf_status wfi_control_arena_open(wfi_control *c, int rank, size_t *bytes_out, void **base_out) {
    return c->kind->arena_open(c, rank, bytes_out, base_out);
}

void wfi_control_leave(wfi_control *c) {
    if (!c) return;
    c->kind->leave(c);
    wfi_free(c->ctx, c);
}

void wfi_control_abandon(wfi_control *c) {
    c->has_place = false;
    wfi_control_leave(c);
}
