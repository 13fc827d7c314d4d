/* Reads the variables of one launcher. */
#include "comm/place/launcher.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

typedef struct source {
    const char *name;
    const char *variables[WFI_N_FIELDS][2]; /* the first set variable applies */
} source;

static const source sources[WFI_N_LAUNCHERS] = {
    [WFI_TORCHRUN] = {"torchrun", {{"RANK"}, {"WORLD_SIZE"}, {"LOCAL_RANK"}, {"LOCAL_WORLD_SIZE"}}},
    [WFI_OPEN_MPI] = {"Open MPI",
                      {{"OMPI_COMM_WORLD_RANK"},
                       {"OMPI_COMM_WORLD_SIZE"},
                       {"OMPI_COMM_WORLD_LOCAL_RANK"},
                       {"OMPI_COMM_WORLD_LOCAL_SIZE"}}},
    /* The names of the local rank and size: first Hydra's, then Cray's. */
    [WFI_PMI] = {"PMI",
                 {{"PMI_RANK"},
                  {"PMI_SIZE"},
                  {"MPI_LOCALRANKID", "PMI_LOCAL_RANK"},
                  {"MPI_LOCALNRANKS", "PMI_LOCAL_SIZE"}}},
    [WFI_PMIX] = {"PMIx", {{"PMIX_RANK"}}},
    /* The variables of a step take precedence over those of its allocation. */
    [WFI_SLURM] = {"Slurm",
                   {{"SLURM_PROCID"},
                    {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"},
                    {"SLURM_LOCALID"},
                    {"SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"}}},
};

const char *wfi_launcher_text(const char *variable) {
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

wf_status wfi_launcher_number(wf_context *ctx, const char *variable, int *value_out) {
    const char *text = wfi_launcher_text(variable), *at = text;
    int value;
    if (!text || !read_digits(&at, &value) || *at)
        return wfi_fail(ctx, WF_INVALID_ARG,
                        "environment: %s='%.64s' is not a position in a job; it takes a whole "
                        "number from 0 to 999999999",
                        variable, text ? text : "");
    *value_out = value;
    return WF_OK;
}

/* Reads this node's number of tasks from a list such as 4(x2),3: nodes 0 and 1 have 4, node 2 has
 * 3. */
static wf_status read_tasks_per_node(wf_context *ctx, const char *variable, int *value_out) {
    const char *text = wfi_launcher_text(variable), *at = text;
    int node, n_nodes = 0;
    if (!wfi_launcher_text("SLURM_NODEID"))
        return wfi_fail(
            ctx, WF_INVALID_ARG,
            "environment: %s=%.64s, but SLURM_NODEID, the number of this node, is not set",
            variable, text);
    WF_TRY(wfi_launcher_number(ctx, "SLURM_NODEID", &node));
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
                            "environment: %s='%.64s' is not a list of tasks such as 4(x2),3",
                            variable, text);
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
    const char *step = wfi_launcher_text("SLURM_STEP_ID");
    return step && !(strlen(step) == 10 && strcmp(step, "4294967290") >= 0);
}

static wf_status check_pair(wf_context *ctx, const source *from, const wfi_launcher *launcher,
                            int one, int other) {
    int missing = launcher->by[one] ? other : one, there = launcher->by[one] ? one : other;
    if (!launcher->by[one] == !launcher->by[other]) return WF_OK;
    return wfi_fail(
        ctx, WF_INVALID_ARG, "environment: %s=%.64s, but %s is not set; a rank needs both",
        launcher->by[there], wfi_launcher_text(launcher->by[there]), from->variables[missing][0]);
}

static wf_status check_range(wf_context *ctx, const wfi_launcher *launcher, int rank, int n_ranks) {
    if (!launcher->by[rank] || launcher->value[rank] < launcher->value[n_ranks]) return WF_OK;
    return wfi_fail(ctx, WF_INVALID_ARG, "environment: %s=%d, but %s=%.64s: ranks count from 0",
                    launcher->by[rank], launcher->value[rank], launcher->by[n_ranks],
                    wfi_launcher_text(launcher->by[n_ranks]));
}

static wf_status check(wf_context *ctx, const source *from, const wfi_launcher *launcher) {
    WF_TRY(check_pair(ctx, from, launcher, WFI_RANK, WFI_N_RANKS));
    WF_TRY(check_pair(ctx, from, launcher, WFI_LOCAL_RANK, WFI_N_LOCAL_RANKS));
    if (!launcher->by[WFI_RANK])
        return wfi_fail(ctx, WF_INVALID_ARG,
                        "environment: %s=%.64s, but neither %s nor %s is set; a rank needs them",
                        launcher->by[WFI_LOCAL_RANK],
                        wfi_launcher_text(launcher->by[WFI_LOCAL_RANK]),
                        from->variables[WFI_RANK][0], from->variables[WFI_N_RANKS][0]);
    WF_TRY(check_range(ctx, launcher, WFI_RANK, WFI_N_RANKS));
    WF_TRY(check_range(ctx, launcher, WFI_LOCAL_RANK, WFI_N_LOCAL_RANKS));
    if (launcher->by[WFI_LOCAL_RANK] &&
        launcher->value[WFI_N_LOCAL_RANKS] > launcher->value[WFI_N_RANKS])
        return wfi_fail(
            ctx, WF_INVALID_ARG,
            "environment: %s=%.64s gives this machine %d ranks, but %s=%.64s gives the job %d",
            launcher->by[WFI_N_LOCAL_RANKS], wfi_launcher_text(launcher->by[WFI_N_LOCAL_RANKS]),
            launcher->value[WFI_N_LOCAL_RANKS], launcher->by[WFI_N_RANKS],
            wfi_launcher_text(launcher->by[WFI_N_RANKS]), launcher->value[WFI_N_RANKS]);
    return WF_OK;
}

wf_status wfi_launcher_read(wf_context *ctx, wfi_launcher_kind which, wfi_launcher *launcher_out) {
    const source *from = &sources[which];
    wfi_launcher launcher = {.source = from->name};
    *launcher_out = launcher;
    if (which == WFI_SLURM && !is_slurm_step()) return WF_OK;
    for (int i = 0; i < WFI_N_FIELDS; i++)
        for (int k = 1; k >= 0; k--)
            if (from->variables[i][k] && wfi_launcher_text(from->variables[i][k])) {
                launcher.by[i] = from->variables[i][k];
                launcher.is_there = true;
            }
    for (int i = 0; i < WFI_N_FIELDS; i++) {
        if (!launcher.by[i]) continue;
        if (which == WFI_SLURM && i == WFI_N_LOCAL_RANKS && launcher.by[WFI_LOCAL_RANK])
            WF_TRY(read_tasks_per_node(ctx, launcher.by[i], &launcher.value[i]));
        else if (which != WFI_SLURM || i != WFI_N_LOCAL_RANKS)
            WF_TRY(wfi_launcher_number(ctx, launcher.by[i], &launcher.value[i]));
    }
    /* PMIx alone has no variable for the number of ranks; wf_launch_place deals with that. */
    if (launcher.is_there && which != WFI_PMIX) WF_TRY(check(ctx, from, &launcher));
    *launcher_out = launcher;
    return WF_OK;
}

wf_status wfi_launcher_check_mpi(wf_context *ctx, int n_ranks) {
    static const char *const signs[] = {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMI_FD", "PMIX_RANK"};
    for (size_t i = 0; i < WFI_COUNT(signs); i++)
        if (wfi_launcher_text(signs[i])) return WF_OK;
    if (wfi_launcher_text("TORCHELASTIC_RUN_ID"))
        return wfi_fail(
            ctx, WF_UNSUPPORTED,
            "torchrun does not start MPI, which ranks on several machines need: start these %d "
            "ranks with mpirun -np %d --host ONE,TWO weft ... (Debian: openmpi-bin)",
            n_ranks, n_ranks);
    if (is_slurm_step())
        return wfi_fail(ctx, WF_UNSUPPORTED,
                        "srun has started these %d ranks without MPI, which ranks on several "
                        "machines need: add --mpi=pmix to srun (Open MPI) or --mpi=pmi2 (MPICH); "
                        "srun --mpi=list lists the choices",
                        n_ranks);
    return WF_OK;
}
