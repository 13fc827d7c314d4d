/* The state before a step, copied to host memory, so that a step that was not finite can be undone.
 * Parameters, buffers, optimizer state and hidden state are one region of each arena. A copy of
 * that region has all of them, under every plan.
 */
#include "api/trainer.h"

struct wfi_undo {
    char *copies[WFI_N_SPACES];
};

static size_t bytes_of(const wf_trainer *t, int rank, int space) {
    return t->ready[0]->program->ranks[rank].arenas[space].state_bytes;
}

size_t wfi_undo_bytes(const wf_trainer *t, int rank) {
    return t->keeps_undo ? wf_program_undo_bytes(t->ready[0]->program, rank) : 0;
}

/* ---- life ---- */

static wf_status check_room(const wf_trainer *t) {
    for (int r = 0; r < t->n_workers && t->host_memory_bytes; r++) {
        size_t undo = wfi_undo_bytes(t, r),
               other = t->ready[0]->program->ranks[r].arenas[WFI_SPACE_HOST].peak_bytes;
        if (undo + other > t->host_memory_bytes)
            return wfi_fail(t->ctx, WF_DOES_NOT_FIT,
                            "rank %d needs %zu bytes of host memory, %zu of them for the copy of "
                            "its state that undoes a step; the limit is %zu",
                            r, undo + other, undo, t->host_memory_bytes);
    }
    return WF_OK;
}

wf_status wfi_undo_create(wf_trainer *t) {
    if (!t->keeps_undo) return WF_OK;
    WF_TRY(check_room(t));
    t->undo = wfi_alloc(t->ctx, (size_t)t->n_workers, sizeof *t->undo, "copies of the state");
    if (!t->undo) return WF_NO_MEMORY;
    for (int r = 0; r < t->n_workers; r++)
        for (int s = 0; s < WFI_N_SPACES && t->workers[r].is_local; s++) {
            if (!bytes_of(t, r, s)) continue;
            t->undo[r].copies[s] = wfi_alloc(t->ctx, bytes_of(t, r, s), 1, "a copy of the state");
            if (!t->undo[r].copies[s]) return WF_NO_MEMORY;
        }
    return WF_OK;
}

void wfi_undo_destroy(wf_trainer *t) {
    for (int r = 0; r < t->n_workers && t->undo; r++)
        for (int s = 0; s < WFI_N_SPACES; s++) wfi_free(t->ctx, t->undo[r].copies[s]);
    wfi_free(t->ctx, t->undo);
}

/* ---- the copies ---- */

static wf_status copy_space(const wf_trainer *t, int rank, wfi_space space, bool restores) {
    const wfi_worker *w = &t->workers[rank];
    char *copy = t->undo[rank].copies[space], *base = w->arenas[space].base;
    size_t bytes = bytes_of(t, rank, space);
    if (!copy) return WF_OK;
    return restores ? wfi_memory_copy(w->copier, NULL, base, space, copy, WFI_SPACE_HOST, bytes)
                    : wfi_memory_copy(w->copier, NULL, copy, WFI_SPACE_HOST, base, space, bytes);
}

static wf_status copy_all(const wf_trainer *t, bool restores) {
    for (int r = 0; r < t->n_workers; r++)
        for (int s = 0; s < WFI_N_SPACES && t->workers[r].is_local; s++)
            WF_TRY(copy_space(t, r, (wfi_space)s, restores));
    return WF_OK;
}

/* A rank may write into another's state as soon as a step runs there. */
wf_status wfi_undo_keep(wf_trainer *t) {
    if (!t->keeps_undo) return WF_OK;
    t->was_spoiled = t->is_spoiled;
    WF_TRY(copy_all(t, false));
    t->can_undo = true;
    return wfi_trainer_barrier(t, "keep its state");
}

wf_status wf_trainer_undo_step(wf_trainer *t) {
    if (!t->can_undo)
        return wfi_fail(t->ctx, WF_INVALID_ARG,
                        "only a step that was not finite can be undone, right after it, by a "
                        "trainer with keep_undo");
    WF_TRY(wfi_trainer_barrier(t, "undo a step"));
    wf_status status = copy_all(t, true);
    if (t->job && status != WF_OK)
        wfi_failure_set(wfi_control_failure(t->job), status, wf_context_error(t->ctx));
    WF_TRY(status);
    t->can_undo = false;
    t->is_spoiled = t->was_spoiled;
    return wfi_trainer_barrier(t, "continue after 'undo a step'");
}
