/* From a plan to the time and bytes of a step. */
#include "cluster/predict.h"

#include <string.h>

/* ---- communication ---- */

/* A step of a case: the work of its stages, and the device that has the most. */
typedef struct step {
    const wfi_predictor *p;
    const wfi_case *c;
    const wfi_work *w;
    const wfi_stage *stages;
    int device;              /* with the most work */
    double work_us, sums_us; /* of that device and all its microbatches; sums: those not hidden */
    double n_used;           /* the most parameters of a device: it ends the step last */
} step;

static double share_hidden(double us, double overlap, double available_us) {
    return us - fmin(us * overlap, available_us);
}

static double total_of(const step *s, int device, const double *(*values)(const wfi_stage *),
                       unsigned phases) {
    double sum = 0;
    for (int k = 0; k < s->c->pp * s->c->chunks; k++) {
        if (wfi_schedule_device_of(s->c->schedule, s->c->pp, k) != device) continue;
        for (int phase = 0; phase < 4; phase++)
            if (phases >> phase & 1) sum += values(&s->stages[k])[phase];
    }
    return sum;
}

static const double *us_of(const wfi_stage *stage) {
    return stage->us;
}

static const double *summed_of(const wfi_stage *stage) {
    return stage->summed_us;
}

static const double *gathered_of(const wfi_stage *stage) {
    return stage->gathered_us;
}

static const double *flops_of(const wfi_stage *stage) {
    return stage->flops;
}

enum { F = 1 << WFI_F, R = 1 << WFI_R, B = 1 << WFI_B, W = 1 << WFI_W, ALL = F | R | B | W };

/* The share of sums over the tensor-parallel ranks that compute does not hide, by phase. */
static double exposed(const step *s, int phase) {
    bool is_backward = phase == WFI_B || phase == WFI_W;
    return 1 - s->p->q.cluster->overlap_tp[is_backward];
}

/* Bytes of gradients and of parameters on the wire, for each. */
static double gradient_wire(const step *s) {
    return wfi_bytes_each(s->p, WFI_BYTES_GRADIENT);
}

static double parameter_wire(const step *s) {
    return s->p->precision == WFI_F32 ? 4 : 2;
}

static double collective(const step *s, wfi_exchange kind, double bytes, double n, double times) {
    return wfi_exchange_us(s->p->q.cluster, kind, bytes, n, s->c->dp_stride * times);
}

/* Over replicas: gradients are summed, and parameters that were divided for the update gathered. */
static double replicas_us(const step *s) {
    const wfi_case *c = s->c;
    const wf_cluster *cl = s->p->q.cluster;
    double gradients = s->n_used * gradient_wire(s), parameters = s->n_used * parameter_wire(s);
    double sum = 0;
    if (c->zero == 1 || c->zero == 2)
        sum = collective(s, WFI_EXCHANGE_REDUCE_SCATTER, gradients, c->shard, 1);
    if (!c->zero || c->shard < c->dp)
        sum += collective(s, WFI_EXCHANGE_ALL_REDUCE, c->zero ? gradients / c->shard : gradients,
                          c->zero ? (double)c->dp / c->shard : c->dp, c->zero ? c->shard : 1);
    bool gathers = c->zero == 1 || c->zero == 2;
    double gather = gathers ? collective(s, WFI_EXCHANGE_ALL_GATHER, parameters, c->shard, 1) : 0;
    return (sum * (c->zero ? cl->reduce_passes : 1) + gather) / cl->dp_efficiency;
}

/* zero=3: each microbatch, or with a breadth-first schedule each step, gathers the parameters of a
 * stage, block by block, forward and backward, and scatters gradients. Compute hides a part. */
static double gather_us(const step *s, const wfi_stage *stage, double compute_us, double rounds) {
    const wf_cluster *cl = s->p->q.cluster;
    double n = s->c->shard;
    if (s->c->zero != 3) return 0;
    double bytes = stage->n_used * parameter_wire(s) / stage->n_blocks;
    double slowest = 1e6 * bytes * (n - 1) / n / cl->zero3_bandwidth;
    double one = fmax(slowest, collective(s, WFI_EXCHANGE_ALL_GATHER, bytes, n, 1));
    double us = rounds * stage->n_blocks * one;
    if (s->c->schedule->by_unit) us /= wfi_case_n_micro(s->c);
    return fmax(0, us - compute_us) + (1 - cl->overlap_zero3) * fmin(us, compute_us);
}

