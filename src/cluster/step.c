/* The time of a step beside compute: communication, the update, memory elsewhere. */
#include "cluster/step.h"

static double share_hidden(double us, double overlap, double available_us) {
    return us - fmin(us * overlap, available_us);
}

static double total_of(const wfi_case_step *s, int device,
                       const double *(*values)(const wfi_stage_work *), unsigned phases) {
    double sum = 0;
    for (int k = 0; k < s->c->chunks; k++)
        for (int phase = 0; phase < 4; phase++)
            if (phases >> phase & 1)
                sum += values(&s->stages[wfi_case_stage(s->c, device, k)])[phase];
    return sum;
}

static const double *us_of(const wfi_stage_work *stage) {
    return stage->us;
}

static const double *summed_of(const wfi_stage_work *stage) {
    return stage->summed_us;
}

static const double *gathered_of(const wfi_stage_work *stage) {
    return stage->gathered_us;
}

static const double *flops_of(const wfi_stage_work *stage) {
    return stage->flops;
}

double wfi_step_us(const wfi_case_step *s, int device, unsigned phases) {
    return total_of(s, device, us_of, phases);
}

double wfi_step_flops(const wfi_case_step *s, int device, unsigned phases) {
    return total_of(s, device, flops_of, phases);
}

double wfi_step_gathers_us(const wfi_case_step *s, int device) {
    return total_of(s, device, gathered_of, WFI_IN_ALL);
}

/* The share of sums over the tensor-parallel ranks that compute does not hide, by phase. */
double wfi_step_exposed(const wfi_case_step *s, int phase) {
    bool is_backward = phase == WFI_B || phase == WFI_W;
    return 1 - s->p->q.cluster->overlap_tp[is_backward];
}

/* Bytes of gradients and of parameters on the wire, for each. */
static double gradient_wire(const wfi_case_step *s) {
    return wfi_bytes_each(s->p, WFI_BYTES_GRADIENT);
}

static double parameter_wire(const wfi_case_step *s) {
    return s->p->precision == WFI_F32 ? 4 : 2;
}

static double collective(const wfi_case_step *s, wfi_traffic_kind kind, double bytes, double n,
                         double times) {
    return wfi_traffic_us(s->p->q.cluster, kind, bytes, n, s->c->dp_stride * times);
}

/* Weft sums gradients bucket by bucket. */
static double n_buckets(const wfi_case_step *s, double bytes) {
    double bucket = s->c->bucket_bytes;
    bool is_weft = s->p->q.accounting == WF_ACCOUNTING_WEFT;
    return is_weft && bucket > 0 ? fmax(1, ceil(bytes / bucket)) : 1;
}

/* An all-reduce over every `times`-th replica. */
static double sum_us(const wfi_case_step *s, double bytes, double n, double times) {
    double n_sums = n_buckets(s, s->n_used * gradient_wire(s));
    if (s->p->q.accounting != WF_ACCOUNTING_WEFT)
        return collective(s, WFI_TRAFFIC_ALL_REDUCE, bytes, n, times);
    return n_sums * wfi_allreduce_us(s->p->q.cluster, s->c->allreduce, bytes / n_sums, n,
                                     s->c->dp_stride * times);
}

/* Over replicas: gradients are summed, and parameters that were divided for the update gathered. */
static double replicas_us(const wfi_case_step *s) {
    const wfi_case *c = s->c;
    const wf_cluster *cl = s->p->q.cluster;
    double gradients = s->n_used * gradient_wire(s), parameters = s->n_used * parameter_wire(s);
    double sum = 0;
    if (c->zero == 1 || c->zero == 2)
        sum = collective(s, WFI_TRAFFIC_REDUCE_SCATTER, gradients, c->shard, 1);
    if (!c->zero || c->shard < c->dp)
        sum += sum_us(s, c->zero ? gradients / c->shard : gradients,
                      c->zero ? (double)c->dp / c->shard : c->dp, c->zero ? c->shard : 1);
    bool gathers = c->zero == 1 || c->zero == 2;
    double gather = gathers ? collective(s, WFI_TRAFFIC_ALL_GATHER, parameters, c->shard, 1) : 0;
    return (sum * (c->zero ? cl->reduce_passes : 1) + gather) / cl->dp_efficiency;
}

