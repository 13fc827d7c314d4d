/* From a plan to the case that a prediction is about. */
#include "cluster/predict.h"

#include <string.h>

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
    if (is_root && plan->output) return "output=";
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

/* Context-parallel ranks are replicas, each with a part of a sample. */
static void add_contexts(const wfi_predictor *p, wfi_case *c) {
    int n = p->q.n_contexts > 1 ? p->q.n_contexts : 1;
    c->dp *= n;
    c->shard *= n;
    c->batch *= n;
    c->n_micro *= n;
}

/* The papers' ranks have replicas before stages; a plan's axes= changes that. */
static void find_strides(const wfi_predictor *p, const wf_plan *plan, wfi_case *c) {
    wfi_mesh mesh = wfi_plan_mesh(plan);
    c->dp_stride = mesh.stride[WFI_DP];
    c->pp_stride = mesh.stride[WFI_PP];
    if (p->q.accounting != WF_ACCOUNTING_MEGATRON || plan->position[WFI_PLAN_AXES]) return;
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
                   .allreduce = plan->allreduce,
                   .is_serial = !plan->overlaps,
                   .bucket_bytes = (double)plan->bucket_bytes,
                   .prefetch = plan->overlaps ? plan->prefetch : 0,
                   .n_micro = r->n_micro ? r->n_micro : r->batch};
    memcpy(c->offload, plan->offload, sizeof c->offload);
    add_contexts(p, c);
    find_strides(p, plan, c);
    return check_case(p, c);
}
