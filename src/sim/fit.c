/* Whether a program fits into the memory given, and if not, what would: other plans, more
 * microbatches. Each proposal is a program that was lowered and simulated.
 */
#include "program/program.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static size_t peak_of(const wf_program *p, wfi_space space, int32_t rank) {
    return p->ranks[rank].arenas[space].peak_bytes;
}

static int32_t largest_rank(const wf_program *p, wfi_space space) {
    int32_t worst = 0;
    for (int32_t r = 1; r < p->n_ranks; r++)
        if (peak_of(p, space, r) > peak_of(p, space, worst)) worst = r;
    return worst;
}

static size_t highest_peak(const wf_program *p, wfi_space space) {
    return peak_of(p, space, largest_rank(p, space));
}

/* ---- candidates ---- */

/* What is tried on each mesh, as keys of a plan, the cheapest in time first. A new key of plans
 * that saves memory is a row here. */
static const char *const rows[] = {"",
                                   "zero=1",
                                   "zero=2",
                                   "zero=3",
                                   "zero=3,schedule=breadth",
                                   "schedule=1f1b",
                                   "schedule=naive",
                                   "recompute=selective",
                                   "recompute=all",
                                   "zero=3,recompute=all",
                                   "offload=state",
                                   "recompute=all,offload=state+params"};

/* More programs are not lowered: a second is not too long for an answer. */
#define MOST_TRIES 32
#define MOST_PAIRS 256

/* A mesh and a row: done once it fits, or never will. */
typedef struct candidate {
    int dp, pp;
    const char *row;
    bool is_done;
} candidate;

typedef struct search {
    const wf_program *p;
    size_t device_bytes, host_bytes; /* given */
    candidate candidates[MOST_PAIRS];
    int n_candidates, n_tries;
    wf_proposal *found; /* [n_found] */
    int n_found;
    size_t capacity;
} search;

static void add_mesh(search *s, int dp, int pp) {
    for (size_t k = 0; k < WFI_COUNT(rows) && s->n_candidates < MOST_PAIRS; k++) {
        bool divides = strstr(rows[k], "zero"), schedules = strstr(rows[k], "schedule");
        bool by_unit = strstr(rows[k], "breadth"); /* the only one for a single stage */
        if ((divides && dp == 1) || (schedules && by_unit != (pp == 1))) continue;
        s->candidates[s->n_candidates++] = (candidate){dp, pp, rows[k], false};
    }
}

static void add_meshes(search *s) {
    const wf_plan *plan = s->p->plan;
    int n_ranks = s->p->n_ranks, dp = plan->n_rules ? n_ranks : plan->dp;
    add_mesh(s, dp, n_ranks / dp);
    for (int other = n_ranks; other >= 1; other--)
        if (n_ranks % other == 0 && other != dp) add_mesh(s, other, n_ranks / other);
}

/* Stages, then replicas. */
static void add_larger_meshes(search *s) {
    const wf_plan *plan = s->p->plan;
    s->n_candidates = 0;
    for (int times = 2; times <= 8; times *= 2)
        add_mesh(s, plan->n_rules ? 1 : plan->dp, plan->n_rules ? times / 2 : plan->pp * times);
    for (int times = 2; times <= 8 && !plan->n_rules; times *= 2)
        add_mesh(s, plan->dp * times, plan->pp);
}

static wf_status make_plan(const search *s, const candidate *c, wf_plan **plan_out) {
    char text[120];
    wf_plan *plan;
    WF_TRY(wfi_plan_copy(s->p->plan, &plan));
    wfi_plan_drop_rules(plan);
    if (c->pp != plan->pp) wfi_plan_drop_cut(plan);
    bool names_schedule = strstr(c->row, "schedule");
    if (!plan->schedule->search || names_schedule) plan->hold = 0;
    wfi_free(plan->ctx, plan->recompute);
    plan->recompute = NULL;
    memset(plan->offload, WFI_SPACE_DEVICE, sizeof plan->offload);
    plan->strategy = &wfi_strategy_dp;
    plan->shard = 0;
    plan->prefetch = WFI_DEFAULT_PREFETCH;
    snprintf(text, sizeof text, "dp=%d,pp=%d%s%s", c->dp, c->pp, *c->row ? "," : "", c->row);
    wf_status status = wfi_plan_set(plan, text);
    if (status == WF_OK)
        *plan_out = plan;
    else
        wf_plan_destroy(plan);
    return status;
}

