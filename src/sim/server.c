/* Asynchronous updates: a loop over events of workers and of the servers, in order of time.
 *
 * All servers do the same work at the same times, so the loop simulates one. Each worker has one
 * pending event. The servers' event is the end of their update. Events at the same time keep their
 * order.
 */
#include "sim/updates.h"
#include "workers/bound.h"

#include <math.h>
#include <string.h>

typedef enum event_kind {
    EVENT_NONE,
    EVENT_READ,     /* a worker's pull begins: the servers read the parameters */
    EVENT_COMPUTED, /* its share is computed */
    EVENT_ARRIVED,  /* its gradient is on the servers */
    EVENT_APPLIED   /* the servers' update ends */
} event_kind;

typedef struct event {
    event_kind kind;
    double at_ms;
    uint64_t turn;
} event;

typedef struct servers {
    wf_simulation *s;
    int32_t n;                   /* workers */
    event *events;               /* [n + 1]; the last is the servers' */
    int64_t *versions;           /* [n] that each worker read */
    int32_t *readers, n_readers; /* workers that have read and are not applied, by version */
    int32_t *waiting, n_waiting; /* workers with a gradient on the servers, by arrival */
    int32_t applying;            /* worker, or -1: the servers are idle */
    int64_t version, bound;      /* updates so far; bound of staleness in updates, or -1 */
    int64_t n_left, n_applied;   /* shares that no worker has; gradients in the parameters */
    double now_ms, link_free_ms, transfer_ms, update_ms; /* of one server */
    uint64_t turn;
} servers;

static bool waits_for_all(const servers *v) {
    return v->bound == 0;
}

static void plan_event(servers *v, int32_t who, event_kind kind, double at_ms) {
    v->events[who] = (event){kind, at_ms, v->turn++};
}

/* Transfers of a server run one after the other. Returns the begin of the next one. */
static double use_link(servers *v) {
    double begin_ms = fmax(v->now_ms, v->link_free_ms);
    v->link_free_ms = begin_ms + v->transfer_ms;
    v->s->link_ms += v->transfer_ms;
    return begin_ms;
}

static wf_status add_transfer(servers *v, int32_t worker, double begin_ms, bool is_push) {
    wfi_sim_span span = {.kind = WF_SPAN_TRANSFER,
                         .rank = worker,
                         .stream = is_push ? WFI_STREAM_SEND : WFI_STREAM_RECEIVE,
                         .name = is_push ? "push" : "pull",
                         .number = -1,
                         .begin_ms = begin_ms,
                         .end_ms = begin_ms + v->transfer_ms};
    WF_TRY(wfi_sim_add(v->s, span));
    span.rank = v->n;
    span.stream = is_push ? WFI_STREAM_RECEIVE : WFI_STREAM_SEND;
    return wfi_sim_add(v->s, span);
}

/* ---- workers ---- */

static void take_share(servers *v, int32_t worker) {
    if (!v->n_left) return;
    v->n_left--;
    plan_event(v, worker, EVENT_READ, use_link(v));
}

static wf_status read(servers *v, int32_t worker) {
    double end_ms;
    v->versions[worker] = v->version;
    v->readers[v->n_readers++] = worker;
    WF_TRY(add_transfer(v, worker, v->now_ms, false));
    WF_TRY(wfi_sim_compute(v->s, worker, v->version, v->now_ms + v->transfer_ms, &end_ms));
    plan_event(v, worker, EVENT_COMPUTED, end_ms);
    return WF_OK;
}

static wf_status push(servers *v, int32_t worker) {
    double begin_ms = use_link(v);
    plan_event(v, worker, EVENT_ARRIVED, begin_ms + v->transfer_ms);
    return add_transfer(v, worker, begin_ms, true);
}

/* ---- servers ---- */

static void take_out(int32_t *list, int32_t *n, int32_t at) {
    memmove(list + at, list + at + 1, (size_t)(--*n - at) * sizeof *list);
}

static int32_t find(const int32_t *list, int32_t worker) {
    int32_t at = 0;
    while (list[at] != worker) at++;
    return at;
}

/* The earliest arrival with an update within the bound; -1: there is none. */
static int32_t choose(const servers *v) {
    int32_t last = wfi_bound_last(v->readers, v->n_readers, v->versions, v->version, v->bound);
    for (int32_t k = 0; k < v->n_waiting; k++)
        if (find(v->readers, v->waiting[k]) <= last) return k;
    return -1;
}

