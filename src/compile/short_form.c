/* The short form of a step. In the steady phase of a pipeline each rank repeats the same actions,
 * one period of microbatches later. The short form leaves out whole periods of each lane. Its
 * memory plan is the plan of the whole step: blocks that are one period apart have one offset.
 *
 * The step is cut along its sequence, an order of the begins and ends of all ranks' actions. From
 * one period before a cut to one period after it, the sequence is compared event by event. So
 * lowering, which reads only the lists and the sequence, emits the same instructions again.
 * period.c compares the instructions of the two periods around a cut, and their dependencies.
 *
 * A program that is only planned may have only the short form (WFI_USE_LOOK_SHORT). Its proof is
 * one of the whole step:
 *
 * - The whole step is the short form with pairs of periods inserted at the cuts, each instruction
 *   of which depends on instructions as far behind it as in the short form. A legal order of the
 *   short form, with the order of the periods repeated, is a legal order of the whole step.
 * - A block is alive for less than the period, or for less than two and has a place that no other
 *   blocks use but those of every other period. So any two blocks that are alive at the same time
 *   and may share bytes are alive at the same time in the short form, under other microbatches, and
 *   there they do not share bytes. A ring has no other blocks.
 * - A period adds its microbatches to a lane's sum as the one before it does: to the sum so far, in
 *   ascending order. The first and the last microbatches of each lane are in the short form.
 *
 * A program that runs has all instructions, and its proof does not rely on this.
 */
#include "compile/short_form.h"
#include "layout/layout.h"
#include "lower/lower.h"
#include "program/stage.h"

/* Shorter lanes are not cut. */
#define LEAST_LANE 16
/* Periods that are tried, if the blocks of one do not end before the next one's begin. */
#define MOST_TRIES 2
/* The largest rank's peak may be above the lower bound by so small a part. */
#define TIGHT_PARTS 40

/* The begin or the end of an action. */
typedef struct event {
    int32_t rank, action;
    bool is_begin;
} event;

typedef struct search {
    const wf_program *p;
    const wfi_action_list *lists;
    const wfi_sequence *sequence;
    event *events;             /* in the order of the sequence */
    int32_t *begins;           /* [n_replica] the first replica's microbatches on the first stage */
    int32_t *n_actions;        /* [n_replica] of a rank that are left */
    int64_t n_replica, n_lane; /* microbatches */
    int64_t n_in_flight;
} search;

/* Statistics and hidden state of each microbatch live until the end of the step. */
static bool may_repeat(const wf_program *p) {
    int64_t n_lane = p->recipe.n_micro / p->recipe.n_lanes;
    bool may = wfi_differentiates(p) && !p->like && !p->plan->lanes && p->n_variants == 1 &&
               !p->gap_bytes && n_lane >= LEAST_LANE;
    for (int32_t s = 0; s < p->n_stages; s++) may &= p->stages[s].n_replicas == p->mesh.dp;
    for (int32_t u = 0; u < p->graph->n_units; u++)
        may &=
            !p->code->units[u].bytes[WFI_BLOCK_STATS] && !p->code->units[u].bytes[WFI_BLOCK_HIDDEN];
    return may;
}

static int64_t first_micro(const wf_program *p, int32_t rank) {
    return wfi_first_micro(p, 0, wfi_mesh_at(&p->mesh, WFI_DP, rank));
}

/* The number of microbatches in flight when one ends on the rank: that one, and all later ones. */
static int64_t count_in_flight(const search *s, int32_t rank) {
    const wfi_action_list *list = &s->lists[rank];
    int64_t n_begun = 0, most = 0, base = first_micro(s->p, rank);
    for (int64_t m = 0; m < s->n_replica; m++) s->n_actions[m] = 0;
    for (int32_t k = 0; k < list->n; k++) s->n_actions[list->actions[k].micro - base]++;
    for (int32_t k = 0; k < list->n; k++) {
        int64_t m = list->actions[k].micro - base;
        if (m >= n_begun) n_begun = m + 1;
        if (!--s->n_actions[m] && n_begun - m > most) most = n_begun - m;
    }
    return most;
}

