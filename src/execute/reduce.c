/* Collectives on a device with memory: runs the steps of a change (program/change.h)
 * on the reduce streams of a stage's replicas. Each reads the others' arenas in place, or stages
 * copies of their bytes. Every phase is a task of its own on each stream; between two of them the
 * streams wait for each other's events. */
#include "execute/issue.h"

#include "comm/runtime/step.h"
#include "program/change.h"

/* One rank's part in one phase. */
typedef struct phase {
    const wfi_executor *e;
    const wfi_instruction *now;
    const int32_t *members; /* [part.n] instructions, `now` among them */
    int32_t n_units;
    wfi_reduce_part part;
} phase;

static phase find_phase(const wfi_executor *e, int32_t i, int32_t number) {
    const wf_program *p = e->p;
    phase f = {.e = e, .now = &p->instructions[i]};
    const wfi_group *group = &p->groups[f.now->group];
    f.members = p->order + e->first[i]; /* as they stand in the group */
    f.n_units = wfi_n_moved(p, f.now);
    f.part.n = e->n_group[i];
    f.part.own = wfi_group_find(group, f.now->rank);
    f.part.phase = number;
    return f;
}

/* The steps for the gradient in reference r. */
static int32_t list_steps(phase *f, int32_t r, wfi_reduce_step *steps) {
    return wfi_change_steps(f->e->p, f->now, f->part.own, r, f->part.phase, steps);
}

static bool is_last(const phase *f) {
    return f->part.phase == wfi_change_n_phases(f->e->p, f->now) - 1;
}

/* ---- a step ---- */

/* A gradient that a step of the algorithm touches. */
typedef struct gradient {
    const phase *f;
    int32_t reference;
    int64_t staged_at; /* element where the staging begins */
} gradient;

static const wfi_reference *reference_of(const gradient *g, int32_t replica, wfi_window window) {
    const phase *f = g->f;
    const wf_program *p = f->e->p;
    bool is_staging = window == WFI_WINDOW_STAGING;
    return is_staging ? &f->now->references[f->n_units]
                      : &p->instructions[f->members[replica]].references[g->reference];
}

static char *address(const void *self, int32_t replica, wfi_window window, int64_t at) {
    const gradient *g = self;
    const wfi_reference *r = reference_of(g, replica, window);
    if (window == WFI_WINDOW_STAGING) {
        wfi_executor_touch(g->f->e, r);
        at += g->staged_at;
    }
    return (char *)wfi_executor_at(g->f->e, r) + (size_t)at * sizeof(float);
}

static const wfi_worker *worker_of(const phase *f, int32_t member) {
    return &f->e->workers[f->e->p->instructions[f->members[member]].rank];
}

static bool copies(const wfi_reduce_step *step) {
    return step->kind == WFI_REDUCE_COPY || step->kind == WFI_REDUCE_STAGE;
}

/* A copy that no kernel of the rank's device can make; all other steps stay in memory that it
 * reaches (wfi_reduce_stage). */
static bool is_far(const phase *f, const wfi_reduce_step *step) {
    const wfi_worker *own = worker_of(f, f->part.own), *owner = worker_of(f, step->left);
    return copies(step) && (owner->is_apart || !wfi_device_reaches(own->device, owner->device));
}

static wfi_location place_of(const gradient *g, const wfi_access *a) {
    int64_t at = a->begin + (a->window == WFI_WINDOW_STAGING ? g->staged_at : 0);
    return (wfi_location){reference_of(g, a->rank, a->window), (size_t)at * sizeof(float)};
}

static wfi_far_copy find_copy(const gradient *g, const wfi_reduce_step *step) {
    wfi_access from, to;
    (void)wfi_reduce_access(&g->f->part, step, 0, &from);
    (void)wfi_reduce_access(&g->f->part, step, 1, &to);
    return (wfi_far_copy){place_of(g, &from), place_of(g, &to), (size_t)from.n * sizeof(float)};
}

static wf_status fetch(const gradient *g, const wfi_reduce_step *step) {
    const wfi_executor *e = g->f->e;
    const wfi_far_copy copy = find_copy(g, step);
    wfi_executor_touch(e, copy.to.reference);
    return wfi_make_copy(e, (int32_t)(g->f->now - e->p->instructions), &copy);
}

