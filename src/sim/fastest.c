/* The search for the fastest plan of a recipe that fits.
 *
 * The search space has every mesh, every schedule except `auto` and every division of state, each
 * with every way to recompute and to offload. The plans of one mesh, schedule and division are a
 * family. A plan is drafted first: its program is ordered and simulated, but not placed and not
 * proved, because that takes most of the time of a compilation. Two rules avoid most drafts:
 *
 * - A plan that recomputes or offloads more takes about as long or longer. So it is drafted only if
 *   the plan that it extends is faster than the best plan so far.
 * - If the plan of a family that offloads everything does not fit, no plan of the family that
 *   recomputes the same units is drafted.
 *
 * A draft gives lower bounds of the peaks. So the fastest drafts whose bounds fit are compiled,
 * until a program fits.
 */
#include "sim/fastest.h"
#include "compile/compile.h"
#include "show/show.h"
#include "sim/step.h"

#include <math.h>
#include <string.h>
#include <weft/schedule.h>

/* A plan that extends another one is expected to take at least this part of its time. */
#define LEAST_PART 0.95
/* The limit on instructions of all drafts keeps the search to a few seconds. */
#define MOST_INSTRUCTIONS 1500000
#define MOST_CHUNKS       4

enum { RECOMPUTES = 3, N_PARTS = 2 * RECOMPUTES * 2 };
enum { PREFETCH = 3, TO_DISK, ALL_SAVINGS }; /* bits of savings, after those of offloads */
static const char *const recomputes[RECOMPUTES] = {"", ",recompute=selective", ",recompute=all"};
static const char *const offloads[PREFETCH] = {"state", "params", "activations"};

/* A plan is drafted, then extended to plans that save more memory, then compiled. */
typedef enum member_stage { TO_DRAFT, TO_EXTEND, TO_COMPILE, DONE } member_stage;

typedef struct member {
    const wfi_schedule *schedule;
    int tp, dp, pp, chunks, zero, shard;
    bool sp;
    bool fits; /* the bounds do */
    int recompute;
    unsigned savings;
    int n_keys; /* of two plans that are as fast, the one with fewer keys is better */
    member_stage stage;
    double us;                                              /* a draft's */
    double least;                                           /* of its next stage */
    size_t family;                                          /* the first member */
    enum { UNKNOWN, MAY_FIT, CANNOT_FIT } most[RECOMPUTES]; /* of a first member: its family */
} member;

typedef struct families {
    wfi_search *s;
    member *members; /* [n] */
    size_t n, capacity;
    wf_program *parts[N_PARTS]; /* which drafts borrow: by sp, recompute and separate W */
    int64_t n_instructions;
    double best_us;
} families;

/* ---- the space ---- */

static wf_status add(families *f, member x) {
    WF_TRY(WFI_GROW(f->s->p->ctx, f->members, f->n, f->capacity, "a search"));
    x.n_keys = (x.tp > 1) + (x.dp > 1) + (x.pp > 1) + x.sp + (x.zero > 0) + (x.shard > 0) +
               (x.chunks > 0) + (x.recompute > 0) + __builtin_popcount(x.savings) +
               (x.schedule != &wfi_schedule_1f1b);
    f->members[f->n++] = x;
    return WF_OK;
}

static wf_status add_family(families *f, member x) {
    x.family = f->n;
    return add(f, x);
}

static wf_status add_divisions(families *f, member x) {
    WF_TRY(add_family(f, x));
    for (x.zero = 1; x.zero <= 3 && x.dp > 1; x.zero++)
        for (int n = 2; n <= x.dp; n++) {
            if (x.dp % n || !wfi_lanes_allow(x.dp, x.dp / n)) continue;
            x.shard = n < x.dp ? n : 0;
            WF_TRY(add_family(f, x));
        }
    return WF_OK;
}

