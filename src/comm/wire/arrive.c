/* Waiting in shared memory: a waiting rank spins for a while, then yields its core, then sleeps. */
#include "base/clock.h"
#include "comm/wire/run.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <weft/info.h>

#define N_SPINS             2000 /* some 50 us: longer than ranks of equal work are apart */
#define N_SPINS_CROWDED     50   /* more ranks than cores: another rank needs this core */
#define N_YIELDS            100
#define N_YIELDS_PROGRESS   10 /* the progress thread shares the core: yielding costs it its turn */
#define MOST_YIELDING_MS    2  /* on a busy machine a yield lasts as long as others' turns */
#define TOUCH_NAP_US        100
#define TOUCH_MS            60000 /* no copy takes so long */
#define NAP_MS              50
#define UNKNOWN_CACHE_BYTES ((size_t)32 << 20) /* if the system reports none */

size_t wfi_segment_bytes(int32_t n) {
    size_t members = (size_t)n, bytes = sizeof(wfi_group_segment) + members * sizeof(wfi_member);
    return wfi_round_up(bytes, 64) + members * members * sizeof(wfi_group_channel);
}

/* Ranks of other groups and progress threads also wait on these cores. */
static void choose_patience(wfi_memory *m) {
    wf_job *job = m->group->job;
    bool has_progress = wfi_control_transport(job) != NULL;
    int32_t n = wf_job_n_local_ranks(job) * (has_progress ? 2 : 1);
    bool is_crowded = wf_info_limits().n_cores < n;
    m->n_spins = !is_crowded ? N_SPINS : has_progress ? 0 : N_SPINS_CROWDED;
    m->n_yields = is_crowded && has_progress ? N_YIELDS_PROGRESS : N_YIELDS;
}

wf_status wfi_memory_create(wf_group *g, wfi_group_segment *segment, wfi_memory **memory_out) {
    wfi_memory *m = wfi_alloc(g->ctx, 1, sizeof *m, "a group's wire");
    if (!m) return WF_NO_MEMORY;
    size_t bytes = sizeof(wfi_group_segment) + (size_t)g->n * sizeof(wfi_member);
    m->group = g;
    m->segment = segment;
    m->segment_bytes = wfi_segment_bytes(g->n);
    m->channels = (wfi_group_channel *)(void *)((char *)segment + wfi_round_up(bytes, 64));
    m->of = wfi_alloc(g->ctx, (size_t)g->n, sizeof *m->of, "a group's wire");
    if (!m->of) {
        wfi_memory_destroy(m);
        return WF_NO_MEMORY;
    }
    long cache_bytes = sysconf(_SC_LEVEL3_CACHE_SIZE);
    m->cache_bytes = cache_bytes > 0 ? (size_t)cache_bytes : UNKNOWN_CACHE_BYTES;
    choose_patience(m);
    *memory_out = m;
    return WF_OK;
}

bool wfi_memory_leave(wfi_memory *m) {
    wfi_member *own = &m->segment->members[m->group->rank];
    __atomic_store_n(&own->has_left, 1, __ATOMIC_RELEASE);
    return __atomic_add_fetch(&m->segment->n_left, 1, __ATOMIC_ACQ_REL) == m->group->n;
}

void wfi_memory_destroy(wfi_memory *m) {
    wfi_free(m->group->ctx, m->of);
    wfi_free(m->group->ctx, m->staging);
    wfi_free(m->group->ctx, m);
}

/* ---- failures ---- */

/* With sequential consistency either this rank reads the failure, or the failed rank reads
 * `touches`. */
wf_status wfi_memory_touch(wfi_memory *m) {
    if (!m->is_open) return WF_OK;
    __atomic_store_n(&m->segment->members[m->group->rank].touches, 1, __ATOMIC_SEQ_CST);
    if (!wfi_failure_first(&m->segment->failure)) return WF_OK;
    wfi_memory_let_go(m);
    return wfi_memory_check(m);
}

void wfi_memory_let_go(wfi_memory *m) {
    if (m->is_open)
        __atomic_store_n(&m->segment->members[m->group->rank].touches, 0, __ATOMIC_RELEASE);
}

/* Touching ranks are threads of this process in the middle of a copy, which ends. */
static void wait_for_touching(const wfi_memory *m) {
    const struct timespec nap = {0, TOUCH_NAP_US * 1000};
    wfi_wait_clock clock = wfi_wait_begin();
    for (int32_t r = 0; r < m->group->n; r++)
        while (__atomic_load_n(&m->segment->members[r].touches, __ATOMIC_SEQ_CST) &&
               wfi_wait_ms(&clock) < TOUCH_MS)
            nanosleep(&nap, NULL);
}

wf_status wfi_memory_fail(wfi_memory *m, wf_status status) {
    wf_status shared_status = status == WF_TIMEOUT ? status : WF_REMOTE;
    wfi_failure_set(&m->segment->failure, shared_status, wf_context_error(m->group->ctx));
    if (m->messages) m->messages->send_failure(m);
    if (m->is_open) wait_for_touching(m);
    return status;
}

