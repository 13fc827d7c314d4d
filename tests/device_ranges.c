/* Ranges of addresses are found by any address in them, and by none beside them.
 *
 * label: serial
 */
#include "device/ranges.h"
#include "test.h"

#define N 40

/* Range i has bytes 10 i to 10 i + 7 of `space`. */
static char space[10 * N];

static void check(wfi_ranges *ranges, const bool is_there[N]) {
    for (size_t at = 0; at < sizeof space; at++) {
        wfi_range found = {NULL};
        bool is_in = is_there[at / 10] && at % 10 < 8;
        assert_int_equal(wfi_ranges_find(ranges, space + at, &found), is_in);
        if (is_in) assert_ptr_equal(found.object, space + at / 10);
    }
}

TEST(found_by_address) {
    wfi_ranges ranges;
    bool is_there[N] = {false};
    wfi_ranges_init(&ranges);
    check(&ranges, is_there);
    for (size_t k = 0, i = 0; k < N; k++, i = (i + 17) % N) {
        const wfi_range range = {space + 10 * i, 8, NULL, space + i};
        TEST_OK(ctx, wfi_ranges_add(ctx, &ranges, range));
        is_there[i] = true;
        check(&ranges, is_there);
    }
    for (size_t k = 0, i = 0; k < N; k++, i = (i + 7) % N) {
        assert_ptr_equal(wfi_ranges_take(&ranges, space + 10 * i).object, space + i);
        is_there[i] = false;
        check(&ranges, is_there);
    }
    wfi_ranges_release(&ranges);
}
