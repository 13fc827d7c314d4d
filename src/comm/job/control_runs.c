/* Trainers of a job, and runs of their programs. All ranks have the same trainers and run them in
 * the same order, so runs are counted for the job, not for each trainer. */
#include "base/clock.h"
#include "comm/job/control_kinds.h"

#include <stdio.h>

_Static_assert(WFI_CONTROL_TRAINERS <= 32, "a bit for each trainer");

/* ---- trainers ---- */

/* Ranks may have destroyed trainers in different orders, so a slot is free only if all ranks have
 * left it. */
wf_status wfi_control_enter_trainer(wfi_control *c, int *trainer_out, uint64_t *serial_out) {
    const wfi_control_numbers own = {c->trainers}, *all;
    uint32_t taken = 0;
    int trainer = 0;
    /* The counters of streams are reset: no rank may still wait for those of an earlier trainer. */
    WF_TRY(wfi_control_all_gather(c, "make a trainer", own, &all));
    for (int r = 0; r < c->n_ranks; r++) taken |= (uint32_t)all[r][0];
    while (trainer < WFI_CONTROL_TRAINERS && taken >> trainer & 1) trainer++;
    if (trainer == WFI_CONTROL_TRAINERS)
        return wfi_fail(c->ctx, WF_INVALID_ARG,
                        "%d trainers of this job are alive, the highest number; destroy one before "
                        "making the next",
                        WFI_CONTROL_TRAINERS);
    wfi_control_part *part = wfi_control_part_of(c, c->rank, trainer);
    *part = (wfi_control_part){0};
    c->trainers |= UINT32_C(1) << trainer;
    *trainer_out = trainer;
    *serial_out = ++c->n_trainers;
    return WF_OK;
}

void wfi_control_leave_trainer(wfi_control *c, int trainer) {
    if (c->kind->arena_forget) c->kind->arena_forget(c, trainer);
    c->trainers &= ~(UINT32_C(1) << trainer);
}

/* ---- runs ---- */

static int half_of(uint64_t n_runs) {
    return (int)((n_runs - 1) & 1);
}

/* A rank overwrites a half two runs later. By then all ranks have begun the run in between, so they
 * have read this one's half. */
double *wfi_control_begin_run(wfi_control *c, uint64_t run, const char *what) {
    wfi_control_rank *own = &c->shared->ranks[c->rank];
    uint64_t n = c->n_runs + 1;
    snprintf(own->state.doing, sizeof own->state.doing, "%s", what);
    __atomic_store_n(&own->state.run[half_of(n)], run, __ATOMIC_RELAXED);
    own->state.stop[half_of(n)] = __atomic_load_n(&c->stop, __ATOMIC_RELAXED);
    own->state.n_writing[half_of(n)] = __atomic_load_n(&c->n_writing, __ATOMIC_ACQUIRE);
    __atomic_store_n(&own->state.not_finite[half_of(n)], 0, __ATOMIC_RELAXED);
    own->state.gradient_norm[half_of(n)] = 0;
    __atomic_store_n(&c->n_runs, n, __ATOMIC_RELEASE);
    __atomic_store_n(&own->runs.epoch, n, __ATOMIC_SEQ_CST);
    wfi_shared_epoch_wake(&own->runs);
    wfi_control_publish(c);
    return &c->shared->records[half_of(n)][0][0];
}

static bool has_begun(const wfi_control *c, int rank, uint64_t n) {
    return __atomic_load_n(&c->shared->ranks[rank].runs.epoch, __ATOMIC_ACQUIRE) >= n;
}

bool wfi_control_has_begun(const wfi_control *c, int rank) {
    return has_begun(c, rank, __atomic_load_n(&c->n_runs, __ATOMIC_ACQUIRE));
}

/* The rank has begun another run than this rank, or entered a barrier before that run that this
 * rank has not. The earlier runs and barriers were the same. Threads of a group call this function
 * while the host runs on. So the result counts only if this rank is still in the same run. */