static void list_events(const search *s) {
    const wf_program *p = s->p;
    for (int32_t i = 0; i < p->n_lowered; i++) {
        int32_t rank = p->lowered[i];
        bool is_first =
            wfi_mesh_at(&p->mesh, WFI_DP, rank) == wfi_mesh_at(&p->mesh, WFI_DP, p->lowered[0]);
        for (int32_t k = 0; k < s->lists[rank].n; k++) {
            const wfi_action *a = &s->lists[rank].actions[k];
            s->events[s->sequence->begin[rank][k]] = (event){rank, k, true};
            s->events[s->sequence->end[rank][k]] = (event){rank, k, false};
            if (is_first && wfi_mesh_reports(&p->mesh, rank) && !a->stage &&
                a->kind == WFI_ACTION_F)
                s->begins[a->micro - first_micro(p, rank)] = s->sequence->begin[rank][k];
        }
    }
}

static wf_status begin_search(search *s, wfi_pool *pool) {
    const wf_program *p = s->p;
    size_t n_events = 1;
    for (int32_t k = 0; k < p->n_lowered; k++) n_events += 2 * (size_t)s->lists[p->lowered[k]].n;
    s->n_replica = p->recipe.n_micro / p->mesh.dp;
    s->n_lane = p->recipe.n_micro / p->recipe.n_lanes;
    s->events = wfi_pool_alloc(pool, n_events, sizeof *s->events);
    s->begins = wfi_pool_alloc(pool, (size_t)s->n_replica, sizeof *s->begins);
    s->n_actions = wfi_pool_alloc(pool, (size_t)s->n_replica, sizeof *s->n_actions);
    if (!s->events || !s->begins || !s->n_actions) return WF_NO_MEMORY;
    list_events(s);
    for (int32_t k = 0; k < p->n_lowered; k++) {
        int64_t n = count_in_flight(s, p->lowered[k]);
        if (n > s->n_in_flight) s->n_in_flight = n;
    }
    return WF_OK;
}

/* Whether all events from the begin of microbatch `from` to that of `to`, which is a period behind
 * the last one, come again n_period microbatches later. */
static bool repeats(const search *s, int64_t n_period, int64_t from, int64_t to) {
    int32_t n = s->begins[from + n_period] - s->begins[from];
    bool is = true;
    for (int32_t at = s->begins[from]; at + n < s->begins[to] && is; at++) {
        const event *x = &s->events[at], *y = &s->events[at + n];
        const wfi_action *a = &s->lists[x->rank].actions[x->action],
                         *b = &s->lists[y->rank].actions[y->action];
        is = x->rank == y->rank && x->is_begin == y->is_begin && a->kind == b->kind &&
             a->stage == b->stage && a->micro + n_period == b->micro;
    }
    return is;
}

/* A lane has `before` microbatches before its cut, the last period of which repeats, and another
 * period and `n_more` microbatches after it. An even number of periods is left out, because some
 * blocks have the offset of the one two periods earlier (memory.c). */
static bool find_cuts(const search *s, int64_t n_period, int64_t n_more, wfi_short_form *f) {
    int64_t before = s->n_in_flight + 1 + n_period;
    int64_t n_out = (s->n_lane - before - n_period - n_more) / (2 * n_period) * 2 * n_period;
    bool is = n_out >= s->n_lane / 4;
    f->n_cuts = (int32_t)(s->n_replica / s->n_lane);
    for (int32_t k = 0; k < f->n_cuts && is; k++) {
        int64_t first = k * s->n_lane + before;
        is = repeats(s, n_period, first - n_period, first + n_out + n_period);
        f->cuts[k] = s->begins[first];
        f->n_places = s->begins[first + n_out] - f->cuts[k];
    }
    f->n_period = is ? n_period : 0;
    f->n_left_out = is ? n_out : 0;
    return is;
}

/* The shortest period, from `least` on. */
static void find_period(const search *s, int64_t least, wfi_short_form *f) {
    int64_t most = 3 * s->n_in_flight + WFI_N_STREAMS;
    for (int64_t n = least; n <= most && n < s->n_lane; n++)
        if (find_cuts(s, n, 1, f) || find_cuts(s, n, s->n_in_flight + 1, f)) return;
}

