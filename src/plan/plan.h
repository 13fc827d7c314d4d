/* The plan as data. Private. */
#pragma once

#include "comm/algorithm/allreduce.h"
#include "device/list.h"
#include "graph/graph.h"
#include "optimizer/optimizer.h"
#include "pass/pass.h"
#include "plan/costs.h"
#include "plan/mesh.h"
#include "plan/plan_fields.h"
#include "plan/schedule/schedule.h"
#include "plan/strategy/strategy.h"

#include <string.h>
#include <weft/model.h>
#include <weft/plan.h>
#include <weft/recipe.h>

/* A larger axis would not be wrong, only useless on any cluster. */
#define WFI_MAX_AXIS   65536
#define WFI_MOST_RANKS (1 << 24)

/* Large enough that a reduction takes longer than its streams take to wake up, small enough that
 * the first ones are done early. */
#define WFI_DEFAULT_BUCKET_BYTES ((size_t)4 << 20)

/* As a cut: balanced by costs; the model's marks are ignored. */
#define WFI_CUT_BALANCED "balanced"

/* Some units follow a strategy of their own over ranks 0 to n - 1; units without a rule live on
 * rank 0, which loads all inputs. */
typedef struct wfi_plan_rule {
    char *unit; /* "layer3": it and "layer3.0", ...; NULL: the whole model but the loss */
    const wfi_strategy *strategy;
    int n;        /* replicas */
    int position; /* in the plan's text */
} wfi_plan_rule;

/* Keys of one value each; others name strategies. */
typedef enum wfi_plan_key {
#define WFI_KEY(key, ...) WFI_PLAN_##key,
    WF_PLAN_FIELDS(WFI_KEY)
#undef WFI_KEY
        WFI_N_PLAN_KEYS
} wfi_plan_key;

/* The tensors that may be offloaded. */
typedef enum wfi_offload {
    WFI_OFFLOAD_STATE,
    WFI_OFFLOAD_PARAMS,
    WFI_OFFLOAD_ACTIVATIONS,
    WFI_N_OFFLOADS,
    WFI_OFFLOAD_NONE = WFI_N_OFFLOADS
} wfi_offload;

/* More than the units of any model that is named by hand. */
#define WFI_MAX_RULES 256

/* Where a rank is. */
typedef struct wfi_rank_device {
    const wfi_device_class *kind;
    int memory; /* 0: the host's; kernels reach other memory from ranks with the same number */
} wfi_rank_device;

struct wf_plan {
    wf_context *ctx;
    int position[WFI_N_PLAN_KEYS]; /* in the text, counted from 1; 0: not given */
    WFI_SIZES;                     /* with rules, dp is the largest of theirs */
    wfi_axis axes[WFI_N_AXES];     /* the innermost first */
    int n_named;                   /* axes that the text names */
    bool has_order;                /* the text has order=, an older key */
    bool divides_rows;             /* along tp, of values between pairs (sequence parallel) */
    const wfi_strategy *strategy;  /* without rules: of all units, along dp */
    wfi_plan_rule *rules;
    int n_rules;
    int output;   /* with a rule for the whole model: the loss's rank */
    int shard;    /* replicas that together have all parts of SHARD tensors; 0: all */
    int prefetch; /* units ahead of use for which divided parameters are gathered */
    wfi_space offload[WFI_N_OFFLOADS]; /* where each is kept */
    const wfi_schedule *schedule;
    int chunks; /* stages that each rank has; 0: as the schedule has it */
    int hold;   /* most microbatches a stage may hold, for auto; 0 = not given */
    const wfi_allreduce *allreduce;
    size_t bucket_bytes;      /* of gradients that are reduced together */
    bool overlaps;            /* reductions begin while backward runs */
    bool is_order_free;       /* sums over replicas may be made in another order than one rank's */
    int *lanes;               /* [dp] of the recipe, of each replica; NULL: equal shares, ... */
    bool measures_lanes;      /* ... or still to be measured */
    int n_shares;             /* of lanes that are given */
    int n_servers;            /* of parameters (workers/workers.h); 0: not given */
    bool serves_at_workers;   /* servers are on workers' ranks, not on ranks of their own */
    char *cut;                /* "A+B" as given, or NULL */
    char *recompute;          /* "all", "selective", "auto" or "A+B:selective", or NULL */
    size_t memory_bytes;      /* of a device, which recompute=auto heeds; 0: it is none */
    char *text;               /* canonical */
    wf_costs *costs;          /* NULL: computed from the graph */
    wfi_rank_device *devices; /* [n_devices] by rank; 0: all are on WFI_DEFAULT_DEVICE */
    int n_devices;
    bool is_apart;       /* ranks read copies of each other's bytes, which messages bring */
    bool stages_at_once; /* all staging of a rank in one phase exists at once */
};

/* Sets the devices of the plan's ranks; copies the list. Ranks as processes see only the host's
 * memory of each other. */
wf_status wfi_plan_set_devices(wf_plan *plan, const wfi_device_list *list, bool are_processes);
/* The device of a rank. Ranks beyond the list have the kind of the first device. */
wfi_rank_device wfi_plan_device(const wf_plan *plan, int32_t rank);
/* Whether kernels of rank a read memory of rank b; whether all ranks' do. */
bool wfi_plan_is_near(const wf_plan *plan, int32_t a, int32_t b);
bool wfi_plan_is_one_memory(const wf_plan *plan);
/* Whether its ranks are on devices of several kinds. */
bool wfi_plan_mixes_kinds(const wf_plan *plan);

/* A copy that the caller destroys. One that is to be another plan has its fields set, and is then
 * completed. */
