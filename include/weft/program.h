/* Programs: an ordered list of instructions for each stream of each rank.
 *
 * Instructions have explicit dependencies and memory offsets. A program is static: its peak memory
 * is known to the byte before it runs. A device is not needed to check, print or dry-run a program.
 */
#ifndef WEFT_PROGRAM_H
#define WEFT_PROGRAM_H

#include <weft/costs.h>
#include <weft/model.h>
#include <weft/plan.h>
#include <weft/recipe.h>

typedef struct wf_program wf_program;

/* TRAIN: an optimizer step. FORWARD: outputs and loss, in evaluation mode. GRADIENT: a step without
 * its update; the summed gradients stay in memory until the next run. */
typedef enum wf_program_kind {
    WF_PROGRAM_TRAIN,
    WF_PROGRAM_FORWARD,
    WF_PROGRAM_GRADIENT
} wf_program_kind;

/* One unit on one rank. */
typedef struct wf_unit_summary {
    const char *name;        /* borrowed from the program */
    int64_t n_parameters;    /* elements */
    double forward_flops;    /* of one microbatch */
    double backward_flops;   /* of one microbatch, both gradients */
    size_t activation_bytes; /* kept from forward to backward for one microbatch */
    /* For one microbatch, from the program's costs. */
    double forward_us, backward_us, weight_us;
    double recompute_us; /* the part of the forward that is recomputed before the backward */
} wf_unit_summary;

typedef struct wf_rank_summary {
    int64_t n_parameters; /* elements held, also if only during a step */
    size_t peak_bytes;    /* of device memory */
    size_t
        bound_bytes; /* most bytes alive at once: a lower bound of the peak with perfect packing */
    size_t state_bytes;     /* parameters, buffers and optimizer state, alive in all steps */
    size_t optimizer_bytes; /* the optimizer's part of state_bytes */
    size_t copied_bytes;    /* parameters copied in each step from the rank that holds them */
    const char *peak_unit;  /* the unit at work at the peak */
    int n_units, n_instructions;
    size_t sent_bytes, received_bytes; /* to and from other ranks, per step */
    /* With offload=: peaks of host memory and of the file, and bytes fetched from and evicted to
     * them per step. */
    size_t host_peak_bytes, disk_peak_bytes, fetched_bytes, evicted_bytes;
} wf_rank_summary;

/* An alternative plan that fits. */
typedef struct wf_proposal {
    char *plan;                         /* complete plan text */
    int64_t n_micro, n_lanes, n_slices; /* recipe fields for the plan */
    size_t peak_bytes;                  /* of the rank with the highest peak */
    double step_us;                     /* predicted */
    int64_t n_layers; /* number of layers with which a model of the same family also fits under this
                       * plan; 0: not searched, or the model does not count layers */
} wf_proposal;
#define WF_MAX_PROPOSALS 5

/* Totals of a dry run. */
typedef struct wf_dry_run {
    double flops;      /* of all ranks, per step */
    size_t sent_bytes; /* between ranks */
    int64_t n_instructions;
} wf_dry_run;