/* ---- the short form ---- */

/* How many cuts there are before a place of the sequence, and whether it is in the next one. */
static int32_t count_cuts(const wfi_short_form *f, int32_t place, bool *is_in_out) {
    int32_t n = 0;
    while (n < f->n_cuts && place >= f->cuts[n] + f->n_places) n++;
    *is_in_out = n < f->n_cuts && place >= f->cuts[n];
    return n;
}

/* The end of an action before a cut may be in it, and has the place that the end of the same action
 * after the cut would have. */
static void cut_list(const wfi_short_form *f, int32_t rank, int64_t later) {
    const wfi_action_list *list = &f->lists[rank];
    wfi_action_list *out = &f->short_lists[rank];
    for (int32_t k = 0; k < list->n; k++) {
        bool is_in;
        int32_t n = count_cuts(f, f->sequence.begin[rank][k], &is_in);
        if (is_in) continue;
        out->actions[out->n] = list->actions[k];
        out->actions[out->n].micro += (int)(later - n * f->n_left_out);
        f->short_sequence.begin[rank][out->n] = f->sequence.begin[rank][k] - n * f->n_places;
        f->short_sequence.end[rank][out->n++] = f->sequence.end[rank][k] - n * f->n_places;
    }
}

static wf_status cut_lists(const wf_program *p, wfi_pool *pool, wfi_short_form *f) {
    wfi_sequence *s = &f->short_sequence;
    size_t n_ranks = (size_t)p->n_ranks;
    f->short_lists = wfi_pool_alloc(pool, n_ranks, sizeof *f->short_lists);
    s->begin = wfi_pool_alloc(pool, n_ranks, sizeof *s->begin);
    s->end = wfi_pool_alloc(pool, n_ranks, sizeof *s->end);
    s->emitted = wfi_pool_alloc(pool, n_ranks, sizeof *s->emitted);
    if (!f->short_lists || !s->begin || !s->end || !s->emitted) return WF_NO_MEMORY;
    for (int32_t k = 0; k < p->n_lowered; k++) {
        int32_t rank = p->lowered[k];
        size_t n = (size_t)f->lists[rank].n;
        wfi_action_list *out = &f->short_lists[rank];
        out->actions = wfi_pool_alloc(pool, n, sizeof *out->actions);
        s->begin[rank] = wfi_pool_alloc(pool, n, sizeof(int32_t));
        s->end[rank] = wfi_pool_alloc(pool, n, sizeof(int32_t));
        s->emitted[rank] = wfi_pool_alloc(pool, n + 1, sizeof(int32_t));
        if (!out->actions || !s->begin[rank] || !s->end[rank] || !s->emitted[rank])
            return WF_NO_MEMORY;
        cut_list(f, rank, first_micro(f->shorter, rank) - first_micro(p, rank));
    }
    return WF_OK;
}

/* The same program with fewer microbatches, before lowering. The shorter program borrows everything
 * but blocks and instructions. */
static wf_status begin_shorter(const wf_program *p, wfi_short_form *f) {
    wf_program *s = wfi_alloc(p->ctx, 1, sizeof *s, "a program");
    if (!s) return WF_NO_MEMORY;
    *s = *p;
    f->shorter = s;
    wfi_pool_init(&s->pool, p->ctx);
    s->recipe.n_micro -= f->n_left_out * p->recipe.n_lanes;
    s->recipe.batch = p->recipe.batch / p->recipe.n_micro * s->recipe.n_micro;
    size_t n_stages = (size_t)p->n_stages, n_ranks = (size_t)p->n_ranks;
    s->stages = wfi_pool_alloc(&s->pool, n_stages, sizeof *s->stages);
    s->ranks = wfi_pool_alloc(&s->pool, n_ranks, sizeof *s->ranks);
    if (!s->stages || !s->ranks) return WF_NO_MEMORY;
    for (int32_t k = 0; k < p->n_stages; k++) {
        wfi_stage *stage = &s->stages[k];
        *stage = p->stages[k];
        stage->first_micro =
            wfi_pool_alloc(&s->pool, (size_t)stage->n_replicas + 1, sizeof *stage->first_micro);
        if (!stage->first_micro) return WF_NO_MEMORY;
        for (int32_t r = 0; r <= stage->n_replicas; r++)
            stage->first_micro[r] = r * (s->recipe.n_micro / stage->n_replicas);
    }
    for (int32_t r = 0; r < p->n_ranks; r++) s->ranks[r] = p->ranks[r];
    return WF_OK;
}