static void add_gathers(const step *s, wfi_stage *stages) {
    for (int k = 0; k < s->c->pp * s->c->chunks; k++) {
        wfi_stage *stage = &stages[k];
        double backward = stage->us[WFI_R] + stage->us[WFI_B] + stage->us[WFI_W];
        stage->gathered_us[WFI_F] = gather_us(s, stage, stage->us[WFI_F], 1);
        stage->gathered_us[WFI_B] = gather_us(s, stage, backward, 2);
    }
}

/* Outputs of the whole batch, which rank 0 gathers for the loss. */
static double output_bytes(const step *s) {
    const wf_model_config *m = wf_model_config_of(s->p->q.model);
    double rows = m ? fmax(1, (double)m->n_tokens) * (double)m->n_classes : 1;
    return 4 * rows * (double)s->c->batch;
}

/* Rank 0 sends parameters and receives gradients and outputs, one rank after the other. */
static double root_us(const step *s) {
    double n = s->c->dp - 1, each = 2 * s->n_used * parameter_wire(s);
    double bytes = n * each + 2 * n / s->c->dp * output_bytes(s);
    return wfi_exchange_us(s->p->q.cluster, WFI_EXCHANGE_SEND, bytes, 1, s->c->dp_stride);
}

/* Sums overlap with the backward of the last microbatch, gathers with the forward of the first. */
static double dp_us(const step *s) {
    bool is_weft = s->p->q.accounting == WF_ACCOUNTING_WEFT;
    double one = is_weft ? s->work_us / wfi_case_n_micro(s->c) : INFINITY;
    if (s->c->has_root) return root_us(s);
    return s->c->dp == 1 ? 0 : share_hidden(replicas_us(s), s->p->q.cluster->overlap_dp, one);
}

/* Weights that the last stage shares with the first. */
static double tied_us(const step *s) {
    const wfi_stage *last = &s->stages[s->c->pp * s->c->chunks - 1];
    double n = last->n_used - last->n_parameters;
    if (s->c->pp == 1 || n <= 0) return 0;
    return wfi_exchange_us(s->p->q.cluster, WFI_EXCHANGE_ALL_REDUCE, n * gradient_wire(s), 2,
                           (double)s->c->pp_stride * (s->c->pp - 1));
}

/* With scatter and gather, each rank along tp sends a part, and the others then get it. */
static double transfer_us(const step *s) {
    const wf_cluster *cl = s->p->q.cluster;
    double bytes = 0, n = s->c->tp;
    bool is_divided = s->c->divides_rows || cl->scatters;
    if (s->c->pp == 1) return 0;
    for (int k = 1; k < s->c->pp * s->c->chunks; k++) bytes = fmax(bytes, s->stages[k].input_bytes);
    double us =
        wfi_exchange_us(cl, WFI_EXCHANGE_SEND, is_divided ? bytes / n : bytes, n, s->c->pp_stride);
    bool gathers = cl->scatters && !s->c->divides_rows;
    return us + (gathers ? wfi_exchange_us(cl, WFI_EXCHANGE_ALL_GATHER, bytes, n, 1) : 0);
}

/* ---- the end of a step, and memory elsewhere ---- */

/* The published runs' software also takes a time that no model explains. */
static double optimizer_us(const step *s) {
    const wf_cluster *cl = s->p->q.cluster;
    double n = s->n_used / (s->c->zero ? s->c->shard : 1);
    double each =
        wfi_bytes_each(s->p, WFI_BYTES_GRADIENT) +
        2 * (wfi_bytes_each(s->p, WFI_BYTES_PARAMETER) + wfi_bytes_each(s->p, WFI_BYTES_STATE));
    if (s->p->q.accounting == WF_ACCOUNTING_WEFT) return wfi_bytes_us(cl, n * each);
    return wfi_bytes_us(cl, n * cl->optimizer_bytes) + 1e3 * cl->step_ms;
}

static double far_us(const step *s, wfi_offload what, double bytes) {
    const wf_cluster *cl = s->p->q.cluster;
    wfi_space space = s->c->offload[what];
    if (space == WFI_SPACE_DEVICE) return 0;
    return 1e6 * bytes / (space == WFI_SPACE_HOST ? cl->host_bandwidth : cl->disk_bandwidth);
}

/* State moves at the step's end. Parameters and activations move while the device computes. */
static double offload_us(const step *s) {
    double saved = 0, n = wfi_case_n_micro(s->c);
    double shared = s->n_used / (s->c->zero ? s->c->shard : 1);
    for (int k = 0; k < s->c->pp * s->c->chunks; k++)
        if (wfi_schedule_device_of(s->c->schedule, s->c->pp, k) == s->device)
            saved += s->stages[k].saved_bytes;
    double uses = s->c->schedule->by_unit ? 2 : 2 * n;
    double moved = far_us(s, WFI_OFFLOAD_PARAMS, (uses + 1) * s->n_used * parameter_wire(s)) +
                   far_us(s, WFI_OFFLOAD_ACTIVATIONS, 2 * n * saved);
    return fmax(0, moved - s->work_us) +
           far_us(s, WFI_OFFLOAD_STATE, 2 * shared * wfi_bytes_each(s->p, WFI_BYTES_STATE));
}

