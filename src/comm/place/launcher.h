/* What the environment says of this process's place, launcher by launcher. Private. */
#ifndef WFI_LAUNCHER_H
#define WFI_LAUNCHER_H

#include "base/base.h"

/* weft run hands its ranks the descriptor of their job's segment. */
#define WFI_CONTROL_ENV "WEFT_CONTROL_FD"

typedef enum wfi_launcher_kind {
    WFI_TORCHRUN, /* in the order of precedence */
    WFI_OPEN_MPI,
    WFI_PMI,
    WFI_PMIX,
    WFI_SLURM,
    WFI_N_LAUNCHERS
} wfi_launcher_kind;

enum { WFI_RANK, WFI_N_RANKS, WFI_LOCAL_RANK, WFI_N_LOCAL_RANKS, WFI_N_SAID };

typedef struct wfi_launcher {
    const char *source;
    bool is_there;
    const char *by[WFI_N_SAID]; /* the variable that says it; NULL: nothing is said */
    int said[WFI_N_SAID];
} wfi_launcher;

/* The variable's text; NULL if it is unset or empty. */
const char *wfi_launcher_text(const char *variable);
/* A whole number, 0 or more. Errors: INVALID_ARG. */
wf_status wfi_launcher_number(wf_context *ctx, const char *variable, int *value_out);

/* Errors: INVALID_ARG: incomplete, no number, out of range. */
wf_status wfi_launcher_read(wf_context *ctx, wfi_launcher_kind source, wfi_launcher *launcher_out);

/* Errors: UNSUPPORTED: who started this rank of n_ranks starts no MPI with it. */
wf_status wfi_launcher_check_mpi(wf_context *ctx, int n_ranks);

/* A name for the job that these launchers started: what they call it, else that of the process
 * which started it. */
void wfi_job_name(const wfi_launcher launchers[WFI_N_LAUNCHERS], char name[96]);

#endif
