/* Clusters: the time and memory of a training step on devices that need not be here.
 *
 * A cluster is a JSON file (docs/which.md) with devices, links by level, host memory and disks. A
 * prediction needs no device and compiles no program. It takes milliseconds for any number of
 * ranks, microbatches and layers, and proves nothing.
 */
#ifndef WEFT_CLUSTER_H
#define WEFT_CLUSTER_H

#include <weft/recipe.h>

typedef struct wf_cluster wf_cluster;

/* How bytes and stages are counted. WEFT: as in weft's programs. MEGATRON: as in the published runs
 * of Megatron-LM and DeepSpeed, with the bytes a parameter of the cluster file and Korthikanti's
 * formulas for activations; layers are divided equally, and the last stage has the rest. */
typedef enum wf_accounting { WF_ACCOUNTING_WEFT, WF_ACCOUNTING_MEGATRON } wf_accounting;

typedef struct wf_prediction_request {
    size_t struct_size; /* set by WF_PREDICTION_REQUEST_INIT */
    const wf_cluster *cluster;
    const wf_model *model;
    /* batch, n_micro (0: microbatches of one sample), n_lanes and n_slices (0: one a rank), dtype,
     * optimizer, clip_norm */
    const wf_recipe *recipe;
    const wf_plan *plan;
    const char *dtype; /* "f32", "f16" or "bf16"; NULL: the recipe's */
    wf_accounting accounting;
    double device_bytes; /* most bytes of a device's memory, without libraries; 0: all of them */
    double host_bytes;   /* most bytes of its host's memory for a device; 0: its equal share */
    int n_contexts;      /* wf_predict with MEGATRON: ranks that divide a sample's tokens (context
                          * parallelism), for each rank of the plan; 0: 1 */
} wf_prediction_request;

#define WF_PREDICTION_REQUEST_INIT                                                                 \
    { sizeof(wf_prediction_request), NULL, NULL, NULL, NULL, NULL, WF_ACCOUNTING_WEFT, 0, 0, 0 }

/* Times are of the slowest stage; step_ms is the sum of the nine that follow it. Bytes are of the
 * device that needs the most; peak_bytes is the sum of the six before it. Those of the host and the
 * disk are the most that a device has there. */
typedef struct wf_prediction {
    size_t struct_size; /* set by WF_PREDICTION_INIT */
    double step_ms;
    double forward_ms, backward_ms, recompute_ms;
    double tp_ms, bubble_ms, pp_ms, dp_ms, optimizer_ms, offload_ms; /* as far as not hidden */
    const char *bound; /* the largest term, such as "pipeline bubble"; static */
    double parameter_bytes, gradient_bytes, state_bytes, activation_bytes, buffer_bytes,
        library_bytes, peak_bytes;
    double host_bytes, disk_bytes; /* with offload= */
    double memory_bytes;           /* of a device */
    int fits;
    double short_by_bytes; /* 0 if it fits */
    const char *lacks;     /* "device memory", "host memory" or "disk"; NULL if it fits; static */
    double model_flops, hardware_flops; /* of a step on all devices; only the latter counts
                                         * recomputation */
    double mfu, hfu;                    /* these, as shares of the devices' peak: 0 to 1 */
    double n_parameters;
    int n_ranks;
} wf_prediction;

#define WF_PREDICTION_INIT                                                                         \
    {                                                                                              \
        sizeof(wf_prediction), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, NULL, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,   \
            0, 0, NULL, 0, 0, 0, 0, 0, 0                                                           \
    }

/* A plan that a search has found, with the recipe's fields that suit it. */
typedef struct wf_choice {
    size_t struct_size;   /* set by WF_CHOICE_INIT; of an array, only the first is read */
    const char *strategy; /* static */
    char plan[200];       /* "": the strategy has no plan for this model, cluster and batch */
    char why[200];        /* it has none; else "" */
    int64_t n_micro, n_lanes, n_slices;
    wf_prediction prediction;
} wf_choice;

