/* CRC-32 without zlib, so that the library does not need it. */
#include "base/crc32.h"

#include <pthread.h>
#include <string.h>

#define POLYNOMIAL 0xedb88320u /* bit-reversed */

/* Each lookup waits for the one before it, so a long text is read at several places at a time. */
enum { N_STREAMS = 4, MIN_LONG = 4096, WORD = 8 };

static uint32_t table[WORD][256]; /* [i][b]: the CRC of byte b and i zero bytes */

static void fill_table(void) {
    for (uint32_t b = 0; b < 256; b++) {
        uint32_t crc = b;
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? POLYNOMIAL : 0);
        table[0][b] = crc;
    }
    for (int i = 1; i < WORD; i++)
        for (int b = 0; b < 256; b++)
            table[i][b] = table[i - 1][b] >> 8 ^ table[0][table[i - 1][b] & 255];
}

static inline uint32_t add_word(uint32_t crc, const uint8_t *at) {
    uint64_t word;
    uint32_t sum = 0;
    memcpy(&word, at, WORD);
    word ^= crc;
    for (int i = 0; i < WORD; i++) sum ^= table[WORD - 1 - i][word >> 8 * i & 255];
    return sum;
}

uint32_t wfi_crc32(const void *bytes, size_t n_bytes) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, fill_table);
    const uint8_t *at = bytes;
    uint32_t crc[N_STREAMS] = {~0u};
    size_t part = n_bytes < MIN_LONG ? 0 : n_bytes / (N_STREAMS * WORD) * WORD;
    for (size_t i = 0; i < part; i += WORD)
        for (size_t s = 0; s < N_STREAMS; s++) crc[s] = add_word(crc[s], at + s * part + i);
    for (int s = 1; s < N_STREAMS && part; s++) crc[0] = wfi_crc32_shift(crc[0], part) ^ crc[s];
    for (size_t i = N_STREAMS * part; i < n_bytes; i++)
        crc[0] = crc[0] >> 8 ^ table[0][(crc[0] ^ at[i]) & 255];
    return ~crc[0];
}

/* The product of two polynomials, modulo the CRC's. The highest bit is x^0. */
static uint32_t multiply(uint32_t a, uint32_t b) {
    uint32_t product = 0;
    for (uint32_t bit = 1u << 31; bit; bit >>= 1) {
        if (a & bit) product ^= b;
        b = b >> 1 ^ (b & 1 ? POLYNOMIAL : 0);
    }
    return product;
}

uint32_t wfi_crc32_shift(uint32_t crc, uint64_t n_after) {
    uint32_t power = 1u << 23; /* x^8: a byte */
    for (; n_after; n_after >>= 1) {
        if (n_after & 1) crc = multiply(crc, power);
        power = multiply(power, power);
    }
    return crc;
}
