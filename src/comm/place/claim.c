/* Reading one launcher's variables. */
#include "comm/place/claim.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

typedef struct source {
    const char *name;
    const char *variables[WFI_N_SAID][2]; /* the first that is set counts */
} source;

static const source sources[WFI_N_SOURCES] = {
    [WFI_TORCHRUN] = {"torchrun", {{"RANK"}, {"WORLD_SIZE"}, {"LOCAL_RANK"}, {"LOCAL_WORLD_SIZE"}}},
    [WFI_OPEN_MPI] = {"Open MPI",
                      {{"OMPI_COMM_WORLD_RANK"},
                       {"OMPI_COMM_WORLD_SIZE"},
                       {"OMPI_COMM_WORLD_LOCAL_RANK"},
                       {"OMPI_COMM_WORLD_LOCAL_SIZE"}}},
    /* Hydra's names for what is local, and Cray's. */
    [WFI_PMI] = {"PMI",
                 {{"PMI_RANK"},
                  {"PMI_SIZE"},
                  {"MPI_LOCALRANKID", "PMI_LOCAL_RANK"},
                  {"MPI_LOCALNRANKS", "PMI_LOCAL_SIZE"}}},
    [WFI_PMIX] = {"PMIx", {{"PMIX_RANK"}}},
    /* A step's own numbers count before those of the allocation around it. */
    [WFI_SLURM] = {"Slurm",
                   {{"SLURM_PROCID"},
                    {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"},
                    {"SLURM_LOCALID"},
                    {"SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"}}},
};

const char *wfi_claim_text(const char *variable) {
    const char *text = getenv(variable);
    return text && *text ? text : NULL;
}

static bool read_digits(const char **at, int *value_out) {
    char *end;
    if (!isdigit((unsigned char)**at) || strspn(*at, "0123456789") > 9) return false;
    *value_out = (int)strtol(*at, &end, 10);
    *at = end;
    return true;
}

wf_status wfi_claim_number(wf_context *ctx, const char *variable, int *value_out) {
    const char *text = wfi_claim_text(variable), *at = text;
    int value;
    if (!text || !read_digits(&at, &value) || *at)
        return wfi_fail(ctx, WF_INVALID_ARG,
                        "environment: %s='%.64s' is no place in a job; it takes a whole number, "
                        "0 or more",
                        variable, text ? text : "");
    *value_out = value;
    return WF_OK;
}

/* How many tasks this node has in a list such as 4(x2),3: nodes 0 and 1 have 4, node 2 has 3. */
static wf_status read_tasks_per_node(wf_context *ctx, const char *variable, int *value_out) {
    const char *text = wfi_claim_text(variable), *at = text;
    int node, n_nodes = 0;
    if (!wfi_claim_text("SLURM_NODEID"))
        return wfi_fail(ctx, WF_INVALID_ARG,
                        "environment: %s=%.64s, but SLURM_NODEID, the node that this is, is not "
                        "set",
                        variable, text);
    WF_TRY(wfi_claim_number(ctx, "SLURM_NODEID", &node));
    for (;;) {
        int n_tasks, n_times = 1;
        bool is_good = read_digits(&at, &n_tasks);
        if (is_good && !strncmp(at, "(x", 2)) {
            at += 2;
            is_good = read_digits(&at, &n_times) && *at == ')';
            at += is_good;
        }
        if (!is_good || n_times > 1000000 || n_nodes > 1000000 || (*at && *at != ','))
            return wfi_fail(ctx, WF_INVALID_ARG,
                            "environment: %s='%.64s' is no list of tasks such as 4(x2),3", variable,
                            text);
        n_nodes += n_times;
        if (node < n_nodes) {
            *value_out = n_tasks;
            return WF_OK;
        }
        if (!*at++)
            return wfi_fail(ctx, WF_INVALID_ARG,
                            "environment: SLURM_NODEID=%d, but %s=%.64s has %d nodes only", node,
                            variable, text, n_nodes);
    }
}

/* Slurm sets most of its variables in the shells of an allocation too; a process is a rank only
 * in a step. The batch script and its like have step numbers from 4294967290 on. */
static bool is_slurm_step(void) {
    const char *step = wfi_claim_text("SLURM_STEP_ID");
    return step && !(strlen(step) == 10 && strcmp(step, "4294967290") >= 0);
}

static wf_status check_pair(wf_context *ctx, const source *from, const wfi_claim *claim, int one,
                            int other) {
    int missing = claim->by[one] ? other : one, there = claim->by[one] ? one : other;
    if (!claim->by[one] == !claim->by[other]) return WF_OK;
    return wfi_fail(ctx, WF_INVALID_ARG,
                    "environment: %s=%.64s, but %s is not set; a rank needs both", claim->by[there],
                    wfi_claim_text(claim->by[there]), from->variables[missing][0]);
}

static wf_status check_range(wf_context *ctx, const wfi_claim *claim, int rank, int n_ranks) {
    if (!claim->by[rank] || claim->said[rank] < claim->said[n_ranks]) return WF_OK;
    return wfi_fail(ctx, WF_INVALID_ARG, "environment: %s=%d, but %s=%.64s: ranks count from 0",
                    claim->by[rank], claim->said[rank], claim->by[n_ranks],
                    wfi_claim_text(claim->by[n_ranks]));
}

static wf_status check(wf_context *ctx, const source *from, const wfi_claim *claim) {
    WF_TRY(check_pair(ctx, from, claim, WFI_RANK, WFI_N_RANKS));
    WF_TRY(check_pair(ctx, from, claim, WFI_LOCAL_RANK, WFI_N_LOCAL_RANKS));
    if (!claim->by[WFI_RANK])
        return wfi_fail(ctx, WF_INVALID_ARG,
                        "environment: %s=%.64s, but neither %s nor %s is set; a rank needs them",
                        claim->by[WFI_LOCAL_RANK], wfi_claim_text(claim->by[WFI_LOCAL_RANK]),
                        from->variables[WFI_RANK][0], from->variables[WFI_N_RANKS][0]);
    WF_TRY(check_range(ctx, claim, WFI_RANK, WFI_N_RANKS));
    WF_TRY(check_range(ctx, claim, WFI_LOCAL_RANK, WFI_N_LOCAL_RANKS));
    if (claim->by[WFI_LOCAL_RANK] && claim->said[WFI_N_LOCAL_RANKS] > claim->said[WFI_N_RANKS])
        return wfi_fail(ctx, WF_INVALID_ARG,
                        "environment: %s=%.64s says that this machine has %d ranks, %s=%.64s that "
                        "the job has %d",
                        claim->by[WFI_N_LOCAL_RANKS], wfi_claim_text(claim->by[WFI_N_LOCAL_RANKS]),
                        claim->said[WFI_N_LOCAL_RANKS], claim->by[WFI_N_RANKS],
                        wfi_claim_text(claim->by[WFI_N_RANKS]), claim->said[WFI_N_RANKS]);
    return WF_OK;
}

wf_status wfi_claim_read(wf_context *ctx, wfi_source which, wfi_claim *claim_out) {
    const source *from = &sources[which];
    wfi_claim claim = {.source = from->name};
    *claim_out = claim;
    if (which == WFI_SLURM && !is_slurm_step()) return WF_OK;
    for (int i = 0; i < WFI_N_SAID; i++)
        for (int k = 1; k >= 0; k--)
            if (from->variables[i][k] && wfi_claim_text(from->variables[i][k])) {
                claim.by[i] = from->variables[i][k];
                claim.is_made = true;
            }
    for (int i = 0; i < WFI_N_SAID; i++) {
        if (!claim.by[i]) continue;
        if (which == WFI_SLURM && i == WFI_N_LOCAL_RANKS && claim.by[WFI_LOCAL_RANK])
            WF_TRY(read_tasks_per_node(ctx, claim.by[i], &claim.said[i]));
        else if (which != WFI_SLURM || i != WFI_N_LOCAL_RANKS)
            WF_TRY(wfi_claim_number(ctx, claim.by[i], &claim.said[i]));
    }
    /* PMIx alone has no variable for the number of ranks; wf_launch_place deals with that. */
    if (claim.is_made && which != WFI_PMIX) WF_TRY(check(ctx, from, &claim));
    *claim_out = claim;
    return WF_OK;
}
