/* What the environment claims about this process's place, one claim a launcher. Private to
 * src/comm/place.
 */
#ifndef WFI_CLAIM_H
#define WFI_CLAIM_H

#include "base/base.h"

typedef enum wfi_source {
    WFI_TORCHRUN, /* in the order of precedence */
    WFI_OPEN_MPI,
    WFI_PMI,
    WFI_PMIX,
    WFI_SLURM,
    WFI_N_SOURCES
} wfi_source;

enum { WFI_RANK, WFI_N_RANKS, WFI_LOCAL_RANK, WFI_N_LOCAL_RANKS, WFI_N_SAID };

typedef struct wfi_claim {
    const char *source;
    bool is_made;
    const char *by[WFI_N_SAID]; /* the variable that says it; NULL: nothing is said */
    int said[WFI_N_SAID];
} wfi_claim;

/* The variable's text; NULL if it is unset or empty. */
const char *wfi_claim_text(const char *variable);
/* A whole number, 0 or more. Errors: INVALID_ARG. */
wf_status wfi_claim_number(wf_context *ctx, const char *variable, int *value_out);

/* Errors: INVALID_ARG: incomplete, no number, out of range. */
wf_status wfi_claim_read(wf_context *ctx, wfi_source source, wfi_claim *claim_out);

/* A name for the job that made these claims: what its launchers call it, else the process that
 * started it. */
void wfi_job_name(const wfi_claim claims[WFI_N_SOURCES], char name[96]);

#endif
