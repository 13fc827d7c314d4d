/* The all-reduce on a device with memory: runs the steps of the plan's algorithm (comm/algorithm)
 * on the reduce streams of a stage's replicas. Each reads the others' arenas where they lie, or
 * what was carried here of them (carry.h). Every phase is a task of its own on each stream; between
 * two of them the streams wait for each other's events.
 */
#include "run/issue.h"

#include "comm/typed.h"

#include <string.h>

/* One rank's part in one phase. */
typedef struct phase {
    const wfi_executor *e;
    const wfi_instruction *now;
    const wfi_instruction *peer[WFI_MAX_RANKS]; /* by replica, `now` among them */
    int32_t n_units;
    wfi_reduce_part part;
} phase;

static phase find_phase(const wfi_executor *e, int32_t i, int32_t number) {
    const wf_program *p = e->p;
    phase f = {.e = e, .now = &p->instructions[i]};
    const wfi_group *group = &p->groups[f.now->group];
    for (int32_t m = 0; m < e->n_group[i]; m++) {
        const wfi_instruction *peer = &p->instructions[p->order[e->first[i] + m]];
        f.peer[wfi_group_find(group, peer->rank)] = peer;
    }
    f.n_units = wfi_n_reduced(p, f.now);
    f.part.n = e->n_group[i];
    f.part.own = wfi_group_find(group, f.now->rank);
    f.part.phase = number;
    return f;
}

/* The steps for the gradient in reference r. */
static int32_t list_steps(phase *f, int32_t r, wfi_reduce_step *steps) {
    f->part.n_elem = (int64_t)(f->now->references[r].bytes / sizeof(float));
    return wfi_reduction_of(f->e->p, f->now)->steps(&f->part, steps);
}

static bool is_last(const phase *f) {
    return f->part.phase == wfi_reduction_of(f->e->p, f->now)->n_phases(f->part.n) - 1;
}

/* Where replica k's part of a step is staged, in elements: those of the others in their order. */
static int64_t staged_at(const phase *f, const wfi_reduce_step *step, int32_t k) {
    return (k - (k > f->part.own)) * (step->end - step->begin);
}

/* ---- a step ---- */

static float *element(const phase *f, int32_t r, int32_t replica, int64_t at) {
    return (float *)wfi_executor_at(f->e, &f->peer[replica]->references[r]) + at;
}

static float *staging(const phase *f, const wfi_reduce_step *step, int32_t replica) {
    const wfi_reference *reference = &f->now->references[f->n_units];
    return (float *)wfi_executor_at(f->e, reference) + staged_at(f, step, replica);
}

static const wfi_arithmetic sums = {.dtype = WF_F32, .op = WF_SUM};

static void run_step(const phase *f, int32_t r, const wfi_reduce_step *step) {
    const void *in[WFI_MAX_RANKS];
    int64_t n = step->end - step->begin;
    float *own = element(f, r, f->part.own, step->begin);
    const float *left = element(f, r, step->left, step->begin);
    void *to[] = {own};
    const wfi_result out = {.data = to, .n = 1};
    switch (step->kind) {
    case WFI_REDUCE_SUM:
        for (int32_t k = 0; k < f->part.n; k++) in[k] = element(f, r, k, step->begin);
        wfi_reduce_all(&sums, in, f->part.n, n, &out);
        break;
    case WFI_REDUCE_ADD:
        wfi_reduce_pair(&sums, (wfi_summand){left, true},
                        (wfi_summand){element(f, r, step->right, step->begin), true}, n, &out);
        break;
    case WFI_REDUCE_COPY:
        memcpy(own, left, (size_t)n * sizeof *own);
        break;
    case WFI_REDUCE_STAGE:
        memcpy(staging(f, step, step->left), left, (size_t)n * sizeof *own);
        break;
    case WFI_REDUCE_STAGED:
        for (int32_t k = 0; k < f->part.n; k++)
            in[k] = k == f->part.own ? own : staging(f, step, k);
        wfi_executor_touch(f->e, &f->now->references[f->n_units]);
        wfi_reduce_all(&sums, in, f->part.n, n, &out);
        break;
    }
}

static wf_status run_phase(void *self, void *argument) {
    const wfi_executor *e = self;
    int32_t i = wfi_argument_instruction(argument);
    phase f = find_phase(e, i, wfi_argument_phase(argument));
    wfi_reduce_step steps[WFI_MAX_RANKS];
    wfi_executor_delay(e, i);
    if (f.part.phase == 0) wfi_executor_begin(e, i);
    for (int32_t r = 0; r < f.n_units; r++) {
        wfi_executor_touch(e, &f.now->references[r]);
        int32_t n = list_steps(&f, r, steps);
        for (int32_t k = 0; k < n; k++) run_step(&f, r, &steps[k]);
    }
    if (is_last(&f)) wfi_executor_end(e, i);
    return wfi_executor_check(e, i);
}

/* ---- what it touches ---- */

static wf_status touch(const phase *f, const wfi_reference *reference, int64_t begin, int64_t end,
                       int access) {
    return wfi_issue_touch(f->e, reference, (size_t)begin * sizeof(float),
                           (size_t)(end - begin) * sizeof(float), access);
}

static wf_status touch_step(const phase *f, int32_t r, const wfi_reduce_step *step) {
    const wfi_reference *staged = &f->now->references[f->n_units];
    bool from_all = step->kind == WFI_REDUCE_SUM, to_own = step->kind != WFI_REDUCE_STAGE;
    bool from_left = !from_all && step->kind != WFI_REDUCE_STAGED;
    for (int32_t k = 0; k < f->part.n; k++) {
        bool reads = from_all || (from_left && k == step->left) ||
                     (step->kind == WFI_REDUCE_ADD && k == step->right);
        if (reads) WF_TRY(touch(f, &f->peer[k]->references[r], step->begin, step->end, WFI_READ));
        int64_t at = staged_at(f, step, k), end = at + step->end - step->begin;
        if (step->kind == WFI_REDUCE_STAGE && k == step->left)
            WF_TRY(touch(f, staged, at, end, WFI_WRITE));
        if (step->kind == WFI_REDUCE_STAGED && k != f->part.own)
            WF_TRY(touch(f, staged, at, end, WFI_READ));
    }
    return to_own ? touch(f, &f->now->references[r], step->begin, step->end, WFI_WRITE) : WF_OK;
}

static wf_status touch_phase(const wfi_executor *e, int32_t i, int32_t number) {
    phase f = find_phase(e, i, number);
    wfi_reduce_step steps[WFI_MAX_RANKS];
    for (int32_t r = 0; r < f.n_units; r++) {
        int32_t n = list_steps(&f, r, steps);
        for (int32_t k = 0; k < n; k++) WF_TRY(touch_step(&f, r, &steps[k]));
    }
    return WF_OK;
}

/* ---- issue ---- */

wf_status wfi_issue_reduce(wfi_executor *e, int32_t at) {
    static const wfi_phase_work work = {run_phase, touch_phase};
    int32_t first = e->p->order[at], n = e->n_group[first];
    int32_t n_phases = wfi_reduction_of(e->p, &e->p->instructions[first])->n_phases(n);
    for (int32_t number = 0; number < n_phases; number++) {
        WF_TRY(wfi_issue_meet(e, at));
        for (int32_t m = 0; m < n; m++)
            WF_TRY(wfi_issue_phase(e, e->p->order[at + m], number, &work));
    }
    return WF_OK;
}
