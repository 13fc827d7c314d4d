/* Whether a program fits into the memory given, and if not, which other programs fit: other plans,
 * more microbatches. Each proposal is a program that was lowered and simulated.
 */
#include "compile/compile.h"
#include "nn/model.h"
#include "show/show.h"
#include "sim/fastest.h"
#include "sim/step.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static size_t peak_of(const wf_program *p, wfi_space space, int32_t rank) {
    return wfi_program_largest(p, space, rank)->ranks[rank].arenas[space].peak_bytes;
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

bool wfi_search_may_divide(const wfi_search *s, int tp) {
    return wfi_lanes_allow(s->p->graph->n_slices, tp);
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

bool wfi_search_has_rows(const wfi_search *s, int tp) {
    const wf_graph *g = s->p->graph;
    bool has_rows = false;
    for (int32_t u = 0; u < g->n_units; u++) has_rows |= g->units[u].is_rows;
    return tp > 1 && has_rows && !g->has_uneven_rows;
}

wf_status wfi_search_plan(const wfi_search *s, int tp, bool sp, int dp, int pp, const char *keys,
                          wf_plan **plan_out) {
    char text[240];
    wf_plan *plan;
    WF_TRY(wfi_plan_copy(s->p->plan, &plan));
    wfi_plan_drop_rules(plan);
    if (pp != plan->pp) wfi_plan_drop_cut(plan);
    if (dp != plan->dp) wfi_plan_drop_lanes(plan);
    if (!plan->schedule->search || strstr(keys, "schedule")) plan->hold = 0;
    wfi_free(plan->ctx, plan->recompute);
    plan->recompute = NULL;
    memset(plan->offload, WFI_SPACE_DEVICE, sizeof plan->offload);
    plan->strategy = &wfi_strategy_dp;
    plan->shard = 0;
    plan->prefetch = WFI_DEFAULT_PREFETCH;
    snprintf(text, sizeof text, "tp=%d,sp=%s,dp=%d,pp=%d%s%s", tp, sp ? "on" : "off", dp, pp,
             *keys ? "," : "", keys);
    wf_status status = wfi_plan_set(plan, text);
    if (status == WF_INVALID_ARG && plan->lanes) { /* unequal shares do not go with all keys */
        wfi_plan_drop_lanes(plan);
        status = wfi_plan_set(plan, text);
    }
    if (status == WF_OK)
        *plan_out = plan;
    else
        wf_plan_destroy(plan);
    return status;
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

static bool is_found(const wfi_search *s, const char *plan, int64_t n_micro) {
    for (int k = 0; k < s->n_found; k++)
        if (s->found[k].n_micro == n_micro && !strcmp(s->found[k].plan, plan)) return true;
    return false;
}

static wf_status add_found(wfi_search *s, const wf_program *p) {
    if (is_found(s, p->plan->text, p->recipe.n_micro)) return WF_OK;
    wf_proposal found = {.n_micro = p->recipe.n_micro,
                         .n_lanes = p->recipe.n_lanes,
                         .n_slices = p->recipe.n_slices,
                         .peak_bytes = highest_peak(p, WFI_SPACE_DEVICE)};
    WF_TRY(wfi_simulate_step(p, &found.step_us));
    WF_TRY(WFI_GROW(s->p->ctx, s->found, s->n_found, s->capacity, "proposals"));
    found.plan = wfi_strdup(s->p->ctx, p->plan->text);
    if (!found.plan) return WF_NO_MEMORY;
    s->found[s->n_found++] = found;
    return WF_OK;
}

bool wfi_search_fits(const wfi_search *s, const wf_program *p) {
    return highest_peak(p, WFI_SPACE_DEVICE) <= s->device_bytes &&
           highest_peak(p, WFI_SPACE_HOST) <= s->host_bytes;
}

static wf_status create(const wf_program *p, const wf_model *model, const wf_recipe *recipe,
                        const wf_plan *plan, wfi_program_use use, wf_program **program_out) {
    return wfi_program_create(p->ctx, model, recipe, plan, p->backend, p->kind, use, NULL,
                              program_out);
}

static size_t most_state_bytes(const wf_program *p) {
    size_t most = 0;
    for (int32_t r = 0; r < p->n_ranks; r++) {
        size_t bytes = p->ranks[r].arenas[WFI_SPACE_DEVICE].state_bytes;
        if (bytes > most) most = bytes;
    }
    return most;
}

wf_status wfi_search_try(wfi_search *s, const wf_plan *plan, const wf_recipe *recipe,
                         bool *fits_out, size_t *state_bytes_out) {
    const wf_program *p = s->p;
    wf_program *other;
    *fits_out = false;
    *state_bytes_out = 0;
    WF_TRY(create(p, p->model, recipe, plan, WFI_USE_LOOK_SHORT, &other));
    *state_bytes_out = most_state_bytes(other);
    wf_status status = WF_OK;
    if (wfi_search_fits(s, other)) status = wf_program_plan_tests(other, p->n_test, p->n_at_once);
    if (status == WF_OK && wfi_search_fits(s, other)) {
        *fits_out = true;
        status = add_found(s, other);
    }
    wf_program_destroy(other);
    return status;
}

/* Makes it the recipe of a short step: fewer microbatches of the same size, as many as fill and
 * empty a pipeline. The whole step needs about as much memory or more. False: it is not much
 * longer. */
static bool shorten(const wf_plan *plan, wf_recipe *r) {
    int64_t n_lane = wfi_max_i64(2, 4 * wf_plan_n_ranks(plan) / r->n_lanes),
            n = r->n_lanes * n_lane;
    if (r->batch % r->n_micro || 2 * n > r->n_micro) return false;
    r->batch = r->batch / r->n_micro * n;
    r->n_micro = n;
    return true;
}

/* Finds the bounds of a step, in parts of the memory given. Of a program that cannot be lowered: 0.
 */
static wf_status draft(const wfi_search *s, const wf_plan *plan, const wf_recipe *recipe,
                       double *share_out, size_t *state_bytes_out) {
    wf_program *p;
    *share_out = 0;
    wf_status status = create(s->p, s->p->model, recipe, plan, WFI_USE_DRAFT, &p);
    if (status != WF_OK) return status == WF_NO_MEMORY ? status : WF_OK;
    *share_out = fmax((double)highest_peak(p, WFI_SPACE_DEVICE) / (double)s->device_bytes,
                      (double)highest_peak(p, WFI_SPACE_HOST) / (double)s->host_bytes);
    *state_bytes_out = most_state_bytes(p);
    wf_program_destroy(p);
    return WF_OK;
}

/* Drafts a short step first, if there is one: that takes a fraction of the time. Its bounds may be
 * a quarter too high, because the cut into stages depends on the number of microbatches. (Of 563
 * plans the worst was 20 % higher than the peak of the whole step.) */
static wf_status may_fit(const wfi_search *s, const wf_plan *plan, const wf_recipe *recipe,
                         bool *may_out, size_t *state_bytes_out) {
    wf_recipe shorter = *recipe;
    double share = 0;
    if (shorten(plan, &shorter)) WF_TRY(draft(s, plan, &shorter, &share, state_bytes_out));
    if (share > 1 && share <= 1.25) WF_TRY(draft(s, plan, recipe, &share, state_bytes_out));
    *may_out = share <= 1;
    return WF_OK;
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
        status = may_fit(&s->all, plan, &recipe, &may, &state_bytes);
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

static search search_for(const wf_program *p, size_t device_bytes, size_t host_bytes) {
    return (search){.all = {.p = p,
                            .device_bytes = device_bytes ? device_bytes : SIZE_MAX,
                            .host_bytes = host_bytes ? host_bytes : SIZE_MAX}};
}

void wf_proposals_destroy(wf_context *ctx, wf_proposal *proposals, int n) {
    for (int k = 0; k < n; k++) wfi_free(ctx, proposals[k].plan);
    wfi_free(ctx, proposals);
}

wf_status wf_program_propose(const wf_program *p, size_t device_bytes, size_t host_bytes,
                             int keeps_micro, wf_proposal **proposals_out, int *n_out) {
    search s = search_for(p, device_bytes, host_bytes);
    bool is_sure = false;
    s.keeps_micro = keeps_micro;
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

/* ---- a larger model ---- */

/* More programs are not lowered, nor larger models. */
#define MOST_LARGER 5
#define MOST_TIMES  8
#define MOST_LAYERS 512

/* The first proposal's program with so many layers, or the draft of a short step, if there is one.
 */
static wf_status lower_larger(const wf_program *p, const wf_proposal *by, int64_t n_layers,
                              bool *is_draft, wf_program **larger_out) {
    wf_recipe recipe = p->recipe;
    wf_model *model;
    wf_plan *plan;
    recipe.n_micro = by->n_micro;
    WF_TRY(wfi_model_with_layers(p->model, n_layers, &model));
    wf_status status = wf_plan_parse(p->ctx, by->plan, &plan);
    if (status == WF_OK) {
        *is_draft = *is_draft && shorten(plan, &recipe);
        status = create(p, model, &recipe, plan, *is_draft ? WFI_USE_DRAFT : WFI_USE_LOOK_SHORT,
                        larger_out);
        wf_plan_destroy(plan);
        if (status == WF_OK && !*is_draft) {
            status = wf_program_plan_tests(*larger_out, p->n_test, p->n_at_once);
            if (status != WF_OK) wf_program_destroy(*larger_out);
        }
    }
    wf_model_destroy(model);
    return status;
}

static int64_t most_layers(int64_t least) {
    int64_t most = MOST_TIMES * least < MOST_LAYERS ? MOST_TIMES * least : MOST_LAYERS;
    return wfi_max_i64(least, most);
}

/* Tries models of more layers. Bytes grow by about as much with each layer. */
static wf_status try_larger(const search *s, const wf_proposal *by, bool *is_draft,
                            int64_t *n_layers_out) {
    int64_t least = *n_layers_out, end = most_layers(least) + 1;
    double known = (double)least, known_bytes = (double)by->peak_bytes;
    double each = known_bytes / known; /* at most, before two are known */
    for (int k = 0; k < MOST_LARGER && end - *n_layers_out > 1; k++) {
        double want = known + ((double)s->all.device_bytes - known_bytes) / fmax(each, 1);
        int64_t n = want < (double)end ? (int64_t)want : end - 1;
        n = wfi_max_i64(*n_layers_out + 1, n < end ? n : end - 1);
        wf_program *larger;
        WFI_PROGRESS(s->all.p->ctx, "trying a model of %lld layers", (long long)n);
        WF_TRY(lower_larger(s->all.p, by, n, is_draft, &larger));
        double bytes = (double)highest_peak(larger, WFI_SPACE_DEVICE);
        if (wfi_search_fits(&s->all, larger))
            *n_layers_out = n;
        else
            end = n;
        wf_program_destroy(larger);
        each = (bytes - known_bytes) / ((double)n - known);
        known = (double)n, known_bytes = bytes;
    }
    return WF_OK;
}

/* How many layers the model may have by the proposal: the answer has been lowered. */
static wf_status find_most_layers(const search *s, const wf_proposal *by, int64_t *n_layers_out) {
    int64_t least = wfi_model_n_layers(s->all.p->model);
    bool is_draft = true, fits = false;
    *n_layers_out = least;
    WF_TRY(try_larger(s, by, &is_draft, n_layers_out));
    while (is_draft && !fits && *n_layers_out > least) { /* the bounds fit, but does the program? */
        wf_program *larger;
        bool is_short = false;
        WF_TRY(lower_larger(s->all.p, by, *n_layers_out, &is_short, &larger));
        fits = wfi_search_fits(&s->all, larger);
        wf_program_destroy(larger);
        if (!fits) *n_layers_out -= wfi_max_i64(1, (*n_layers_out - least) / 4);
    }
    return WF_OK;
}

/* ---- the verdict ---- */

#define SIZE_TEXT 40

static const char *size_text(char text[SIZE_TEXT], size_t bytes) {
    if (bytes >= 1 << 30)
        snprintf(text, SIZE_TEXT, "%.2f GiB", (double)bytes / (1 << 30));
    else if (bytes >= 1 << 20)
        snprintf(text, SIZE_TEXT, "%.1f MiB", (double)bytes / (1 << 20));
    else if (bytes >= 1 << 10)
        snprintf(text, SIZE_TEXT, "%.1f KiB", (double)bytes / (1 << 10));
    else
        snprintf(text, SIZE_TEXT, "%zu byte%s", bytes, bytes == 1 ? "" : "s");
    return text;
}

static wf_status refuse(const search *s) {
    const wf_program *p = s->all.p;
    char needs[SIZE_TEXT], missing[SIZE_TEXT], given[SIZE_TEXT];
    int32_t rank = largest_rank(p, WFI_SPACE_DEVICE);
    size_t peak = peak_of(p, WFI_SPACE_DEVICE, rank);
    bool is_test = wfi_program_largest(p, WFI_SPACE_DEVICE, rank) != p;
    if (peak > s->all.device_bytes)
        return wfi_fail(p->ctx, WF_DOES_NOT_FIT,
                        "rank %d needs %s%s, %s more than the %s given; the peak is in unit %s",
                        rank, size_text(needs, peak), is_test ? " for tests" : "",
                        size_text(missing, peak - s->all.device_bytes),
                        size_text(given, s->all.device_bytes), wf_program_rank(p, rank).peak_unit);
    rank = largest_rank(p, WFI_SPACE_HOST);
    peak = peak_of(p, WFI_SPACE_HOST, rank);
    return wfi_fail(p->ctx, WF_DOES_NOT_FIT,
                    "rank %d needs %s of the host's memory, %s more than the %s given; tensors "
                    "that offload= keeps there can be kept in a file with :disk",
                    rank, size_text(needs, peak), size_text(missing, peak - s->all.host_bytes),
                    size_text(given, s->all.host_bytes));
}

wf_status wf_program_fits(const wf_program *p, size_t device_bytes, size_t host_bytes,
                          wf_proposal **proposals_out, int *n_out) {
    const search s = search_for(p, device_bytes, host_bytes);
    wf_proposal *proposals = NULL;
    int n = 0;
    if (proposals_out) *proposals_out = NULL, *n_out = 0;
    if (wfi_search_fits(&s.all, p)) return WF_OK;
    if (!proposals_out) return refuse(&s);
    wf_status status = wf_program_propose(p, device_bytes, host_bytes, 0, &proposals, &n);
    if (status == WF_OK && n && wfi_model_n_layers(p->model))
        status = find_most_layers(&s, &proposals[0], &proposals[0].n_layers);
    if (status != WF_OK) {
        wf_proposals_destroy(p->ctx, proposals, n);
        return status;
    }
    *proposals_out = proposals;
    *n_out = n;
    return refuse(&s);
}
