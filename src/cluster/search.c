/* The best plans within bounds, by prediction. */
#include "cluster/search.h"

#include <stdio.h>
#include <string.h>

/* A plan that is faster by less is no better: the simpler one, which comes first, stays. */
#define TIE 1e-3
/* Plans that take longer than so many of the best are not proposed. */
#define MOST_TIMES 4

bool wfi_is_better(const wf_prediction *a, const wf_prediction *b) {
    if (a->fits != b->fits) return a->fits;
    return a->fits ? a->step_ms < (1 - TIE) * b->step_ms : a->short_by_bytes < b->short_by_bytes;
}

typedef struct candidate {
    wfi_case c;
    wf_prediction prediction;
} candidate;

/* The best of each mesh, the best first; or, if nothing fits, the one that lacks the fewest bytes.
 */
typedef struct search {
    wfi_predictor *p;
    int most, n;
    candidate *found;  /* [n], in order */
    char refusal[200]; /* of the first case that the model refuses */
} search;

static bool is_same_mesh(const wfi_case *a, const wfi_case *b) {
    return a->dp == b->dp && a->pp == b->pp && a->tp == b->tp;
}

static void remove_at(search *s, int k) {
    memmove(&s->found[k], &s->found[k + 1], (size_t)(--s->n - k) * sizeof *s->found);
}

/* A mesh has one place. Plans that do not fit have one place, and lose it to the first that does.
 */
static void keep(search *s, const wfi_case *c, const wf_prediction *x) {
    if (s->n && s->found[0].prediction.fits && !x->fits) return;
    if (s->n && !s->found[0].prediction.fits) {
        if (!wfi_is_better(x, &s->found[0].prediction)) return;
        s->n = 0;
    }
    for (int k = 0; k < s->n; k++) {
        if (!is_same_mesh(&s->found[k].c, c)) continue;
        if (!wfi_is_better(x, &s->found[k].prediction)) return;
        remove_at(s, k--);
    }
    int at = 0; /* of ties, each is one of the next, but not of all that follow */
    while (at < s->n && !wfi_is_better(x, &s->found[at].prediction)) at++;
    if (at == s->most) return;
    if (s->n == s->most) s->n--;
    memmove(&s->found[at + 1], &s->found[at], (size_t)(s->n++ - at) * sizeof *s->found);
    s->found[at] = (candidate){*c, *x};
}

/* Before one fits, a plan needs to lack fewer bytes; then, to be as fast as the last place's, or
 * not much slower than the best. */
static wfi_limits limits_of(const search *s) {
    if (!s->n) return (wfi_limits){INFINITY, INFINITY};
    bool fits = s->found[0].prediction.fits;
    if (!fits) return (wfi_limits){INFINITY, s->found[0].prediction.short_by_bytes};
    return (wfi_limits){s->n == s->most ? s->found[s->n - 1].prediction.step_ms
                                        : MOST_TIMES * s->found->prediction.step_ms,
                        0};
}

/* Cases that the model refuses are none. */
static wf_status take(void *self, const wfi_case *c, wfi_use *use_out) {
    search *s = self;
    wf_prediction x;
    wfi_verdict verdict;
    wfi_limits limits = limits_of(s);
    wf_status status = wfi_predict_case(s->p, c, &limits, &x, &verdict);
    if (wfi_is_refused(status)) {
        const char *why = wf_context_error(s->p->ctx);
        if (!*s->refusal) snprintf(s->refusal, sizeof s->refusal, "%.199s", why);
        return WF_OK;
    }
    if (status != WF_OK) return status;
    if (verdict == WFI_PREDICTED) keep(s, c, &x);
    if (verdict == WFI_TOO_SLOW || (verdict == WFI_PREDICTED && x.fits)) *use_out = WFI_SUFFICIENT;
    return WF_OK;
}

/* ---- plans as text ---- */

static void add(char *text, size_t size, const char *format, ...) WFI_PRINTF(3, 4);
static void add(char *text, size_t size, const char *format, ...) {
    size_t n = strlen(text);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text + n, size - n, format, arguments);
    va_end(arguments);
}

