/* A name for the job, equal in all of its processes and unique among jobs. */
#include "base/hash.h"
#include "comm/place/launcher.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#define NAME_BYTES 88 /* of 96: a part of a socket's address, which has 107 */

/* Variables that identify a job of a launcher; the first `n_needed` must be set. */
static const struct {
    wfi_launcher_kind source;
    const char *word;
    int n_needed;
    const char *variables[4];
} rows[] = {
    {WFI_TORCHRUN,
     "torchrun",
     2,
     {"MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"}},
    {WFI_OPEN_MPI, "openmpi", 1, {"OMPI_MCA_ess_base_jobid", "OMPI_MCA_orte_hnp_uri"}},
    {WFI_OPEN_MPI, "openmpi", 1, {"PMIX_NAMESPACE"}},
    {WFI_PMI, "pmi", 1, {"PMI_JOBID"}},
    {WFI_PMIX, "pmix", 1, {"PMIX_NAMESPACE"}},
    {WFI_SLURM, "slurm", 2, {"SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT"}},
};

/* Adds a part to the name. Parts that do not fit are still covered by the hash. */
static void add(char name[NAME_BYTES], uint64_t *hash, const char *part) {
    size_t n = strlen(name);
    snprintf(name + n, NAME_BYTES - n, "%s%s", n ? ":" : "", part);
    *hash = wfi_hash_add(wfi_hash_add(*hash, ":", 1), part, strlen(part));
}

static bool name_by_row(size_t row, char name[NAME_BYTES]) {
    uint64_t hash = WFI_HASH_INIT;
    add(name, &hash, rows[row].word);
    for (int i = 0; i < 4 && rows[row].variables[i]; i++) {
        const char *text = wfi_launcher_text(rows[row].variables[i]);
        if (!text && i < rows[row].n_needed) return false;
        add(name, &hash, text ? text : "");
    }
    if (strlen(name) == NAME_BYTES - 1)
        snprintf(name + NAME_BYTES - 18, 18, "#%016llx", (unsigned long long)hash);
    return true;
}

/* ---- launchers without a job name: MPICH's, and a script that sets RANK ---- */

static bool has_variable(pid_t pid, const char *variable) {
    char path[40], *entry = NULL;
    size_t n = strlen(variable), capacity = 0;
    bool found = false;
    snprintf(path, sizeof path, "/proc/%d/environ", (int)pid);
    FILE *file = fopen(path, "r");
    if (!file) return false; /* another user's process is not a rank of this job */
    while (!found && getdelim(&entry, &capacity, 0, file) > 0)
        found = !strncmp(entry, variable, n) && entry[n] == '=';
    free(entry);
    fclose(file);
    return found;
}

static bool read_stat(pid_t pid, int *parent_out, unsigned long long *start_out) {
    char path[40], text[1024];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *file = fopen(path, "r");
    size_t n = file ? fread(text, 1, sizeof text - 1, file) : 0;
    if (file) fclose(file);
    text[n] = 0;
    const char *at = strrchr(text, ')'); /* the command's name may contain parentheses */
    return at && sscanf(at + 1,
                        " %*c %d %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s "
                        "%*s %llu",
                        parent_out, start_out) == 2;
}

/* The nearest ancestor that is not a rank started all ranks. Shells between it and this process
 * have this process's variables. */
static void name_by_ancestor(const char *variable, char name[NAME_BYTES]) {
    int pid = (int)getppid(), parent = 0;
    unsigned long long start = 0;
    while (read_stat(pid, &parent, &start) && parent > 0 && has_variable(pid, variable))
        pid = parent;
    snprintf(name, NAME_BYTES, "process:%d:%llu", pid, start);
}

void wfi_job_name(const wfi_launcher launchers[WFI_N_LAUNCHERS], char name[96]) {
    const char *variable = NULL;
    for (int i = WFI_N_LAUNCHERS - 1; i >= 0; i--)
        if (launchers[i].is_there) variable = launchers[i].by[WFI_RANK];
    for (size_t row = 0; row < WFI_COUNT(rows); row++) {
        *name = 0;
        if (launchers[rows[row].source].is_there && name_by_row(row, name)) return;
    }
    *name = 0;
    if (variable) name_by_ancestor(variable, name);
}
