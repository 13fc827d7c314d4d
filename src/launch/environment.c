/* The environment of a rank. */
#include "comm/place/launcher.h"
#include "launch/process_group.h"

#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

/* Variables by which another launcher told this process its place: they are not the ranks'. */
static const char hidden[] =
    " " WFI_CONTROL_ENV " " WF_LAUNCH_TERMINAL
    " RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE GROUP_RANK"
    " MASTER_ADDR MASTER_PORT GROUP_WORLD_SIZE ROLE_RANK ROLE_WORLD_SIZE ROLE_NAME"
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

/* Returns a port that no process uses now; 0: there is none. */
static int free_port(void) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t n = sizeof address;
    int port = 0, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && bind(fd, (struct sockaddr *)&address, n) == 0 &&
        getsockname(fd, (struct sockaddr *)&address, &n) == 0)
        port = ntohs(address.sin_port);
    if (fd >= 0) close(fd);
    return port;
}

/* weft's own ranks have the segment; the address is where other programs' rank 0 is to listen.
 * Where there is no network there is none. */
char **wfi_environment_create(wfi_process_group *group, int rank) {
    if (!group->port) group->port = free_port();
    int n_ranks = group->n_ranks, columns = rank == 0 ? columns_of(group->config->err) : 0;
    const struct {
        bool is_set;
        const char *name;
        int value;
    } own[] = {{true, "RANK", rank},
               {true, "WORLD_SIZE", n_ranks},
               {true, "LOCAL_RANK", rank},
               {true, "LOCAL_WORLD_SIZE", n_ranks},
               {true, WFI_CONTROL_ENV, group->segment_fd},
               {columns > 0, WF_LAUNCH_TERMINAL, columns},
               {group->port > 0, "MASTER_PORT", group->port},
               {group->port > 0, "MASTER_ADDR=127.0.0.1", 0},
               /* else Python buffers its output until it ends, as it is a pipe */
               {!getenv("PYTHONUNBUFFERED"), "PYTHONUNBUFFERED", 1}};
    size_t n = 0;
    while (environ && environ[n]) n++;
    char **made = wfi_alloc(group->ctx, n + WFI_COUNT(own) + 1, sizeof *made, "an environment");
    size_t n_made = 0;
    for (size_t i = 0; made && i < n + WFI_COUNT(own); i++) {
        if (i < n ? is_hidden(environ[i]) : !own[i - n].is_set) continue;
        made[n_made] = i < n ? wfi_strdup(group->ctx, environ[i])
                       : strchr(own[i - n].name, '=')
                           ? wfi_strdup(group->ctx, own[i - n].name)
                           : wfi_sprintf(group->ctx, "%s=%d", own[i - n].name, own[i - n].value);
        if (made[n_made++]) continue;
        wfi_environment_free(group->ctx, made);
        return NULL;
    }
    return made;
}

void wfi_environment_free(wf_context *ctx, char **environment) {
    for (char **at = environment; at && *at; at++) wfi_free(ctx, *at);
    wfi_free(ctx, environment);
}