static bool is_found(const search *s, const char *plan, int64_t n_micro) {
    for (int k = 0; k < s->n_found; k++)
        if (s->found[k].n_micro == n_micro && !strcmp(s->found[k].plan, plan)) return true;
    return false;
}

static wf_status add_found(search *s, const wf_program *p) {
    wf_timeline *timeline;
    if (is_found(s, p->plan->text, p->recipe.n_micro)) return WF_OK;
    WF_TRY(wf_program_simulate(p, NULL, &timeline));
    wf_proposal found = {.n_micro = p->recipe.n_micro,
                         .peak_bytes = highest_peak(p, WFI_SPACE_DEVICE),
                         .step_us = wf_timeline_step_us(timeline)};
    wf_timeline_destroy(timeline);
    WF_TRY(WFI_GROW(s->p->ctx, s->found, s->n_found, s->capacity, "proposals"));
    found.plan = wfi_strdup(s->p->ctx, p->plan->text);
    if (!found.plan) return WF_NO_MEMORY;
    s->found[s->n_found++] = found;
    return WF_OK;
}

/* What cannot be lowered is no candidate. State does not depend on microbatches. */
static wf_status try_candidate(search *s, candidate *c, int64_t n_micro) {
    wf_program *other;
    wf_plan *plan;
    wf_recipe recipe = s->p->recipe;
    recipe.n_micro = n_micro;
    wf_status status = make_plan(s, c, &plan);
    if (status == WF_OK) {
        s->n_tries++;
        status = wf_program_create(s->p->ctx, s->p->model, &recipe, plan, s->p->kind, &other);
        wf_plan_destroy(plan);
    }
    c->is_done = status != WF_OK;
    if (status != WF_OK) return status == WF_NO_MEMORY ? status : WF_OK;
    for (int32_t r = 0; r < other->n_ranks; r++)
        c->is_done |= other->ranks[r].arenas[WFI_SPACE_DEVICE].state_bytes > s->device_bytes;
    if (highest_peak(other, WFI_SPACE_DEVICE) <= s->device_bytes &&
        highest_peak(other, WFI_SPACE_HOST) <= s->host_bytes) {
        c->is_done = true;
        status = add_found(s, other);
    }
    wf_program_destroy(other);
    return status;
}

static int compare(const void *a, const void *b) {
    const wf_proposal *x = a, *y = b;
    if (x->step_us != y->step_us) return x->step_us < y->step_us ? -1 : 1;
    return (x->peak_bytes > y->peak_bytes) - (x->peak_bytes < y->peak_bytes);
}

/* As many microbatches as given first; only what does not fit with these is tried with more. */
static wf_status try_all(search *s, int most_tries) {
    const wf_recipe *r = &s->p->recipe;
    for (int64_t m = r->n_micro; m <= r->batch && s->n_tries < most_tries; m++) {
        if (m > r->n_micro && (r->batch % m || m % r->n_lanes)) continue;
        for (int k = 0; k < s->n_candidates && s->n_tries < most_tries; k++)
            if (!s->candidates[k].is_done && m % s->candidates[k].dp == 0)
                WF_TRY(try_candidate(s, &s->candidates[k], m));
    }
    return WF_OK;
}

/* Of those from `first` on, so that all are few enough. */
static void keep_fastest(search *s, int first) {
    if (s->n_found > first)
        qsort(s->found + first, (size_t)(s->n_found - first), sizeof *s->found, compare);
    while (s->n_found > WF_MAX_PROPOSALS) wfi_free(s->p->ctx, s->found[--s->n_found].plan);
}

/* On as many ranks; if nothing fits there, and of a single rank, also on more. */
static wf_status find(search *s) {
    add_meshes(s);
    WF_TRY(try_all(s, MOST_TRIES * 3 / 4));
    keep_fastest(s, 0);
    if (s->n_found && s->p->n_ranks > 1) return WF_OK;
    int n_same = s->n_found;
    add_larger_meshes(s);
    WF_TRY(try_all(s, MOST_TRIES));
    keep_fastest(s, n_same);
    if (s->n_found) qsort(s->found, (size_t)s->n_found, sizeof *s->found, compare);
    return WF_OK;
}