wf_status wfi_memory_check(wfi_memory *m) {
    wfi_failure *own = &m->segment->failure, *job = wfi_control_failure(m->group->job);
    WF_TRY(wfi_failure_check(m->group->ctx, own));
    return wfi_failure_check(m->group->ctx, job);
}

/* "1", or in a group of some ranks "0 (rank 1 of the job)". */
static const char *name_rank(const wf_group *g, int32_t rank, char text[48]) {
    int32_t of_job = g->job_rank[rank];
    if (of_job == rank)
        snprintf(text, 48, "%d", rank);
    else
        snprintf(text, 48, "%d (rank %d of the job)", rank, of_job);
    return text;
}

wf_status wfi_memory_lost(wfi_memory *m, int32_t rank) {
    const wfi_member *member = &m->segment->members[rank];
    bool has_left = __atomic_load_n(&member->has_left, __ATOMIC_ACQUIRE) != 0;
    char last[WFI_CALL_TEXT], name[48];
    return wfi_fail(m->group->ctx, WF_REMOTE, "rank %s has %s; it last called %s",
                    name_rank(m->group, rank, name), has_left ? "left the group" : "died",
                    wfi_call_name(&member->call, last));
}

static bool has_come(const wfi_shared_epoch *e, uint64_t value) {
    return __atomic_load_n(&e->epoch, __ATOMIC_ACQUIRE) >= value;
}

/* "rank 2 has not arrived for 10 s; it last called wf_group_barrier at toy.c:31" */
static void describe_absent(const wfi_memory *m, int32_t rank, const char *how_long, char *text,
                            size_t bytes) {
    const wf_group *g = m->group;
    char last[WFI_CALL_TEXT], name[48];
    snprintf(text, bytes, "rank %s has not arrived%s; it last called %s%s",
             name_rank(g, rank, name), how_long,
             wfi_call_name(&m->segment->members[rank].call, last),
             wfi_process_state(wfi_control_rank_at(g->job, g->job_rank[rank])->pid));
}

/* Logs a warning long before the deadline, then less and less often. */
static void warn(const wfi_memory *m, int32_t rank, int64_t waited_ms, int64_t *due_ms) {
    char text[WFI_SENTENCE_BYTES], how_long[48];
    if (!*due_ms || waited_ms < *due_ms || rank < 0) return;
    snprintf(how_long, sizeof how_long, " for %g s", (double)*due_ms / 1000);
    describe_absent(m, rank, how_long, text, sizeof text);
    wfi_log(m->group->ctx, WF_LOG_WARN, "wait", "%s", text);
    *due_ms *= 6;
}

/* Whether `e` counts messages under way. They arrive even if their sender has left. */
static bool is_moved(const wfi_memory *m, const wfi_shared_epoch *e) {
    return m->moved && (e == &m->moved[0] || e == &m->moved[1]);
}

/* The timeout of a message of `rank`; -1: of a sum inside MPI. */
static wf_status moved_too_late(const wfi_memory *m, const wfi_shared_epoch *e, int32_t rank) {
    char text[WFI_CALL_TEXT], last[WFI_CALL_TEXT];
    const wf_group *g = m->group;
    const wfi_member *members = m->segment->members;
    const char *own = wfi_call_describe(&members[g->rank].call, text);
    long long ms = (long long)g->timeout_ms;
    if (rank < 0)
        return wfi_fail(g->ctx, WF_TIMEOUT,
                        "rank %d waited %lld ms in %s, but MPI's own sum has not ended, and MPI "
                        "does not report the awaited rank; another algorithm does",
                        g->rank, ms, own);
    return wfi_fail(g->ctx, WF_TIMEOUT,
                    "rank %d waited %lld ms in %s, but rank %d has not %s; it last called %s%s",
                    g->rank, ms, own, rank, e == m->moved ? "sent its part" : "taken what it needs",
                    wfi_call_name(&members[rank].call, last),
                    wfi_control_process_state(g->job, g->job_rank[rank]));
}

/* Whether `e` is that rank's arrival counter, of which every rank has one. */
static bool is_arrival(const wfi_memory *m, const wfi_shared_epoch *e, int32_t rank) {
    return e == &m->segment->members[rank].arrival[m->epoch & 1];
}

