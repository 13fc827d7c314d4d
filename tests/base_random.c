/* Philox against the known answers of its authors (Random123, kat_vectors), and what
 * the numbers made from it must be.
 *
 * label: serial
 */
#include "base/random.h"
#include "test.h"

/* The key that is folded into these two words. */
static wfi_random_key key_of(uint32_t k0, uint32_t k1) {
    uint64_t folded = (uint64_t)k1 << 32 | k0;
    return (wfi_random_key){.seed = folded ^ folded >> 31 ^ folded >> 62};
}

TEST_CASE(known_answers) {
    static const struct {
        uint32_t counter[4], key[2], want[4];
    } vectors[] = {/* philox4x32 10 */
                   {{0}, {0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
                   {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
                    {0xffffffff, 0xffffffff},
                    {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
                   {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
                    {0xa4093822, 0x299f31d0},
                    {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}}};
    for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++) {
        const uint32_t *counter = vectors[i].counter, *key = vectors[i].key;
        uint32_t words[4];
        wfi_random_words(key_of(key[0], key[1]), (uint64_t)counter[3] << 32 | counter[2],
                         (uint64_t)counter[1] << 32 | counter[0], words);
        assert_memory_equal(words, vectors[i].want, sizeof words);
    }
}

TEST_CASE(moments) {
    wfi_random_key key = {7, wfi_random_name("fc.weight")};
    double sum = 0, squares = 0, uniform = 0;
    int n = 100000;
    for (int i = 0; i < n; i++) {
        double x = wfi_random_normal(key, 0, (uint64_t)i),
               u = wfi_random_uniform(key, 1, (uint64_t)i);
        assert_true(u >= 0 && u < 1);
        sum += x;
        squares += x * x;
        uniform += u;
    }
    assert_true(sum / n > -0.02 && sum / n < 0.02);
    assert_true(squares / n > 0.98 && squares / n < 1.02);
    assert_true(uniform / n > 0.49 && uniform / n < 0.51);
}

TEST_CASE(filled_is_element_by_element) {
    wfi_random_key key = {9, wfi_random_name("x")};
    float filled[37];
    for (uint64_t first = 0; first < 6; first++) {
        wfi_random_fill_normal(key, 2, first, 0.5f, 37, filled);
        for (int i = 0; i < 37; i++)
            assert_true(filled[i] == 0.5f * wfi_random_normal(key, 2, (uint64_t)i + first));
    }
    wfi_random_fill_uniform(key, 2, 3, 37, filled);
    for (int i = 0; i < 37; i++)
        assert_true(filled[i] == wfi_random_uniform(key, 2, (uint64_t)i + 3));
}

/* Mean and variance of Beta(a, a), also where its gamma variates are too small for any type. */
TEST_CASE(shares) {
    static const double alphas[] = {0.001, 0.2, 1, 3.5, 1000};
    wfi_random_key key = {7, wfi_random_name("share")};
    for (int k = 0; k < 5; k++) {
        double sum = 0, squares = 0, a = alphas[k], want = 1 / (4 * (2 * a + 1));
        int n = 20000;
        for (int i = 0; i < n; i++) {
            double x = wfi_random_beta(key, (uint64_t)i, a);
            assert_true(x >= 0 && x <= 1);
            sum += x - 0.5;
            squares += (x - 0.5) * (x - 0.5);
        }
        assert_true(sum / n > -0.015 && sum / n < 0.015);
        if (!(squares / n > 0.97 * want && squares / n < 1.03 * want))
            fail_msg("alpha %g: variance %g, not %g", a, squares / n, want);
    }
}

TEST_CASE(names_and_seeds_differ) {
    wfi_random_key a = {1, wfi_random_name("a")}, b = {1, wfi_random_name("b")},
                   c = {2, wfi_random_name("a")};
    assert_true(wfi_random_uniform(a, 0, 0) != wfi_random_uniform(b, 0, 0));
    assert_true(wfi_random_uniform(a, 0, 0) != wfi_random_uniform(c, 0, 0));
    assert_true(wfi_random_uniform(a, 0, 0) == wfi_random_uniform(a, 0, 0));
}

TEST_CASE(shuffle_is_a_permutation) {
    int64_t order[1000];
    int seen[1000] = {0}, n_moved = 0;
    wfi_random_shuffle((wfi_random_key){3, 4}, 5, 1000, order);
    for (int i = 0; i < 1000; i++) {
        seen[order[i]]++;
        n_moved += order[i] != i;
    }
    for (int i = 0; i < 1000; i++) assert_int_equal(seen[i], 1);
    assert_true(n_moved > 950);
}
