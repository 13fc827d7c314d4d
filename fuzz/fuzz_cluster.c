/* Cluster files. Accepted ones have numbers within their bounds, so that a prediction is finite. */
#include "cluster/cluster.h"
#include "fuzz_text.h"

static void predict(wf_context *ctx, wf_cluster *cluster) {
    wf_prediction_request q = WF_PREDICTION_REQUEST_INIT;
    wf_recipe recipe = WF_RECIPE_INIT;
    wf_model *model;
    wf_plan *plan;
    wf_prediction p = WF_PREDICTION_INIT;
    if (wf_model_find(ctx, "mlp", NULL, &model) != WF_OK) abort();
    if (wf_plan_parse(ctx, "", &plan) != WF_OK) abort();
    q.cluster = cluster, q.model = model, q.recipe = &recipe, q.plan = plan;
    if (wf_predict(ctx, &q, &p) != WF_OK || !(p.step_ms > 0 && p.step_ms < 1e300)) abort();
    wf_plan_destroy(plan);
    wf_model_destroy(model);
}

static void use(wf_context *ctx, char *text, size_t n_bytes) {
    wf_cluster *cluster;
    if (wf_cluster_parse(ctx, text, n_bytes, "input", &cluster) != WF_OK) {
        if (!*wf_context_error(ctx)) abort(); /* no refusal without a sentence */
        return;
    }
    if (wf_cluster_n_devices(cluster) < 1) abort();
    predict(ctx, cluster);
    wf_cluster_destroy(cluster);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes) {
    return fuzz_text(bytes, n_bytes, use);
}