void wf_proposals_destroy(wf_context *ctx, wf_proposal *proposals, int n) {
    for (int k = 0; k < n; k++) wfi_free(ctx, proposals[k].plan);
    wfi_free(ctx, proposals);
}

wf_status wf_program_propose(const wf_program *p, size_t device_bytes, size_t host_bytes,
                             wf_proposal **proposals_out, int *n_out) {
    search s = {.p = p,
                .device_bytes = device_bytes ? device_bytes : SIZE_MAX,
                .host_bytes = host_bytes ? host_bytes : SIZE_MAX};
    wf_status status = p->kind == WF_PROGRAM_TRAIN ? find(&s) : WF_OK;
    if (status != WF_OK) {
        wf_proposals_destroy(p->ctx, s.found, s.n_found);
        return status;
    }
    *proposals_out = s.found;
    *n_out = s.n_found;
    return WF_OK;
}

/* ---- the verdict ---- */

static void add_proposal(const wf_program *p, const wf_proposal *proposal, wfi_text *text) {
    bool same_plan = !strcmp(proposal->plan, p->plan->text);
    bool same_micro = proposal->n_micro == p->recipe.n_micro;
    if (!same_plan) wfi_text_add(text, "the plan %s", proposal->plan);
    if (!same_micro)
        wfi_text_add(text, "%s--micro %lld", same_plan ? "" : " with ",
                     (long long)proposal->n_micro);
}

static wf_status fits_device(const wf_program *p, size_t memory_bytes, size_t host_bytes) {
    int32_t worst = largest_rank(p, WFI_SPACE_DEVICE);
    size_t peak = peak_of(p, WFI_SPACE_DEVICE, worst);
    if (!memory_bytes || peak <= memory_bytes) return WF_OK;
    wf_proposal *proposals;
    int n;
    WF_TRY(wf_program_propose(p, memory_bytes, host_bytes, &proposals, &n));
    wfi_text advice;
    wfi_text_init(&advice, p->ctx);
    for (int k = 0; k < n; k++) {
        wfi_text_add(&advice, k == 0 ? "" : k + 1 < n ? ", " : " or ");
        add_proposal(p, &proposals[k], &advice);
    }
    if (n)
        wfi_text_add(&advice,
                     " would fit; of the same family a model %.2f times as large, by the first",
                     (double)memory_bytes / (double)proposals[0].peak_bytes);
    else
        wfi_text_add(
            &advice,
            "none of the other plans and numbers of microbatches that were tried would fit: "
            "parameters, buffers and optimizer state alone take %zu",
            p->ranks[worst].arenas[WFI_SPACE_DEVICE].state_bytes);
    wf_proposals_destroy(p->ctx, proposals, n);
    wf_status status = wfi_text_status(&advice);
    if (status == WF_OK)
        status =
            wfi_fail(p->ctx, WF_DOES_NOT_FIT,
                     "rank %d needs %zu bytes, %zu more than the %zu given; the peak is in unit "
                     "%s; %s",
                     worst, peak, peak - memory_bytes, memory_bytes,
                     wf_program_rank(p, worst).peak_unit, advice.data);
    wfi_free(p->ctx, advice.data);
    return status;
}

static wf_status fits_host(const wf_program *p, size_t host_bytes) {
    int32_t worst = largest_rank(p, WFI_SPACE_HOST);
    size_t peak = peak_of(p, WFI_SPACE_HOST, worst);
    if (!host_bytes || peak <= host_bytes) return WF_OK;
    return wfi_fail(p->ctx, WF_DOES_NOT_FIT,
                    "rank %d needs %zu bytes of the host's memory, %zu more than the %zu given; "
                    "what offload= keeps there can be kept in a file, with :disk",
                    worst, peak, peak - host_bytes, host_bytes);
}

wf_status wf_program_fits(const wf_program *p, size_t device_bytes, size_t host_bytes) {
    WF_TRY(fits_device(p, device_bytes, host_bytes));
    return fits_host(p, host_bytes);
}
