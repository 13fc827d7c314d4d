/* Our own CRC-32 and zlib's.
 *
 * label: serial
 */
#include "test.h"

#include "base/crc32.h"
#include "base/random.h"

#include <zlib.h>

#define N_BYTES 20000

TEST_CASE(equals_zlib) {
    (void)state;
    static uint8_t bytes[N_BYTES];
    for (size_t i = 0; i < N_BYTES; i++) {
        uint32_t words[4];
        wfi_random_words((wfi_random_key){7, wfi_random_name("crc32")}, 0, i, words);
        bytes[i] = (uint8_t)words[0];
    }
    /* Lengths on both sides of each bound, at all alignments. */
    for (size_t n = 0; n + 8 < N_BYTES; n += n < 64 || (n > 4064 && n < 4160) ? 1 : n / 61) {
        const uint8_t *at = bytes + n % 8;
        uint32_t crc = wfi_crc32(at, n);
        assert_int_equal(crc, crc32(0, at, (uInt)n));
        assert_int_equal(wfi_crc32_shift(crc, 3 * n), crc32_combine(crc, 0, (z_off_t)(3 * n)));
        assert_int_equal(wfi_crc32_shift(wfi_crc32(bytes, 9), n) ^ wfi_crc32(bytes + 9, n),
                         crc32(0, bytes, (uInt)n + 9));
    }
    assert_int_equal(wfi_crc32_shift(1, UINT64_C(1) << 40),
                     crc32_combine(1, 0, (z_off_t)(INT64_C(1) << 40)));
}
