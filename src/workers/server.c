/* A server: holds a range of the parameters and the optimizer's state of it, and applies the
 * gradients in server 0's order. */
#include "base/finite.h"
#include "base/tree.h"
#include "kernel/cpu.h"
#include "workers/norm.h"

#include <fenv.h>
#include <math.h>
#include <string.h>

/* Stages of a worker on a server. */
enum {
    SERVED_ASKING,  /* server 0: no request yet */
    SERVED_ASKED,   /* server 0: waits for its ticket */
    SERVED_PUSHING, /* no gradient yet */
    SERVED_PUSHED,  /* waits for its number */
    SERVED_PENDING, /* in the step in hand */
    SERVED_ENDED
};

static size_t n_of(const wfi_server *s) {
    return s->end - s->first;
}

static float *vector_of(const wfi_server *s, const wfi_served *one) {
    char *message = one->pushing->buffer;
    return (float *)(void *)(message + wfi_message_head(s->all, s->number));
}

static wf_status expect(wfi_server *s, wfi_served *one) {
    one->stage = s->number ? SERVED_PUSHING : SERVED_ASKING;
    return wfi_channel_expect(s->number ? one->pushing : one->asking);
}

static wf_status answer(wfi_server *s, wfi_served *one) {
    wfi_note *note = one->pushing->buffer;
    bool ends = note->ends;
    note->stops = wfi_workers_stops(s->all);
    memcpy(vector_of(s, one), s->parameters, n_of(s) * sizeof *s->parameters);
    if (ends) one->stage = SERVED_ENDED;
    WF_TRY(wfi_channel_send(one->pushing, WFI_MESSAGE_ANSWERS, wfi_note_counts(note)));
    return ends ? WF_OK : expect(s, one);
}

/* ---- updates ---- */

static wf_status refuse_numbers(const wfi_server *s, int64_t step) {
    static const char *const whats[] = {
        [WFI_FINITE_NO_STATISTICS] = "the running statistics are not finite",
        [WFI_FINITE_NO_STATE] = "the optimizer's state is not finite",
        [WFI_FINITE_NO_WEIGHTS] = "the new weights are not finite, though the gradient is",
        [WFI_FINITE_NO_GRADIENT] = "the gradient is not finite"};
    const wf_workers *w = s->all;
    int64_t n = wfi_workers_sums(w) ? step : step / w->n_workers;
    return wfi_fail(w->ctx, WF_NOT_FINITE, "step %lld: %s in unit %s", (long long)n + 1,
                    whats[wfi_not_finite_what(s->not_finite)],
                    w->vector.program->graph->units[wfi_not_finite_unit(s->not_finite)].name);
}

/* `gradient` [end - first]; `total_norm` NULL: it is not clipped. */
static wf_status update(wfi_server *s, const wfi_note *note, const float *gradient,
                        const double *total_norm) {
    const wf_workers *w = s->all;
    const wfi_vector *l = &w->vector;
    int n_states = wfi_recipe_n_states(&w->recipe);
    for (int32_t u = 0; u < l->n_units; u++) {
        size_t begin = l->first[u] > s->first ? l->first[u] : s->first,
               end = l->first[u + 1] < s->end ? l->first[u + 1] : s->end, at = begin - s->first;
        if (begin >= end) continue;
        wfi_update_call call = {.recipe = &w->recipe,
                                .lr = note->lr,
                                .step = note->step,
                                .param = s->parameters + at,
                                .gradient = gradient + at,
                                .n = end - begin,
                                .begin = (begin - l->first[u]) * sizeof(float),
                                .groups = l->program->graph->units[u].groups,
                                .total_norm = total_norm,
                                .not_finite = &s->not_finite,
                                .unit = u};
        for (int k = 0; k < n_states; k++) call.state[k] = s->states + (size_t)k * n_of(s) + at;
        WF_TRY(wfi_backend_cpu.update(NULL, &call));
    }
    return s->not_finite ? refuse_numbers(s, note->step) : WF_OK;
}

/* ---- running statistics, on server 0 ---- */