wf_status wfi_plan_copy(const wf_plan *plan, wf_plan **plan_out);
/* Without strategies of units, without a cut: fields that a plan owns. */
void wfi_plan_drop_rules(wf_plan *plan);
void wfi_plan_drop_cut(wf_plan *plan);
void wfi_plan_drop_lanes(wf_plan *plan);
/* Whether replicas move parameters between each other for every use: then all need as many uses. */
bool wfi_plan_moves_parameters(const wf_plan *plan);
/* Lanes of all shares; 0: none are given. */
int64_t wfi_plan_n_lanes(const wf_plan *plan);
/* Divides n_lanes among the replicas so that the slowest ends as early as it can: replica k takes
 * times[k] > 0 for a lane. Errors: INVALID_ARG, NO_MEMORY. */
wf_status wfi_plan_share_lanes(wf_plan *plan, int64_t n_lanes, const double *times);
/* Sets some keys, as text, and completes the plan. */
wf_status wfi_plan_set(wf_plan *plan, const char *text);
/* Checks combinations of keys, and renews the plan's text. Errors: INVALID_ARG; NO_MEMORY. */
wf_status wfi_plan_complete(wf_plan *plan);

/* Whether anything is kept elsewhere. */
bool wfi_plan_offloads(const wf_plan *plan);

/* Whether ranks along tp have different ones of the slices that the unit is one of. */
static inline bool wfi_plan_divides(const wf_plan *plan, const wfi_unit *unit) {
    return unit->is_slice && (!unit->is_rows || plan->divides_rows);
}

static inline wfi_mesh wfi_plan_mesh(const wf_plan *plan) {
    wfi_mesh mesh;
    for (int k = 0, n = 1; k < WFI_N_AXES; n *= plan->size[plan->axes[k++]]) {
        mesh.size[plan->axes[k]] = plan->size[plan->axes[k]];
        mesh.stride[plan->axes[k]] = n;
    }
    return mesh;
}

/* The number of stages in the pipeline, for a model of so many units: as many as the schedule puts
 * on each of the pp ranks. */
static inline int wfi_plan_n_stages(const wf_plan *plan, int32_t n_units) {
    bool by_unit = plan->schedule->by_unit && plan->pp == 1;
    return by_unit ? n_units : plan->pp * wfi_schedule_n_chunks(plan->schedule, plan->chunks);
}

/* A unit of a plan: the stage it is in, the strategy it follows and the ranks it is on. */
typedef struct wfi_unit_placement {
    const wfi_strategy *strategy;
    int32_t stage;    /* of the pipeline */
    int32_t pp;       /* coordinate */
    int32_t first_dp; /* coordinate of the first replica */
    int32_t n_replicas;
    int32_t n_parts; /* divides SHARD tensors, also in a forward run of the first replica */
} wfi_unit_placement;

/* Where each unit is in a step of n_micro microbatches: placement_out[n_units]. A replica without
 * a microbatch does not exist. first_unit [n_stages + 1]: of the pipeline's stages. Errors:
 * INVALID_ARG: a rule names no unit, or one that another rule names. */
wf_status wfi_plan_place(const wf_plan *plan, const wf_graph *g, const int32_t *first_unit,
                         int64_t n_micro, wfi_unit_placement *placement_out);
/* How many replicas a rule has in a step of n_micro microbatches. */
int wfi_plan_rule_width(const wfi_plan_rule *rule, int64_t n_micro);

/* resolve.c: wf_recipe_resolve for forward runs, which sum no gradients: the plan's replicas need
 * no lanes. */
wf_status wfi_recipe_resolve_forward(wf_context *ctx, const wf_recipe *recipe,
                                     const wf_model *model, const wf_plan *plan,
                                     wf_recipe *resolved_out);

/* Which unit begins each stage: first_unit_out[n_stages + 1], the last one n_units.
 * `costs` are those of the graph's units; a replica takes n_micro microbatches. Errors:
 * INVALID_ARG: more stages than units, an unknown or disordered cut. */
wf_status wfi_plan_stages(const wf_plan *plan, const wf_graph *g, const wf_costs *costs,
                          int n_micro, int32_t *first_unit_out);

/* A unit that a plan names: "layer3" is the unit of that name, and "layer3.0", "layer3.1", ... */
bool wfi_plan_names_unit(const wf_graph *g, int32_t unit, const char *name, size_t n);
/* For a name that is no unit's. */
wf_status wfi_plan_refuse_unit(const wf_plan *plan, const wf_graph *g, const char *name, size_t n,
                               int position);

/* recompute.c: the graph's units do as the plan's key `recompute` says; auto, before it is chosen,
 * is none. Errors: INVALID_ARG: a name is no unit's, or two are. */
wf_status wfi_plan_recompute(const wf_plan *plan, wf_graph *g);
/* Sets the key so; the caller completes the plan. */
wf_status wfi_plan_set_recompute(wf_plan *plan, const wf_graph *g, const wfi_recompute *how);
static inline bool wfi_plan_chooses_recompute(const wf_plan *plan) {
    return plan->recompute && !strcmp(plan->recompute, "auto");
}

/* Whether schedule=auto leaves it open how many stages each rank has. */
static inline bool wfi_plan_chooses_chunks(const wf_plan *plan) {
    return plan->schedule == &wfi_schedule_auto && !plan->chunks && plan->pp > 1;
}

/* The plan's costs, or computed ones; a copy that the caller destroys. Errors: INVALID_ARG:
 * they are of another model. */
wf_status wfi_plan_costs(const wf_plan *plan, const wf_graph *g, wf_costs **costs_out);
