#include "plan/placement.h"

#include "optimizer/optimizer.h"

const char *wfi_change_name(wfi_placement from, wfi_placement to) {
    static const char *const names[WFI_N_PLACEMENTS][WFI_N_PLACEMENTS] = {
        [WFI_AT] = {[WFI_REPLICATE] = "broadcast", [WFI_SHARD] = "scatter"},
        [WFI_SHARD] = {[WFI_REPLICATE] = "all_gather", [WFI_AT] = "gather"},
        [WFI_PARTIAL] =
            {[WFI_REPLICATE] = "all_reduce", [WFI_AT] = "reduce", [WFI_SHARD] = "reduce_scatter"},
    };
    bool exists = (unsigned)from < WFI_N_PLACEMENTS && (unsigned)to < WFI_N_PLACEMENTS;
    return exists ? names[from][to] : NULL;
}

/* Returns the length of a part, and the replica that has the first part. A tensor with fewer blocks
 * of the norm than replicas begins at the replica of its number. Among very many
 * replicas it is divided as others are, so that these have equal parts. */
static size_t divide(size_t bytes, int32_t n, wfi_division how, int32_t *first_out) {
    bool is_small = wfi_placement_is_small(bytes, n) && (how.is_coarse || n <= WFI_MOST_ROTATING);
    size_t block =
        is_small || how.is_coarse ? WFI_NORM_BLOCK_ELEMENTS * sizeof(float) : WFI_ALIGN_BYTES;
    *first_out = is_small ? how.number % n : 0;
    return wfi_round_up((bytes + (size_t)n - 1) / (size_t)n, block);
}

int32_t wfi_placement_owner(size_t bytes, int32_t n, size_t begin, wfi_division how) {
    int32_t first;
    size_t part = divide(bytes, n, how, &first);
    return bytes ? (int32_t)((begin / part + (size_t)first) % (size_t)n) : 0;
}

wfi_extent wfi_placement_extent(wfi_placement placement, size_t bytes, int32_t n, int32_t k,
                                wfi_division how) {
    int32_t first;
    if (placement != WFI_SHARD)
        return (wfi_extent){0, wfi_placement_has(placement, k, 0) ? bytes : 0};
    size_t part = divide(bytes, n, how, &first);
    size_t begin = part * (size_t)((k + n - first) % n);
    if (begin > bytes) begin = bytes;
    return (wfi_extent){begin, part < bytes - begin ? part : bytes - begin};
}

bool wfi_placement_is_small(size_t bytes, int32_t n) {
    return bytes <= (size_t)(n - 1) * WFI_NORM_BLOCK_ELEMENTS * sizeof(float);
}

wfi_extent wfi_extent_intersect(wfi_extent a, wfi_extent b) {
    size_t begin = a.offset > b.offset ? a.offset : b.offset;
    size_t a_end = a.offset + a.bytes, b_end = b.offset + b.bytes;
    size_t end = a_end < b_end ? a_end : b_end;
    return (wfi_extent){begin, end > begin ? end - begin : 0};
}