bool wfi_control_goes_astray(const wfi_control *c, int rank) {
    const wfi_control_rank *own = &c->shared->ranks[c->rank], *other = &c->shared->ranks[rank];
    uint64_t n = __atomic_load_n(&c->n_runs, __ATOMIC_ACQUIRE);
    if (!n || rank == c->rank) return false;
    uint64_t n_barriers = __atomic_load_n(&other->barriers.epoch, __ATOMIC_ACQUIRE);
    bool is_astray = has_begun(c, rank, n)
                         ? __atomic_load_n(&other->state.run[half_of(n)], __ATOMIC_ACQUIRE) !=
                               __atomic_load_n(&own->state.run[half_of(n)], __ATOMIC_ACQUIRE)
                         : n_barriers > __atomic_load_n(&own->barriers.epoch, __ATOMIC_ACQUIRE);
    if (!is_astray || __atomic_load_n(&c->n_runs, __ATOMIC_ACQUIRE) != n) return false;
    char doing[WFI_CONTROL_DOING], own_doing[WFI_CONTROL_DOING];
    wfi_control_doing(c, rank, doing);
    wfi_control_doing(c, c->rank, own_doing);
    (void)wfi_control_fail_all(
        c, wfi_fail(
               c->ctx, WF_REMOTE,
               "rank %d is at: %s; rank %d is at: %s; all ranks must do the same in the same order",
               rank, doing, c->rank, own_doing));
    return true;
}

wf_status wfi_control_end_run(wfi_control *c, int *stop_reason_out) {
    wfi_wait_clock clock;
    bool waits = false;
    int largest = 0;
    for (int r = 0; r < c->n_ranks; r++) {
        wfi_control_rank *other = &c->shared->ranks[r];
        if (!wfi_control_has_begun(c, r)) {
            char what[WFI_CONTROL_DOING + 8];
            snprintf(what, sizeof what, "end %s", c->shared->ranks[c->rank].state.doing);
            if (!waits) clock = wfi_wait_begin();
            waits = true;
            WF_TRY(wfi_control_wait_for(c, r, &other->runs, c->n_runs, what, &clock));
        }
        if (wfi_control_goes_astray(c, r)) return wfi_failure_check(c->ctx, &c->shared->failure);
        int stop = __atomic_load_n(&other->state.stop[half_of(c->n_runs)], __ATOMIC_RELAXED);
        largest = (int)wfi_max_i64(largest, stop);
    }
    *stop_reason_out = largest;
    return WF_OK;
}

int64_t *wfi_control_own_not_finite(wfi_control *c) {
    return &c->shared->ranks[c->rank].state.not_finite[half_of(c->n_runs)];
}

int64_t wfi_control_not_finite(const wfi_control *c) {
    int64_t largest = 0;
    for (int r = 0; r < c->n_ranks; r++) {
        const int64_t *cell = &c->shared->ranks[r].state.not_finite[half_of(c->n_runs)];
        largest = wfi_max_i64(largest, __atomic_load_n(cell, __ATOMIC_ACQUIRE));
    }
    return largest;
}

double *wfi_control_own_norm(wfi_control *c) {
    return &c->shared->ranks[c->rank].state.gradient_norm[half_of(c->n_runs)];
}

double wfi_control_norm(const wfi_control *c) {
    double largest = 0;
    for (int r = 0; r < c->n_ranks; r++) {
        double norm;
        __atomic_load(&c->shared->ranks[r].state.gradient_norm[half_of(c->n_runs)], &norm,
                      __ATOMIC_ACQUIRE);
        if (!(norm <= largest)) largest = norm;
    }
    return largest;
}

int *wfi_control_n_writing(wfi_control *c) {
    return &c->n_writing;
}

bool wfi_control_was_writing(const wfi_control *c) {
    bool was = false;
    for (int r = 0; r < c->n_ranks; r++)
        was |= __atomic_load_n(&c->shared->ranks[r].state.n_writing[half_of(c->n_runs)],
                               __ATOMIC_RELAXED) > 0;
    return was;
}

void wfi_control_request_stop(wfi_control *c, int reason) {
    __atomic_store_n(&c->stop, reason, __ATOMIC_RELAXED);
}