void wfi_program_end_shorter(wf_program *s) {
    if (!s) return;
    wfi_free(s->ctx, s->blocks);
    wfi_free(s->ctx, s->instructions);
    wfi_free(s->ctx, s->clock);
    wfi_free(s->ctx, s->order);
    wfi_free(s->ctx, s->rings);
    wfi_pool_release(&s->pool);
    wfi_free(s->ctx, s);
}

/* Whether the largest rank needs little more than any plan would. Ranks with fewer microbatches in
 * flight than others have may need more. */
static bool is_tight(const wf_program *s) {
    bool is = true;
    for (int space = 0; space < WFI_N_SPACES; space++) {
        size_t peak = 0, bound = 0;
        for (int32_t k = 0; k < s->n_lowered; k++) {
            const wfi_arena_plan *arena = &s->ranks[s->lowered[k]].arenas[space];
            if (arena->peak_bytes > peak) peak = arena->peak_bytes;
            if (arena->bound_bytes > bound) bound = arena->bound_bytes;
        }
        is &= peak <= bound + bound / TIGHT_PARTS;
    }
    return is;
}

static wf_status place_shorter(const wf_program *p, wfi_short_form *f, bool *fits_out) {
    wf_program *s = f->shorter;
    WF_TRY(wfi_program_lower(s, f->short_lists, &f->short_sequence));
    WF_TRY(wfi_program_depend(s));
    WF_TRY(wfi_program_order(s));
    int32_t *next = wfi_alloc(p->ctx, (size_t)s->n_blocks, sizeof *next, "the memory plan");
    wf_status status = next ? wfi_short_form_next(f, next, fits_out) : WF_NO_MEMORY;
    if (status == WF_OK && *fits_out)
        status = wfi_program_place(s, next, p->recipe.n_micro / p->mesh.dp, f->n_period, fits_out);
    if (status == WF_OK && *fits_out) *fits_out = is_tight(s);
    wfi_free(p->ctx, next);
    return status;
}

static wf_status try_form(wf_program *p, wfi_pool *pool, wfi_short_form *f, bool *fits_out) {
    WF_TRY(begin_shorter(p, f));
    WF_TRY(cut_lists(p, pool, f));
    return place_shorter(p, f, fits_out);
}

wf_status wfi_short_form_find(wf_program *p, wfi_pool *pool, const wfi_action_list *lists,
                              wfi_short_form *f) {
    bool fits = false;
    search s = {.p = p, .lists = lists, .sequence = &f->sequence};
    f->lists = lists;
    if (!may_repeat(p)) return WF_OK;
    WF_TRY(wfi_sequence_make(p, pool, lists, true, &f->sequence));
    WF_TRY(begin_search(&s, pool));
    f->cuts = wfi_pool_alloc(pool, (size_t)(s.n_replica / s.n_lane), sizeof *f->cuts);
    if (!f->cuts) return WF_NO_MEMORY;
    /* A transfer may begin a microbatch before its actions do, and its block must end within two
     * periods. */
    int64_t least = p->n_stages > 1 ? wfi_max_i64(2, s.n_in_flight) : s.n_in_flight;
    for (int k = 0; k < MOST_TRIES && !fits; k++, least = f->n_period + 1) {
        wfi_program_end_shorter(f->shorter);
        f->shorter = NULL;
        find_period(&s, least, f);
        if (!f->n_period) return WF_OK;
        WF_TRY(try_form(p, pool, f, &fits));
    }
    if (fits) return WF_OK;
    wfi_program_end_shorter(f->shorter);
    f->shorter = NULL;
    return WF_OK;
}
