/* Bytes of a device: as weft's programs have them, or as the published runs had them. */
#include "cluster/moment.h"
#include "optimizer/optimizer.h"

static double element_of(const wfi_predictor *p) {
    return p->precision == WFI_F32 ? 4 : 2;
}

/* ---- weft ---- */

/* Parameters of weft are f32; in 16 bits, kernels read packed copies. */
static double weft_bytes(const wfi_predictor *p, int which) {
    double state = 4.0 * wfi_recipe_n_states(p->q.recipe);
    double parameter = p->precision == WFI_F32 ? 4 : 6;
    return which == WFI_BYTES_PARAMETER ? parameter : which == WFI_BYTES_GRADIENT ? 4 : state;
}

double wfi_bytes_each(const wfi_predictor *p, int which) {
    bool is_weft = p->q.accounting == WF_ACCOUNTING_WEFT;
    return is_weft ? weft_bytes(p, which) : p->q.cluster->bytes[p->precision][which];
}

/* ---- the papers: Korthikanti et al., 2022 ---- */

typedef struct shape {
    double s, b, h, a, t, v, each,
        keys; /* tokens, samples, width, heads, tp, vocabulary, element bytes, tokens attended to */
} shape;

static bool find_shape(const wfi_predictor *p, const wfi_case *c, shape *to) {
    const wf_model_config *m = wf_model_config_of(p->q.model);
    if (p->q.accounting != WF_ACCOUNTING_MEGATRON || !m || !m->n_heads) return false;
    *to = (shape){(double)m->n_tokens,
                  (double)wfi_case_n_samples(c),
                  (double)m->hidden,
                  (double)m->n_heads,
                  c->tp,
                  (double)m->n_classes,
                  element_of(p),
                  (double)m->n_tokens * fmax(1, p->q.n_contexts)};
    return true;
}

/* Masks of dropout are bytes, but elements where one thread draws them; all else has `each`. */
static double layer_bytes(const wfi_predictor *p, const wfi_case *c, const shape *x,
                          wfi_recompute how) {
    double masks = p->q.cluster->random_per_s > 0 ? 1 : 0; /* units of 2 bytes, beyond a byte */
    double sbh = x->s * x->b * x->h, scores = (5 + masks) * x->a * x->keys / x->h;
    bool keeps = how == WFI_RECOMPUTE_NONE && !p->q.cluster->fuses_attention;
    double share = c->divides_rows ? 1 / x->t : 1;
    if (how == WFI_RECOMPUTE_ALL) return x->each * sbh * share;
    return x->each / 2 * sbh * ((10 + 2 * masks) * share + (24 + (keeps ? scores : 0)) / x->t);
}

double wfi_block_saved_bytes(const wfi_predictor *p, const wfi_case *c, const wfi_model_block *b) {
    shape x;
    if (!find_shape(p, c, &x)) return b->saved_bytes;
    double slack = p->q.cluster->activation_slack;
    return b->is_layer ? slack * layer_bytes(p, c, &x, c->recompute) : 0;
}

/* A layer that is computed again has all of its activations. Logits of the head are there in 16 and
 * 32 bits, with their gradients. */
double wfi_block_transient_bytes(const wfi_predictor *p, const wfi_case *c,
                                 const wfi_model_block *b) {
    shape x;
    if (!find_shape(p, c, &x)) return fmax(b->pass[0].transient, b->pass[1].transient);
    double slack = p->q.cluster->activation_slack;
    bool repeats = b->is_layer && c->recompute == WFI_RECOMPUTE_ALL;
    if (repeats) return slack * layer_bytes(p, c, &x, WFI_RECOMPUTE_NONE);
    bool is_head = !b->is_layer && b->phase[WFI_F].flops > 0;
    return is_head ? slack * 10 * x.s * x.b * x.v / x.t : 0;
}

/* ---- a device ---- */

static double share_of(const wfi_case *c, int from_zero) {
    return c->zero >= from_zero ? 1.0 / c->shard : 1;
}

static bool is_on_device(const wfi_case *c, wfi_offload what) {
    return c->offload[what] == WFI_SPACE_DEVICE;
}

/* Adds bytes that live in the space where the plan keeps them. */
static double put(const wfi_case *c, wfi_offload what, double bytes, wf_prediction *to) {
    if (is_on_device(c, what)) return bytes;
    *(c->offload[what] == WFI_SPACE_HOST ? &to->host_bytes : &to->disk_bytes) += bytes;
    return 0;
}

/* The papers' figures count a repeated layer and the logits at once. */
static void count_papers(const wfi_predictor *p, const wfi_case *c, const wfi_stage_work *stages,
                         int device, double held, wf_prediction *to) {
    double n = wfi_device_used(c, stages, device), saved = 0, layer = 0, end = 0;
    for (int k = 0; k < c->chunks; k++) {
        const wfi_stage_work *stage = &stages[wfi_case_stage(c, device, k)];
        saved += stage->saved_bytes;
        layer = fmax(layer, stage->layer_bytes);
        end = fmax(end, stage->end_bytes);
    }
    to->gradient_bytes = n * wfi_bytes_each(p, WFI_BYTES_GRADIENT) * share_of(c, 2);
    to->activation_bytes = put(c, WFI_OFFLOAD_ACTIVATIONS, held * saved, to);
    to->buffer_bytes = layer + end;
}

/* Offloaded activations of a microbatch: those of the model's last unit come back at once, so they
 * stay. */
typedef struct away {
    double saved, window, stays;
} away;