/* The timeout of a wait for `e` of `rank`; an arrival names all ranks that are missing. */
static wf_status too_late(wfi_memory *m, const wfi_shared_epoch *e, uint64_t value, int32_t rank) {
    wf_group *g = m->group;
    const wfi_member *members = m->segment->members;
    if (is_moved(m, e)) return moved_too_late(m, e, rank);
    bool waits_for_all = is_arrival(m, e, rank);
    char absent[WFI_SENTENCE_BYTES] = "", own[WFI_CALL_TEXT];
    size_t n = 0;
    for (int32_t r = 0; r < g->n && n + 3 < sizeof absent; r++) {
        const wfi_shared_epoch *other = waits_for_all ? &members[r].arrival[m->epoch & 1] : e;
        if ((!waits_for_all && r != rank) || has_come(other, value)) continue;
        n += (size_t)snprintf(absent + n, sizeof absent - n, n ? ", " : " ");
        describe_absent(m, r, "", absent + n, sizeof absent - n);
        n += strlen(absent + n);
    }
    return wfi_fail(g->ctx, WF_TIMEOUT, "rank %d waited %lld ms in %s, but%s", g->rank,
                    (long long)g->timeout_ms, wfi_call_describe(&members[g->rank].call, own),
                    absent);
}

/* ---- waiting ---- */

static void pause_core(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

static bool is_gone(const wfi_memory *m, int32_t rank) {
    return __atomic_load_n(&m->segment->members[rank].has_left, __ATOMIC_ACQUIRE) != 0 ||
           wfi_control_is_lost(m->group->job, m->group->job_rank[rank]);
}

/* A rank that has left or died: `rank` or, for arrivals, any awaited rank; -1: none. */
static int32_t find_gone(const wfi_memory *m, const wfi_shared_epoch *e, uint64_t value,
                         int32_t rank) {
    bool waits_for_all = is_arrival(m, e, rank);
    for (int32_t r = 0; r < m->group->n; r++) {
        if (!waits_for_all && r != rank) continue;
        const wfi_shared_epoch *its = r == rank ? e : &m->segment->members[r].arrival[m->epoch & 1];
        /* The rank may have arrived before it left, so its counter is read again. */
        if (!has_come(its, value) && is_gone(m, r) && !has_come(its, value)) return r;
    }
    return -1;
}

static wf_status sleep_for(wfi_memory *m, wfi_shared_epoch *e, uint64_t value, int32_t rank,
                           wfi_memory_deadline *d) {
    wf_group *g = m->group;
    for (;;) {
        uint64_t seen = __atomic_load_n(&e->epoch, __ATOMIC_ACQUIRE);
        if (seen >= value) return WF_OK;
        wf_status failure = wfi_memory_check(m);
        /* The rank may have arrived and a later call failed since the load above. */
        if (failure != WF_OK) return has_come(e, value) ? WF_OK : failure;
        bool comes = is_moved(m, e);
        if (comes) rank = m->messages->awaited(m, e);
        int32_t gone = comes ? -1 : find_gone(m, e, value, rank);
        if (gone >= 0) {
            WF_TRY(wfi_memory_check(m)); /* a rank that failed set this before it left */
            return wfi_memory_fail(m, wfi_memory_lost(m, gone));
        }
        int64_t waited_ms = wfi_wait_ms(&d->clock);
        if (waited_ms >= g->timeout_ms) {
            if (has_come(e, value)) return WF_OK;
            return wfi_memory_fail(m, too_late(m, e, value, rank));
        }
        warn(m, rank, waited_ms, &d->due_ms);
        wfi_shared_epoch_sleep(e, seen, NAP_MS);
    }
}

wf_status wfi_memory_wait_for(wfi_memory *m, wfi_shared_epoch *e, uint64_t value, int32_t rank,
                              wfi_memory_deadline *deadline) {
    for (int32_t i = 0; i < m->n_spins; i++) {
        if (has_come(e, value)) return WF_OK;
        pause_core();
    }
    if (!deadline->has_begun)
        *deadline = (wfi_memory_deadline){true, wfi_wait_begin(), m->group->stall_ms};
    int64_t begin_ms = wfi_now_ms();
    for (int32_t i = 0; i < m->n_yields && wfi_now_ms() - begin_ms < MOST_YIELDING_MS; i++) {
        if (has_come(e, value)) return WF_OK;
        sched_yield();
    }
    return sleep_for(m, e, value, rank, deadline);
}

wf_status wfi_memory_arrive(wfi_memory *m, const uint64_t *message, int32_t n_words) {
    wfi_shared_epoch *own = &m->segment->members[m->group->rank].arrival[++m->epoch & 1];
    if (n_words) memcpy(own->message, message, (size_t)n_words * sizeof *message);
    __atomic_store_n(&own->epoch, m->epoch, __ATOMIC_SEQ_CST);
    if (m->messages) return m->messages->send_arrival(m);
    wfi_shared_epoch_wake(own);
    return WF_OK;
}

wf_status wfi_memory_wait(wfi_memory *m) {
    wfi_memory_deadline deadline = {0};
    for (int32_t r = 0; r < m->group->n; r++) {
        wfi_shared_epoch *arrival = &m->segment->members[r].arrival[m->epoch & 1];
        WF_TRY(wfi_memory_wait_for(m, arrival, m->epoch, r, &deadline));
    }
    return WF_OK;
}
