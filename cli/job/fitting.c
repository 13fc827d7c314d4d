/* The plans of a search that may fit, in the order in which they are lowered. */
#include "job/fitting.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Larger plans take longer than a second to be lowered. */
#define MOST_LOWERED_RANKS 64
#define MOST_LOWERED_WORK  2048 /* layers times microbatches of a replica */

bool job_is_large(const job *j, int n_ranks, int64_t n_each) {
    int64_t n_layers = j->c->o.layers ? j->c->o.layers : 1;
    return n_ranks > MOST_LOWERED_RANKS || n_layers * n_each > MOST_LOWERED_WORK;
}

/* A prediction is at most so many times too high, and is likely to be so few. */
#define MOST_OVER   3
#define LIKELY_OVER 1.25
/* Smaller buckets need less memory, but not so many times less. */
#define FAR_OVER 1.2
/* The work of some seconds. If no plan has fitted then, a quarter of it is left for small plans. */
#define MOST_WORK  (MOST_LOWERED_RANKS * MOST_LOWERED_WORK / 2)
#define LEAST_WORK 80 /* of a plan */
#define MOST_ITEMS (1 << 14)

typedef struct job_item {
    wf_choice choice;
    int place, tie; /* in the order of the search; the fastest of those as fast */
    bool is_likely; /* to fit */
    double needs;   /* as a share of the limits; 0: not lowered */
} item;

/* Returns whether a plan is predicted to need at most `times` the limits. */
static bool is_within(const struct job_list *l, const wf_prediction *p, double times) {
    const options *o = &l->j->c->o;
    double device = times * (double)o->device_memory, host = times * (double)o->host_memory;
    return (device == 0 || p->peak_bytes - p->library_bytes <= device) &&
           (host == 0 || p->host_bytes <= host);
}

static int compare(double x, double y) {
    return (x > y) - (x < y);
}

static int compare_times(const void *a, const void *b) {
    const item *x = a, *y = b;
    int by_time = compare(x->choice.prediction.step_ms, y->choice.prediction.step_ms);
    return by_time ? by_time : x->place - y->place;
}

static int compare_ties(const void *a, const void *b) {
    const item *x = a, *y = b;
    return x->tie != y->tie ? x->tie - y->tie : x->place - y->place;
}

static int compare_bytes(const void *a, const void *b) {
    const item *x = a, *y = b;
    int by_bytes = compare(x->choice.prediction.peak_bytes, y->choice.prediction.peak_bytes);
    return by_bytes ? by_bytes : x->place - y->place;
}

/* Adds a plan, unless it is a large one that is predicted not to fit. A full list loses its slower
 * half. */
static void add_plan(void *self, const wf_choice *choice) {
    struct job_list *l = self;
    const wf_prediction *p = &choice->prediction;
    if (p->step_ms <= l->listed_ms || p->step_ms > l->most_ms) return;
    bool is_large = job_is_large(l->j, p->n_ranks, choice->n_micro / choice->n_lanes);
    if (is_large && !is_within(l, p, 1)) return;
    if (l->n == MOST_ITEMS) {
        qsort(l->items, MOST_ITEMS, sizeof *l->items, compare_times);
        l->n /= 2;
        l->most_ms = l->items[l->n - 1].choice.prediction.step_ms;
    }
    l->items[l->n++] = (item){*choice, l->place++, 0, is_within(l, p, LIKELY_OVER), 0};
}

/* Orders the plans by time, and ties by the order of the search. */
static void sort_plans(struct job_list *l) {
    qsort(l->items, (size_t)l->n, sizeof *l->items, compare_times);
    for (int k = 1; k < l->n; k++) {
        int first = l->items[k - 1].tie;
        bool is_tie = (1 - TIE) * l->items[k].choice.prediction.step_ms <=
                      l->items[first].choice.prediction.step_ms;
        l->items[k].tie = is_tie ? first : k;
    }
    qsort(l->items, (size_t)l->n, sizeof *l->items, compare_ties);
}

/* Lists the fastest plans of at most `most_ms` that may fit and have not been listed. */
static wf_status list_plans(job *j, double most_ms) {
    struct job_list *l = j->list;
    wf_prediction_request q = job_request_within(j);
    q.recipe = &j->given;
    q.device_bytes *= MOST_OVER;
    q.host_bytes *= MOST_OVER;
    l->n = l->next = l->place = 0;
    l->is_by_bytes = l->takes_all = false;
    l->most_ms = most_ms;
    if (!l->items) l->items = calloc(MOST_ITEMS, sizeof *l->items);
    if (!l->items) return WF_NO_MEMORY;
    wf_status status = wf_cluster_each(j->c->ctx, &q, most_ms, 1, add_plan, l);
    l->listed_ms = l->most_ms;
    sort_plans(l);
    return status;
}

void job_end_list(job *j) {
    if (j->list) free(j->list->items);
    free(j->list);
}

