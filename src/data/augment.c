#include "data/augment.h"
#include "base/base.h"
#include "base/random.h"

/* Uniform over [-max, max]: the high part of a 32 x 32 bit product. */
static int64_t shift_from(uint32_t word, int64_t max) {
    return (int64_t)((uint64_t)word * (uint64_t)(2 * max + 1) >> 32) - max;
}

wfi_augment wfi_augment_make(uint64_t seed, int64_t epoch, int64_t sample, int64_t max_shift,
                             bool may_flip) {
    uint32_t words[4];
    wfi_random_key key = {seed, wfi_random_name("augment")};
    wfi_random_words(key, (uint64_t)epoch, (uint64_t)sample, words);
    return (wfi_augment){shift_from(words[0], max_shift), shift_from(words[1], max_shift),
                         may_flip && words[2] >> 31};
}

void wfi_augment_apply(wfi_augment change, const uint8_t *src, int64_t height, int64_t width,
                       const float value_of[256], float *dst) {
    /* Along a row the source goes from `start` by `step`; [first, last) lies inside it. */
    int64_t step = change.flip ? -1 : 1;
    int64_t start = change.right + (change.flip ? width - 1 : 0);
    int64_t outside = change.right < 0 ? -change.right : change.right;
    outside = wfi_min_i64(outside, width);
    bool black_first = change.flip ? change.right > 0 : change.right < 0;
    int64_t first = black_first ? outside : 0, last = black_first ? width : width - outside;
    float black = value_of[0];
    for (int64_t y = 0; y < height; y++, dst += width) {
        int64_t from = y + change.down;
        if (from < 0 || from >= height) {
            for (int64_t x = 0; x < width; x++) dst[x] = black;
            continue;
        }
        const uint8_t *row = src + from * width;
        for (int64_t x = 0; x < first; x++) dst[x] = black;
        for (int64_t x = first; x < last; x++) dst[x] = value_of[row[start + x * step]];
        for (int64_t x = last; x < width; x++) dst[x] = black;
    }
}