/* zero=3: each microbatch, or with a breadth-first schedule each step, gathers the parameters of a
 * stage, block by block, forward and backward, and scatters gradients. Compute hides a part. Inside
 * a node, gathers are as fast as its links, and hidden as sums over replicas are. */
static double gather_us(const wfi_case_step *s, const wfi_stage_work *stage, double compute_us,
                        double rounds) {
    const wf_cluster *cl = s->p->q.cluster;
    double n = s->c->shard;
    if (s->c->zero != 3) return 0;
    bool is_inside = cl->n_levels && n * s->c->dp_stride <= cl->levels[0].count;
    double bytes = stage->n_used * parameter_wire(s) / stage->n_blocks;
    double slowest = is_inside ? 0 : 1e6 * bytes * (n - 1) / n / cl->zero3_bandwidth;
    double one = fmax(slowest, collective(s, WFI_TRAFFIC_ALL_GATHER, bytes, n, 1));
    double us = rounds * stage->n_blocks * one;
    if (s->c->schedule->by_unit) us /= wfi_case_n_micro(s->c);
    bool is_hidden = s->p->q.accounting != WF_ACCOUNTING_WEFT || s->c->prefetch > 0;
    double overlap = !is_hidden ? 0 : is_inside ? cl->overlap_dp : cl->overlap_zero3;
    return fmax(0, us - compute_us) + (1 - overlap) * fmin(us, compute_us);
}

void wfi_step_add_gathers(const wfi_case_step *s, wfi_stage_work *stages) {
    for (int k = 0; k < s->c->pp * s->c->chunks; k++) {
        wfi_stage_work *stage = &stages[k];
        double backward = stage->us[WFI_R] + stage->us[WFI_B] + stage->us[WFI_W];
        stage->gathered_us[WFI_F] = gather_us(s, stage, stage->us[WFI_F], 1);
        stage->gathered_us[WFI_B] = gather_us(s, stage, backward, 2);
    }
}

/* Outputs of the whole batch, which rank 0 gathers for the loss. */
double wfi_step_output_bytes(const wfi_case_step *s) {
    const wf_model_config *m = wf_model_config_of(s->p->q.model);
    double rows = m ? fmax(1, (double)m->n_tokens) * (double)m->n_classes : 1;
    return 4 * rows * (double)s->c->batch;
}

/* Rank 0 sends parameters and receives gradients and outputs, one rank after the other. */
static double root_us(const wfi_case_step *s) {
    double n = s->c->dp - 1, each = 2 * s->n_used * parameter_wire(s);
    double bytes = n * each + 2 * n / s->c->dp * wfi_step_output_bytes(s);
    return wfi_traffic_us(s->p->q.cluster, WFI_TRAFFIC_SEND, bytes, 1, s->c->dp_stride);
}

/* Sums overlap with the backward of the last microbatch, gathers with the forward of the first; the
 * last bucket of weft's overlaps with nothing. */
double wfi_step_dp_us(const wfi_case_step *s) {
    bool is_weft = s->p->q.accounting == WF_ACCOUNTING_WEFT;
    double one = is_weft ? s->work_us / wfi_case_n_micro(s->c) : INFINITY;
    if (s->c->has_root) return root_us(s);
    if (s->c->dp == 1) return 0;
    double us = replicas_us(s), n = n_buckets(s, s->n_used * gradient_wire(s));
    double last = is_weft && s->c->bucket_bytes > 0 ? us / n : 0;
    if (s->c->is_serial) return us;
    return last + share_hidden(us - last, s->p->q.cluster->overlap_dp, one);
}

