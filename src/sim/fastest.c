/* The search for the fastest plan of a recipe that fits.
 *
 * The search space has every mesh, every schedule and every division of state, each with every way
 * to recompute and to offload. Plans of one mesh, schedule and way to recompute have the same
 * passes. The plan among them that neither divides nor offloads is their root. A plan is drafted:
 * its program is ordered and simulated, but not placed and not proved, because that takes most of
 * the time of a compilation. A draft gives the time of the step and lower bounds of its peaks.
 *
 * The search drafts the plan with the least bound of its time next. It compiles the fastest draft
 * whose bounds fit, until a program fits. Bounds avoid most drafts:
 *
 * - Roots with equal stages and passes have equal plans. Only the first one's plans are added.
 * - needs.c bounds the memory of all plans of a root.
 * - Divisions and offloads only add instructions for which passes wait. So no step ends before the
 *   last pass of its root, nor before the collectives that a division adds (division.c).
 * - Offloads add work to streams, and begin none sooner. So a step takes as long as any stream of
 *   the plan without offloads, but that of copies.
 * - A plan that offloads parameters and activations in addition to another one has the same
 *   instructions and more. So it is not faster than the other one would be if instructions in an
 *   order that may change did not wait for each other. An offload of state is not such an addition,
 *   because it moves the updates of units.
 *
 * After too many instructions only drafts are compiled. Where ranks share cores, or have unequal
 * shares of the batch, the bounds are estimates.
 */
#include "sim/fastest.h"
#include "compile/compile.h"
#include "sim/needs.h"
#include "sim/step.h"

#include <math.h>
#include <string.h>

/* The limit on instructions of all drafts keeps the search to a few seconds. Programs of so few
 * ranks are short, and the search should find the best one. */
#define MOST_INSTRUCTIONS 1500000
#define MOST_OF_FEW       6000000
#define FEW_RANKS         8
#define MOST_CHUNKS       4
#define MOST_OF_AUTO      2 /* the same, of schedule=auto; with more, it is interleaved */

enum { RECOMPUTES = 3, N_PARTS = 2 * RECOMPUTES * 2 };
enum { STATE, PARAMS, ACTIVATIONS, PREFETCH, TO_DISK, ALL_SAVINGS }; /* bits of savings */
static const char *const recomputes[RECOMPUTES] = {"", ",recompute=selective", ",recompute=all"};
static const char *const offloads[PREFETCH] = {"state", "params", "activations"};

/* A plan is drafted, then compiled; a root adds the other plans in between. */
typedef enum member_stage { TO_DRAFT, TO_EXTEND, TO_COMPILE, DONE } member_stage;

typedef struct member {
    const wfi_schedule *schedule;
    int tp, dp, pp, chunks, zero, shard;
    bool sp;
    int recompute;
    unsigned savings;
    int n_keys; /* of two plans that are as fast, the one with fewer keys is better */
    member_stage stage;
    bool fits;            /* the bounds of the draft do */
    wfi_step_times times; /* of the draft */
    /* Numbers of members: of the root; with its division: without offloads, and the first one. */
    size_t root, base, family;
    /* Of a root's draft. */
    uint64_t shape;
    wfi_needs *needs; /* [n_needs] */
    int32_t n_needs;
    bool is_even; /* all replicas have passes like the first one's */
} member;

/* A member's place in the queue, with a bound of the time of its next stage. */
typedef struct entry {
    double least_us;
    int n_keys;
    size_t member;
} entry;

typedef struct families {
    wfi_search *s;
    wfi_pool pool;   /* of needs */
    member *members; /* [n] */
    entry *queue;    /* [n_queue] a heap: each entry comes before entries 2k + 1 and 2k + 2 */
    size_t n, n_roots, capacity, n_queue, queue_capacity;
    wf_program *parts[N_PARTS]; /* which drafts borrow: by sp, recompute and separate W */
    int64_t n_instructions;
    double best_us;
} families;

/* ---- the queue ---- */

static bool is_before(entry a, entry b) {
    if (a.least_us != b.least_us) return a.least_us < b.least_us;
    return a.n_keys != b.n_keys ? a.n_keys < b.n_keys : a.member < b.member;
}

/* Whether the plan offloads all that the other one, of the same division, does, and no other state.
 */
static bool adds_to(const member *x, const member *other) {
    unsigned more = x->savings ^ other->savings;
    bool is_elsewhere = more & 1u << TO_DISK && other->savings;
    return !(other->savings & ~x->savings) && !(more & 1u << STATE) && !is_elsewhere;
}

