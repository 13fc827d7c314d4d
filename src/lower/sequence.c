/* Begin and end of all ranks' actions, by the costs of their units: one order for everything that
 * ranks exchange.
 */
#include "lower/sequence.h"
#include "lower/schedule.h"
#include "program/stage.h"

#include <math.h>
#include <stdlib.h>

/* The begin or the end of an action. */
typedef struct event {
    double at;
    bool is_begin;
    int32_t number; /* of its action, in the order in which they were timed */
    int32_t *place;
} event;

typedef struct merge {
    const wf_program *p;
    const wfi_action_list *lists;
    wfi_sequence *sequence;
    wfi_stage_times *times; /* [n_stages] */
    double transfer;
    double *forward_end, *backward_end; /* [n_stages * n_micro], negative: not yet */
    double *free_at;                    /* [n_ranks] */
    int32_t *next;                      /* [n_ranks] */
    event *events;                      /* two an action */
    int32_t n_events, n_left;
} merge;

static size_t index_of(const merge *m, int32_t stage, int64_t micro) {
    return (size_t)stage * (size_t)m->p->recipe.n_micro + (size_t)micro;
}

/* When the value that the action needs from another stage arrives; negative: not yet. */
static double ready_at(const merge *m, const wfi_action *a) {
    const wf_program *p = m->p;
    int32_t from = a->kind == WFI_ACTION_F ? a->stage - 1 : a->stage + 1;
    if (a->kind == WFI_ACTION_W || from < 0 || from == p->n_stages) return 0;
    const double *end = a->kind == WFI_ACTION_F ? m->forward_end : m->backward_end;
    double at = end[index_of(m, from, a->micro)];
    bool moves =
        wfi_stage_rank_of(p, from, a->micro, 0) != wfi_stage_rank_of(p, a->stage, a->micro, 0);
    return at < 0 || !moves ? at : at + m->transfer;
}

static double duration(const merge *m, const wfi_action *a) {
    const wfi_stage_times *t = &m->times[a->stage];
    switch (a->kind) {
    case WFI_ACTION_F:
        return t->forward;
    case WFI_ACTION_B:
        return t->backward;
    case WFI_ACTION_W:
        return t->weight;
    default:
        return t->backward + t->weight;
    }
}

static void add_event(merge *m, double at, bool is_begin, int32_t *place) {
    m->events[m->n_events] = (event){at, is_begin, m->n_events / 2, place};
    m->n_events++;
}

static void take(merge *m, int32_t rank, double begin) {
    int32_t k = m->next[rank]++;
    const wfi_action *a = &m->lists[rank].actions[k];
    double end = begin + duration(m, a);
    m->free_at[rank] = end;
    if (a->kind == WFI_ACTION_F) m->forward_end[index_of(m, a->stage, a->micro)] = end;
    if (a->kind == WFI_ACTION_B || a->kind == WFI_ACTION_BW)
        m->backward_end[index_of(m, a->stage, a->micro)] = end;
    add_event(m, begin, true, &m->sequence->begin[rank][k]);
    add_event(m, end, false, &m->sequence->end[rank][k]);
    m->n_left--;
}

/* Takes the rank's next action that begins first. Lists that wait for each other are taken in their
 * order; the proof reports the deadlock. */
static void take_next(merge *m) {
    int32_t first = -1, any = -1;
    double first_begin = INFINITY;
    for (int32_t k = 0; k < m->p->n_lowered; k++) {
        int32_t rank = m->p->lowered[k];
        if (m->next[rank] == m->lists[rank].n) continue;
        if (any < 0) any = rank;
        double ready = ready_at(m, &m->lists[rank].actions[m->next[rank]]);
        double begin = fmax(ready, m->free_at[rank]);
        if (ready < 0 || begin >= first_begin) continue;
        first = rank;
        first_begin = begin;
    }
    take(m, first < 0 ? any : first, first < 0 ? m->free_at[any] : first_begin);
}

/* At one instant the order is that of timing: an action is timed after those that it waits for. An
 * action that takes no time begins before it ends, too. */