/* Weights that the last stage shares with the first. */
double wfi_step_tied_us(const wfi_case_step *s) {
    const wfi_stage_work *last = &s->stages[s->c->pp * s->c->chunks - 1];
    double n = last->n_used - last->n_parameters;
    if (s->c->pp == 1 || n <= 0) return 0;
    return wfi_traffic_us(s->p->q.cluster, WFI_TRAFFIC_ALL_REDUCE, n * gradient_wire(s), 2,
                          (double)s->c->pp_stride * (s->c->pp - 1));
}

/* With scatter and gather, each rank along tp sends a part, and the others then get it. */
double wfi_step_transfer_us(const wfi_case_step *s) {
    const wf_cluster *cl = s->p->q.cluster;
    double bytes = 0, n = s->c->tp;
    bool has_parts = s->c->divides_rows && s->w->has_rows, is_divided = has_parts || cl->scatters;
    if (s->c->pp == 1) return 0;
    for (int k = 1; k < s->c->pp * s->c->chunks; k++) bytes = fmax(bytes, s->stages[k].input_bytes);
    double us =
        wfi_traffic_us(cl, WFI_TRAFFIC_SEND, is_divided ? bytes / n : bytes, n, s->c->pp_stride);
    bool gathers = cl->scatters && !has_parts;
    return us + (gathers ? wfi_traffic_us(cl, WFI_TRAFFIC_ALL_GATHER, bytes, n, 1) : 0);
}

/* ---- the end of a step, and memory elsewhere ---- */

/* The published runs' software also takes a time that no model explains. */
double wfi_step_optimizer_us(const wfi_case_step *s) {
    const wf_cluster *cl = s->p->q.cluster;
    double n = s->n_used / (s->c->zero ? s->c->shard : 1);
    double each =
        wfi_bytes_each(s->p, WFI_BYTES_GRADIENT) +
        2 * (wfi_bytes_each(s->p, WFI_BYTES_PARAMETER) + wfi_bytes_each(s->p, WFI_BYTES_STATE));
    if (s->p->q.accounting == WF_ACCOUNTING_WEFT) return wfi_bytes_us(cl, n * each);
    return wfi_bytes_us(cl, n * cl->optimizer_bytes) + 1e3 * cl->step_ms;
}

static double far_us(const wfi_case_step *s, wfi_offload what, double bytes) {
    const wf_cluster *cl = s->p->q.cluster;
    wfi_space space = s->c->offload[what];
    if (space == WFI_SPACE_DEVICE) return 0;
    double bandwidth = space == WFI_SPACE_HOST ? cl->host_bandwidth : cl->disk_bandwidth;
    return 1e6 * bytes * wfi_case_per_node(s->c, cl) / bandwidth;
}

/* State moves at the step's end. Parameters and activations move while the device computes, if they
 * may come ahead of their use. The devices of a node share its host and its disk. */
double wfi_step_offload_us(const wfi_case_step *s) {
    double saved = 0, n = wfi_case_n_micro(s->c);
    double shared = s->n_used / (s->c->zero ? s->c->shard : 1);
    for (int k = 0; k < s->c->chunks; k++)
        saved += s->stages[wfi_case_stage(s->c, s->device, k)].saved_bytes;
    double uses = s->c->schedule->by_unit ? 2 : 2 * n;
    double moved = far_us(s, WFI_OFFLOAD_PARAMS, (uses + 1) * s->n_used * parameter_wire(s)) +
                   far_us(s, WFI_OFFLOAD_ACTIVATIONS, 2 * n * saved);
    bool is_hidden = s->p->q.accounting != WF_ACCOUNTING_WEFT || s->c->prefetch > 0;
    return (is_hidden ? fmax(0, moved - s->work_us) : moved) +
           far_us(s, WFI_OFFLOAD_STATE, 2 * shared * wfi_bytes_each(s->p, WFI_BYTES_STATE));
}

double wfi_step_sums_us(const wfi_case_step *s, int device) {
    return wfi_step_exposed(s, WFI_F) * total_of(s, device, summed_of, WFI_IN_F | WFI_IN_R) +
           wfi_step_exposed(s, WFI_B) * total_of(s, device, summed_of, WFI_IN_B | WFI_IN_W);
}
