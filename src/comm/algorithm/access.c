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
        break;
    }
    return 1;
}

/* The own staging of what rank k has: those of the others lie side by side, in their order. */
static wfi_access staged(const wfi_reduce_part *part, const wfi_reduce_step *step, int32_t k) {
    int64_t n = step->end - step->begin;
    return (wfi_access){part->own, WFI_WINDOW_STAGING, (k - (k > part->own)) * n, n, false};
}

static wfi_access read_at(const wfi_reduce_part *part, const wfi_reduce_step *step, int32_t i) {
    bool is_all = step->kind == WFI_REDUCE_SUM || step->kind == WFI_REDUCE_STAGED;
    if (step->kind == WFI_REDUCE_STAGED && i != part->own) return staged(part, step, i);
    wfi_access access = {.begin = step->begin, .n = step->end - step->begin};
    access.rank = is_all ? i : i ? step->right : step->left;
    access.window = is_all ? WFI_WINDOW_IN : i ? step->right_in : step->left_in;
    return access;
}

static wfi_access write_at(const wfi_reduce_part *part, const wfi_reduce_step *step, int32_t i) {
    wfi_access access = {i, step->to, step->at, step->end - step->begin, true};
    if (step->kind == WFI_REDUCE_STAGE)
        access = staged(part, step, step->left);
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