static wf_status add_schedules(families *f, member x) {
    int32_t n_units = f->s->p->graph->n_units;
    for (int k = 0; wfi_schedules[k]; k++) {
        x.schedule = wfi_schedules[k];
        x.chunks = 0;
        bool is_of_one = x.schedule == &wfi_schedule_1f1b || x.schedule->by_unit;
        if (x.schedule->search || (x.pp == 1 && !is_of_one)) continue;
        WF_TRY(add_divisions(f, x));
        if (!x.schedule->any_chunks) continue;
        for (x.chunks = 3; x.chunks <= MOST_CHUNKS && x.chunks * x.pp <= n_units; x.chunks++)
            WF_TRY(add_divisions(f, x));
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

/* Finds the time of a step, and whether the bounds fit. */
static wf_status draft(families *f, member *x) {
    const wf_program *p = f->s->p, *parts;
    wf_program *d;
    wf_plan *plan;
    x->fits = false;
    x->us = INFINITY;
    wf_status status = make_plan(f, x, &plan);
    if (status != WF_OK) return status;
    WFI_PROGRESS(p->ctx, "drafting %s", plan->text);
    status = find_parts(f, x, plan, &parts);
    if (status == WF_OK) status = wfi_program_draft(p, plan, parts, &d);
    wf_plan_destroy(plan);
    if (status != WF_OK) return status;
    f->n_instructions += wfi_emitted_of(d)->n_instructions;
    x->fits = wfi_search_fits(f->s, d);
    status = wfi_simulate_step(d, &x->us);
    wf_program_destroy(d);
    return status;
}

/* Whether a member of the family with this way to recompute may fit. */
static wf_status look_at_family(families *f, const member *of, int recompute, bool *may_out) {
    member x = f->members[of->family];
    *may_out = true;
    if (of->fits && of->recompute == recompute) return WF_OK;
    if (x.most[recompute] == UNKNOWN) {
        x.recompute = recompute;
        x.savings = (1u << ALL_SAVINGS) - 1;
        if (f->s->host_bytes == SIZE_MAX) x.savings &= ~(1u << TO_DISK);
        wf_status status = draft(f, &x);
        if (status == WF_NO_MEMORY) return status;
        f->members[of->family].most[recompute] = status == WF_OK && !x.fits ? CANNOT_FIT : MAY_FIT;
    }
    *may_out = f->members[of->family].most[recompute] == MAY_FIT;
    return WF_OK;
}

/* Adds the members of its family that save memory in one more way. */
static wf_status extend(families *f, size_t k) {
    member x = f->members[k], more = x;
    bool may;
    more.stage = TO_DRAFT;
    for (int r = 1; r < RECOMPUTES && !x.recompute && !x.savings; r++) {
        more.recompute = r;
        WF_TRY(look_at_family(f, &x, r, &may));
        if (may) WF_TRY(add(f, more));
    }
    more.recompute = x.recompute;
    WF_TRY(look_at_family(f, &x, x.recompute, &may));
    bool has_disk = f->s->host_bytes != SIZE_MAX;
    for (int s = 0; s < ALL_SAVINGS && may; s++) {
        bool is_more = !(x.savings >> s) && (s < PREFETCH || x.savings & ((1u << PREFETCH) - 1));
        more.savings = x.savings | 1u << s;
        if (is_more && (s != TO_DISK || has_disk)) WF_TRY(add(f, more));
    }
    return WF_OK;
}

/* ---- the search ---- */

/* The member whose next stage may be the fastest. */
static size_t next_member(const families *f) {
    size_t best = 0;
    for (size_t k = 1; k < f->n; k++) {
        const member *x = &f->members[k], *y = &f->members[best];
        if (x->least < y->least || (x->least == y->least && x->n_keys < y->n_keys)) best = k;
    }
    return best;
}

static wf_status compile(families *f, const member *x) {
    bool fits = false;
    size_t state_bytes;
    wf_plan *plan;
    wf_status status = make_plan(f, x, &plan);
    if (status != WF_OK) return status;
    WFI_PROGRESS(f->s->p->ctx, "trying %s", plan->text);
    status = wfi_search_try(f->s, plan, &f->s->p->recipe, &fits, &state_bytes);
    wf_plan_destroy(plan);
    if (fits) f->best_us = x->us;
    return status;
}

static wf_status take_step(families *f, size_t k) {
    wf_status status = WF_OK;
    member x = f->members[k];
    switch (x.stage) {
    case TO_DRAFT:
        status = draft(f, &x);
        x.stage = status == WF_OK ? TO_EXTEND : DONE;
        x.least = x.us * LEAST_PART;
        break;
    case TO_EXTEND:
        status = extend(f, k);
        x.stage = x.fits ? TO_COMPILE : DONE;
        x.least = x.us;
        break;
    case TO_COMPILE:
        status = compile(f, &x);
        x.stage = DONE;
        break;
    case DONE:
        break;
    }
    if (x.stage == DONE) x.least = INFINITY;
    memcpy(x.most, f->members[k].most, sizeof x.most);
    f->members[k] = x;
    return status == WF_NO_MEMORY ? status : WF_OK;
}

wf_status wfi_search_fastest(wfi_search *s, bool *is_sure_out) {
    families f = {.s = s, .best_us = INFINITY};
    wf_status status = add_meshes(&f);
    *is_sure_out = true;
    while (status == WF_OK && f.n && *is_sure_out) {
        size_t k = next_member(&f);
        if (f.members[k].least >= f.best_us) break;
        status = take_step(&f, k);
        *is_sure_out = f.n_instructions < MOST_INSTRUCTIONS;
    }
    for (size_t k = 0; k < WFI_COUNT(f.parts); k++) wf_program_destroy(f.parts[k]);
    wfi_free(s->p->ctx, f.members);
    return status;
}
