/* Proposals in place of a program that does not fit: other plans, more microbatches. Each is a
 * program that was lowered and simulated.
 */
#include "sim/fastest.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- candidates ---- */

/* The plan keys tried on each mesh, the cheapest in time first, the smallest in memory last. A new
 * key of plans that saves memory is a row here. Where there are replicas, rows that divide do so
 * with zero=3; runs of half of these share all, where they shard. */
typedef struct row {
    const char *keys;
    bool divides, shards;
} row;

static const row rows[] = {
    {"", false, false},
    {"schedule=zbv", false, false},
    {"schedule=interleaved", false, false},
    {"zero=1", false, false},
    {"zero=2", false, false},
    {"", true, false},
    {"", true, true},
    {"schedule=breadth", true, false},
    {"schedule=1f1b", false, false},
    {"schedule=vhalf", false, false},
    {"schedule=vmin", false, false},
    {"schedule=naive", false, false},
    {"recompute=selective", false, false},
    {"recompute=all", false, false},
    {"recompute=all", true, false},
    {"schedule=breadth,recompute=all", true, false},
    {"offload=activations", false, false},
    {"offload=state", false, false},
    {"recompute=all,offload=state+params", true, false},
    {"schedule=breadth,recompute=all,offload=state+params", true, false},
    {"recompute=all,offload=state:disk+params:disk", true, false},
    {"schedule=breadth,recompute=all,offload=state:disk+params:disk,prefetch=0", true, false}};

/* More programs are not lowered: a second is not too long for an answer. The limit is lower for
 * long programs.
 */
#define MOST_TRIES        32
#define FEWEST_TRIES      8
#define MOST_INSTRUCTIONS 50000
#define MOST_PAIRS        256
/* Once this many rows fit on a mesh, the following rows are only slower. */
#define MOST_OF_MESH 4

/* A mesh and a row: done once it fits, or never will. */
typedef struct candidate {
    int tp, dp, pp;
    const row *row;
    bool is_done;
} candidate;

typedef struct search {
    wfi_search all;
    candidate candidates[MOST_PAIRS]; /* of each mesh the smallest first, then in order of rows */
    int n_candidates, n_tries, most_tries;
    bool keeps_micro;
} search;

/* One replica divides nothing, and has no row twice; a single stage has breadth alone. */
static bool has_row(const row *r, int dp, int pp) {
    bool schedules = strstr(r->keys, "schedule"), by_unit = strstr(r->keys, "breadth");
    if (schedules && by_unit != (pp == 1)) return false;
    if (r->shards && (dp < 4 || dp % 2)) return false;
    if (dp > 1) return true;
    if (strstr(r->keys, "zero") || (r->divides && !*r->keys)) return false;
    return r == rows || !r->divides || strcmp(r->keys, r[-1].keys);
}

static void add_mesh(search *s, int tp, int dp, int pp) {
    candidate *first = &s->candidates[s->n_candidates];
    for (size_t k = 0; k < WFI_COUNT(rows) && s->n_candidates < MOST_PAIRS; k++)
        if (has_row(&rows[k], dp, pp))
            s->candidates[s->n_candidates++] = (candidate){tp, dp, pp, &rows[k], false};
    candidate *end = &s->candidates[s->n_candidates];
    if (end == first) return; /* there is no room for more */
    candidate smallest = end[-1];
    memmove(first + 1, first, (size_t)(end - 1 - first) * sizeof *first);
    *first = smallest;
}

static void add_meshes(search *s) {
    const wf_plan *plan = s->all.p->plan;
    int n_ranks = s->all.p->n_ranks, most = n_ranks / plan->tp,
        given = plan->n_rules ? most : plan->dp;
    add_mesh(s, plan->tp, given, most / given);
    for (int dp = n_ranks; dp >= 1; dp--)
        for (int tp = 1; tp <= n_ranks / dp; tp++) {
            bool is_given = tp == plan->tp && dp == given;
            if (n_ranks % (dp * tp) == 0 && !is_given && wfi_search_may_divide(&s->all, tp))
                add_mesh(s, tp, dp, n_ranks / (dp * tp));
        }
}

/* Stages, then replicas. */
static void add_larger_meshes(search *s) {
    const wf_plan *plan = s->all.p->plan;
    s->n_candidates = 0;
    for (int times = 2; times <= 8; times *= 2)
        add_mesh(s, plan->tp, plan->n_rules ? 1 : plan->dp,
                 plan->n_rules ? times / 2 : plan->pp * times);
    for (int times = 2; times <= 8 && !plan->n_rules; times *= 2) {
        add_mesh(s, plan->tp, plan->dp * times, plan->pp);
        if (wfi_search_may_divide(&s->all, plan->tp * times))
            add_mesh(s, plan->tp * times, plan->dp, plan->pp);
    }
}

/* Ranks that divide slices divide rows, too: that saves memory, and costs little. */
static wf_status make_plan(const search *s, const candidate *c, wf_plan **plan_out) {
    char keys[160], shard[32] = "";
    if (c->row->shards) snprintf(shard, sizeof shard, ",shard=%d", c->dp / 2);
    snprintf(keys, sizeof keys, "%s%s%s%s", c->row->divides && c->dp > 1 ? "zero=3" : "", shard,
             c->row->divides && c->dp > 1 && *c->row->keys ? "," : "", c->row->keys);
    return wfi_search_plan(&s->all, c->tp, wfi_search_has_rows(&s->all, c->tp), c->dp, c->pp, keys,
                           plan_out);
}