/* Bounds the time of a plan that has not been drafted. */
static double bound_of(const families *f, const member *x) {
    const member *root = &f->members[x->root], *base = &f->members[x->base];
    bool is_early = x->savings & 1u << STATE;
    double least = fmax(root->times.passes_us, base->times.streams_us);
    if (x->zero)
        least = fmax(least, x->zero == 3 ? root->times.gather_us : root->times.renew_us[is_early]);
    if (adds_to(x, base)) least = fmax(least, base->times.bound_us);
    for (size_t k = x->family; k < f->n && f->members[k].family == x->family; k++)
        if (adds_to(x, &f->members[k])) least = fmax(least, f->members[k].times.bound_us);
    return least;
}

static bool is_over(const families *f) {
    bool is_few = f->s->p->n_ranks <= FEW_RANKS;
    return f->n_instructions >= (is_few ? MOST_OF_FEW : MOST_INSTRUCTIONS);
}

/* The same, of the member's next stage. */
static double least_of(const families *f, const member *x) {
    if (x->stage == TO_COMPILE) return x->times.step_us;
    if (x->stage == DONE || is_over(f)) return INFINITY;
    return x->stage == TO_EXTEND ? f->members[x->root].times.passes_us : bound_of(f, x);
}

static wf_status put_in_queue(families *f, size_t k) {
    const member *x = &f->members[k];
    entry own = {least_of(f, x), x->n_keys, k};
    WF_TRY(WFI_GROW(f->s->p->ctx, f->queue, f->n_queue, f->queue_capacity, "a search"));
    size_t at = f->n_queue++;
    for (; at && is_before(own, f->queue[(at - 1) / 2]); at = (at - 1) / 2)
        f->queue[at] = f->queue[(at - 1) / 2];
    f->queue[at] = own;
    return WF_OK;
}

static entry take_from_queue(families *f) {
    entry first = f->queue[0], last = f->queue[--f->n_queue];
    size_t at = 0;
    for (size_t k; (k = 2 * at + 1) < f->n_queue; at = k) {
        if (k + 1 < f->n_queue && is_before(f->queue[k + 1], f->queue[k])) k++;
        if (!is_before(f->queue[k], last)) break;
        f->queue[at] = f->queue[k];
    }
    f->queue[at] = last;
    return first;
}

/* ---- the space ---- */

static wf_status add(families *f, member x) {
    WF_TRY(WFI_GROW(f->s->p->ctx, f->members, f->n, f->capacity, "a search"));
    x.n_keys = (x.tp > 1) + (x.dp > 1) + (x.pp > 1) + x.sp + (x.zero > 0) + (x.shard > 0) +
               (x.chunks > 0) + (x.recompute > 0) + __builtin_popcount(x.savings) +
               (x.schedule != &wfi_schedule_1f1b);
    f->members[f->n++] = x;
    return put_in_queue(f, f->n - 1);
}

static wf_status add_recomputes(families *f, member x) {
    for (x.recompute = 0; x.recompute < RECOMPUTES; x.recompute++) {
        x.root = x.base = x.family = f->n;
        WF_TRY(add(f, x));
    }
    return WF_OK;
}

static wf_status add_schedules(families *f, member x) {
    int32_t n_units = f->s->p->graph->n_units;
    for (int k = 0; wfi_schedules[k]; k++) {
        x.schedule = wfi_schedules[k];
        x.chunks = 0;
        /* On one stage these equal 1f1b and zb1. */
        bool is_auto = x.schedule->search, is_twin = is_auto || x.schedule == &wfi_schedule_naive ||
                                                     x.schedule == &wfi_schedule_zb2;
        if (x.pp == 1 && is_twin) continue;
        if (!is_auto) WF_TRY(add_recomputes(f, x));
        if (!x.schedule->any_chunks) continue;
        int most = is_auto ? MOST_OF_AUTO : MOST_CHUNKS;
        for (x.chunks = is_auto ? 1 : 3; x.chunks <= most && x.chunks * x.pp <= n_units; x.chunks++)
            WF_TRY(add_recomputes(f, x));
    }
    return WF_OK;
}

static wf_status add_meshes(families *f) {
    const wf_program *p = f->s->p;
    for (int dp = p->n_ranks; dp >= 1; dp--)
        for (int tp = 1; tp <= p->n_ranks / dp; tp++) {
            int pp = p->n_ranks / (dp * tp);
            bool divides = dp * tp * pp == p->n_ranks && p->recipe.n_micro % dp == 0 &&
                           pp <= p->graph->n_units && wfi_search_may_divide(f->s, tp) &&
                           wfi_lanes_allow(p->recipe.n_lanes, dp);
            for (int sp = 0; sp <= wfi_search_has_rows(f->s, tp) && divides; sp++)
                WF_TRY(add_schedules(f, (member){.tp = tp, .dp = dp, .pp = pp, .sp = sp}));
        }
    return WF_OK;
}

