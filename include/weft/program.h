/* The program: for each rank and stream an ordered list of instructions with
 * explicit dependencies and memory offsets. Static: its peak is known to the byte
 * before it runs, and it can be checked, printed and run dry, without a device.
 */
#ifndef WEFT_PROGRAM_H
#define WEFT_PROGRAM_H

#include <weft/costs.h>
#include <weft/model.h>
#include <weft/plan.h>
#include <weft/recipe.h>

typedef struct wf_program wf_program;

typedef enum wf_program_kind { WF_PROGRAM_TRAIN, WF_PROGRAM_FORWARD } wf_program_kind;

/* One unit on one rank. */
typedef struct wf_unit_summary {
    const char *name;        /* borrowed from the program */
    int64_t n_parameters;    /* elements */
    double forward_flops;    /* of one microbatch */
    double backward_flops;   /* of one microbatch, both gradients */
    size_t activation_bytes; /* kept from forward to backward for one microbatch */
    /* Of one microbatch, from the program's costs. */
    double forward_us, backward_us, weight_us;
    double recompute_us; /* of the forward, what is done again before the backward */
} wf_unit_summary;

typedef struct wf_rank_summary {
    int64_t n_parameters;   /* elements held, if only during a step */
    size_t peak_bytes;      /* of device memory */
    size_t bound_bytes;     /* may be alive at once: what perfect packing could reach at best */
    size_t state_bytes;     /* parameters, buffers, optimizer state: live for ever */
    size_t optimizer_bytes; /* of it, the optimizer's */
    size_t copied_bytes;    /* of parameters that another rank holds: a copy for each step */
    const char *peak_unit;  /* at work in the worst moment */
    int n_units, n_instructions;
    size_t sent_bytes, received_bytes; /* to and from other ranks, in one step */
    /* With offload=: of host memory and of a file; and what comes from there and goes there in one
     * step. */
    size_t host_peak_bytes, disk_peak_bytes, fetched_bytes, evicted_bytes;
} wf_rank_summary;

/* What would fit. */
typedef struct wf_proposal {
    char *plan;                         /* its whole text */
    int64_t n_micro, n_lanes, n_slices; /* of the recipe */
    size_t peak_bytes;                  /* of the rank that needs most */
    double step_us;                     /* predicted */
    int64_t n_layers; /* with it, a model of the same family with so many layers would fit, too; 0:
                       * of one without layers, or not searched */
} wf_proposal;
#define WF_MAX_PROPOSALS 5

/* What a dry run adds up to. */
typedef struct wf_dry_run {
    double flops;      /* of all ranks, one step */
    size_t sent_bytes; /* from rank to rank */
    int64_t n_instructions;
} wf_dry_run;

#ifdef __cplusplus
extern "C" {
#endif

/* Lowers `recipe` (resolved or not) on `plan`. FORWARD programs take `batch`
 * samples in one microbatch and run nothing backward. The program keeps its own
 * copies; the model may be destroyed. */
WF_API WF_NODISCARD wf_status wf_program_create(wf_context *ctx, const wf_model *model,
                                                const wf_recipe *recipe, const wf_plan *plan,
                                                wf_program_kind kind, wf_program **program_out);
WF_API void wf_program_destroy(wf_program *program);
/* A program of the same model, recipe and plan for another kind or number of samples, which
 * can work on the same state: it has the same stages. */
WF_API WF_NODISCARD wf_status wf_program_create_like(const wf_program *like, wf_program_kind kind,
                                                     int64_t n_samples, wf_program **program_out);

/* Tests are planned beside a training step: forward runs of `n_samples`, so many at once (0: as
 * many as a microbatch has). From then on it is of them, too, what wf_program_rank says of peaks,
 * what wf_program_fits wants, and what wf_program_propose proposes. Errors: those of
 * wf_program_create. */
WF_API WF_NODISCARD wf_status wf_program_plan_tests(wf_program *program, int64_t n_samples,
                                                    int64_t n_at_once);

/* Proves that the program computes what one rank would: no deadlock, no two
 * unordered accesses to the same bytes, every gradient summed once in the recipe's
 * order. Errors: BUG; the sentence names the first instruction that is wrong. */
WF_API WF_NODISCARD wf_status wf_program_check(const wf_program *program);

/* Errors: DOES_NOT_FIT if a rank needs more than device_bytes (0 = no limit), or of the host's
 * memory, for what offload= keeps there, more than host_bytes; the sentence says which rank and by
 * how much, of the device also which unit is the peak. Unless `proposals_out` is NULL, the plans
 * that would fit are searched as by wf_program_propose, and the first one's n_layers; where the
 * program fits, there are none. */
WF_API WF_NODISCARD wf_status wf_program_fits(const wf_program *program, size_t device_bytes,
                                              size_t host_bytes, wf_proposal **proposals_out,
                                              int *n_out);
/* Plans of the same training step that fit (as above), at most WF_MAX_PROPOSALS, the shortest
 * predicted step first: other replicas and stages, what is divided among replicas, other schedules;
 * of more ranks if nothing fits on as many, or there is only one. Unless `keeps_micro`, also with
 * more microbatches, which is another recipe. Each was lowered and simulated. None: NULL and 0. */
WF_API WF_NODISCARD wf_status wf_program_propose(const wf_program *program, size_t device_bytes,
                                                 size_t host_bytes, int keeps_micro,
                                                 wf_proposal **proposals_out, int *n_out);
WF_API void wf_proposals_destroy(wf_context *ctx, wf_proposal *proposals, int n);

WF_API int wf_program_n_ranks(const wf_program *program);
/* Where there is no such rank, or the rank has fewer units: zeros and empty texts. */
WF_API wf_rank_summary wf_program_rank(const wf_program *program, int rank);
/* What saves in the background copy of the rank's state into the host's memory, beside all that
 * a step needs: of the state, the weights, and with recipe.ema their average. What several ranks
 * hold alike is the first one's. No such rank: 0. */
WF_API size_t wf_program_save_bytes(const wf_program *program, int rank);
/* Of a microbatch's kernels, how many are computed in the way that recipe.tuned names for their
 * shape. */
WF_API int wf_program_n_tuned(const wf_program *program);
WF_API wf_unit_summary wf_program_unit(const wf_program *program, int rank, int unit);
/* `n` units of the rank from number `first` on, at once: one by one they take time in the square of
 * their number. Returns how many there are of them, n at most. */
WF_API int wf_program_units(const wf_program *program, int rank, int first, int n,
                            wf_unit_summary *units_out);
WF_API const wf_recipe *wf_program_recipe(const wf_program *program); /* resolved */
/* The text of its plan, with what recompute=auto has chosen. Borrowed. */
WF_API const char *wf_program_plan(const wf_program *program);
/* Of all its units, in order: those of the plan, or computed. Borrowed. */
WF_API const wf_costs *wf_program_costs(const wf_program *program);

/* Logs, as warnings, what of the recipe has no effect on its devices, or makes it slow there. A
 * trainer does so itself. */
WF_API void wf_program_warn(const wf_program *program);

/* Runs the program on the null device: shapes, bytes and FLOPs only. */
WF_API WF_NODISCARD wf_status wf_program_dry_run(const wf_program *program, wf_dry_run *run_out);

/* The program as text, one instruction a line. Of a rank that does the same as another with other
 * microbatches, as replicas do, it says so. Free with wf_text_free. */
WF_API WF_NODISCARD wf_status wf_program_text(const wf_program *program, char **text_out);
WF_API void wf_text_free(wf_context *ctx, char *text);

#ifdef __cplusplus
}
#endif
#endif
