/* The rank of this process according to each launcher's environment variables. Private. */
#pragma once

#include "base/base.h"

/* The variable through which weft run hands its ranks the descriptor of their job's segment. */
#define WFI_CONTROL_ENV "WEFT_CONTROL_FD"

typedef enum wfi_launcher_kind {
    WFI_TORCHRUN, /* in order of precedence */
    WFI_OPEN_MPI,
    WFI_PMI,
    WFI_PMIX,
    WFI_SLURM,
    WFI_N_LAUNCHERS
} wfi_launcher_kind;

enum { WFI_RANK, WFI_N_RANKS, WFI_LOCAL_RANK, WFI_N_LOCAL_RANKS, WFI_N_FIELDS };

typedef struct wfi_launcher {
    const char *source;
    bool is_there;
    const char *by[WFI_N_FIELDS]; /* the variable that sets it; NULL: none */
    int value[WFI_N_FIELDS];
} wfi_launcher;

/* The variable's text; NULL if it is unset or empty. */
const char *wfi_launcher_text(const char *variable);
/* Reads a whole number, 0 or more. Errors: INVALID_ARG. */
wf_status wfi_launcher_number(wf_context *ctx, const char *variable, int *value_out);

/* Reads a launcher's variables. Errors: INVALID_ARG: incomplete, not a number, out of range. */
wf_status wfi_launcher_read(wf_context *ctx, wfi_launcher_kind source, wfi_launcher *launcher_out);

/* Fails with UNSUPPORTED if the launcher of these n_ranks ranks does not start MPI. */
wf_status wfi_launcher_check_mpi(wf_context *ctx, int n_ranks);

/* A name for the job of these launchers: the launcher's own name, or else one of the process that
 * started the ranks. */
void wfi_job_name(const wfi_launcher launchers[WFI_N_LAUNCHERS], char name[96]);