/* ---- drafts ---- */

static wf_status make_plan(const families *f, const member *x, wf_plan **plan_out) {
    wfi_text keys = {.ctx = f->s->p->ctx};
    const char *before = ",offload=", *disk = x->savings & 1u << TO_DISK ? ":disk" : "";
    wfi_text_add(&keys, "schedule=%s%s", x->schedule->name, recomputes[x->recompute]);
    for (int k = 0; k < PREFETCH; k++) {
        if (!(x->savings & 1u << k)) continue;
        wfi_text_add(&keys, "%s%s%s", before, offloads[k], disk);
        before = "+";
    }
    if (x->savings & 1u << PREFETCH) wfi_text_add(&keys, ",prefetch=0");
    if (x->chunks) wfi_text_add(&keys, ",chunks=%d", x->chunks);
    if (x->zero) wfi_text_add(&keys, ",zero=%d", x->zero);
    if (x->shard) wfi_text_add(&keys, ",shard=%d", x->shard);
    wf_status status = wfi_text_status(&keys);
    if (status == WF_OK)
        status = wfi_search_plan(f->s, x->tp, x->sp, x->dp, x->pp, keys.data, plan_out);
    wfi_free(f->s->p->ctx, keys.data);
    return status;
}

/* Begins the program that owns the parts of drafts like this one, if there is none. */
static wf_status find_parts(families *f, const member *x, const wf_plan *plan,
                            const wf_program **parts_out) {
    const wf_program *p = f->s->p;
    int k = (x->sp * RECOMPUTES + x->recompute) * 2 + x->schedule->splits_weight;
    bool can_borrow = !wfi_plan_mixes_kinds(plan);
    if (can_borrow && !f->parts[k])
        WF_TRY(wfi_program_begin(p->ctx, p->model, &p->recipe, plan, p->backend, p->kind,
                                 WFI_USE_DRAFT, NULL, &f->parts[k]));
    *parts_out = can_borrow ? f->parts[k] : NULL;
    return WF_OK;
}

static wf_status find_needs(families *f, const wf_program *d, member *root) {
    root->needs = wfi_pool_alloc(&f->pool, (size_t)d->n_lowered, sizeof *root->needs);
    if (!root->needs) return WF_NO_MEMORY;
    root->n_needs = d->n_lowered;
    root->is_even = true;
    for (int32_t k = 0; k < d->n_lowered; k++)
        root->is_even &= wfi_mesh_at(&d->mesh, WFI_DP, d->lowered[k]) == 0;
    return wfi_find_needs(d, root->needs, &root->shape);
}

/* Whether an earlier root has the same mesh, stages and passes: then so have all their plans. */
static bool is_known(const families *f, size_t k, const member *x) {
    bool is = false;
    for (size_t i = 0; i < f->n_roots && !is; i++) {
        const member *y = &f->members[i];
        is = i != k && y->shape == x->shape && y->n_needs && y->dp == x->dp && y->tp == x->tp &&
             y->sp == x->sp && y->times.step_us == x->times.step_us &&
             y->times.passes_us == x->times.passes_us;
    }
    return is;
}

/* Finds the times of a step, and whether the bounds of its peaks fit. */
static wf_status draft(families *f, size_t k, member *x) {
    const wf_program *p = f->s->p, *parts;
    wf_program *d;
    wf_plan *plan;
    wf_status status = make_plan(f, x, &plan);
    if (status != WF_OK) return status;
    WFI_PROGRESS(p->ctx, "drafting %s", plan->text);
    status = find_parts(f, x, plan, &parts);
    if (status == WF_OK) status = wfi_program_draft(p, plan, parts, &d);
    wf_plan_destroy(plan);
    if (status != WF_OK) return status;
    f->n_instructions += wfi_emitted_of(d)->n_instructions;
    x->fits = wfi_search_fits(f->s, d);
    status = wfi_simulate_times(d, &x->times);
    if (status == WF_OK && k == x->root) status = find_needs(f, d, x);
    wf_program_destroy(d);
    return status;
}

/* ---- the plans of a root ---- */