static int by_time(const void *a, const void *b) {
    const event *x = a, *y = b;
    if (x->at != y->at) return x->at < y->at ? -1 : 1;
    if (x->number != y->number) return x->number < y->number ? -1 : 1;
    return x->is_begin ? -1 : 1;
}

static wf_status allocate(merge *m, wfi_pool *pool) {
    const wf_program *p = m->p;
    wfi_sequence *s = m->sequence;
    size_t n_ranks = (size_t)p->n_ranks, n_stages = (size_t)p->n_stages;
    size_t n_micro = (size_t)p->recipe.n_micro;
    s->begin = wfi_pool_alloc(pool, n_ranks, sizeof *s->begin);
    s->end = wfi_pool_alloc(pool, n_ranks, sizeof *s->end);
    s->emitted = wfi_pool_alloc(pool, n_ranks, sizeof *s->emitted);
    m->next = wfi_pool_alloc(pool, n_ranks, sizeof *m->next);
    m->free_at = wfi_pool_alloc(pool, n_ranks, sizeof *m->free_at);
    m->times = wfi_pool_alloc(pool, n_stages, sizeof *m->times);
    m->forward_end = wfi_pool_alloc(pool, n_stages * n_micro, sizeof *m->forward_end);
    m->backward_end = wfi_pool_alloc(pool, n_stages * n_micro, sizeof *m->backward_end);
    if (!s->begin || !s->end || !s->emitted || !m->next || !m->free_at || !m->times ||
        !m->forward_end || !m->backward_end)
        return WF_NO_MEMORY;
    for (int32_t k = 0; k < p->n_lowered; k++) {
        int32_t rank = p->lowered[k];
        size_t n = (size_t)wfi_max_i64(m->lists[rank].n, 1);
        s->begin[rank] = wfi_pool_alloc(pool, n, sizeof(int32_t));
        s->end[rank] = wfi_pool_alloc(pool, n, sizeof(int32_t));
        s->emitted[rank] = wfi_pool_alloc(pool, n + 1, sizeof(int32_t));
        if (!s->begin[rank] || !s->end[rank] || !s->emitted[rank]) return WF_NO_MEMORY;
        m->n_left += m->lists[rank].n;
    }
    m->events = wfi_pool_alloc(pool, 2 * (size_t)m->n_left + 1, sizeof *m->events);
    return m->events ? WF_OK : WF_NO_MEMORY;
}

/* All stages take the times of the slowest one, in whole numbers, and transfers take none. So sums
 * are exact, and a steady phase repeats exactly. */
static void make_even(merge *m) {
    wfi_stage_times most = {0, 0, 0};
    for (int32_t s = 0; s < m->p->n_stages; s++) {
        most.forward = fmax(most.forward, m->times[s].forward);
        most.backward = fmax(most.backward, m->times[s].backward);
        most.weight = fmax(most.weight, m->times[s].weight);
    }
    double unit = (most.forward + most.backward + most.weight) / 1024;
    if (!(unit > 0)) unit = 1;
    most.forward = fmax(round(most.forward / unit), 1);
    most.backward = fmax(round(most.backward / unit), 1);
    most.weight = fmax(round(most.weight / unit), 1);
    for (int32_t s = 0; s < m->p->n_stages; s++) m->times[s] = most;
    m->transfer = 0;
}

wf_status wfi_sequence_make(const wf_program *p, wfi_pool *pool, const wfi_action_list *lists,
                            bool is_even, wfi_sequence *sequence) {
    merge m = {.p = p, .lists = lists, .sequence = sequence};
    WF_TRY(allocate(&m, pool));
    for (int32_t s = 0; s < p->n_stages; s++)
        wfi_program_stage_times(p, p->first_unit, s, &m.times[s]);
    m.transfer = wfi_program_transfer_time(p, p->first_unit, p->n_stages);
    if (is_even) make_even(&m);
    for (size_t k = 0; k < (size_t)p->n_stages * (size_t)p->recipe.n_micro; k++)
        m.forward_end[k] = m.backward_end[k] = -1;
    while (m.n_left) take_next(&m);
    qsort(m.events, (size_t)m.n_events, sizeof *m.events, by_time);
    for (int32_t k = 0; k < m.n_events; k++) *m.events[k].place = k;
    return WF_OK;
}