static void note_staleness(servers *v, int64_t n_updates) {
    v->s->staleness[(n_updates + v->n - 1) / v->n]++;
}

static wf_status begin_update(servers *v) {
    double end_ms = v->now_ms + v->update_ms;
    v->s->update_ms += v->update_ms;
    plan_event(v, v->n, EVENT_APPLIED, end_ms);
    wfi_sim_span span = {WF_SPAN_UPDATE, v->n,  WFI_STREAM_COMPUTE, "update", v->version + 1,
                         v->now_ms,      end_ms};
    return wfi_sim_add(v->s, span);
}

static wf_status apply_one(servers *v) {
    int32_t k = choose(v);
    if (k < 0) return WF_OK;
    v->applying = v->waiting[k];
    take_out(v->waiting, &v->n_waiting, k);
    take_out(v->readers, &v->n_readers, find(v->readers, v->applying));
    note_staleness(v, v->version - v->versions[v->applying]);
    return begin_update(v);
}

static wf_status apply_all(servers *v) {
    if (v->n_waiting < v->n) return WF_OK;
    v->applying = v->n;
    v->n_waiting = v->n_readers = 0;
    for (int32_t w = 0; w < v->n; w++) note_staleness(v, v->version - v->versions[w]);
    return begin_update(v);
}

static wf_status apply(servers *v) {
    if (v->applying >= 0) return WF_OK;
    return waits_for_all(v) ? apply_all(v) : apply_one(v);
}

static wf_status arrive(servers *v, int32_t worker) {
    v->waiting[v->n_waiting++] = worker;
    return apply(v);
}

static wf_status finish_update(servers *v) {
    int32_t worker = v->applying;
    v->applying = -1;
    v->version++;
    v->n_applied += waits_for_all(v) ? v->n : 1;
    wfi_sim_finish_steps(v->s, v->n_applied / v->n, v->now_ms);
    if (!waits_for_all(v)) take_share(v, worker);
    for (int32_t w = 0; w < v->n && waits_for_all(v); w++) take_share(v, w);
    return apply(v);
}

/* ---- loop ---- */

static bool is_before(const event *a, const event *b) {
    if (!b->kind || !a->kind) return a->kind && !b->kind;
    return a->at_ms != b->at_ms ? a->at_ms < b->at_ms : a->turn < b->turn;
}

static int32_t find_next(const servers *v) {
    int32_t next = v->n;
    for (int32_t k = 0; k < v->n; k++)
        if (is_before(&v->events[k], &v->events[next])) next = k;
    return next;
}

static wf_status run_event(servers *v) {
    int32_t who = find_next(v);
    event now = v->events[who];
    v->events[who].kind = EVENT_NONE;
    v->now_ms = now.at_ms;
    switch (now.kind) {
    case EVENT_READ:
        return read(v, who);
    case EVENT_COMPUTED:
        return push(v, who);
    case EVENT_ARRIVED:
        return arrive(v, who);
    case EVENT_APPLIED:
        return finish_update(v);
    case EVENT_NONE:
        break;
    }
    return wfi_fail(v->s->ctx, WF_BUG, "simulation: no worker can go on after %lld gradients",
                    (long long)v->n_applied);
}

static wf_status run_all(servers *v) {
    int64_t n_shares = v->n_left;
    for (int32_t w = 0; w < v->n; w++) take_share(v, w);
    while (v->n_applied < n_shares) WF_TRY(run_event(v));
    return WF_OK;
}

wf_status wfi_simulate_servers(wf_simulation *s) {
    const wf_simulation_config *c = &s->config;
    wfi_pool pool = {.ctx = s->ctx};
    size_t n = (size_t)c->n_workers;
    servers v = {.s = s, .n = (int32_t)n, .applying = -1, .n_left = c->n_steps * c->n_workers};
    v.bound = c->staleness < 0 || c->staleness > c->n_steps ? -1 : c->staleness * c->n_workers;
    v.transfer_ms = c->transfer_ms / (double)c->n_servers;
    v.update_ms = c->update_ms / (double)c->n_servers;
    v.events = wfi_pool_array(&pool, n + 1, sizeof *v.events, "a simulation");
    v.versions = wfi_pool_array(&pool, n, sizeof *v.versions, "a simulation");
    v.readers = wfi_pool_array(&pool, n, sizeof *v.readers, "a simulation");
    v.waiting = wfi_pool_array(&pool, n, sizeof *v.waiting, "a simulation");
    wf_status status = pool.failed ? WF_NO_MEMORY : run_all(&v);
    wfi_pool_release(&pool);
    return status;
}
