/* What a rank finds in its environment. */
#include "comm/control.h"
#include "launch/crew.h"

#include <string.h>
#include <unistd.h>

/* Who else may have launched us has said so to us, not to our ranks. */
static const char hidden[] =
    " " WFI_CONTROL_ENV " RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE GROUP_RANK"
    " GROUP_WORLD_SIZE ROLE_RANK ROLE_WORLD_SIZE ROLE_NAME"
    " MPI_LOCALRANKID MPI_LOCALNRANKS SLURM_PROCID SLURM_LOCALID"
    " SLURM_NODEID SLURM_STEP_ID SLURM_STEPID ";
static const char *const hidden_families[] = {"OMPI_COMM_WORLD_", "PMI_", "PMIX_", "TORCHELASTIC_"};

static bool is_hidden(const char *entry) {
    size_t n = strcspn(entry, "=");
    for (const char *at = hidden; n && (at = strchr(at, ' ')) != NULL && *++at;)
        if (!strncmp(at, entry, n) && at[n] == ' ') return true;
    for (size_t i = 0; i < WFI_COUNT(hidden_families); i++)
        if (!strncmp(hidden_families[i], entry, strlen(hidden_families[i]))) return true;
    return false;
}

char **wfi_environment_create(wf_context *ctx, int rank, int n_ranks, int control_fd) {
    const struct {
        const char *name;
        int value;
    } own[] = {{"RANK", rank},
               {"WORLD_SIZE", n_ranks},
               {"LOCAL_RANK", rank},
               {"LOCAL_WORLD_SIZE", n_ranks},
               {WFI_CONTROL_ENV, control_fd}};
    size_t n = 0;
    while (environ && environ[n]) n++;
    char **made = wfi_alloc(ctx, n + WFI_COUNT(own) + 1, sizeof *made, "an environment");
    size_t n_made = 0;
    for (size_t i = 0; made && i < n + WFI_COUNT(own); i++) {
        if (i < n && is_hidden(environ[i])) continue;
        made[n_made] = i < n ? wfi_strdup(ctx, environ[i])
                             : wfi_sprintf(ctx, "%s=%d", own[i - n].name, own[i - n].value);
        if (made[n_made++]) continue;
        wfi_environment_free(ctx, made);
        return NULL;
    }
    return made;
}

void wfi_environment_free(wf_context *ctx, char **environment) {
    for (char **at = environment; at && *at; at++) wfi_free(ctx, *at);
    wfi_free(ctx, environment);
}
