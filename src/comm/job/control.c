/* The part of a job's control that does not depend on shared memory: barriers, and errors that name
 * the missing rank. Runs of programs: control_runs.c. */
#include "comm/job/control_kinds.h"

#include "base/clock.h"
#include "base/env.h"

#include <stdio.h>
#include <string.h>

#define NAP_MS 50

bool wfi_control_is_local(const wfi_control *c, int rank) {
    const wfi_control_rank *ranks = c->shared->ranks;
    return __atomic_load_n(&ranks[rank].state.host, __ATOMIC_RELAXED) == ranks[c->rank].state.host;
}

wf_context *wfi_control_context(const wfi_control *c) {
    return c->ctx;
}

int64_t wfi_control_timeout_ms(const wfi_control *c) {
    return c->timeout_ms;
}

bool wfi_control_wires_devices(const wfi_control *c) {
    return c->wires_devices;
}

bool wfi_control_is_here(const wfi_control *c, int rank) {
    const wfi_control_rank *ranks = c->shared->ranks;
    return wfi_control_is_local(c, rank) && wfi_control_pid_of(c, rank) == ranks[c->rank].pid;
}

wfi_control_rank *wfi_control_rank_at(const wfi_control *c, int rank) {
    return &c->shared->ranks[rank];
}

wfi_control_part *wfi_control_part_of(const wfi_control *c, int rank, int trainer) {
    return &c->shared->ranks[rank].state.parts[trainer];
}

/* A rank that has left an earlier job of the segment has not joined this one. */
int64_t wfi_control_pid_of(const wfi_control *c, int rank) {
    const wfi_control_rank *other = &c->shared->ranks[rank];
    int64_t pid = __atomic_load_n(&other->pid, __ATOMIC_ACQUIRE);
    if (pid >= 0) return pid;
    return __atomic_load_n(&other->left, __ATOMIC_RELAXED) == c->round ? pid : 0;
}

wfi_failure *wfi_control_failure(const wfi_control *c) {
    return &c->shared->failure;
}

/* ---- barriers ---- */

bool wfi_control_is_lost(const void *self, int rank) {
    const wfi_control *c = self;
    return wfi_control_goes_astray(c, rank) || c->kind->is_lost(c, rank);
}

wf_status wfi_control_fail_all(const wfi_control *c, wf_status status) {
    wfi_failure_set(&c->shared->failure, status, wf_context_error(c->ctx));
    return status;
}

static wf_status absent(wfi_control *c, int rank, const char *what) {
    char text[256];
    wfi_control_describe_absent(c, rank, "", text, sizeof text);
    return wfi_fail(c->ctx, WF_TIMEOUT, "rank %d waited %lld ms to %s, but %s", c->rank,
                    (long long)c->timeout_ms, what, text);
}

/* Logs a warning when it is due, long before the deadline, then less and less often. */
static void warn(const wfi_control *c, int rank, int64_t waited_ms, int64_t *due_ms) {
    char text[256], how_long[48];
    if (!*due_ms || waited_ms < *due_ms) return;
    snprintf(how_long, sizeof how_long, " for %g s", (double)*due_ms / 1000);
    wfi_control_describe_absent(c, rank, how_long, text, sizeof text);
    wfi_log(c->ctx, WF_LOG_WARN, "wait", "%s", text);
    *due_ms *= 6;
}

void wfi_control_say_dead(int rank, int64_t pid, char text_out[WFI_CONTROL_DEAD]) {
    snprintf(text_out, WFI_CONTROL_DEAD, "rank %d (process %lld) has died", rank, (long long)pid);
}

void wfi_control_describe_lost(const void *self, int rank, char text_out[WFI_CONTROL_DEAD]) {
    int64_t pid = wfi_control_pid_of(self, rank);
    if (pid < 0)
        snprintf(text_out, WFI_CONTROL_DEAD, "rank %d has left the job", rank);
    else
        wfi_control_say_dead(rank, pid, text_out);
}

static bool has_stopped_early(const wfi_control_rank *r) {
    return !__atomic_load_n(&r->runs.epoch, __ATOMIC_ACQUIRE) &&
           __atomic_load_n(&r->state.stop[0], __ATOMIC_RELAXED);
}

