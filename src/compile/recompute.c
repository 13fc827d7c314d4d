/* recompute=auto: chooses the units to recompute, so that a step takes the least extra time that
 * fits into a device.
 *
 * Given how many bytes the activations of a microbatch may take, the units of a rank are gone
 * through in order: the activations that earlier units keep, and the working memory of the current
 * unit, must stay within that limit. Among all such choices, dynamic programming finds the one of
 * least time. The most bytes with which all that the rank holds still fits are found by halving: a
 * program is made each time, so it is the planned peak that fits, not an estimate.
 */
#include "compile/recompute.h"
#include "compile/compile.h"
#include "lower/schedule.h"
#include "program/stage.h"

#include <math.h>

#define N_HOW    (WFI_RECOMPUTE_ALL + 1)
#define N_LEVELS 2048 /* of bytes that are kept */
#define N_HALVED 10

/* Memory and time of a unit for one way to keep its activations, for a microbatch. */
typedef struct unit_need {
    double kept_bytes, work_bytes; /* until its backward, and during it */
    double extra_us;
} unit_need;

/* How many bytes units may take on the ranks of a `pp` coordinate: so few fit, so many do not. And
 * if nothing has fit: how all units might be kept. */
typedef struct allowance {
    double fits_bytes, exceeds_bytes;
    wfi_recompute otherwise;
    size_t peak_bytes; /* with that */
} allowance;

typedef struct search {
    const wf_program *first; /* computes nothing again */
    wf_plan *plan;           /* with the key recompute set */
    int32_t n_units;
    unit_need *needs;     /* [n_units][N_HOW] */
    allowance *allowed;   /* [pp] */
    wfi_recompute *how;   /* [n_units] */
    double *time;         /* [2][N_LEVELS] of the units so far, by kept bytes */
    wfi_recompute *taken; /* [n_units][N_LEVELS] how a unit is kept, if so much is kept with it */
} search;

/* Makes the program for the choices in `how`. */
static wf_status make(search *s, wf_program **program_out) {
    const wf_program *first = s->first;
    WF_TRY(wfi_plan_set_recompute(s->plan, first->graph, s->how));
    WF_TRY(wfi_plan_complete(s->plan));
    return wfi_program_create(first->ctx, first->model, &first->recipe, s->plan, first->backend,
                              first->kind, first->use, NULL, program_out);
}

static size_t peak_of(const wf_program *p, int32_t pp) {
    size_t most = 0;
    for (int32_t r = 0; r < p->n_ranks; r++) {
        size_t peak = wfi_mesh_at(&p->mesh, WFI_PP, r) == pp ? wf_program_rank(p, r).peak_bytes : 0;
        if (peak > most) most = peak;
    }
    return most;
}

static int32_t coordinate_of(const search *s, int32_t unit) {
    return s->first->stages[wfi_program_stage_of(s->first, unit)].pp;
}

/* ---- needs of units ---- */

static unit_need find_need(const wf_program *p, int32_t unit) {
    const wfi_unit_code *code = &p->code->units[unit];
    size_t values = 0, workspace = 0;
    for (int part = WFI_PART_F + 1; part < WFI_N_PARTS; part++) {
        size_t read = wfi_program_read_bytes(p, unit, (wfi_part)part);
        for (int32_t k = 0; code->part[part] && k < code->part[part]->n_slots; k++) {
            const wfi_slot *slot = &code->part[part]->slots[k];
            if (slot->kind == WFI_BLOCK_WORKSPACE && slot->bytes > workspace)
                workspace = slot->bytes;
        }
        if (read > values) values = read;
    }
    return (unit_need){.kept_bytes = (double)(code->bytes[WFI_BLOCK_SAVED] +
                                              code->bytes[WFI_BLOCK_SAVED_W] + values),
                       .work_bytes = (double)(code->bytes[WFI_BLOCK_REMADE] +
                                              code->bytes[WFI_BLOCK_REMADE_W] + workspace),
                       .extra_us = p->costs->units[unit].recompute_us};
}

/* All units are kept alike. */
static wf_status find_needs(search *s) {
    for (int how = 0; how < N_HOW; how++) {
        wf_program *p;
        for (int32_t u = 0; u < s->n_units; u++) s->how[u] = (wfi_recompute)how;
        WF_TRY(make(s, &p));
        for (int32_t u = 0; u < s->n_units; u++) {
            unit_need *need = &s->needs[u * N_HOW + how];
            *need = find_need(p, u);
            s->allowed[coordinate_of(s, u)].exceeds_bytes += need->kept_bytes + need->work_bytes;
        }
        for (int32_t pp = 0; pp < p->mesh.pp; pp++) {
            allowance *a = &s->allowed[pp];
            if (how && peak_of(p, pp) >= a->peak_bytes) continue;
            a->otherwise = (wfi_recompute)how;
            a->peak_bytes = peak_of(p, pp);
        }
        wf_program_destroy(p);
    }
    return WF_OK;
}

/* ---- the best choice for so many bytes ---- */

static int level_of(double bytes, double allowed) {
    return (int)lround(bytes / allowed * (N_LEVELS - 1));
}

