/* From a plan to the time and bytes of a step. */
#include "cluster/step.h"
#include "nn/model.h"

#include <string.h>

/* ---- a step ---- */

static double device_us(const wfi_case_step *s, int device) {
    return wfi_step_us(s, device, WFI_IN_ALL) + wfi_step_gathers_us(s, device) +
           wfi_step_sums_us(s, device);
}

static void find_device(wfi_case_step *s) {
    double most = 0;
    for (int d = 0; d < s->c->pp; d++) {
        double us = device_us(s, d);
        if (us > most) s->device = d;
        most = fmax(most, us);
    }
    s->work_us = most * wfi_case_n_micro(s->c);
    for (int d = 0; d < s->c->pp; d++)
        s->n_used = fmax(s->n_used, wfi_device_used(s->c, s->stages, d));
}

static void fill_times(const wfi_case_step *s, const wfi_pipeline *run, wf_prediction *to) {
    double n = wfi_case_n_micro(s->c) / 1e3;
    to->forward_ms = n * wfi_step_us(s, s->device, WFI_IN_F);
    to->backward_ms = n * wfi_step_us(s, s->device, WFI_IN_B | WFI_IN_W);
    to->recompute_ms = n * wfi_step_us(s, s->device, WFI_IN_R);
    to->tp_ms = n * wfi_step_sums_us(s, s->device);
    to->bubble_ms = fmax(0, run->compute_us - s->work_us) / 1e3;
    to->pp_ms = (fmax(0, run->makespan_us - run->compute_us) + wfi_step_tied_us(s)) / 1e3;
}

static void fill_end(const wfi_case_step *s, wf_prediction *to) {
    double gathers = wfi_case_n_micro(s->c) * wfi_step_gathers_us(s, s->device);
    to->dp_ms = (wfi_step_dp_us(s) + gathers) / 1e3;
    to->optimizer_ms = wfi_step_optimizer_us(s) / 1e3;
    to->offload_ms = wfi_step_offload_us(s) / 1e3;
}

/* Sums the terms, and names the largest. */
static void conclude(double scale, wf_prediction *to) {
    double *const all[] = {&to->forward_ms, &to->backward_ms,  &to->recompute_ms,
                           &to->tp_ms,      &to->bubble_ms,    &to->pp_ms,
                           &to->dp_ms,      &to->optimizer_ms, &to->offload_ms};
    for (size_t k = 0; k < WFI_COUNT(all); k++) *all[k] *= scale;
    const struct {
        double ms;
        const char *name;
    } terms[] = {{to->forward_ms + to->backward_ms, "compute"},
                 {to->recompute_ms, "recomputation"},
                 {to->tp_ms, "tensor-parallel communication"},
                 {to->bubble_ms, "pipeline bubble"},
                 {to->pp_ms, "pipeline communication"},
                 {to->dp_ms, "data-parallel communication"},
                 {to->optimizer_ms, "optimizer"},
                 {to->offload_ms, "offload"}};
    double most = -1;
    to->step_ms = 0;
    for (size_t k = 0; k < WFI_COUNT(terms); k++) {
        to->step_ms += terms[k].ms;
        if (terms[k].ms > most) to->bound = terms[k].name;
        most = fmax(most, terms[k].ms);
    }
}

static void fill_flops(const wfi_case_step *s, wf_prediction *to) {
    double model = 0, repeated = 0, seconds = to->step_ms / 1e3;
    for (int d = 0; d < s->c->pp; d++) {
        model += wfi_step_flops(s, d, WFI_IN_F | WFI_IN_B | WFI_IN_W);
        repeated += wfi_step_flops(s, d, WFI_IN_R);
    }
    double times = (double)s->c->tp * s->c->dp * wfi_case_n_micro(s->c);
    double peak = s->p->q.cluster->peak_flops[s->p->precision] * to->n_ranks;
    to->model_flops = times * model;
    to->hardware_flops = times * (model + repeated);
    to->mfu = to->model_flops / (peak * seconds);
    to->hfu = to->hardware_flops / (peak * seconds);
}

static wfi_stage_times times_of(const wfi_case_step *s, int k) {
    const wfi_stage_work *stage = &s->stages[k];
    double us[4];
    for (int i = 0; i < 4; i++)
        us[i] = stage->us[i] + stage->gathered_us[i] + wfi_step_exposed(s, i) * stage->summed_us[i];
    return (wfi_stage_times){us[WFI_F], us[WFI_R] + us[WFI_B], us[WFI_W]};
}

static void release_run(wf_context *ctx, wfi_known_run *known) {
    wfi_free(ctx, known->times);
    wfi_free(ctx, known->run.held);
    *known = (wfi_known_run){0};
}