static wf_status run_steps(const phase *f, gradient *g, const wfi_reduce_step *steps, int32_t n) {
    static const wfi_arithmetic sums = {.dtype = WF_F32, .op = WF_SUM};
    const wfi_step_memory memory = {.arithmetic = &sums, .address = address, .self = g};
    const wfi_worker *w = &f->e->workers[f->now->rank];
    wfi_stream_queue *stream = w->streams[f->now->stream];
    for (int32_t k = 0; k < n; k++) {
        if (steps[k].kind == WFI_REDUCE_JOIN) continue; /* the wire has summed it */
        WF_TRY(is_far(f, &steps[k])
                   ? fetch(g, &steps[k])
                   : w->backend->collective_step(stream, &memory, &f->part, &steps[k]));
        g->staged_at += wfi_change_staged_by(f->e->p, steps, k);
    }
    return WF_OK;
}

static wf_status run_phase(void *self, void *argument) {
    const wfi_executor *e = self;
    int32_t i = wfi_argument_instruction(argument);
    phase f = find_phase(e, i, wfi_argument_phase(argument));
    wfi_reduce_step steps[WFI_STEPS_A_MEMBER * f.part.n]; /* not of all ranks: stacks are small */
    wfi_executor_delay(e, i);
    wfi_executor_begin(e, i, f.part.phase == 0);
    for (gradient g = {.f = &f}; g.reference < f.n_units; g.reference++) {
        wfi_executor_touch(e, &f.now->references[g.reference]);
        int32_t n = list_steps(&f, g.reference, steps);
        WF_TRY(run_steps(&f, &g, steps, n));
    }
    wfi_executor_end(e, i, is_last(&f));
    return wfi_executor_check(e, i);
}

/* Calls `fn` for each step of an instruction in a phase. */
static wf_status
each_step(const wfi_executor *e, int32_t i, int32_t number,
          wf_status (*fn)(const gradient *g, const wfi_reduce_step *step, void *self), void *self) {
    phase f = find_phase(e, i, number);
    wfi_reduce_step steps[WFI_STEPS_A_MEMBER * f.part.n]; /* not of all ranks: stacks are small */
    for (gradient g = {.f = &f}; g.reference < f.n_units; g.reference++) {
        int32_t n = list_steps(&f, g.reference, steps);
        for (int32_t k = 0; k < n; k++) {
            WF_TRY(fn(&g, &steps[k], self));
            g.staged_at += wfi_change_staged_by(e->p, steps, k);
        }
    }
    return WF_OK;
}

/* ---- memory that a step touches ---- */

static wf_status touch_step(const gradient *g, const wfi_reduce_step *step, void *self) {
    const wfi_executor *e = g->f->e;
    bool is_carried = e->carrier > WFI_CARRIER_HOST && copies(step);
    wfi_access a;
    (void)self;
    for (int32_t i = 0; wfi_reduce_access(&g->f->part, step, i, &a); i++) {
        if (is_carried && a.rank != g->f->part.own) continue; /* its owner touches it */
        const wfi_location place = place_of(g, &a);
        WF_TRY(wfi_issue_touch(e, place.reference, place.offset, (size_t)a.n * sizeof(float),
                               a.writes ? WFI_WRITE : WFI_READ));
    }
    return WF_OK;
}

static wf_status touch_phase(const wfi_executor *e, int32_t i, int32_t number) {
    WF_TRY(wfi_touch_sent(e, i, number));
    return each_step(e, i, number, touch_step, NULL);
}

/* ---- copies between ranks ---- */

typedef struct copying {
    wfi_far_copy_fn *fn;
    void *self;
} copying;

static wf_status copy_step(const gradient *g, const wfi_reduce_step *step, void *self) {
    const copying *c = self;
    const phase *f = g->f;
    if (step->kind == WFI_REDUCE_JOIN) {
        const wfi_location own = {reference_of(g, f->part.own, WFI_WINDOW_OUT), 0};
        return c->fn(c->self, &(wfi_far_copy){own, own, own.reference->bytes});
    }
    if (!copies(step) || step->left == f->part.own) return WF_OK;
    const wfi_far_copy copy = find_copy(g, step);
    return c->fn(c->self, &copy);
}

wf_status wfi_reduce_copies(const wfi_executor *e, int32_t at, int32_t number, wfi_far_copy_fn *fn,
                            void *self) {
    const int32_t *group = e->p->order + at;
    copying c = {fn, self};
    for (int32_t m = 0; m < e->n_group[group[0]]; m++)
        WF_TRY(each_step(e, group[m], number, copy_step, &c));
    return WF_OK;
}

/* ---- issue ---- */

wf_status wfi_issue_phase(wfi_executor *e, int32_t at, int32_t number) {
    static const wfi_work work = {run_phase, touch_phase};
    const int32_t *group = e->p->order + at;
    for (int32_t m = 0; m < e->n_group[group[0]]; m++)
        WF_TRY(wfi_issue(e, group[m], number, &work));
    return WF_OK;
}
