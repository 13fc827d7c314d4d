/* Which rank this process is: what launchers claim, compared. */
#include "comm/job/control.h"
#include "comm/place/claim.h"

#include <stdio.h>
#include <string.h>
#include <weft/launch.h>

/* Where Slurm or MPI started torchrun, once a machine, they count those and not the ranks. */
static bool counts_torchruns(const wfi_claim *first, const wfi_claim *claim) {
    const char *group = wfi_claim_text("GROUP_RANK"),
               *n_groups = wfi_claim_text("GROUP_WORLD_SIZE");
    const char *rank = claim->by[WFI_RANK], *n_ranks = claim->by[WFI_N_RANKS];
    return first->by[WFI_RANK] && !strcmp(first->by[WFI_RANK], "RANK") && group && n_groups &&
           !strcmp(wfi_claim_text(rank), group) &&
           (!n_ranks || !strcmp(wfi_claim_text(n_ranks), n_groups));
}

static wf_status compare(wf_context *ctx, const wfi_claim *first, const wfi_claim *claim) {
    if (counts_torchruns(first, claim)) return WF_OK;
    for (int i = 0; i < WFI_N_SAID; i++)
        if (first->by[i] && claim->by[i] && first->said[i] != claim->said[i])
            return wfi_fail(ctx, WF_INVALID_ARG,
                            "environment: %s=%.64s (%s) and %s=%.64s (%s) disagree; unset the "
                            "variables of the launcher that did not start this process",
                            first->by[i], wfi_claim_text(first->by[i]), first->source, claim->by[i],
                            wfi_claim_text(claim->by[i]), claim->source);
    return WF_OK;
}

/* torchrun's number of this machine among the machines. */
static wf_status check_group(wf_context *ctx, const wfi_claim *claim) {
    int group;
    if (!claim->is_made || !wfi_claim_text("GROUP_RANK")) return WF_OK;
    WF_TRY(wfi_claim_number(ctx, "GROUP_RANK", &group));
    if (group > 0 && claim->by[WFI_LOCAL_RANK] &&
        claim->said[WFI_N_LOCAL_RANKS] == claim->said[WFI_N_RANKS])
        return wfi_fail(ctx, WF_INVALID_ARG,
                        "environment: GROUP_RANK=%d says that there are several machines, "
                        "LOCAL_WORLD_SIZE=%d and WORLD_SIZE=%d that there is one",
                        group, claim->said[WFI_N_LOCAL_RANKS], claim->said[WFI_N_RANKS]);
    return WF_OK;
}

/* Ranks of a job that nobody has divided among machines are on this one. */
static void find_local(const wfi_claim claims[WFI_N_SOURCES], const wfi_claim *first,
                       wf_place *place) {
    place->local_rank = place->rank;
    place->n_local_ranks = place->n_ranks;
    for (const wfi_claim *claim = first; claim < claims + WFI_N_SOURCES; claim++) {
        if (!claim->by[WFI_LOCAL_RANK] || (claim != first && counts_torchruns(first, claim)))
            continue;
        place->local_rank = claim->said[WFI_LOCAL_RANK];
        place->n_local_ranks = claim->said[WFI_N_LOCAL_RANKS];
        return;
    }
}

wf_status wf_launch_place(wf_context *ctx, wf_place *place_out) {
    wfi_claim claims[WFI_N_SOURCES];
    const wfi_claim *first = NULL;
    wf_place place = {0, 1, 0, 1, "", ""};
    for (wfi_source source = 0; source < WFI_N_SOURCES; source++) {
        WF_TRY(wfi_claim_read(ctx, source, &claims[source]));
        if (!first && claims[source].by[WFI_N_RANKS]) first = &claims[source];
    }
    const wfi_claim *pmix = &claims[WFI_PMIX];
    if (!first && pmix->is_made)
        return wfi_fail(ctx, WF_INVALID_ARG,
                        "environment: PMIX_RANK=%d, but nothing says how many ranks there are; "
                        "set RANK and WORLD_SIZE as well",
                        pmix->said[WFI_RANK]);
    if (first) {
        WF_TRY(check_group(ctx, &claims[WFI_TORCHRUN]));
        for (const wfi_claim *claim = claims; claim < claims + WFI_N_SOURCES; claim++)
            if (claim != first && claim->is_made) WF_TRY(compare(ctx, first, claim));
        place.rank = first->said[WFI_RANK];
        place.n_ranks = first->said[WFI_N_RANKS];
        bool is_ours = first == &claims[WFI_TORCHRUN] && wfi_claim_text(WFI_CONTROL_ENV);
        place.source = is_ours ? "weft run" : first->source;
        find_local(claims, first, &place);
        if (place.n_ranks > 1) wfi_job_name(claims, place.job);
    }
    *place_out = place;
    return WF_OK;
}
