/* From a model function to a finished graph: build, fuse, differentiate. */
#include "pass/pass.h"

#include <stdlib.h>
#include <string.h>

static int compare_names(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Plans, checkpoints and reports name units. */
static wf_status check_names(const wf_graph *g) {
    size_t n = (size_t)g->n_units, k = 1;
    const char **names = wfi_alloc(g->ctx, n, sizeof *names, "names of units");
    if (!names) return WF_NO_MEMORY;
    for (size_t u = 0; u < n; u++) names[u] = g->units[u].name;
    qsort(names, n, sizeof *names, compare_names);
    while (k < n && strcmp(names[k - 1], names[k])) k++;
    wf_status status = WF_OK;
    if (k < n)
        status = wfi_fail(g->ctx, WF_INVALID_ARG,
                          "two units are called '%s'; cuts need unique names", names[k]);
    wfi_free(g->ctx, names);
    return status;
}

wf_status wfi_graph_declare(wf_context *ctx, int64_t batch, bool training, wf_model_function model,
                            const void *model_config, wf_graph **graph_out) {
    if (batch < 1)
        return wfi_fail(ctx, WF_INVALID_ARG, "a microbatch of %lld samples; it takes at least one",
                        (long long)batch);
    wf_graph *g = wfi_alloc(ctx, 1, sizeof *g, "a graph");
    if (!g) return WF_NO_MEMORY;
    g->ctx = ctx;
    g->batch = batch;
    g->training = training;
    g->loss = g->labels = g->record = g->loss_unit = -1;
    g->scope = "";
    wfi_pool_init(&g->pool, ctx);
    wfi_graph_add_unit(g, "first");
    if (g->status == WF_OK) model(g, model_config);
    wf_status status = g->status;
    if (status == WF_OK)
        *graph_out = g;
    else
        wf_graph_destroy(g);
    return status;
}

wf_status wfi_graph_create(wf_context *ctx, const wf_graph_config *config, int32_t n_slices,
                           bool splits_loss, wf_model_function model, const void *model_config,
                           wf_graph **graph_out) {
    wf_graph *g;
    WF_TRY(wfi_check_struct(ctx, config, sizeof *config, "wf_graph_config"));
    WF_TRY(wfi_graph_declare(ctx, config->batch, config->training, model, model_config, &g));
    if (g->training && g->loss < 0)
        wfi_graph_fail(g, WF_INVALID_ARG,
                       "the model never calls wf_loss, so nothing can be trained");
    if (g->status == WF_OK) g->status = wfi_graph_shard(g, n_slices);
    if (g->status == WF_OK) g->status = check_names(g);
    if (g->status == WF_OK) g->status = wfi_graph_freeze(g, config->freeze, config->lr_scale);
    if (g->status == WF_OK) g->status = wfi_graph_fuse(g);
    if (g->status == WF_OK && splits_loss) g->status = wfi_graph_split_loss(g);
    if (g->status == WF_OK && g->training) g->status = wfi_graph_autodiff(g);
    if (g->status == WF_OK && g->training) g->status = wfi_graph_check_used(g);
    if (g->status != WF_OK) {
        wf_status status = g->status;
        wf_graph_destroy(g);
        return status;
    }
    *graph_out = g;
    return WF_OK;
}

wf_status wf_graph_create(wf_context *ctx, const wf_graph_config *config, wf_model_function model,
                          const void *model_config, wf_graph **graph_out) {
    return wfi_graph_create(ctx, config, 1, false, model, model_config, graph_out);
}