static void add_offload(const wfi_case *c, char *text, size_t size) {
    static const char *const names[] = {"state", "params", "activations"};
    const char *separator = ",offload=";
    for (int k = 0; k < WFI_N_OFFLOADS; k++) {
        if (c->offload[k] == WFI_SPACE_DEVICE) continue;
        add(text, size, "%s%s%s", separator, names[k],
            c->offload[k] == WFI_SPACE_DISK ? ":disk" : "");
        separator = "+";
    }
}

static void write_plan(const wfi_case *c, char *text, size_t size) {
    static const char *const recompute[] = {"", ",recompute=selective", ",recompute=all"};
    snprintf(text, size, c->has_root ? "dataparallel=%d" : "dp=%d", c->dp);
    if (c->pp > 1) add(text, size, ",pp=%d", c->pp);
    if (c->tp > 1) add(text, size, ",tp=%d%s", c->tp, c->divides_rows ? ",sp" : "");
    bool has_schedule = c->pp > 1 || c->schedule->by_unit;
    if (has_schedule) add(text, size, ",schedule=%s", c->schedule->name);
    if (c->schedule->any_chunks) add(text, size, ",chunks=%d", c->chunks);
    if (c->zero) add(text, size, ",zero=%d", c->zero);
    if (c->zero && c->shard < c->dp) add(text, size, ",shard=%d", c->shard);
    if (c->bucket_bytes != (double)WFI_DEFAULT_BUCKET_BYTES)
        add(text, size, ",bucket=%.0fMiB", c->bucket_bytes / (1 << 20));
    add(text, size, "%s", recompute[c->recompute]);
    add_offload(c, text, size);
}

static void write_choice(const candidate *found, const char *strategy, wf_choice *to) {
    *to = (wf_choice){.struct_size = sizeof *to,
                      .strategy = strategy,
                      .n_micro = found->c.n_micro,
                      .n_lanes = found->c.dp,
                      .n_slices = found->c.tp,
                      .prediction = found->prediction};
    write_plan(&found->c, to->plan, sizeof to->plan);
}

/* ---- public ---- */

#define ANY_ZERO 15

static const wfi_bounds any = {"any",        WFI_ANY_SIZE, WFI_ANY_SIZE, WFI_ANY_SIZE,
                               WFI_ANY_SIZE, ANY_ZERO,     false};

wf_status wf_cluster_search(wf_context *ctx, const wf_prediction_request *request, int n,
                            wf_choice *choices_out, int *n_out) {
    wfi_predictor p;
    *n_out = 0;
    if (n < 1) return wfi_fail(ctx, WF_INVALID_ARG, "a search for %d plans", n);
    WF_TRY(wfi_check_struct(ctx, choices_out, sizeof *choices_out, "wf_choice"));
    WF_TRY(wfi_predictor_begin(ctx, request, &p));
    search s = {
        .p = &p, .most = n, .found = wfi_alloc(ctx, (size_t)n, sizeof(candidate), "a search")};
    wf_status status = s.found ? wfi_each_case(&p, &any, take, &s) : WF_NO_MEMORY;
    for (; *n_out < s.n && status == WF_OK; ++*n_out)
        write_choice(&s.found[*n_out], any.strategy, &choices_out[*n_out]);
    wfi_free(ctx, s.found);
    wfi_predictor_end(&p);
    return status;
}

typedef struct visitor {
    wfi_predictor *p;
    wfi_limits limits;
    bool must_fit;
    wf_choice_visit visit;
    void *self;
} visitor;

/* A plan that fits may need more than is predicted, so it does not suffice. */
static wf_status show(void *self, const wfi_case *c, wfi_use *use_out) {
    visitor *v = self;
    candidate one = {.c = *c};
    wf_choice choice;
    wfi_verdict verdict;
    wf_status status = wfi_predict_case(v->p, c, &v->limits, &one.prediction, &verdict);
    if (wfi_is_refused(status)) return WF_OK;
    if (status != WF_OK) return status;
    if (verdict == WFI_TOO_SLOW) *use_out = WFI_SUFFICIENT;
    if (verdict != WFI_PREDICTED) return WF_OK;
    if (one.prediction.fits) *use_out = WFI_USEFUL;
    if (v->must_fit && !one.prediction.fits) return WF_OK;
    write_choice(&one, any.strategy, &choice);
    v->visit(v->self, &choice);
    return WF_OK;
}