/* A program that cannot be lowered is not a candidate. State does not depend on microbatches. */
static wf_status try_candidate(search *s, candidate *c, int64_t n_micro, bool *fits_out) {
    const wf_program *p = s->all.p;
    size_t state_bytes = 0;
    wf_plan *plan;
    wf_recipe recipe = p->recipe;
    recipe.n_micro = n_micro;
    *fits_out = false;
    wf_status status = make_plan(s, c, &plan);
    if (status == WF_OK) {
        s->n_tries++;
        WFI_PROGRESS(p->ctx, "trying plan %d of about %d: %s", s->n_tries,
                     s->n_tries > s->most_tries ? s->n_tries : s->most_tries, plan->text);
        bool may;
        status = wfi_search_may_fit(&s->all, plan, &recipe, &may, &state_bytes);
        if (status == WF_OK && may)
            status = wfi_search_try(&s->all, plan, &recipe, fits_out, &state_bytes);
        wf_plan_destroy(plan);
    }
    c->is_done = status != WF_OK || *fits_out || state_bytes > s->all.device_bytes;
    return status == WF_NO_MEMORY ? status : WF_OK;
}

static int compare(const void *a, const void *b) {
    const wf_proposal *x = a, *y = b;
    if (x->step_us != y->step_us) return x->step_us < y->step_us ? -1 : 1;
    return (x->peak_bytes > y->peak_bytes) - (x->peak_bytes < y->peak_bytes);
}

/* If the smallest candidate of a mesh does not fit, none does. */
static wf_status try_mesh(search *s, candidate *first, candidate *end, int64_t n_micro, int most) {
    int n_fitting = 0;
    bool does = false;
    if (!first->is_done) WF_TRY(try_candidate(s, first, n_micro, &does));
    if (!first->is_done) return WF_OK;
    for (candidate *c = first + 1; c < end && s->n_tries < most; c++) {
        if (n_fitting == MOST_OF_MESH) break;
        does = false;
        if (!c->is_done) WF_TRY(try_candidate(s, c, n_micro, &does));
        n_fitting += does;
    }
    return WF_OK;
}

static bool is_same_mesh(const candidate *a, const candidate *b) {
    return a->tp == b->tp && a->dp == b->dp && a->pp == b->pp;
}

/* As many microbatches as given first; only candidates that do not fit are tried with more. */
static wf_status try_all(search *s, int most) {
    const wf_recipe *r = &s->all.p->recipe;
    candidate *all_end = &s->candidates[s->n_candidates];
    int64_t most_micro = s->keeps_micro ? r->n_micro : r->batch;
    for (int64_t m = r->n_micro; m <= most_micro && s->n_tries < most; m++) {
        if (m > r->n_micro && (r->batch % m || m % r->n_lanes)) continue;
        for (candidate *c = s->candidates, *end; c < all_end; c = end) {
            for (end = c; end < all_end && is_same_mesh(end, c);) end++;
            if (m % c->dp == 0) WF_TRY(try_mesh(s, c, end, m, most));
        }
    }
    return WF_OK;
}

/* Sorts the proposals from `first` on and drops the slowest, to WF_MAX_PROPOSALS in all. */
static void keep_fastest(search *s, int first) {
    if (s->all.n_found > first)
        qsort(s->all.found + first, (size_t)(s->all.n_found - first), sizeof *s->all.found,
              compare);
    while (s->all.n_found > WF_MAX_PROPOSALS)
        wfi_free(s->all.p->ctx, s->all.found[--s->all.n_found].plan);
}

static int most_tries(const wf_program *p) {
    int64_t n_instructions = wfi_emitted_of(p)->n_instructions;
    for (int32_t k = 0; k < p->n_lowered; k++) n_instructions += p->ranks[p->lowered[k]].n_repeated;
    int64_t n = MOST_INSTRUCTIONS / wfi_max_i64(n_instructions, 1);
    return (int)wfi_max_i64(FEWEST_TRIES, n < MOST_TRIES ? n : MOST_TRIES);
}

/* On as many ranks; if nothing fits there, and of a single rank, also on more. */
static wf_status find(search *s) {
    int most = s->most_tries = most_tries(s->all.p);
    add_meshes(s);
    WF_TRY(try_all(s, most * 3 / 4));
    keep_fastest(s, 0);
    if (s->all.n_found && s->all.p->n_ranks > 1) return WF_OK;
    int n_same = s->all.n_found;
    add_larger_meshes(s);
    WF_TRY(try_all(s, most));
    keep_fastest(s, n_same);
    if (s->all.n_found) qsort(s->all.found, (size_t)s->all.n_found, sizeof *s->all.found, compare);
    return WF_OK;
}

void wf_proposals_destroy(wf_context *ctx, wf_proposal *proposals, int n) {
    for (int k = 0; k < n; k++) wfi_free(ctx, proposals[k].plan);
    wfi_free(ctx, proposals);
}

wf_status wf_program_propose(const wf_program *p, size_t device_bytes, size_t host_bytes,
                             int keeps_micro, wf_proposal **proposals_out, int *n_out) {
    search s = {.all = wfi_search_for(p, device_bytes, host_bytes), .keeps_micro = keeps_micro};
    bool is_sure = false;
    *proposals_out = NULL;
    *n_out = 0;
    wf_status status = WF_OK;
    if (keeps_micro && wfi_differentiates(p)) status = wfi_search_fastest(&s.all, &is_sure);
    if (status == WF_OK && (!is_sure || !s.all.n_found) && wfi_differentiates(p)) status = find(&s);
    if (status != WF_OK) {
        wf_proposals_destroy(p->ctx, s.all.found, s.all.n_found);
        return status;
    }
    *proposals_out = s.all.found;
    *n_out = s.all.n_found;
    return WF_OK;
}
