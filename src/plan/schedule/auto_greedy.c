/* Candidates made event by event: whichever stage can begin something first does. A policy
 * says how far forwards run ahead of B, and how large a gap W may fill. */
#include "plan/schedule/auto.h"

#include <math.h>
#include <string.h>

/* So many actions at most, all policies together, but one policy at least; the most promising
 * policies come first. */
#define MAX_ACTIONS 5e6

typedef struct policy {
    double ahead; /* forwards before the first B, in what keeps the pipeline full */
    double gap;   /* W begins if nothing else does within this part of its time */
    bool forward_first;
} policy;

typedef struct stage {
    double free;
    int n_forward, n_backward, n_weight, ahead;
    wfi_action_kind next;
} stage;

typedef struct greedy {
    wfi_auto *a;
    policy policy;
    stage *stages;
    double *forward_end, *backward_end; /* [n_stages][n_micro]; INFINITY: not known yet */
    double *tree; /* when stages begin their next action, and over them the least of two */
    int n_leaves;
} greedy;

static double arrival(const greedy *g, int from, int micro, const double *end) {
    const wfi_schedule_request *r = g->a->request;
    if (from < 0 || from == r->n_stages) return 0;
    return end[(size_t)from * (size_t)r->n_micro + (size_t)micro] + r->transfer;
}

/* When stage `s` could begin its next F and B; INFINITY if that is not known. */
static double forward_begin(const greedy *g, int s) {
    const stage *at = &g->stages[s];
    if (at->n_forward == g->a->request->n_micro || at->n_forward - at->n_backward >= at->ahead ||
        at->n_forward - at->n_weight >= g->a->hold)
        return INFINITY;
    return fmax(at->free, arrival(g, s - 1, at->n_forward, g->forward_end));
}

static double backward_begin(const greedy *g, int s) {
    const stage *at = &g->stages[s];
    if (at->n_backward == at->n_forward) return INFINITY;
    return fmax(at->free, arrival(g, s + 1, at->n_backward, g->backward_end));
}

/* Decides what stage `s` does next, and notes when. */
static void decide(greedy *g, int s) {
    stage *at = &g->stages[s];
    double forward = forward_begin(g, s), backward = backward_begin(g, s);
    bool is_forward = g->policy.forward_first ? forward <= backward : forward < backward;
    double begin = fmin(forward, backward);
    at->next = is_forward ? WFI_ACTION_F : WFI_ACTION_B;
    if (at->n_weight < at->n_backward && begin > at->free &&
        begin - at->free >= g->policy.gap * g->a->request->times[s].weight) {
        at->next = WFI_ACTION_W;
        begin = at->free;
    }
    int i = g->n_leaves + s;
    g->tree[i] = begin;
    for (i /= 2; i; i /= 2) g->tree[i] = fmin(g->tree[2 * i], g->tree[2 * i + 1]);
}

static void perform(greedy *g, int s, double begin) {
    const wfi_schedule_request *r = g->a->request;
    stage *at = &g->stages[s];
    int *count = at->next == WFI_ACTION_F   ? &at->n_forward
                 : at->next == WFI_ACTION_B ? &at->n_backward
                                            : &at->n_weight;
    size_t cell = (size_t)s * (size_t)r->n_micro + (size_t)*count;
    at->free = begin + wfi_auto_duration(&r->times[s], at->next);
    wfi_action_push(&g->a->trial[s], at->next, s, (*count)++);
    if (at->next == WFI_ACTION_F) g->forward_end[cell] = at->free;
    if (at->next == WFI_ACTION_B) g->backward_end[cell] = at->free;
    int receiver = at->next == WFI_ACTION_F ? s + 1 : at->next == WFI_ACTION_B ? s - 1 : -1;
    decide(g, s);
    if (receiver >= 0 && receiver < r->n_stages) decide(g, receiver);
}

/* How many F a stage can begin until the B of the first of them comes back. */
static void set_ahead(greedy *g) {
    const wfi_schedule_request *r = g->a->request;
    double period = 0, round_trip = 0;
    for (int s = 0; s < r->n_stages; s++)
        period = fmax(period, r->times[s].forward + r->times[s].backward);
    for (int s = r->n_stages - 1; s >= 0; s--) {
        double ahead = period > 0 ? ceil(g->policy.ahead * round_trip / period - 1e-9) : 0;
        g->stages[s].ahead = 1 + (int)fmin(ahead, r->n_micro);
        round_trip += r->times[s].forward + r->times[s].backward + 2 * r->transfer;
    }
}

static wf_status offer(greedy *g) {
    const wfi_schedule_request *r = g->a->request;
    size_t cells = (size_t)r->n_stages * (size_t)r->n_micro;
    memset(g->stages, 0, (size_t)r->n_stages * sizeof *g->stages);
    for (size_t c = 0; c < cells; c++) g->forward_end[c] = g->backward_end[c] = INFINITY;
    for (int i = 0; i < 2 * g->n_leaves; i++) g->tree[i] = INFINITY;
    set_ahead(g);
    for (int s = 0; s < r->n_stages; s++) {
        g->a->trial[s].n = 0;
        decide(g, s);
    }
    while (g->tree[1] < INFINITY) {
        int i = 1;
        while (i < g->n_leaves) i = g->tree[2 * i] <= g->tree[2 * i + 1] ? 2 * i : 2 * i + 1;
        perform(g, i - g->n_leaves, g->tree[i]);
    }
    return wfi_auto_offer(g->a);
}

static wf_status offer_all(greedy *g) {
    static const double ahead[] = {1,   2,   1.5,  3,    1.25, 1.75, 2.5, 1e9, 1.1, 1.4,
                                   1.6, 1.9, 2.25, 2.75, 1.2,  1.3,  1.7, 1.8, 4,   2.1};
    static const double gap[] = {0, 1, 0.5, 0.75, 0.25, 1.5, 2};
    double n = 3.0 * g->a->request->n_stages * g->a->request->n_micro, left = MAX_ACTIONS;
    for (size_t i = 0; i < WFI_COUNT(ahead); i++)
        for (size_t j = 0; j < WFI_COUNT(gap); j++)
            for (int first = 0; first < 2; first++) {
                if (wfi_auto_is_done(g->a)) return WF_OK;
                g->policy = (policy){ahead[i], gap[j], first};
                WF_TRY(offer(g));
                left -= n;
                if (left < 0) return WF_OK;
            }
    return WF_OK;
}

wf_status wfi_auto_greedy(wfi_auto *a) {
    size_t stages = (size_t)a->request->n_stages, cells = stages * (size_t)a->request->n_micro;
    greedy g = {.a = a, .n_leaves = 1};
    while (g.n_leaves < a->request->n_stages) g.n_leaves *= 2;
    g.stages = wfi_alloc(a->ctx, stages, sizeof *g.stages, "a schedule");
    g.forward_end = wfi_alloc(a->ctx, cells, sizeof *g.forward_end, "a schedule");
    g.backward_end = wfi_alloc(a->ctx, cells, sizeof *g.backward_end, "a schedule");
    g.tree = wfi_alloc(a->ctx, 2 * (size_t)g.n_leaves, sizeof *g.tree, "a schedule");
    bool good = g.stages && g.forward_end && g.backward_end && g.tree;
    wf_status status = good ? offer_all(&g) : WF_NO_MEMORY;
    wfi_free(a->ctx, g.stages);
    wfi_free(a->ctx, g.forward_end);
    wfi_free(a->ctx, g.backward_end);
    wfi_free(a->ctx, g.tree);
    return status;
}