static away find_away(const wfi_case *c, const wfi_model_work *w, const wfi_stage_work *stages,
                      int device) {
    away a = {0};
    const wfi_model_block *last = &w->kinds[w->n_kinds - 1];
    for (int s = 0; s < c->pp * c->chunks; s++)
        if (wfi_schedule_device_of(c->schedule, c->pp, s) == device)
            a.saved += stages[s].saved_bytes;
    if (c->pp == 1 && last->n_units == 1) a.stays = last->saved_bytes;
    for (int32_t k = 0; k < w->n_kinds - (a.stays > 0); k++)
        a.window = fmax(a.window, (2 + c->prefetch) * w->kinds[k].unit_saved_bytes);
    a.saved -= a.stays;
    return a;
}

static void count_weft(const wfi_predictor *p, const wfi_case *c, const wfi_model_work *w,
                       const wfi_stage_work *stages, int device, double held, wf_prediction *to) {
    wfi_case_moment m = wfi_moment_find(p, c, w, stages, device, held);
    to->gradient_bytes = m.gradients;
    to->activation_bytes = m.activations;
    to->buffer_bytes = m.buffers;
    if (is_on_device(c, WFI_OFFLOAD_ACTIVATIONS)) return;
    away a = find_away(c, w, stages, device);
    (void)put(c, WFI_OFFLOAD_ACTIVATIONS, held * a.saved, to);
    to->activation_bytes = a.stays;
    to->buffer_bytes += fmin(a.window, held * a.saved);
}

static void count_device(const wfi_predictor *p, const wfi_case *c, const wfi_model_work *w,
                         const wfi_stage_work *stages, int device, double held, wf_prediction *to) {
    bool is_weft = p->q.accounting == WF_ACCOUNTING_WEFT;
    double n = wfi_device_used(c, stages, device), updated = is_weft ? 0 : n;
    double each = is_weft ? 4 : wfi_bytes_each(p, WFI_BYTES_PARAMETER);
    for (int k = 0; k < c->chunks && is_weft; k++) /* tied weights have a state where they begin */
        updated += stages[wfi_case_stage(c, device, k)].n_parameters;
    to->parameter_bytes = put(c, WFI_OFFLOAD_PARAMS, n * each * share_of(c, 3), to);
    to->state_bytes = put(c, WFI_OFFLOAD_STATE,
                          updated * wfi_bytes_each(p, WFI_BYTES_STATE) * share_of(c, 1), to);
    if (is_weft)
        count_weft(p, c, w, stages, device, held, to);
    else
        count_papers(p, c, stages, device, held, to);
    to->library_bytes = p->q.cluster->library_bytes;
}

/* Parameters and state in equal parts: all else depends on the schedule and on the moment. */
double wfi_least_bytes(const wfi_predictor *p, const wfi_case *c, const wfi_model_work *w) {
    bool is_weft = p->q.accounting == WF_ACCOUNTING_WEFT;
    double each = 0, parameter = is_weft ? 4 : wfi_bytes_each(p, WFI_BYTES_PARAMETER);
    if (is_on_device(c, WFI_OFFLOAD_PARAMS)) each += parameter * share_of(c, 3);
    if (is_on_device(c, WFI_OFFLOAD_STATE))
        each += wfi_bytes_each(p, WFI_BYTES_STATE) * share_of(c, 1);
    return (1 - 1e-9) * (each * w->n_own / c->pp + p->q.cluster->library_bytes);
}

static double sum(const wf_prediction *x) {
    return x->parameter_bytes + x->gradient_bytes + x->state_bytes + x->activation_bytes +
           x->buffer_bytes + x->library_bytes;
}

double wfi_device_room(const wfi_predictor *p) {
    const wf_cluster *c = p->q.cluster;
    double most = p->q.device_bytes > 0 ? c->library_bytes + p->q.device_bytes : c->memory_bytes;
    return fmin(most, c->memory_bytes);
}

static double host_share(const wfi_predictor *p, const wfi_case *c) {
    double share = p->q.cluster->host_bytes / wfi_case_per_node(c, p->q.cluster);
    return p->q.host_bytes > 0 ? fmin(share, p->q.host_bytes) : share;
}

void wfi_count_missing(wf_prediction *to, double bytes, const char *of) {
    if (bytes <= to->short_by_bytes) return;
    to->short_by_bytes = bytes;
    to->lacks = of;
    to->fits = 0;
}

void wfi_predict_bytes(const wfi_predictor *p, const wfi_case *c, const wfi_model_work *w,
                       const wfi_stage_work *stages, const double *held, wf_prediction *to) {
    double host = 0, disk = 0;
    for (int d = 0; d < c->pp; d++) {
        wf_prediction own = *to;
        own.host_bytes = own.disk_bytes = 0;
        count_device(p, c, w, stages, d, held[d], &own);
        own.peak_bytes = sum(&own);
        host = fmax(host, own.host_bytes);
        disk = fmax(disk, own.disk_bytes);
        if (own.peak_bytes > to->peak_bytes) *to = own;
    }
    to->host_bytes = host;
    to->disk_bytes = disk;
    const wf_cluster *cl = p->q.cluster;
    to->memory_bytes = cl->memory_bytes;
    to->short_by_bytes = 0;
    to->lacks = NULL;
    wfi_count_missing(to, to->peak_bytes - wfi_device_room(p), "device memory");
    /* Devices of a node share its host's memory and disk. */
    wfi_count_missing(to, to->host_bytes - host_share(p, c), "host memory");
    wfi_count_missing(to, to->disk_bytes - cl->disk_bytes / wfi_case_per_node(c, cl), "disk");
    to->fits = !to->lacks;
}
