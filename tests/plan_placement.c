/* Placements: what replicas have of a thing, and which collective a change is.
 *
 * label: serial
 */
#include "plan/strategy/strategy.h"

#include "optimizer/optimizer.h"
#include "test.h"

/* Parts are whole blocks, one behind the other from some replica on, and all of it; none is larger
 * than it has to be. */
static void check_parts(size_t bytes, int32_t n, wfi_division how) {
    const size_t norm = WFI_NORM_BLOCK_ELEMENTS * sizeof(float);
    bool is_small = wfi_placement_is_small(bytes, n) && (how.is_coarse || n <= WFI_MOST_ROTATING);
    size_t at = 0, block = is_small || how.is_coarse ? norm : WFI_ALIGN_BYTES;
    size_t n_blocks = (bytes + block - 1) / block;
    for (int32_t r = 0; r < n; r++) {
        int32_t replica = ((is_small ? how.number : 0) + r) % n;
        wfi_extent part = wfi_placement_extent(WFI_SHARD, bytes, n, replica, how);
        assert_true(part.bytes <= (n_blocks + (size_t)n - 1) / (size_t)n * block);
        if (part.bytes) assert_int_equal(part.offset, at);
        if (part.bytes) assert_int_equal(wfi_placement_owner(bytes, n, at, how), replica);
        if (at + part.bytes < bytes) assert_int_equal(part.bytes % block, 0);
        at += part.bytes;
    }
    assert_int_equal(at, bytes);
}

/* Norms of parts are by blocks; where none is measured, parts are whole cache lines. */
TEST_CASE(parts_are_the_whole) {
    static const size_t sizes[] = {0, 64, 4096, 4160, 3 * 4096, 1000 * 4096 + 128};
    for (size_t k = 0; k < WFI_COUNT(sizes); k++)
        for (int32_t n = 1; n <= 100; n = n == 9 ? 64 : n == 65 ? 100 : n + 1)
            for (int32_t number = 0; number < 20; number++)
                for (int is_coarse = 0; is_coarse < 2; is_coarse++)
                    check_parts(sizes[k], n, (wfi_division){number, is_coarse});
}

/* One replica has a tensor that is smaller than a block. */
TEST_CASE(small_things_take_turns) {
    for (int32_t number = 0; number < 9; number++)
        for (int32_t r = 0; r < 4; r++)
            assert_int_equal(
                wfi_placement_extent(WFI_SHARD, 256, 4, r, (wfi_division){number, false}).bytes,
                r == number % 4 ? 256 : 0);
    assert_true(wfi_placement_is_small(3 * 4096, 4));
    assert_false(wfi_placement_is_small(3 * 4096 + 4, 4));
}

TEST_CASE(the_whole_is_one_part) {
    const wfi_division how = {1, true};
    for (int32_t r = 0; r < 3; r++) {
        assert_int_equal(wfi_placement_extent(WFI_AT, 100, 3, r, how).bytes, r ? 0 : 100);
        assert_int_equal(wfi_placement_extent(WFI_REPLICATE, 100, 3, r, how).bytes, 100);
    }
}

TEST_CASE(what_both_have) {
    wfi_extent a = {10, 20};
    assert_int_equal(wfi_extent_intersect(a, (wfi_extent){0, 10}).bytes, 0);
    assert_int_equal(wfi_extent_intersect(a, (wfi_extent){30, 10}).bytes, 0);
    wfi_extent both = wfi_extent_intersect(a, (wfi_extent){15, 100});
    assert_int_equal(both.offset, 15);
    assert_int_equal(both.bytes, 15);
}

TEST_CASE(changes_have_names) {
    static const struct {
        wfi_placement from, to;
        const char *name;
    } changes[] = {
        {WFI_AT, WFI_REPLICATE, "broadcast"},       {WFI_AT, WFI_SHARD, "scatter"},
        {WFI_SHARD, WFI_REPLICATE, "all_gather"},   {WFI_SHARD, WFI_AT, "gather"},
        {WFI_PARTIAL, WFI_REPLICATE, "all_reduce"}, {WFI_PARTIAL, WFI_AT, "reduce"},
        {WFI_PARTIAL, WFI_SHARD, "reduce_scatter"},
    };
    int n = 0;
    for (size_t k = 0; k < WFI_COUNT(changes); k++)
        assert_string_equal(wfi_change_name(changes[k].from, changes[k].to), changes[k].name);
    for (int from = -1; from <= WFI_N_PLACEMENTS; from++)
        for (int to = -1; to <= WFI_N_PLACEMENTS; to++)
            n += wfi_change_name((wfi_placement)from, (wfi_placement)to) != NULL;
    assert_int_equal(n, WFI_COUNT(changes));
}

/* What lowering has to do for a strategy, it can do. */
TEST_CASE(strategies_are_changes) {
    for (int k = 0; wfi_strategies[k]; k++) {
        const wfi_strategy *s = wfi_strategies[k];
        assert_ptr_equal(wfi_strategy_find(s->name), s);
        assert_true(s->parameter == WFI_REPLICATE || wfi_change_name(s->parameter, WFI_REPLICATE));
        assert_non_null(wfi_change_name(WFI_PARTIAL, s->gradient));
        assert_true(s->state == s->parameter || wfi_change_name(s->state, s->parameter));
        assert_true(s->buffer != WFI_SHARD && s->buffer != WFI_PARTIAL);
    }
}