static wf_status fold_stat(wfi_server *s, int32_t k, const float *stats, int64_t n_reduced) {
    const wfi_vector *l = &s->all->vector;
    const wf_graph *g = l->program->graph;
    const wfi_stat *stat = &g->stats[k];
    char *buffers = s->buffers + l->first_buffer[stat->unit];
    const wfi_statistics_call call = {
        .running_mean = (float *)(void *)(buffers + g->values[stat->running_mean].offset),
        .running_var = (float *)(void *)(buffers + g->values[stat->running_var].offset),
        .n_batches = (int64_t *)(void *)(buffers + g->values[stat->n_batches].offset),
        .mean = stats + l->stats[k].at,
        .var = stats + l->stats[k].at + l->stats[k].n,
        .n = l->stats[k].n,
        .n_reduced = n_reduced,
        .momentum = stat->momentum,
        .not_finite = &s->not_finite,
        .unit = stat->unit};
    return wfi_backend_cpu.statistics(NULL, &call);
}

/* Microbatch by microbatch. */
static wf_status fold_stats(wfi_server *s, const wfi_served *one) {
    const wfi_vector *l = &s->all->vector;
    const char *message = one->pushing->buffer;
    const float *stats = (const float *)(const void *)(message + sizeof(wfi_note));
    if (s->number) return WF_OK;
    for (int64_t m = 0; m < l->n_micro; m++) {
        for (int32_t k = 0; k < l->n_stats; k++) {
            int64_t n_reduced;
            memcpy(&n_reduced, stats + l->n_stat_floats + 2 * k, sizeof n_reduced);
            WF_TRY(fold_stat(s, k, stats, n_reduced));
        }
        stats += l->n_stat_floats + 2 * (size_t)l->n_stats;
    }
    return WF_OK;
}

/* ---- pushes ---- */

/* The sum of pending pushes `first` to `first + n - 1` over the lanes' tree, in the first one's
 * message. Returns it. */
static float *sum_pending(const wfi_server *s, wfi_served *const *pending, int64_t n) {
    if (n == 1) return vector_of(s, pending[0]);
    int64_t n_left = wfi_tree_split(n);
    float *left = sum_pending(s, pending, n_left);
    wfi_cpu_add(wfi_best_variant(), left, sum_pending(s, pending + n_left, n - n_left), n_of(s));
    return left;
}

/* With spare workers, the sum stands for the whole batch. */
static void scale_up(const wfi_server *s, float *gradient) {
    const wf_workers *w = s->all;
    float scale = (float)w->n_workers / (float)(w->n_workers - w->recipe.n_backup);
    for (size_t i = 0; i < n_of(s) && w->recipe.n_backup; i++) gradient[i] *= scale;
}

/* One update from all pushes of the step; each worker then gets the parameters. */
static wf_status apply_step(wfi_server *s, const wfi_note *note) {
    wf_workers *w = s->all;
    double total;
    int64_t n = 0;
    wfi_served **pending = wfi_alloc(w->ctx, (size_t)w->n_workers, sizeof *pending, "pushes");
    if (!pending) return WF_NO_MEMORY;
    for (int k = 0; k < w->n_workers; k++)
        if (s->served[k].stage == SERVED_PENDING) pending[n++] = &s->served[k];
    float *gradient = sum_pending(s, pending, n);
    bool clips = w->recipe.clip_norm > 0;
    scale_up(s, gradient);
    wf_status status = clips ? wfi_norm_total(s, gradient, &total) : WF_OK;
    if (status == WF_OK) status = update(s, note, gradient, clips ? &total : NULL);
    if (status == WF_OK && clips && !s->number)
        w->order.results[s->n_updates].gradient_norm = sqrt(total);
    for (int64_t k = 0; k < n && status == WF_OK; k++) status = fold_stats(s, pending[k]);
    for (int64_t k = 0; k < n && status == WF_OK; k++) status = answer(s, pending[k]);
    s->n_updates++;
    wfi_free(w->ctx, pending);
    return status;
}

static void note_update(wfi_server *s, int64_t n_updates, int64_t begin_ns) {
    wfi_workers_note(s->all, s->all->n_ranks + s->number, begin_ns,
                     s->all->order.first_version + n_updates, WF_SPAN_UPDATE, WFI_STREAM_COMPUTE);
}

static wf_status apply(wfi_server *s, wfi_served *one) {
    const wf_workers *w = s->all;
    int64_t begin_ns = wfi_workers_now(w);
    const wfi_note note = *(const wfi_note *)one->pushing->buffer;
    s->next++;
    if (note.ask != WFI_ASK_PUSH) return answer(s, one);
    if (wfi_workers_sums(w)) {
        one->stage = SERVED_PENDING;
        if (!note.is_last) return WF_OK;
        WF_TRY(apply_step(s, &note));
        note_update(s, s->n_updates, begin_ns);
        return WF_OK;
    }
    WF_TRY(update(s, &note, vector_of(s, one), w->recipe.clip_norm > 0 ? &note.squares : NULL));
    WF_TRY(fold_stats(s, one));
    note_update(s, s->next, begin_ns);
    return answer(s, one);
}