#ifdef __cplusplus
extern "C" {
#endif

/* Compiles and checks the program of `model` and `recipe` (resolved or not) under `plan`. A FORWARD
 * program takes `batch` samples in one microbatch and runs only forward. The program keeps copies,
 * so the arguments may be destroyed. Errors: INVALID_ARG (recipe and plan do not suit each other or
 * the model; costs of another model), UNSUPPORTED (the model builds other ops for another number of
 * samples, which needs equal microbatches; ranks that share a unit are on different kinds of
 * devices; too many ranks in one sum on a device), those of the model function (wf_graph_create),
 * those of wf_program_check, NO_MEMORY. */
WF_API WF_NODISCARD wf_status wf_program_create(wf_context *ctx, const wf_model *model,
                                                const wf_recipe *recipe, const wf_plan *plan,
                                                wf_program_kind kind, wf_program **program_out);
/* Creates the same program with the instructions of every rank. wf_program_create makes and proves
 * only the instructions of one rank of each class of equal ranks. All figures are the same. For a
 * program with more instructions, wf_program_propose tries fewer other plans. Errors: those of
 * wf_program_create. */
WF_API WF_NODISCARD wf_status wf_program_create_full(wf_context *ctx, const wf_model *model,
                                                     const wf_recipe *recipe, const wf_plan *plan,
                                                     wf_program_kind kind,
                                                     wf_program **program_out);
/* Creates the program of wf_program_create. Where the steady phase of a step repeats, the program
 * has and proves only a short form of it. wf_program_text lists the short form, and a timeline has
 * no moments of memory in the periods that are left out. All other figures are the same. Errors:
 * those of wf_program_create. */
WF_API WF_NODISCARD wf_status wf_program_create_short(wf_context *ctx, const wf_model *model,
                                                      const wf_recipe *recipe, const wf_plan *plan,
                                                      wf_program_kind kind,
                                                      wf_program **program_out);
WF_API void wf_program_destroy(wf_program *program);
/* Creates a program of the same model, recipe and plan, for another kind or number of samples. Both
 * programs have the same stages and can run on the same state. Errors: those of
 * wf_program_create. */
WF_API WF_NODISCARD wf_status wf_program_create_like(const wf_program *like, wf_program_kind kind,
                                                     int64_t n_samples, wf_program **program_out);

/* Includes tests in the memory plan: forward runs of `n_samples` samples, at most `n_at_once` at a
 * time (0: the size of a microbatch). From then on wf_program_rank, wf_program_fits and
 * wf_program_propose count the peaks of tests too. Call it once. Errors: INVALID_ARG (a negative
 * number, a second call), those of wf_program_create. */
WF_API WF_NODISCARD wf_status wf_program_plan_tests(wf_program *program, int64_t n_samples,
                                                    int64_t n_at_once);

/* Proves that the program computes the result of one rank: no deadlock, no two unordered accesses
 * to the same bytes, and each gradient summed once in the recipe's order. Errors: BUG (the sentence
 * names the first wrong instruction), NO_MEMORY. */
WF_API WF_NODISCARD wf_status wf_program_check(const wf_program *program);

/* Checks that each rank fits into device_bytes of device memory, and into host_bytes of host memory
 * for offload= (0 = no limit). If not, and unless `proposals_out` is NULL, searches plans that fit,
 * as wf_program_propose does, and n_layers of the first one. A program that fits gets NULL and 0.
 * Errors: DOES_NOT_FIT (the sentence names the rank, the missing bytes and, for device memory, the
 * unit at the peak; the proposals are set), those of wf_program_propose. */
WF_API WF_NODISCARD wf_status wf_program_fits(const wf_program *program, size_t device_bytes,
                                              size_t host_bytes, wf_proposal **proposals_out,
                                              int *n_out);
/* Searches plans for the same training step that fit (as above), at most WF_MAX_PROPOSALS, ordered
 * by predicted step time. Candidates have other numbers of replicas and stages, other schedules, or
 * divide more over replicas. They have more ranks only if no plan fits on the same number, or that
 * is one. Unless `keeps_micro`, they may have more microbatches, which changes the recipe. With
 * `keeps_micro`, many more plans are compared, and if none of them had to be left out to save time,
 * the only proposal is the fastest one. Each proposal has been compiled and simulated. NULL and 0
 * if no plan fits. Errors: NO_MEMORY, those of wf_program_plan_tests. */
WF_API WF_NODISCARD wf_status wf_program_propose(const wf_program *program, size_t device_bytes,
                                                 size_t host_bytes, int keeps_micro,
                                                 wf_proposal **proposals_out, int *n_out);
/* Frees `n` proposals. NULL with n = 0 is allowed. */
WF_API void wf_proposals_destroy(wf_context *ctx, wf_proposal *proposals, int n);

/* The number of ranks. */
WF_API int wf_program_n_ranks(const wf_program *program);
/* A summary of one rank; zeros and empty texts if `rank` is out of range. */
WF_API wf_rank_summary wf_program_rank(const wf_program *program, int rank);
/* Bytes of host memory for the rank's copies during saves in the background, in addition to the
 * step's own: those of the state, of the weights and, with recipe.ema, of their average. If several
 * ranks hold the same tensor, the first one copies it. 0 if `rank` is out of range. */
WF_API size_t wf_program_save_bytes(const wf_program *program, int rank);
/* Bytes of host memory for the copy of the rank's state that undoes a step (wf_trainer_undo_step).
 * 0 if `rank` is out of range. */
WF_API size_t wf_program_undo_bytes(const wf_program *program, int rank);
/* Bytes of an image of the complete state in memory (wf_trainer_write_image), equal under every
 * plan. */
WF_API size_t wf_program_image_bytes(const wf_program *program);
/* The number of a microbatch's kernels that use the entry of recipe.tuned for their shape. */
WF_API int wf_program_n_tuned(const wf_program *program);
/* A summary of the rank's unit of that index; zeros and empty texts if out of range. */
WF_API wf_unit_summary wf_program_unit(const wf_program *program, int rank, int unit);
/* Writes up to `n` units of the rank, from index `first`, and returns their number. This takes
 * linear time, and one call per unit quadratic time. */
WF_API int wf_program_units(const wf_program *program, int rank, int first, int n,
                            wf_unit_summary *units_out);
WF_API const wf_recipe *wf_program_recipe(const wf_program *program); /* resolved; borrowed */
/* The text of the program's plan, with the choice of recompute=auto. Borrowed. */
WF_API const char *wf_program_plan(const wf_program *program);
/* The costs of all units, in order: the plan's, or computed ones. Borrowed. */
WF_API const wf_costs *wf_program_costs(const wf_program *program);

/* Logs warnings about fields of the recipe that have no effect on the program's devices, or are
 * slow there. A trainer calls this itself. */
WF_API void wf_program_warn(const wf_program *program);

/* Runs the program on null devices, which only count shapes, bytes and FLOPs. Errors: NO_MEMORY. */
WF_API WF_NODISCARD wf_status wf_program_dry_run(const wf_program *program, wf_dry_run *run_out);

/* Prints the program, one instruction per line. A rank that repeats another rank with other
 * microbatches, as replicas do, is printed as a reference to it. Free the text with wf_text_free.
 * Errors: NO_MEMORY. */
WF_API WF_NODISCARD wf_status wf_program_text(const wf_program *program, char **text_out);
/* Prints the certificate of a TRAIN program that wf_program_create_full has created: JSON with
 * everything that a proof needs, which scripts/check-certificate proves without this library. Free
 * the text with wf_text_free. Errors: INVALID_ARG (another program), NO_MEMORY. */
WF_API WF_NODISCARD wf_status wf_program_certificate(const wf_program *program, char **text_out);
WF_API void wf_text_free(wf_context *ctx, char *text);

#ifdef __cplusplus
}
#endif
#endif
