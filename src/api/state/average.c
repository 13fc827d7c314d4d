/* The weights' average in the place of the weights, and back: evaluation, outputs and files are
 * then of the average, under every plan, and no program knows of it. */
#include "api/state/state.h"

/* Copies the weights over their average. A rank that holds a part of the average also holds the
 * same part of the weights. */
static wf_status move_weights(const wfi_state_call *x, const wfi_state_part *average,
                              const wfi_state_part *weights) {
    for (int32_t k = 0; k < average->n_equal; k++) {
        const wfi_state_piece *to = &average->pieces[k], *from = weights->pieces;
        const wfi_worker *w = &x->t->workers[to->rank];
        if (!w->is_local) continue;
        while (from->rank != to->rank) from++;
        WF_TRY(wfi_memory_copy(w->copier, NULL, x->dst, WFI_SPACE_HOST,
                               w->arenas[from->space].base + from->at + weights->at, from->space,
                               weights->bytes));
        WF_TRY(wfi_memory_copy(w->copier, NULL, w->arenas[to->space].base + to->at + average->at,
                               to->space, x->dst, WFI_SPACE_HOST, average->bytes));
    }
    return WF_OK;
}

/* Every process has read the average before any of it is overwritten. */
static wf_status swap_part(wfi_state_call *x, const wfi_state_part *now) {
    wfi_state_part average = *now,
                   weights = {.tensor = wfi_state_find(
                                  &x->list, wfi_value_at(x->list.graph, now->tensor->value)->name)};
    size_t size = wfi_state_element_bytes(&x->list, now->tensor), end = now->at + now->bytes;
    for (; average.at < end; average.at += average.bytes) {
        int64_t first = now->pieces->first + (int64_t)(average.at / size);
        weights.pieces = wfi_state_piece_of(weights.tensor, now->pieces->part, first);
        weights.n_equal = wfi_state_n_equal(weights.tensor, weights.pieces);
        weights.at = (size_t)(first - weights.pieces->first) * size;
        size_t n_left = (size_t)weights.pieces->n * size - weights.at;
        weights.bytes = average.bytes = n_left < end - average.at ? n_left : end - average.at;
        WF_TRY(wfi_state_fetch(x, &average, -1, x->buffer));
        WF_TRY(wfi_trainer_barrier(x->t, "read a part of the weights' average"));
        WF_TRY(move_weights(x, &average, &weights));
        WF_TRY(wfi_state_put(x, &weights));
    }
    return WF_OK;
}

static wf_status swap(wfi_state_call *x) {
    wf_trainer *t = x->t;
    int average = wfi_recipe_average(&t->recipe);
    bool was_spoiled = t->is_spoiled;
    wf_status status = WF_OK;
    x->dst = wfi_alloc(t->ctx, WFI_STATE_CHUNK_BYTES, 1, "a part of the weights");
    if (!x->dst) return WF_NO_MEMORY;
    t->is_spoiled = true; /* until all of it is done */
    for (int32_t i = 0; i < x->list.n_tensors && status == WF_OK; i++)
        if (x->list.tensors[i].state == average)
            status = wfi_state_visit_tensor(x, swap_part, &x->list.tensors[i]);
    if (status == WF_OK) t->is_spoiled = was_spoiled;
    wfi_free(t->ctx, x->dst);
    return status;
}

wf_status wf_trainer_use_average(wf_trainer *t, int is_used) {
    if (wfi_recipe_average(&t->recipe) < 0 || t->forward_only)
        return wfi_fail(t->ctx, WF_INVALID_ARG,
                        "there is no average of the weights: the recipe's ema is 0, or the trainer "
                        "is for forward runs only");
    if (t->uses_average == (is_used != 0)) return WF_OK;
    t->uses_average = is_used != 0;
    if (!t->n_steps) return WF_OK; /* the weights themselves */
    return wfi_state_perform(&(wfi_state_call){.t = t}, "use the average", WFI_STATE_ALL, swap);
}

wf_status wfi_trainer_check_average(const wf_trainer *t, const char *what) {
    if (!t->uses_average) return WF_OK;
    return wfi_fail(t->ctx, WF_INVALID_ARG,
                    "%s: the weights are their average now; wf_trainer_use_average(trainer, 0) "
                    "brings them back",
                    what);
}