static bool is_same_run(const wfi_known_run *a, const wfi_known_run *b) {
    return a->schedule == b->schedule && a->pp == b->pp && a->n_stages == b->n_stages &&
           a->n_micro == b->n_micro && a->busy_us == b->busy_us && a->hidden_us == b->hidden_us &&
           !memcmp(a->times, b->times, (size_t)a->n_stages * sizeof *a->times);
}

/* Takes `run->times`. The run that is found stays known until some others are. */
static wf_status find_run(wfi_predictor *p, const wfi_case *c, wfi_known_run *run,
                          wfi_known_run **known_out) {
    for (int k = 0; k < WFI_MAX_RUNS; k++)
        if (p->runs[k].times && is_same_run(&p->runs[k], run)) {
            *known_out = &p->runs[k];
            wfi_free(p->ctx, run->times);
            return WF_OK;
        }
    wfi_known_run *known = &p->runs[p->next_run++ % WFI_MAX_RUNS];
    wf_status status =
        wfi_pipeline_run(p->ctx, c, run->times, run->busy_us, run->hidden_us, &run->run);
    if (status != WF_OK) {
        wfi_free(p->ctx, run->times);
        return status;
    }
    release_run(p->ctx, known);
    *known = *run;
    *known_out = known;
    return WF_OK;
}

static wf_status describe_run(const wfi_case_step *s, wfi_known_run *to) {
    const wfi_case *c = s->c;
    double us = wfi_step_transfer_us(s), hidden = s->p->q.cluster->overlap_pp * us;
    *to = (wfi_known_run){.schedule = c->schedule,
                          .pp = c->pp,
                          .n_stages = c->pp * c->chunks,
                          .n_micro = wfi_case_n_micro(c),
                          .busy_us = us - hidden,
                          .hidden_us = hidden};
    to->times = wfi_alloc(s->p->ctx, (size_t)to->n_stages, sizeof *to->times, "a pipeline");
    if (!to->times) return WF_NO_MEMORY;
    for (int k = 0; k < to->n_stages; k++) to->times[k] = times_of(s, k);
    return WF_OK;
}

/* The root also has the outputs of a microbatch of each replica; slices give it sums of these. */
static void add_root(const wfi_case_step *s, wf_prediction *to) {
    if (!s->c->has_root || s->p->q.recipe->n_slices > 1) return;
    double share = s->p->precision == WFI_F32 ? 1 : 0.5; /* of 4 bytes */
    double bytes = share * wfi_step_output_bytes(s) * s->c->dp / (double)s->c->n_micro;
    to->buffer_bytes += bytes;
    to->peak_bytes += bytes;
    wfi_count_missing(to, to->peak_bytes - wfi_device_room(s->p), "device memory");
}

/* The time of a step with a pipeline of `us`. Rounding must not exclude a case that just fits. */
static double step_ms(const wfi_case_step *s, double us, const wf_prediction *ends) {
    double gathers = wfi_case_n_micro(s->c) * wfi_step_gathers_us(s, s->device);
    double ms = ends->dp_ms + ends->optimizer_ms + ends->offload_ms + (us - gathers) / 1e3;
    return (1 - 1e-9) * s->p->q.cluster->scale * ms;
}

/* Judges a pipeline that takes `us` and keeps `held`, or more of both. */
static wfi_verdict judge(const wfi_case_step *s, const wfi_limits *limits, double us,
                         const double *held, const wf_prediction *ends) {
    if (!limits) return WFI_PREDICTED;
    if (step_ms(s, us, ends) > limits->step_ms) return WFI_TOO_SLOW;
    if (isinf(limits->short_by_bytes)) return WFI_PREDICTED;
    wf_prediction least = *ends;
    wfi_predict_bytes(s->p, s->c, s->w, s->stages, held, &least);
    bool is_less = least.fits || least.short_by_bytes < limits->short_by_bytes;
    return is_less ? WFI_PREDICTED : WFI_TOO_LARGE;
}

/* Judges by what is known before the pipeline has run. */
static wf_status judge_before(const wfi_case_step *s, const wfi_limits *limits,
                              const wfi_known_run *run, const wf_prediction *ends,
                              wfi_verdict *verdict_out) {
    double *held = wfi_alloc(s->p->ctx, (size_t)s->c->pp, sizeof *held, "a pipeline");
    if (!held) return WF_NO_MEMORY;
    wfi_pipeline_least_held(s->c, held);
    double us =
        wfi_pipeline_least_us(s->c, run->times, run->busy_us, run->busy_us + run->hidden_us);
    *verdict_out = judge(s, limits, us, held, ends);
    wfi_free(s->p->ctx, held);
    return WF_OK;
}