/* ---- a step ---- */

static double sums_us(const step *s, int device) {
    return exposed(s, WFI_F) * total_of(s, device, summed_of, F | R) +
           exposed(s, WFI_B) * total_of(s, device, summed_of, B | W);
}

static double device_us(const step *s, int device) {
    return total_of(s, device, us_of, ALL) + total_of(s, device, gathered_of, ALL) +
           sums_us(s, device);
}

static void find_device(step *s) {
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

static void fill_times(const step *s, const wfi_pipeline *run, wf_prediction *to) {
    double n = wfi_case_n_micro(s->c) / 1e3;
    to->forward_ms = n * total_of(s, s->device, us_of, F);
    to->backward_ms = n * total_of(s, s->device, us_of, B | W);
    to->recompute_ms = n * total_of(s, s->device, us_of, R);
    to->tp_ms = n * sums_us(s, s->device);
    to->bubble_ms = fmax(0, run->compute_us - s->work_us) / 1e3;
    to->pp_ms = (fmax(0, run->makespan_us - run->compute_us) + tied_us(s)) / 1e3;
}

static void fill_end(const step *s, wf_prediction *to) {
    double gathers = wfi_case_n_micro(s->c) * total_of(s, s->device, gathered_of, ALL);
    to->dp_ms = (dp_us(s) + gathers) / 1e3;
    to->optimizer_ms = optimizer_us(s) / 1e3;
    to->offload_ms = offload_us(s) / 1e3;
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

static void fill_flops(const step *s, wf_prediction *to) {
    double model = 0, repeated = 0, seconds = to->step_ms / 1e3;
    for (int d = 0; d < s->c->pp; d++) {
        model += total_of(s, d, flops_of, F | B | W);
        repeated += total_of(s, d, flops_of, R);
    }
    double times = (double)s->c->tp * s->c->dp * wfi_case_n_micro(s->c);
    double peak = s->p->q.cluster->peak_flops[s->p->precision] * to->n_ranks;
    to->model_flops = times * model;
    to->hardware_flops = times * (model + repeated);
    to->mfu = to->model_flops / (peak * seconds);
    to->hfu = to->hardware_flops / (peak * seconds);
}

static wfi_stage_times times_of(const step *s, int k) {
    const wfi_stage *stage = &s->stages[k];
    double us[4];
    for (int i = 0; i < 4; i++)
        us[i] = stage->us[i] + stage->gathered_us[i] + exposed(s, i) * stage->summed_us[i];
    return (wfi_stage_times){us[WFI_F], us[WFI_R] + us[WFI_B], us[WFI_W]};
}

static wf_status run_pipeline(const step *s, wfi_pipeline *to) {
    int n = s->c->pp * s->c->chunks;
    wfi_stage_times *times = wfi_alloc(s->p->ctx, (size_t)n, sizeof *times, "a pipeline");
    if (!times) return WF_NO_MEMORY;
    for (int k = 0; k < n; k++) times[k] = times_of(s, k);
    double us = transfer_us(s), hidden = s->p->q.cluster->overlap_pp * us;
    wf_status status = wfi_pipeline_run(s->p->ctx, s->c, times, us - hidden, hidden, to);
    wfi_free(s->p->ctx, times);
    return status;
}

/* The root also has the whole batch's outputs, and their gradients. */
static void add_root(const step *s, wf_prediction *to) {
    if (!s->c->has_root) return;
    double bytes = 2 * output_bytes(s);
    to->buffer_bytes += bytes;
    to->peak_bytes += bytes;
    to->short_by_bytes = fmax(0, to->peak_bytes - to->memory_bytes);
    to->fits = to->short_by_bytes <= 0;
}

/* Whether the step may still be within the limits, by what is known before the pipeline has run: a
 * device works on all microbatches, and keeps at least one. */
static bool is_within(const step *s, const wfi_limits *limits, const wf_prediction *ends) {
    double ms = ends->dp_ms + ends->optimizer_ms + ends->offload_ms;
    double gathers = wfi_case_n_micro(s->c) * total_of(s, s->device, gathered_of, ALL) / 1e3;
    ms = s->p->q.cluster->scale * (ms + s->work_us / 1e3 - gathers);
    if (ms > limits->step_ms) return false;
    wf_prediction least = *ends;
    wfi_predict_bytes(s->p, s->c, s->w, s->stages, NULL, &least);
    return least.short_by_bytes <= limits->short_by_bytes;
}

static wf_status predict(step *s, const wfi_limits *limits, wf_prediction *to, bool *is_exact_out) {
    wfi_pipeline run;
    find_device(s);
    fill_end(s, to);
    *is_exact_out = !limits || is_within(s, limits, to);
    if (!*is_exact_out) return WF_OK;
    WF_TRY(run_pipeline(s, &run));
    fill_times(s, &run, to);
    conclude(s->p->q.cluster->scale, to);
    wfi_predict_bytes(s->p, s->c, s->w, s->stages, run.held, to);
    add_root(s, to);
    fill_flops(s, to);
    wfi_free(s->p->ctx, run.held);
    return WF_OK;
}

/* ---- works ---- */

static bool is_same(const wfi_work_request *a, const wfi_work_request *b) {
    return a->n_samples == b->n_samples && a->tp == b->tp && a->recompute == b->recompute &&
           a->divides_rows == b->divides_rows;
}

static wf_status find_work(wfi_predictor *p, const wfi_case *c, wfi_work **work_out) {
    wfi_work_request r = {p->q.cluster,    p->q.model,   p->q.recipe,  wfi_case_n_samples(c), c->tp,
                          c->divides_rows, c->recompute, p->precision, p->q.accounting};
    if (p->q.accounting == WF_ACCOUNTING_MEGATRON) r.recompute = WFI_RECOMPUTE_NONE;
    for (int k = 0; k < p->n_known; k++)
        if (is_same(&p->known[k].request, &r)) {
            *work_out = p->known[k].work;
            return WF_OK;
        }
    WF_TRY(wfi_work_create(p->ctx, &r, work_out));
    if (p->n_known == WFI_MAX_WORKS) wfi_work_destroy(p->known[--p->n_known].work);
    p->known[p->n_known].request = r;
    p->known[p->n_known++].work = *work_out;
    return WF_OK;
}

wf_status wfi_predictor_work(wfi_predictor *p, wfi_work **work_out) {
    const wfi_case one = {.dp = 1, .pp = 1, .tp = 1, .batch = 1, .n_micro = 1};
    return find_work(p, &one, work_out);
}

wf_status wfi_predict_case(wfi_predictor *p, const wfi_case *c, const wfi_limits *limits,
                           wf_prediction *to, bool *is_exact_out) {
    wfi_work *w;
    wfi_stage *stages;
    WF_TRY(find_work(p, c, &w));
    WF_TRY(wfi_stages_create(p, c, w, &stages));
    step s = {.p = p, .c = c, .w = w, .stages = stages};
    add_gathers(&s, stages);
    *to = (wf_prediction){
        .n_parameters = w->n_parameters, .n_ranks = c->dp * c->pp * c->tp, .bound = ""};
    wf_status status = predict(&s, limits, to, is_exact_out);
    wfi_free(p->ctx, stages);
    return status;
}

/* ---- plans ---- */

static wfi_recompute recompute_of(const wf_plan *plan) {
    if (!plan->recompute) return WFI_RECOMPUTE_NONE;
    return strcmp(plan->recompute, "all") ? WFI_RECOMPUTE_SELECTIVE : WFI_RECOMPUTE_ALL;
}

static const char *find_unpredicted(const wf_plan *plan) {
    bool is_root = plan->n_rules == 1 && !plan->rules[0].unit;
    bool is_word = !plan->recompute || !strcmp(plan->recompute, "all") ||
                   !strcmp(plan->recompute, "selective");
    if (plan->n_rules && !is_root) return "strategies of units";
    if (!is_word) return "recompute=auto and recompute= of units";
    if (plan->schedule->search) return "schedule=auto";
    if (plan->lanes || plan->measures_lanes) return "lanes=";
    return plan->n_servers ? "ps=" : NULL;
}

static int number_of(const wfi_strategy *strategy) {
    for (int k = 0; k < WFI_N_ZERO; k++)
        if (wfi_zero_strategies[k] == strategy) return k + 1;
    return 0;
}

static wf_status check_case(const wfi_predictor *p, const wfi_case *c) {
    double n_ranks = (double)c->dp * c->pp * c->tp;
    double n_devices = (double)wf_cluster_n_devices(p->q.cluster);
    if (n_ranks > n_devices)
        return wfi_fail(p->ctx, WF_INVALID_ARG,
                        "the plan has %.0f ranks, but cluster %s has %.0f devices", n_ranks,
                        p->q.cluster->name, n_devices);
    if (c->n_micro > c->batch || c->n_micro % c->dp)
        return wfi_fail(p->ctx, WF_INVALID_ARG,
                        "%lld microbatches: a batch of %lld and dp=%d need a multiple of dp that "
                        "is at most the batch",
                        (long long)c->n_micro, (long long)c->batch, c->dp);
    return WF_OK;
}

/* The papers' ranks have replicas before stages; a plan's order= changes that. */
static void find_strides(const wfi_predictor *p, const wf_plan *plan, wfi_case *c) {
    wfi_mesh mesh = wfi_plan_mesh(plan);
    c->dp_stride = mesh.stride[WFI_AXIS_DP];
    c->pp_stride = mesh.stride[WFI_AXIS_PP];
    if (p->q.accounting != WF_ACCOUNTING_MEGATRON || plan->position[WFI_PLAN_ORDER]) return;
    c->dp_stride = c->tp;
    c->pp_stride = c->tp * c->dp;
}

wf_status wfi_case_of_plan(const wfi_predictor *p, const wf_plan *plan, wfi_case *c) {
    const char *unpredicted = find_unpredicted(plan);
    if (unpredicted)
        return wfi_fail(p->ctx, WF_UNSUPPORTED, "a prediction does not support %s", unpredicted);
    const wf_recipe *r = p->q.recipe;
    *c =
        (wfi_case){.dp = plan->dp,
                   .pp = plan->pp,
                   .tp = plan->tp,
                   .chunks = plan->pp > 1 ? wfi_schedule_n_chunks(plan->schedule, plan->chunks) : 1,
                   .divides_rows = plan->divides_rows && plan->tp > 1,
                   .zero = number_of(plan->strategy),
                   .shard = plan->shard ? plan->shard : plan->dp,
                   .schedule = plan->schedule,
                   .recompute = recompute_of(plan),
                   .has_root = plan->n_rules > 0,
                   .cut = plan->cut,
                   .batch = r->batch,
                   .n_micro = r->n_micro ? r->n_micro : r->batch};
    memcpy(c->offload, plan->offload, sizeof c->offload);
    find_strides(p, plan, c);
    return check_case(p, c);
}

/* ---- public ---- */

static wf_status find_precision(wf_context *ctx, const wf_prediction_request *q,
                                wfi_precision *precision_out) {
    static const char *const names[] = {"f32", "f16", "bf16"};
    const char *name = q->dtype ? q->dtype : q->recipe->dtype == WF_F32 ? "f32" : "bf16";
    for (int k = 0; k < WFI_N_PRECISIONS; k++)
        if (!strcmp(name, names[k])) {
            *precision_out = (wfi_precision)k;
            return WF_OK;
        }
    return wfi_fail(ctx, WF_INVALID_ARG, "dtype '%.20s'; there are f32, f16 and bf16", name);
}

wf_status wfi_predictor_begin(wf_context *ctx, const wf_prediction_request *q, wfi_predictor *p) {
    WF_TRY(wfi_check_struct(ctx, q, sizeof *q, "wf_prediction_request"));
    if (!q->cluster || !q->model || !q->recipe)
        return wfi_fail(ctx, WF_INVALID_ARG, "a prediction needs a cluster, a model and a recipe");
    *p = (wfi_predictor){.ctx = ctx, .q = *q};
    if (q->recipe->batch < 1 || q->recipe->batch > 1000000000 || q->recipe->n_micro < 0)
        return wfi_fail(ctx, WF_INVALID_ARG, "a batch of %lld samples in %lld microbatches",
                        (long long)q->recipe->batch, (long long)q->recipe->n_micro);
    return find_precision(ctx, q, &p->precision);
}

void wfi_predictor_end(wfi_predictor *p) {
    while (p->n_known) wfi_work_destroy(p->known[--p->n_known].work);
}

wf_status wf_predict(wf_context *ctx, const wf_prediction_request *request,
                     wf_prediction *prediction_out) {
    wfi_predictor p;
    wfi_case c;
    WF_TRY(wfi_predictor_begin(ctx, request, &p));
    if (!request->plan) return wfi_fail(ctx, WF_INVALID_ARG, "a prediction needs a plan");
    wf_status status = wfi_case_of_plan(&p, request->plan, &c);
    bool is_exact;
    if (status == WF_OK) status = wfi_predict_case(&p, &c, NULL, prediction_out, &is_exact);
    wfi_predictor_end(&p);
    return status;
}
