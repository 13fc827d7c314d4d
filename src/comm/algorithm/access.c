#include "comm/algorithm/allreduce.h"

static int32_t n_reads(const wfi_reduce_part *part, const wfi_reduce_step *step) {
    switch (step->kind) {
    case WFI_REDUCE_SUM:
    case WFI_REDUCE_STAGED:
        return part->n;
    case WFI_REDUCE_ADD:
        return 2;
    case WFI_REDUCE_COPY:
    case WFI_REDUCE_STAGE:
    case WFI_REDUCE_JOIN:
        break;
    }
    return 1;
}

static wfi_access staged(const wfi_reduce_part *part, const wfi_reduce_step *step, int32_t slot) {
    int64_t n = step->end - step->begin;
    return (wfi_access){part->own, WFI_WINDOW_STAGING, slot * n, n, false};
}

/* The staging slot of a rank in a sum over all ranks: contiguous, in rank order. */
static int32_t slot_of(const wfi_reduce_part *part, int32_t rank) {
    return rank - (rank > part->own);
}

static wfi_access read_at(const wfi_reduce_part *part, const wfi_reduce_step *step, int32_t i) {
    bool is_all = step->kind == WFI_REDUCE_SUM || step->kind == WFI_REDUCE_STAGED;
    if (step->kind == WFI_REDUCE_STAGED && i != part->own)
        return staged(part, step, slot_of(part, i));
    if (step->kind == WFI_REDUCE_ADD && (i ? step->right_in : step->left_in) == WFI_WINDOW_STAGING)
        return staged(part, step, i);
    wfi_access access = {.begin = step->begin, .n = step->end - step->begin};
    access.rank = is_all ? i : i ? step->right : step->left;
    access.window = is_all ? WFI_WINDOW_IN : i ? step->right_in : step->left_in;
    return access;
}

static wfi_access write_at(const wfi_reduce_part *part, const wfi_reduce_step *step, int32_t i) {
    wfi_access access = {i, step->to, step->at, step->end - step->begin, true};
    if (step->kind == WFI_REDUCE_STAGE)
        access = staged(part, step, step->slot);
    else if (step->target == WFI_TO_OWN)
        access.rank = part->own;
    else if (step->target == WFI_TO_ROOT)
        access.rank = part->root;
    access.writes = true;
    return access;
}

bool wfi_reduce_access(const wfi_reduce_part *part, const wfi_reduce_step *step, int32_t i,
                       wfi_access *access_out) {
    int32_t n = n_reads(part, step), n_writes = step->target == WFI_TO_ALL ? part->n : 1;
    if (i >= n + n_writes) return false;
    *access_out = i < n ? read_at(part, step, i) : write_at(part, step, i - n);
    return true;
}

static int32_t stage(const wfi_reduce_step *step, int32_t rank, wfi_window in, int32_t slot,
                     wfi_reduce_step *steps, int32_t n) {
    steps[n] = (wfi_reduce_step){.kind = WFI_REDUCE_STAGE,
                                 .left = rank,
                                 .left_in = in,
                                 .begin = step->begin,
                                 .end = step->end,
                                 .slot = slot};
    return n + 1;
}

int32_t wfi_reduce_stage(const wfi_reduce_part *part, const wfi_reduce_step *step,
                         bool (*is_near)(const void *self, int32_t rank), const void *self,
                         wfi_reduce_step *steps) {
    wfi_reduce_step last = *step;
    int32_t n = 0, k = 0;
    if (step->kind == WFI_REDUCE_ADD) {
        if (!is_near(self, step->left)) {
            n = stage(step, step->left, step->left_in, 0, steps, n);
            last.left_in = WFI_WINDOW_STAGING;
        }
        if (!is_near(self, step->right)) {
            n = stage(step, step->right, step->right_in, 1, steps, n);
            last.right_in = WFI_WINDOW_STAGING;
        }
    }
    while (k < part->n && is_near(self, k)) k++;
    if (step->kind == WFI_REDUCE_SUM && k < part->n) {
        for (int32_t rank = 0; rank < part->n; rank++)
            if (rank != part->own)
                n = stage(step, rank, WFI_WINDOW_IN, slot_of(part, rank), steps, n);
        last.kind = WFI_REDUCE_STAGED;
    }
    steps[n] = last;
    return n + 1;
}