wf_status wf_cluster_each(wf_context *ctx, const wf_prediction_request *request, double most_ms,
                          int must_fit, wf_choice_visit visit, void *self) {
    wfi_predictor p;
    visitor v = {&p, {most_ms, must_fit ? 0 : INFINITY}, must_fit, visit, self};
    WF_TRY(wfi_predictor_begin(ctx, request, &p));
    wf_status status = wfi_each_case(&p, &any, show, &v);
    wfi_predictor_end(&p);
    return status;
}

static const wfi_bounds strategies[WF_N_STRATEGIES] = {
    {"one device", WFI_UNUSED, WFI_UNUSED, WFI_UNUSED, WFI_UNUSED, 1, false},
    {"DataParallel", WFI_USED, WFI_UNUSED, WFI_UNUSED, WFI_UNUSED, 1, true},
    {"DDP", WFI_USED, WFI_UNUSED, WFI_UNUSED, WFI_UNUSED, 1, false},
    {"ZeRO-1", WFI_USED, WFI_UNUSED, WFI_UNUSED, WFI_UNUSED, 2, false},
    {"ZeRO-2", WFI_USED, WFI_UNUSED, WFI_UNUSED, WFI_UNUSED, 4, false},
    {"ZeRO-3", WFI_USED, WFI_UNUSED, WFI_UNUSED, WFI_UNUSED, 8, false},
    {"pipeline", WFI_UNUSED, WFI_USED, WFI_UNUSED, WFI_UNUSED, 1, false},
    {"tensor", WFI_UNUSED, WFI_UNUSED, WFI_USED, WFI_UNUSED, 1, false},
    {"PP+DP", WFI_USED, WFI_USED, WFI_UNUSED, WFI_UNUSED, 1, false},
    {"TP+DP", WFI_USED, WFI_UNUSED, WFI_USED, WFI_UNUSED, 1, false},
    {"PP+TP+DP", WFI_USED, WFI_USED, WFI_USED, WFI_UNUSED, 1, false},
    {"DP+PP+TP+ZeRO-1", WFI_USED, WFI_USED, WFI_USED, WFI_UNUSED, 2, false},
    {"offload", WFI_ANY_SIZE, WFI_UNUSED, WFI_UNUSED, WFI_USED, ANY_ZERO, false},
};

/* Each axis that is used has at least two ranks. */
static void explain_none(const search *s, const wfi_bounds *b, char *why, size_t size) {
    const wf_cluster *c = s->p->q.cluster;
    int n_axes = (b->dp == WFI_USED) + (b->pp == WFI_USED) + (b->tp == WFI_USED);
    if (wf_cluster_n_devices(c) < 1 << n_axes)
        snprintf(why, size, "it needs %d devices; the cluster has %lld", 1 << n_axes,
                 (long long)wf_cluster_n_devices(c));
    else if (b->offload == WFI_USED && c->host_bytes <= 0 && c->disk_bytes <= 0)
        snprintf(why, size, "the cluster has neither host memory nor a disk");
    else if (*s->refusal)
        snprintf(why, size, "%s", s->refusal);
    else
        snprintf(why, size, "the model, batch and recipe have no equal shares for its ranks");
}

wf_status wf_cluster_advise(wf_context *ctx, const wf_prediction_request *request,
                            wf_choice *rows_out) {
    wfi_predictor p;
    WF_TRY(wfi_check_struct(ctx, rows_out, sizeof *rows_out, "wf_choice"));
    WF_TRY(wfi_predictor_begin(ctx, request, &p));
    wf_status status = WF_OK;
    for (int k = 0; k < WF_N_STRATEGIES && status == WF_OK; k++) {
        candidate best;
        search s = {.p = &p, .most = 1, .found = &best};
        status = wfi_each_case(&p, &strategies[k], take, &s);
        rows_out[k] =
            (wf_choice){.struct_size = sizeof *rows_out, .strategy = strategies[k].strategy};
        if (s.n)
            write_choice(&best, strategies[k].strategy, &rows_out[k]);
        else
            explain_none(&s, &strategies[k], rows_out[k].why, sizeof rows_out[k].why);
    }
    wfi_predictor_end(&p);
    return status;
}