/* ---- messages ---- */

static wf_status grant(wfi_server *s, wfi_served *one) {
    bool is_granted;
    wfi_note *note = one->asking->buffer;
    const double *records = (const double *)(const void *)(note + 1);
    WF_TRY(wfi_order_grant(s->all, note, records, &is_granted));
    if (!is_granted) return WF_OK;
    one->stage = SERVED_PUSHING;
    WF_TRY(wfi_channel_send(one->asking, WFI_MESSAGE_ANSWERS, wfi_note_counts(note)));
    return wfi_channel_expect(one->pushing);
}

/* The next number of a push that has come is applied. */
static bool is_next(const wfi_server *s, const wfi_served *one) {
    const wfi_note *note = one->pushing->buffer;
    return one->stage == SERVED_PUSHED && note->number == s->next;
}

static wf_status advance(wfi_server *s, wfi_served *one, bool *moved_out) {
    int before = one->stage;
    int64_t next = s->next;
    bool is_asked = false;
    if (one->stage == SERVED_ASKING) {
        WF_TRY(wfi_channel_has(one->asking, WFI_MESSAGE_ASKS, &is_asked));
        if (is_asked) {
            one->stage = SERVED_ASKED;
            one->arrival = s->n_arrived++;
        }
    }
    if (one->stage == SERVED_PUSHING) {
        WF_TRY(wfi_channel_has(one->pushing, WFI_MESSAGE_ASKS, &is_asked));
        if (is_asked) one->stage = SERVED_PUSHED;
    }
    if (is_next(s, one)) WF_TRY(apply(s, one));
    *moved_out |= one->stage != before || s->next != next;
    return WF_OK;
}

/* Requests are granted in the order of their arrival, as far as the bound allows. */
static wf_status grant_all(wfi_server *s) {
    const wf_workers *w = s->all;
    for (int64_t from = 0;;) {
        wfi_served *oldest = NULL;
        for (int k = 0; k < w->n_workers; k++) {
            wfi_served *one = &s->served[k];
            bool waits = one->stage == SERVED_ASKED && one->arrival >= from;
            if (waits && (!oldest || one->arrival < oldest->arrival)) oldest = one;
        }
        if (!oldest) return WF_OK;
        from = oldest->arrival + 1;
        WF_TRY(grant(s, oldest));
        if (oldest->stage != SERVED_ASKED) from = 0; /* others may be in time now */
    }
}

static wf_status begin(wfi_server *s) {
    const wf_workers *w = s->all;
    s->next = s->n_updates = s->n_arrived = s->not_finite = 0;
    for (int k = 0; k < w->n_workers; k++) {
        s->served[k].stage = SERVED_ENDED;
        if (w->takes_part[k]) WF_TRY(expect(s, &s->served[k]));
    }
    return WF_OK;
}

static wf_status settle(wfi_server *s) {
    for (int k = 0; k < s->all->n_workers; k++) {
        WF_TRY(wfi_channel_settle(s->served[k].asking));
        WF_TRY(wfi_channel_settle(s->served[k].pushing));
    }
    return WF_OK;
}

wf_status wfi_server_run(wfi_server *s) {
    wf_workers *w = s->all;
    wfi_nap nap = wfi_nap_begin(w);
    if (fesetenv(FE_DFL_ENV))
        return wfi_fail(w->ctx, WF_DEVICE, "the floating-point mode could not be set");
    WF_TRY(begin(s));
    for (int n_ended = 0; n_ended < w->n_workers;) {
        bool moved = false;
        n_ended = 0;
        for (int k = 0; k < w->n_workers; k++) {
            WF_TRY(advance(s, &s->served[k], &moved));
            n_ended += s->served[k].stage == SERVED_ENDED;
        }
        if (!s->number) WF_TRY(grant_all(s));
        if (moved)
            nap = wfi_nap_begin(w);
        else if (n_ended < w->n_workers)
            WF_TRY(wfi_nap_take(&nap, "a worker"));
    }
    return settle(s);
}
