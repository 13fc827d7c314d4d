/* DataParallel in one process: replicate, scatter, parallel_apply, gather. */
#include "api/module.h"

#include <pthread.h>
#include <stdio.h>

/* ---- replicate ---- */

wf_status wf_module_replicate(wf_module *m, const char *const *devices, int n_devices,
                              wf_module **replicas_out) {
    wfi_device_list list;
    int n_places = 1, n_made = 0;
    /* The devices divide the cores. */
    for (int d = 0; d < n_devices; d++) {
        WF_TRY(wfi_device_named(m->ctx, devices[d], &list));
        if (list.n_places > n_places) n_places = list.n_places;
    }
    wf_module_config config = m->config;
    config.output = wfi_trainer_graph(m->trainer)->values[m->output].name;
    wf_status status = WF_OK;
    for (; n_made < n_devices && status == WF_OK; n_made++) {
        status = wfi_device_named(m->ctx, devices[n_made], &list);
        list.n_places = n_places;
        if (status == WF_OK)
            status = wfi_module_create_on(m->ctx, m->trainer->model, &config, &list,
                                          &replicas_out[n_made]);
        if (status != WF_OK) break;
        status = wf_trainer_copy_weights(replicas_out[n_made]->trainer, m->trainer, NULL);
    }
    while (status != WF_OK && n_made > 0) wf_module_destroy(replicas_out[--n_made]);
    return status;
}

/* ---- parallel_apply ---- */

/* A replica waits for its own device on a thread of its own. */
typedef struct application {
    wf_module *replica;
    const wf_array *input;
    wf_array *output;
    pthread_t thread;
    bool has_thread;
    wf_status status;
    char sentence[WFI_SENTENCE_BYTES];
} application;

static void *apply(void *self) {
    application *a = self;
    a->status = wf_module_apply(a->replica, a->input, &a->output);
    /* Sentences are of the thread that failed. */
    if (a->status != WF_OK)
        snprintf(a->sentence, sizeof a->sentence, "%s", wf_context_error(a->replica->ctx));
    return NULL;
}

static void apply_all(application *all, int n) {
    for (int k = 1; k < n; k++)
        all[k].has_thread = pthread_create(&all[k].thread, NULL, apply, &all[k]) == 0;
    apply(&all[0]);
    for (int k = 1; k < n; k++) {
        if (all[k].has_thread)
            pthread_join(all[k].thread, NULL);
        else
            apply(&all[k]); /* no thread to be had: one after the other, with the same result */
    }
}

/* A module serves one thread at a time. */
static wf_status check_distinct(wf_module *const *replicas, int n) {
    for (int k = 1; k < n; k++)
        for (int i = 0; i < k; i++)
            if (replicas[i] == replicas[k])
                return wfi_fail(replicas[0]->ctx, WF_INVALID_ARG,
                                "replicas %d and %d are one module; wf_module_replicate makes more",
                                i, k);
    return WF_OK;
}

wf_status wf_parallel_apply(wf_module *const *replicas, wf_array *const *inputs, int n,
                            wf_array **outputs_out) {
    if (n < 1) return WF_OK;
    wf_context *ctx = replicas[0]->ctx;
    WF_TRY(check_distinct(replicas, n));
    application *all = wfi_alloc(ctx, (size_t)n, sizeof *all, "replicas at work");
    if (!all) return WF_NO_MEMORY;
    for (int k = 0; k < n; k++) all[k] = (application){.replica = replicas[k], .input = inputs[k]};
    apply_all(all, n);
    wf_status status = WF_OK;
    for (int k = 0; k < n && status == WF_OK; k++)
        if (all[k].status != WF_OK)
            status = wfi_fail(ctx, all[k].status, "replica %d: %s", k, all[k].sentence);
    for (int k = 0; k < n; k++) {
        if (status == WF_OK)
            outputs_out[k] = all[k].output;
        else
            wf_array_destroy(all[k].output);
    }
    wfi_free(ctx, all);
    return status;
}

/* ---- all of it ---- */

wf_status wf_data_parallel(wf_module *m, const wf_array *input, const char *const *devices,
                           int n_devices, const char *output_device, wf_array **output_out) {
    if (n_devices < 1) return wf_module_apply(m, input, output_out);
    int n = 0, n_replicas = 0, n_outputs = 0;
    wf_module **replicas = wfi_alloc(m->ctx, (size_t)n_devices, sizeof *replicas, "replicas");
    wf_array **inputs = wfi_alloc(m->ctx, 2 * (size_t)n_devices, sizeof *inputs, "replicas");
    wf_status status = replicas && inputs ? WF_OK : WF_NO_MEMORY;
    if (status == WF_OK) status = wf_array_scatter(input, devices, n_devices, inputs, &n);
    /* Fewer inputs than devices need no more replicas. */
    if (status == WF_OK) status = wf_module_replicate(m, devices, n, replicas);
    if (status == WF_OK) n_replicas = n;
    if (status == WF_OK) status = wf_parallel_apply(replicas, inputs, n, inputs + n);
    if (status == WF_OK) n_outputs = n;
    if (status == WF_OK)
        status =
            wf_array_gather(inputs + n, n, output_device ? output_device : devices[0], output_out);
    for (int k = 0; k < n_replicas; k++) wf_module_destroy(replicas[k]);
    for (int k = 0; k < n + n_outputs; k++) wf_array_destroy(inputs[k]);
    wfi_free(m->ctx, replicas);
    wfi_free(m->ctx, inputs);
    return status;
}