/* A rank that failed before it left, died or diverged has set the failure, which comes first. */
static wf_status fail_gone(wfi_control *c, int rank) {
    WF_TRY(wfi_failure_check(c->ctx, &c->shared->failure));
    if (has_stopped_early(&c->shared->ranks[rank]))
        return wfi_fail(c->ctx, WF_REMOTE,
                        "rank %d was asked to stop before the first step; nothing has been lost",
                        rank);
    char doing[WFI_CONTROL_DOING], lost[WFI_CONTROL_DEAD];
    wfi_control_doing(c, rank, doing);
    wfi_control_describe_lost(c, rank, lost);
    return wfi_fail(c->ctx, WF_REMOTE, "%s; its last call: %s", lost, doing);
}

static bool has_come(const wfi_shared_epoch *count, uint64_t n) {
    return __atomic_load_n(&count->epoch, __ATOMIC_ACQUIRE) >= n;
}

wf_status wfi_control_wait_for(wfi_control *c, int rank, wfi_shared_epoch *count, uint64_t n,
                               const char *what, wfi_wait_clock *clock) {
    int64_t due_ms = c->stall_ms;
    for (;;) {
        uint64_t seen = __atomic_load_n(&count->epoch, __ATOMIC_ACQUIRE);
        if (seen >= n) return WF_OK;
        WF_TRY(wfi_failure_check(c->ctx, &c->shared->failure));
        if (c->kind->find_process) c->kind->find_process(c, rank);
        /* The rank may have arrived before it left. */
        if (wfi_control_is_lost(c, rank) && !has_come(count, n))
            return wfi_control_fail_all(c, fail_gone(c, rank));
        int64_t waited_ms = wfi_wait_ms(clock);
        if (waited_ms > c->timeout_ms) return wfi_control_fail_all(c, absent(c, rank, what));
        warn(c, rank, waited_ms, &due_ms);
        wfi_shared_epoch_sleep(count, seen, NAP_MS);
    }
}

/* The progress thread may write the text meanwhile. */
static void read_text(const char from[WFI_CONTROL_DOING], char text_out[WFI_CONTROL_DOING]) {
    for (int k = 0; k < WFI_CONTROL_DOING; k++)
        text_out[k] = __atomic_load_n(&from[k], __ATOMIC_RELAXED);
    text_out[WFI_CONTROL_DOING - 1] = 0;
}

/* A rank overwrites a purpose two barriers later. By then all ranks have entered the barrier in
 * between, so they have compared this one. */
static wf_status compare_purposes(wfi_control *c, uint64_t n_barriers) {
    char first[WFI_CONTROL_DOING], other[WFI_CONTROL_DOING];
    read_text(c->shared->ranks[0].state.purpose[n_barriers & 1], first);
    for (int r = 1; r < c->n_ranks; r++) {
        read_text(c->shared->ranks[r].state.purpose[n_barriers & 1], other);
        if (strcmp(first, other) != 0)
            return wfi_control_fail_all(c, wfi_fail(c->ctx, WF_REMOTE,
                                                    "rank %d is at: %s; rank 0 is at: %s; all "
                                                    "ranks must do the same in the same order",
                                                    r, other, first));
    }
    return WF_OK;
}

wf_status wfi_control_barrier(wfi_control *c, const char *what) {
    wfi_control_rank *own = &c->shared->ranks[c->rank];
    uint64_t n = own->barriers.epoch + 1;
    snprintf(own->state.doing, sizeof own->state.doing, "%s", what);
    snprintf(own->state.purpose[n & 1], sizeof own->state.purpose[0], "%s", what);
    __atomic_store_n(&own->barriers.epoch, n, __ATOMIC_SEQ_CST);
    wfi_shared_epoch_wake(&own->barriers);
    wfi_control_publish(c);
    wfi_wait_clock clock = wfi_wait_begin();
    for (int r = 0; r < c->n_ranks; r++)
        WF_TRY(wfi_control_wait_for(c, r, &c->shared->ranks[r].barriers, n, what, &clock));
    return compare_purposes(c, n);
}

/* No rank starts the second next all-gather before all ranks have read the numbers of this one. */
wf_status wfi_control_all_gather(wfi_control *c, const char *what, const wfi_control_numbers own,
                                 const wfi_control_numbers **all_out) {
    int half = (int)(c->n_gathers++ & 1);
    memcpy(c->shared->ranks[c->rank].state.numbers[half], own, sizeof *c->gathered);
    WF_TRY(wfi_control_barrier(c, what));
    for (int r = 0; r < c->n_ranks; r++)
        for (int k = 0; k < WFI_CONTROL_NUMBERS; k++)
            c->gathered[r][k] =
                __atomic_load_n(&c->shared->ranks[r].state.numbers[half][k], __ATOMIC_RELAXED);
    *all_out = (const wfi_control_numbers *)c->gathered;
    return WF_OK;
}

