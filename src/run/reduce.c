/* The all-reduce on a device with memory: runs the steps of the plan's algorithm (plan/allreduce)
 * on the reduce streams of a stage's replicas. Each reads the others' arenas where they lie, so it
 * is for ranks that share memory. Every phase is a task of its own on each stream; between two of
 * them the streams wait for each other's events.
 */
#include "run/issue.h"

#include "plan/lanes.h"

#include <string.h>

/* Elements summed at a time: a tree of buffers of this size stays in the cache. */
#define N_AT_ONCE 1024

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
    for (int32_t m = 0; m < e->n_group[i]; m++) {
        const wfi_instruction *peer = &p->instructions[p->order[e->first[i] + m]];
        f.peer[p->ranks[peer->rank].replica] = peer;
    }
    f.n_units = wfi_n_reduced(p, f.now);
    f.part.n = e->n_group[i];
    f.part.own = p->ranks[f.now->rank].replica;
    f.part.phase = number;
    return f;
}

/* The steps for the gradient in reference r. */
static int32_t list_steps(phase *f, int32_t r, wfi_reduce_step *steps) {
    f->part.n_elem = (int64_t)(f->now->references[r].bytes / sizeof(float));
    return f->e->p->plan->allreduce->steps(&f->part, steps);
}

static bool is_last(const phase *f) {
    return f->part.phase == f->e->p->plan->allreduce->n_phases(f->part.n) - 1;
}

/* Where replica k's part of a step is staged, in elements: those of the others in their order. */
static int64_t staged_at(const phase *f, const wfi_reduce_step *step, int32_t k) {
    return (k - (k > f->part.own)) * (step->end - step->begin);
}

/* ---- arithmetic ---- */

static void accumulate(float *restrict sum, const float *restrict summand, int64_t n) {
    for (int64_t i = 0; i < n; i++) sum[i] += summand[i];
}

/* `out` may be one of both; which comes first makes no difference. */
static void add(float *out, const float *left, const float *right, int64_t n) {
    if (out == left || out == right) {
        accumulate(out, out == left ? right : left, n);
        return;
    }
    for (int64_t i = 0; i < n; i++) out[i] = left[i] + right[i];
}

/* Sums n elements of `count` arrays over the tree of lanes.h into `out`. */
static void sum_tree(const float *const *in, int32_t count, int64_t n, float *out) {
    if (count == 1) {
        memcpy(out, in[0], (size_t)n * sizeof *out);
        return;
    }
    float right[N_AT_ONCE];
    int32_t left = (int32_t)wfi_lane_split(count);
    sum_tree(in, left, n, out);
    sum_tree(in + left, count - left, n, right);
    accumulate(out, right, n);
}

/* in [count]: the first element of each array; `out` may be one of them. */
static void sum_all(const float *const *in, int32_t count, int64_t n, float *out) {
    const float *part[WFI_MAX_RANKS];
    float sum[N_AT_ONCE];
    if (count == 2) {
        add(out, in[0], in[1], n);
        return;
    }
    for (int64_t k = 0; k < n; k += N_AT_ONCE) {
        int64_t size = wfi_min_i64(N_AT_ONCE, n - k);
        for (int32_t m = 0; m < count; m++) part[m] = in[m] + k;
        sum_tree(part, count, size, sum);
        memcpy(out + k, sum, (size_t)size * sizeof *sum);
    }
}

/* ---- a step ---- */

static float *element(const phase *f, int32_t r, int32_t replica, int64_t at) {
    return (float *)wfi_executor_at(f->e, &f->peer[replica]->references[r]) + at;
}

static float *staging(const phase *f, const wfi_reduce_step *step, int32_t replica) {
    const wfi_reference *reference = &f->now->references[f->n_units];
    return (float *)wfi_executor_at(f->e, reference) + staged_at(f, step, replica);
}

static void run_step(const phase *f, int32_t r, const wfi_reduce_step *step) {
    const float *in[WFI_MAX_RANKS];
    int64_t n = step->end - step->begin;
    float *own = element(f, r, f->part.own, step->begin);
    const float *left = element(f, r, step->left, step->begin);
    switch (step->kind) {
    case WFI_REDUCE_SUM:
        for (int32_t k = 0; k < f->part.n; k++) in[k] = element(f, r, k, step->begin);
        sum_all(in, f->part.n, n, own);
        break;
    case WFI_REDUCE_ADD:
        add(own, left, element(f, r, step->right, step->begin), n);
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
        wfi_executor_touch(f->e, &f->now->references[f->n_units],
                           (size_t)((f->part.n - 1) * n) * sizeof *own);
        sum_all(in, f->part.n, n, own);
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
        wfi_executor_touch(e, &f.now->references[r], f.now->references[r].bytes);
        int32_t n = list_steps(&f, r, steps);
        for (int32_t k = 0; k < n; k++) run_step(&f, r, &steps[k]);
    }
    if (is_last(&f)) wfi_executor_end(e, i);
    return WF_OK;
}

/* ---- what it touches ---- */

static wf_status touch(const phase *f, const wfi_reference *reference, int64_t begin, int64_t end,
                       int access) {
    return wfi_release_touch(f->e->release, reference, (size_t)begin * sizeof(float),
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
    int32_t n = e->n_group[e->p->order[at]];
    int32_t n_phases = e->p->plan->allreduce->n_phases(n);
    for (int32_t number = 0; number < n_phases; number++) {
        WF_TRY(wfi_issue_meet(e, at));
        for (int32_t m = 0; m < n; m++)
            WF_TRY(wfi_issue_phase(e, e->p->order[at + m], number, &work));
    }
    return WF_OK;
}