static bool may_fit(const families *f, const member *x) {
    const member *root = &f->members[x->root];
    wfi_saving saving = {.zero = x->zero,
                         .n_parts = !root->is_even ? INT32_MAX
                                    : x->shard     ? x->shard
                                                   : x->dp,
                         .state = x->savings >> STATE & 1,
                         .params = x->savings >> PARAMS & 1,
                         .activations = x->savings >> ACTIVATIONS & 1};
    return wfi_needs_least(root->needs, root->n_needs, &saving) <= f->s->device_bytes;
}

static bool is_legal(const families *f, unsigned savings) {
    bool is_disk = savings >> TO_DISK & 1, offloads_some = savings & ((1u << PREFETCH) - 1);
    return (!is_disk || f->s->host_bytes != SIZE_MAX) && (!savings || offloads_some);
}

/* Adds the root's plans with this division that may fit; before them those that bound their times:
 * without offloads, and with state. */
static wf_status add_savings(families *f, member x) {
    x.family = f->n;
    if (x.zero) x.base = f->n;
    for (unsigned first = 0; first < 2; first++) {
        bool has_first = !first && !x.zero; /* the root */
        for (unsigned s = first; s < 1u << ALL_SAVINGS; s += 2) {
            x.savings = s;
            if (!is_legal(f, s) || !may_fit(f, &x)) continue;
            x.savings = first;
            if (!has_first) WF_TRY(add(f, x));
            has_first = true;
            x.savings = s;
            if (s != first) WF_TRY(add(f, x));
        }
    }
    return WF_OK;
}

static wf_status extend(families *f, size_t root) {
    member x = f->members[root];
    x.stage = TO_DRAFT;
    x.times = (wfi_step_times){0};
    WF_TRY(add_savings(f, x));
    for (x.zero = 1; x.zero <= 3 && x.dp > 1; x.zero++)
        for (int n = 2; n <= x.dp; n++) {
            if (x.dp % n || !wfi_lanes_allow(x.dp, x.dp / n)) continue;
            x.shard = n < x.dp ? n : 0;
            WF_TRY(add_savings(f, x));
        }
    return WF_OK;
}

/* ---- the search ---- */

static wf_status compile(families *f, const member *x) {
    bool fits = false;
    size_t state_bytes;
    wf_plan *plan;
    wf_status status = make_plan(f, x, &plan);
    if (status != WF_OK) return status;
    WFI_PROGRESS(f->s->p->ctx, "trying %s", plan->text);
    status = wfi_search_try(f->s, plan, &f->s->p->recipe, &fits, &state_bytes);
    wf_plan_destroy(plan);
    if (fits) f->best_us = x->times.step_us;
    return status;
}

static wf_status take_step(families *f, size_t k) {
    wf_status status = WF_OK;
    member x = f->members[k];
    switch (x.stage) {
    case TO_DRAFT:
        status = draft(f, k, &x);
        x.stage = status != WF_OK ? DONE : k == x.root ? TO_EXTEND : x.fits ? TO_COMPILE : DONE;
        if (x.stage == TO_EXTEND && is_known(f, k, &x)) x.stage = DONE;
        break;
    case TO_EXTEND:
        status = extend(f, k);
        x.stage = x.fits ? TO_COMPILE : DONE;
        break;
    case TO_COMPILE:
        status = compile(f, &x);
        x.stage = DONE;
        break;
    case DONE:
        break;
    }
    f->members[k] = x;
    if (status == WF_NO_MEMORY) return status;
    return x.stage == DONE ? WF_OK : put_in_queue(f, k);
}

/* A bound may have grown since the member came into the queue. */
static wf_status search_all(families *f) {
    while (f->n_queue) {
        entry first = take_from_queue(f);
        double least_us = least_of(f, &f->members[first.member]);
        if (first.least_us >= f->best_us || first.least_us == INFINITY) return WF_OK;
        WF_TRY(least_us > first.least_us ? put_in_queue(f, first.member)
                                         : take_step(f, first.member));
    }
    return WF_OK;
}

wf_status wfi_search_fastest(wfi_search *s, bool *is_sure_out) {
    families f = {.s = s, .pool = {.ctx = s->p->ctx}, .best_us = INFINITY};
    wf_status status = add_meshes(&f);
    f.n_roots = f.n;
    if (status == WF_OK) status = search_all(&f);
    *is_sure_out = !is_over(&f);
    for (size_t k = 0; k < WFI_COUNT(f.parts); k++) wf_program_destroy(f.parts[k]);
    wfi_pool_release(&f.pool);
    wfi_free(s->p->ctx, f.members);
    wfi_free(s->p->ctx, f.queue);
    return status;
}