static wf_status predict(wfi_case_step *s, const wfi_limits *limits, wf_prediction *to,
                         wfi_verdict *verdict_out) {
    wfi_known_run run, *known;
    find_device(s);
    fill_end(s, to);
    WF_TRY(describe_run(s, &run));
    wf_status status = judge_before(s, limits, &run, to, verdict_out);
    if (status != WF_OK || *verdict_out != WFI_PREDICTED) {
        wfi_free(s->p->ctx, run.times);
        return status;
    }
    WF_TRY(find_run(s->p, s->c, &run, &known));
    *verdict_out = judge(s, limits, known->run.makespan_us, known->run.held, to);
    if (*verdict_out != WFI_PREDICTED) return WF_OK;
    if (!(known->run.compute_us > 0))
        WF_TRY(wfi_pipeline_run_compute(s->p->ctx, s->c, known->times, &known->run));
    fill_times(s, &known->run, to);
    conclude(s->p->q.cluster->scale, to);
    wfi_predict_bytes(s->p, s->c, s->w, s->stages, known->run.held, to);
    add_root(s, to);
    fill_flops(s, to);
    return WF_OK;
}

/* ---- works ---- */

/* A model that refuses so many samples takes none. */
#define MOST_SAMPLES 16

static bool is_same(const wfi_work_request *a, const wfi_work_request *b) {
    return a->n_samples == b->n_samples && a->tp == b->tp && a->recompute == b->recompute &&
           a->divides_rows == b->divides_rows;
}

/* A refusal by the model is remembered, too. Cases in a row have the same few works. */
static wf_status find_work(wfi_predictor *p, const wfi_case *c, wfi_model_work **work_out) {
    wfi_work_request r = {p->q.cluster,    p->q.model,
                          p->q.recipe,     wfi_case_n_samples(c),
                          c->tp,           c->divides_rows,
                          c->recompute,    p->precision,
                          p->q.accounting, (int)wfi_max_i64(p->q.n_contexts, 1)};
    size_t at = p->last_known;
    if (p->q.accounting == WF_ACCOUNTING_MEGATRON) r.recompute = WFI_RECOMPUTE_NONE;
    for (size_t k = 0; k < p->n_known && !is_same(&p->known[at].request, &r); k++)
        at = at ? at - 1 : p->n_known - 1;
    if (!p->n_known || !is_same(&p->known[at].request, &r)) {
        at = p->n_known;
        WF_TRY(WFI_GROW(p->ctx, p->known, at, p->known_capacity, "works"));
        p->known[p->n_known++] = (struct wfi_known_work){.request = r};
        p->known[at].status = wfi_work_create(p->ctx, &r, &p->known[at].work);
    }
    p->last_known = at;
    *work_out = p->known[at].work;
    return p->known[at].status;
}

bool wfi_is_refused(wf_status status) {
    return status == WF_INVALID_ARG || status == WF_UNSUPPORTED || status == WF_SHAPE;
}

wf_status wfi_predictor_work(wfi_predictor *p, int tp, wfi_model_work **work_out) {
    const wf_recipe *r = p->q.recipe;
    wfi_case one = {.dp = 1, .pp = 1, .tp = tp, .divides_rows = tp > 1, .batch = 1, .n_micro = 1};
    if (r->n_micro) one.batch = r->batch, one.n_micro = r->n_micro;
    wf_status status = find_work(p, &one, work_out);
    while (wfi_is_refused(status) && !r->n_micro && 2 * one.batch <= MOST_SAMPLES) {
        one.batch *= 2;
        status = find_work(p, &one, work_out);
    }
    return status;
}

/* A device has at least its part of the work. */
static bool is_too_slow(const wfi_predictor *p, const wfi_case *c, const wfi_model_work *w,
                        const wfi_limits *limits) {
    double ms = p->q.cluster->scale * w->us * wfi_case_n_micro(c) / c->pp / 1e3;
    return (1 - 1e-9) * ms > limits->step_ms;
}

static bool is_too_large(const wfi_predictor *p, const wfi_case *c, const wfi_model_work *w,
                         const wfi_limits *limits) {
    return wfi_least_bytes(p, c, w) - wfi_device_room(p) > limits->short_by_bytes;
}

wf_status wfi_predict_case(wfi_predictor *p, const wfi_case *c, const wfi_limits *limits,
                           wf_prediction *to, wfi_verdict *verdict_out) {
    wfi_model_work *w;
    wfi_stage_work *stages;
    WF_TRY(find_work(p, c, &w));
    *verdict_out = WFI_TOO_SLOW;
    if (limits && is_too_slow(p, c, w, limits)) return WF_OK;
    *verdict_out = WFI_TOO_LARGE;
    if (limits && is_too_large(p, c, w, limits)) return WF_OK;
    WF_TRY(wfi_stages_create(p, c, w, &stages));
    wfi_case_step s = {.p = p, .c = c, .w = w, .stages = stages};
    wfi_step_add_gathers(&s, stages);
    *to = (wf_prediction){.struct_size = sizeof *to,
                          .n_parameters = w->n_parameters,
                          .n_ranks = c->dp * c->pp * c->tp,
                          .bound = ""};
    wf_status status = predict(&s, limits, to, verdict_out);
    wfi_free(p->ctx, stages);
    return status;
}