/* Skips keys that change nothing if the predictions are equal. */
static const char *skip_keys(const char *at) {
    while (!strncmp(at, ",bucket=", 8) || !strncmp(at, ",recompute=", 11))
        at += 1 + strcspn(at + 1, ",");
    return at;
}

static bool is_alike(const wf_choice *a, const wf_choice *b) {
    const wf_prediction *p = &a->prediction, *q = &b->prediction;
    const char *x = skip_keys(a->plan), *y = skip_keys(b->plan);
    for (; *x && *x == *y; x = skip_keys(x + 1), y = skip_keys(y + 1)) continue;
    return *x == *y && p->step_ms == q->step_ms && p->peak_bytes == q->peak_bytes &&
           a->n_micro == b->n_micro;
}

static long bucket_of(const wf_choice *c) {
    const char *at = strstr(c->plan, ",bucket=");
    return at ? strtol(at + 8, NULL, 10) : 4; /* MiB */
}

/* Returns whether a plan before the next one has the same prediction and needs too much: far too
 * much, or with buckets that are no larger. */
static bool is_hopeless(struct job_list *l) {
    item *next = &l->items[l->next];
    for (int k = l->next - 1; k >= 0 && l->items[k].tie == next->tie && !next->needs; k--) {
        const item *other = &l->items[k];
        if (other->needs <= 1 || !is_alike(&other->choice, &next->choice)) continue;
        bool is_smaller = bucket_of(&next->choice) < bucket_of(&other->choice);
        if (!is_smaller || other->needs > FAR_OVER) next->needs = other->needs;
    }
    return next->needs > 0;
}

static bool has_fitting(const struct job_list *l) {
    return *l->least.plan && l->least_needs <= 1;
}

static bool is_skipped(struct job_list *l) {
    const item *next = &l->items[l->next];
    return next->needs > 0 || (!l->takes_all && !next->is_likely) || is_hopeless(l);
}

/* Moves to the next plan to try: first of those that are likely to fit, then of the others, then of
 * slower ones. False: there is none, or enough have been tried. */
static bool find_next(job *j) {
    struct job_list *l = j->list;
    if (l->work > MOST_WORK + (has_fitting(l) ? 0 : MOST_WORK / 4)) return false;
    if (l->work > MOST_WORK && !l->is_by_bytes) {
        qsort(l->items, (size_t)l->n, sizeof *l->items, compare_bytes);
        l->is_by_bytes = l->takes_all = true;
        l->next = 0;
    }
    while (l->next < l->n && is_skipped(l)) l->next++;
    if (l->next < l->n) return true;
    if (!l->takes_all) {
        l->takes_all = true;
        l->next = 0;
        return find_next(j);
    }
    if (has_fitting(l) || !(l->listed_ms < INFINITY)) return false;
    return list_plans(j, INFINITY) == WF_OK && find_next(j);
}

/* The work of lowering a plan. */
static int64_t work_of(const job *j, const wf_choice *c) {
    const wf_model_config *config = wf_model_config_of(j->model);
    int64_t n_layers = config && config->n_layers ? config->n_layers : 1;
    int64_t work = n_layers * c->prediction.n_ranks * (c->n_micro / c->n_lanes);
    return work > LEAST_WORK ? work : LEAST_WORK;
}

const wf_choice *fitting_next(job *j) {
    struct job_list *l = j->list;
    l->has_ended = !find_next(j);
    const wf_choice *next = l->has_ended ? &l->least : &l->items[l->next++].choice;
    if (!*next->plan || (l->has_ended && !strcmp(next->plan, j->choices->plan))) return NULL;
    l->work += work_of(j, next);
    return next;
}

bool fitting_list(job *j, double needs) {
    struct job_list *l = j->list;
    const wf_choice *first = j->choices;
    bool fits = needs <= 1 || first->prediction.fits;
    if (list_plans(j, fits ? first->prediction.step_ms : INFINITY) != WF_OK) return false;
    for (int k = 0; k < l->n; k++) {
        const wf_choice *own = &l->items[k].choice;
        if (own->n_micro != first->n_micro || strcmp(own->plan, first->plan) != 0) continue;
        l->items[k].needs = needs;
        if (needs <= 1) l->n = k;
    }
    return true;
}

void fitting_remember(job *j, double needs) {
    struct job_list *l = j->list;
    if (l->next) l->items[l->next - 1].needs = needs;
    if (*l->least.plan && needs > 1 && l->least_needs <= needs) return;
    l->least = j->choices[0];
    l->least_needs = needs;
}

bool fitting_is_fastest(struct job_list *l) {
    if (!l->items) return !l->is_limited;
    if (l->takes_all) return true;
    l->n = l->next - 1;
    l->next = 0;
    l->work = MOST_WORK / 2;
    return !(l->takes_all = l->n > 0);
}
