/* The rank of this process: the consistency check of all launchers' variables. */
#include "comm/place/launcher.h"

#include <string.h>
#include <weft/launch.h>

/* Whether the launcher counts processes of torchrun, one per machine, instead of ranks. */
static bool counts_torchruns(const wfi_launcher *first, const wfi_launcher *launcher) {
    const char *group = wfi_launcher_text("GROUP_RANK"),
               *n_groups = wfi_launcher_text("GROUP_WORLD_SIZE");
    const char *rank = launcher->by[WFI_RANK], *n_ranks = launcher->by[WFI_N_RANKS];
    return first->by[WFI_RANK] && !strcmp(first->by[WFI_RANK], "RANK") && group && n_groups &&
           !strcmp(wfi_launcher_text(rank), group) &&
           (!n_ranks || !strcmp(wfi_launcher_text(n_ranks), n_groups));
}

static wf_status compare(wf_context *ctx, const wfi_launcher *first, const wfi_launcher *launcher) {
    if (counts_torchruns(first, launcher)) return WF_OK;
    for (int i = 0; i < WFI_N_FIELDS; i++)
        if (first->by[i] && launcher->by[i] && first->value[i] != launcher->value[i])
            return wfi_fail(ctx, WF_INVALID_ARG,
                            "environment: %s=%.64s (%s) and %s=%.64s (%s) disagree; unset the "
                            "variables of the launcher that did not start this process",
                            first->by[i], wfi_launcher_text(first->by[i]), first->source,
                            launcher->by[i], wfi_launcher_text(launcher->by[i]), launcher->source);
    return WF_OK;
}

/* Checks torchrun's number of this machine. */
static wf_status check_group(wf_context *ctx, const wfi_launcher *launcher) {
    int group;
    if (!launcher->is_there || !wfi_launcher_text("GROUP_RANK")) return WF_OK;
    WF_TRY(wfi_launcher_number(ctx, "GROUP_RANK", &group));
    if (group > 0 && launcher->by[WFI_LOCAL_RANK] &&
        launcher->value[WFI_N_LOCAL_RANKS] == launcher->value[WFI_N_RANKS])
        return wfi_fail(ctx, WF_INVALID_ARG,
                        "environment: GROUP_RANK=%d means several machines, but "
                        "LOCAL_WORLD_SIZE=%d and WORLD_SIZE=%d mean one",
                        group, launcher->value[WFI_N_LOCAL_RANKS], launcher->value[WFI_N_RANKS]);
    return WF_OK;
}

/* Finds the local rank. Without a launcher's local variables all ranks are on this machine. */
static void find_local(const wfi_launcher launchers[WFI_N_LAUNCHERS], const wfi_launcher *first,
                       wf_place *place) {
    place->local_rank = place->rank;
    place->n_local_ranks = place->n_ranks;
    for (const wfi_launcher *launcher = first; launcher < launchers + WFI_N_LAUNCHERS; launcher++) {
        if (!launcher->by[WFI_LOCAL_RANK] ||
            (launcher != first && counts_torchruns(first, launcher)))
            continue;
        place->local_rank = launcher->value[WFI_LOCAL_RANK];
        place->n_local_ranks = launcher->value[WFI_N_LOCAL_RANKS];
        return;
    }
}

wf_status wf_launch_place(wf_context *ctx, wf_place *place_out) {
    wfi_launcher launchers[WFI_N_LAUNCHERS];
    const wfi_launcher *first = NULL;
    wf_place place = {0, 1, 0, 1, "", ""};
    for (wfi_launcher_kind source = 0; source < WFI_N_LAUNCHERS; source++) {
        WF_TRY(wfi_launcher_read(ctx, source, &launchers[source]));
        if (!first && launchers[source].by[WFI_N_RANKS]) first = &launchers[source];
    }
    const wfi_launcher *pmix = &launchers[WFI_PMIX];
    if (!first && pmix->is_there)
        return wfi_fail(ctx, WF_INVALID_ARG,
                        "environment: PMIX_RANK=%d, but the number of ranks is not set; set RANK "
                        "and WORLD_SIZE as well",
                        pmix->value[WFI_RANK]);
    if (first) {
        WF_TRY(check_group(ctx, &launchers[WFI_TORCHRUN]));
        for (const wfi_launcher *launcher = launchers; launcher < launchers + WFI_N_LAUNCHERS;
             launcher++)
            if (launcher != first && launcher->is_there) WF_TRY(compare(ctx, first, launcher));
        place.rank = first->value[WFI_RANK];
        place.n_ranks = first->value[WFI_N_RANKS];
        bool is_ours = first == &launchers[WFI_TORCHRUN] && wfi_launcher_text(WFI_CONTROL_ENV);
        place.source = is_ours ? "weft run" : first->source;
        find_local(launchers, first, &place);
        if (place.n_ranks > 1) wfi_job_name(launchers, place.job);
    }
    *place_out = place;
    return WF_OK;
}