/* ---- public ---- */

static wf_status find_precision(wf_context *ctx, const wf_prediction_request *q,
                                wfi_precision *precision_out) {
    static const char *const names[] = {"f32", "f16", "bf16"};
    const char *name = q->dtype ? q->dtype : q->recipe->dtype == WF_F32 ? "f32" : "bf16";
    int k = 0;
    while (k < WFI_N_PRECISIONS && strcmp(name, names[k])) k++;
    if (k == WFI_N_PRECISIONS)
        return wfi_fail(ctx, WF_INVALID_ARG, "dtype '%.20s'; there are f32, f16 and bf16", name);
    if (!(q->cluster->peak_flops[k] > 0))
        return wfi_fail(ctx, WF_INVALID_ARG, "cluster %s has no device.peak_flops.%s",
                        q->cluster->name, name);
    *precision_out = (wfi_precision)k;
    return WF_OK;
}

wf_status wfi_predictor_begin(wf_context *ctx, const wf_prediction_request *q, wfi_predictor *p) {
    WF_TRY(wfi_check_struct(ctx, q, sizeof *q, "wf_prediction_request"));
    if (!q->cluster || !q->model || !q->recipe)
        return wfi_fail(ctx, WF_INVALID_ARG, "a prediction needs a cluster, a model and a recipe");
    *p = (wfi_predictor){.ctx = ctx, .q = *q};
    p->q.n_contexts = 1; /* of a search */
    if (q->recipe->batch < 1 || q->recipe->batch > 1000000000 || q->recipe->n_micro < 0)
        return wfi_fail(ctx, WF_INVALID_ARG, "a batch of %lld samples in %lld microbatches",
                        (long long)q->recipe->batch, (long long)q->recipe->n_micro);
    return find_precision(ctx, q, &p->precision);
}

void wfi_predictor_end(wfi_predictor *p) {
    while (p->n_known) wfi_work_destroy(p->known[--p->n_known].work);
    wfi_free(p->ctx, p->known);
    for (int k = 0; k < WFI_MAX_RUNS; k++) release_run(p->ctx, &p->runs[k]);
    for (int k = 0; k < WFI_MAX_DIVISIONS; k++) wfi_free(p->ctx, p->divisions[k].first);
}

/* With as many replicas as a plan may have, these are still an int. */
#define MOST_CONTEXTS 1024

/* A context-parallel rank has a part of a sample as its sample. */
static wf_status divide_tokens(wfi_predictor *p, wf_model **part_out) {
    const wf_model *whole = p->q.model;
    const wf_model_config *config = wf_model_config_of(whole);
    int n = p->q.n_contexts;
    if (n <= 1) return WF_OK;
    if (p->q.accounting != WF_ACCOUNTING_MEGATRON || !config || !config->n_heads ||
        n > MOST_CONTEXTS)
        return wfi_fail(p->ctx, WF_INVALID_ARG,
                        "%d context-parallel ranks need the accounting of published runs and a "
                        "transformer; there can be %d",
                        n, MOST_CONTEXTS);
    if (config->n_tokens % n)
        return wfi_fail(p->ctx, WF_INVALID_ARG,
                        "cp %d does not divide the %lld tokens of a sample; use a cp that does, or "
                        "another number of tokens",
                        n, (long long)config->n_tokens);
    wf_model_config part = *config;
    part.n_tokens /= n;
    WF_TRY(wf_model_create(p->ctx, whole->name, whole->function, &part, sizeof part, part_out));
    p->q.model = *part_out;
    return WF_OK;
}

wf_status wf_predict(wf_context *ctx, const wf_prediction_request *request,
                     wf_prediction *prediction_out) {
    wfi_predictor p;
    wfi_case c;
    wf_model *part = NULL;
    WF_TRY(wfi_check_struct(ctx, prediction_out, sizeof *prediction_out, "wf_prediction"));
    WF_TRY(wfi_predictor_begin(ctx, request, &p));
    if (!request->plan) return wfi_fail(ctx, WF_INVALID_ARG, "a prediction needs a plan");
    p.q.n_contexts = request->n_contexts;
    wf_status status = divide_tokens(&p, &part);
    if (status == WF_OK) status = wfi_case_of_plan(&p, request->plan, &c);
    wfi_verdict verdict;
    if (status == WF_OK) status = wfi_predict_case(&p, &c, NULL, prediction_out, &verdict);
    wfi_predictor_end(&p);
    wf_model_destroy(part);
    return status;
}