/* ---- broadcast ---- */

/* The first barrier checks the size, and that all ranks have read the broadcast before. */
wf_status wfi_control_broadcast(wfi_control *c, const char *what, void *data, size_t bytes) {
    char *at = data, *shared = c->shared->broadcast;
    for (size_t n; bytes; at += n, bytes -= n) {
        n = bytes < WFI_BROADCAST_BYTES ? bytes : WFI_BROADCAST_BYTES;
        WF_TRY(wfi_control_barrier(c, what));
        if (c->rank == 0) memcpy(shared, at, n);
        for (int r = 1; r < c->n_ranks; r++) WF_TRY(wfi_control_move(c, 0, r, shared, shared, n));
        WF_TRY(wfi_control_moved(c));
        WF_TRY(wfi_control_barrier(c, "go on"));
        memcpy(at, shared, n);
    }
    return WF_OK;
}

/* ---- state and arenas of ranks ---- */

void wfi_control_doing(const wfi_control *c, int rank, char doing_out[WFI_CONTROL_DOING]) {
    read_text(c->shared->ranks[rank].state.doing, doing_out);
}

void wfi_control_publish(wfi_control *c) {
    if (c->kind->publish) c->kind->publish(c);
}

const char *wfi_control_process_state(const wfi_control *c, int rank) {
    if (!wfi_control_is_local(c, rank)) return "";
    return wfi_process_state(wfi_control_pid_of(c, rank));
}

int wfi_control_n_local(const wfi_control *c, int below) {
    int n = 0;
    for (int r = 0; r < below; r++) n += wfi_control_is_local(c, r);
    return n;
}

wf_status wfi_control_arena_create(wfi_control *c, int trainer, int number, size_t bytes,
                                   void **base_out) {
    size_t size = bytes ? bytes : 1;
    WF_TRY(c->kind->arena_create(c, trainer, number, size, base_out));
    wfi_control_part_of(c, c->rank, trainer)->arenas[number].bytes = size;
    return WF_OK;
}

wf_status wfi_control_arena_open(wfi_control *c, int rank, int trainer, int number,
                                 size_t *bytes_out, void **base_out) {
    const wfi_control_part *other = wfi_control_part_of(c, rank, trainer);
    *bytes_out = __atomic_load_n(&other->arenas[number].bytes, __ATOMIC_RELAXED);
    *base_out = NULL;
    if (!*bytes_out || !c->kind->arena_open) return WF_OK;
    return c->kind->arena_open(c, rank, trainer, number, *bytes_out, base_out);
}

/* ---- beginning and end ---- */

wf_status wfi_control_create(wf_context *ctx, const wfi_control_kind *kind, int rank, int n_ranks,
                             int64_t timeout_ms, wfi_control **control_out) {
    int64_t stall_ms;
    WF_TRY(wfi_env_count(ctx, WFI_WEFT_STALL_MS, &stall_ms));
    wfi_control *c = wfi_alloc(ctx, 1, sizeof *c, "a job's control");
    if (!c) return WF_NO_MEMORY;
    *c = (wfi_control){.ctx = ctx,
                       .kind = kind,
                       .rank = rank,
                       .n_ranks = n_ranks,
                       .timeout_ms = timeout_ms,
                       .stall_ms = stall_ms};
    c->gathered = wfi_alloc(ctx, (size_t)n_ranks, sizeof *c->gathered, "a job's control");
    *control_out = c;
    if (c->gathered) return WF_OK;
    wfi_control_destroy(c);
    return WF_NO_MEMORY;
}

void wfi_control_destroy(wfi_control *c) {
    if (!c) return;
    wfi_free(c->ctx, c->gathered);
    wfi_free(c->ctx, c->process_fd);
    wfi_free(c->ctx, c);
}

void wfi_control_leave(wfi_control *c) {
    if (!c) return;
    if (c->shared && c->stop && !c->n_runs) { /* else the ranks have stopped together */
        __atomic_store_n(&c->shared->ranks[c->rank].state.stop[0], c->stop, __ATOMIC_RELAXED);
        wfi_control_publish(c);
    }
    c->kind->leave(c);
    wfi_control_destroy(c);
}

void wfi_control_abandon(wfi_control *c) {
    c->has_slot = false;
    wfi_control_leave(c);
}