#define WF_CHOICE_INIT                                                                             \
    { sizeof(wf_choice), NULL, "", "", 0, 0, 0, WF_PREDICTION_INIT }

/* Strategies of the decision table: "one device", "DataParallel", "DDP", ... */
#define WF_N_STRATEGIES 13

#ifdef __cplusplus
extern "C" {
#endif

/* Name i of the clusters that come with weft, NULL past the last. Static. */
WF_API const char *wf_cluster_shipped(int i);
/* Loads a cluster by such a name, or from a file. Errors: INVALID_ARG (an unknown name), IO,
 * CORRUPT (the sentence names the field, its value and the legal ones), NO_MEMORY. */
WF_API WF_NODISCARD wf_status wf_cluster_load(wf_context *ctx, const char *name_or_path,
                                              wf_cluster **cluster_out);
/* Parses the text of a cluster file; `where` names it in messages. Errors: CORRUPT, NO_MEMORY. */
WF_API WF_NODISCARD wf_status wf_cluster_parse(wf_context *ctx, const char *text, size_t n_bytes,
                                               const char *where, wf_cluster **cluster_out);
WF_API void wf_cluster_destroy(wf_cluster *cluster); /* NULL is allowed */

/* Changes the count of the outermost level. Errors: INVALID_ARG (not from 1 to 1,000,000). */
WF_API WF_NODISCARD wf_status wf_cluster_set_nodes(wf_cluster *cluster, int64_t n_nodes);
WF_API int64_t wf_cluster_n_devices(const wf_cluster *cluster);
/* The name that the file gives; borrowed. */
WF_API const char *wf_cluster_name(const wf_cluster *cluster);
/* The text of a shipped cluster file; NULL if there is none of that name. Static. */
WF_API const char *wf_cluster_shipped_text(const char *name);

/* Predicts one training step. Errors: INVALID_ARG (more ranks than devices; a plan that does not
 * suit the model or the batch), UNSUPPORTED (keys of the plan that are not predicted), those of the
 * model function, NO_MEMORY. */
WF_API WF_NODISCARD wf_status wf_predict(wf_context *ctx, const wf_prediction_request *request,
                                         wf_prediction *prediction_out);

/* Finds the plans with the shortest predicted step that fit, the best first, each of another mesh:
 * at most `n`, none four times as long as the best. The search covers dp, tp with sp, pp,
 * schedules, chunks, zero, shard, recompute, offload and, if recipe.n_micro is 0, microbatches. Of
 * plans within 0.1 %, the simpler is taken. If none fits, finds the one plan that lacks the fewest
 * bytes. `request->plan` is not read. Writes choices_out[n]. Errors: those of wf_predict, but for
 * plans. */
WF_API WF_NODISCARD wf_status wf_cluster_search(wf_context *ctx,
                                                const wf_prediction_request *request, int n,
                                                wf_choice *choices_out, int *n_out);
/* Calls `visit` with each plan of such a search whose step takes at most `most_ms` and, if
 * `must_fit`, that fits. Errors: those of wf_cluster_search. */
typedef void (*wf_choice_visit)(void *self, const wf_choice *choice);
WF_API WF_NODISCARD wf_status wf_cluster_each(wf_context *ctx, const wf_prediction_request *request,
                                              double most_ms, int must_fit, wf_choice_visit visit,
                                              void *self);
/* Finds the best plan of each strategy of the decision table: rows_out[WF_N_STRATEGIES]. Errors:
 * those of wf_cluster_search. */
WF_API WF_NODISCARD wf_status wf_cluster_advise(wf_context *ctx,
                                                const wf_prediction_request *request,
                                                wf_choice *rows_out);

/* The rule of thumb of surveys for these rows of wf_cluster_advise, by whether one device, one node
 * and fast links suffice. Returns its case in words, static; bit i of *rows_out: it suggests row i.
 */
WF_API const char *wf_cluster_rule(const wf_cluster *cluster, const wf_choice *rows,
                                   unsigned *rows_out);

#ifdef __cplusplus
}
#endif
#endif