static void add_unit(search *s, int32_t u, double allowed, const double *before, double *after) {
    for (int level = 0; level < N_LEVELS; level++) after[level] = INFINITY;
    for (int how = 0; how < N_HOW; how++) {
        const unit_need *need = &s->needs[u * N_HOW + how];
        int kept = level_of(need->kept_bytes, allowed);
        int most = N_LEVELS - 1 - level_of(need->kept_bytes + need->work_bytes, allowed);
        for (int level = 0; level <= most; level++) {
            double us = before[level] + need->extra_us;
            if (!(us < after[level + kept])) continue;
            after[level + kept] = us;
            s->taken[(size_t)u * N_LEVELS + (size_t)(level + kept)] = (wfi_recompute)how;
        }
    }
}

static void choose(search *s, int32_t pp, double allowed) {
    double *before = s->time, *after = s->time + N_LEVELS;
    for (int32_t u = 0; u < s->n_units; u++)
        if (coordinate_of(s, u) == pp) s->how[u] = s->allowed[pp].otherwise;
    for (int level = 0; level < N_LEVELS; level++) before[level] = level ? INFINITY : 0;
    for (int32_t u = 0; u < s->n_units && allowed > 0; u++) {
        if (coordinate_of(s, u) != pp) continue;
        add_unit(s, u, allowed, before, after);
        double *spare = before;
        before = after;
        after = spare;
    }
    int best = 0;
    for (int level = 1; level < N_LEVELS; level++)
        if (before[level] < before[best]) best = level;
    if (!(allowed > 0) || isinf(before[best])) return;
    for (int32_t u = s->n_units - 1; u >= 0; u--) {
        if (coordinate_of(s, u) != pp) continue;
        s->how[u] = s->taken[(size_t)u * N_LEVELS + (size_t)best];
        best -= level_of(s->needs[u * N_HOW + (int)s->how[u]].kept_bytes, allowed);
    }
}

/* ---- how many bytes that may be ---- */

static wf_status halve(search *s) {
    wf_program *p;
    for (int32_t pp = 0; pp < s->first->mesh.pp; pp++) {
        allowance *a = &s->allowed[pp];
        choose(s, pp, (a->fits_bytes + a->exceeds_bytes) / 2);
    }
    WF_TRY(make(s, &p));
    for (int32_t pp = 0; pp < s->first->mesh.pp; pp++) {
        allowance *a = &s->allowed[pp];
        double tried = (a->fits_bytes + a->exceeds_bytes) / 2;
        *(peak_of(p, pp) <= s->plan->memory_bytes ? &a->fits_bytes : &a->exceeds_bytes) = tried;
    }
    wf_program_destroy(p);
    return WF_OK;
}

static wf_status run(search *s, wf_program **program_out) {
    WF_TRY(find_needs(s));
    for (int k = 0; k < N_HALVED; k++) WF_TRY(halve(s));
    for (int32_t pp = 0; pp < s->first->mesh.pp; pp++) choose(s, pp, s->allowed[pp].fits_bytes);
    return make(s, program_out);
}

static bool fits_all(const search *s) {
    bool all = true;
    for (int32_t pp = 0; pp < s->first->mesh.pp; pp++)
        all &= peak_of(s->first, pp) <= s->plan->memory_bytes;
    return all || !s->plan->memory_bytes;
}

wf_status wfi_program_choose_recompute(wf_program **program) {
    wf_context *ctx = (*program)->ctx;
    search s = {.first = *program, .n_units = (*program)->graph->n_units};
    wf_program *chosen = NULL;
    wfi_pool pool;
    wfi_pool_init(&pool, ctx);
    size_t n = (size_t)s.n_units;
    s.needs = wfi_pool_alloc(&pool, n * N_HOW, sizeof *s.needs);
    s.allowed = wfi_pool_alloc(&pool, (size_t)s.first->mesh.pp, sizeof *s.allowed);
    s.how = wfi_pool_alloc(&pool, n, sizeof *s.how);
    s.time = wfi_pool_alloc(&pool, 2 * N_LEVELS, sizeof *s.time);
    s.taken = wfi_pool_alloc(&pool, n * N_LEVELS, sizeof *s.taken);
    bool ok = s.needs && s.allowed && s.how && s.time && s.taken;
    wf_status status = ok ? wfi_plan_copy(s.first->plan, &s.plan) : WF_NO_MEMORY;
    /* How many stages each rank has has been chosen before. */
    if (status == WF_OK && wfi_plan_chooses_chunks(s.plan)) s.plan->chunks = 1;
    if (status == WF_OK && fits_all(&s)) {
        status = wfi_plan_set_recompute((*program)->plan, s.first->graph, s.how);
        if (status == WF_OK) status = wfi_plan_complete((*program)->plan);
    } else if (status == WF_OK) {
        status = run(&s, &chosen);
    }
    wf_plan_destroy(s.plan);
    wfi_pool_release(&pool);
    if (!chosen) return status;
    wf_program_destroy(*program);
    *program = chosen;
    return WF_OK;
}
