/* What a rank finds in its environment. */
#include "comm/job/control.h"
#include "comm/place/launcher.h"
#include "launch/process_group.h"

#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* Variables by which another launcher told this process its place: they are not the ranks'. */
static const char hidden[] = " " WFI_CONTROL_ENV " " WF_LAUNCH_TERMINAL
                             " RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE GROUP_RANK"
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

/* 0: nothing is shown on a terminal. */
static int columns_of(int fd) {
    struct winsize size = {0};
    if (!isatty(fd)) return 0;
    return ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col ? size.ws_col : 80;
}

char **wfi_environment_create(wf_context *ctx, int rank, const wf_launch_config *config,
                              int control_fd) {
    int n_ranks = config->n_ranks, columns = rank == 0 ? columns_of(config->err) : 0;
    const struct {
        const char *name;
        int value;
    } own[] = {{"RANK", rank},
               {"WORLD_SIZE", n_ranks},
               {"LOCAL_RANK", rank},
               {"LOCAL_WORLD_SIZE", n_ranks},
               {WFI_CONTROL_ENV, control_fd},
               {WF_LAUNCH_TERMINAL, columns}};
    size_t n = 0, n_own = WFI_COUNT(own) - !columns;
    while (environ && environ[n]) n++;
    char **made = wfi_alloc(ctx, n + n_own + 1, sizeof *made, "an environment");
    size_t n_made = 0;
    for (size_t i = 0; made && i < n + n_own; i++) {
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
