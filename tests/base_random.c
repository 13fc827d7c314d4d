/* Philox against the known answers of its authors (Random123, kat_vectors), and what
 * the numbers made from it must be.
 *
 * label: serial
 */
#include "base/random.h"
#include "test.h"

static void known_answer(void **state) {
    (void)state;
    uint32_t words[4];
    wfi_random_words((wfi_random_key){0, 0}, 0, 0, words);
    const uint32_t want[4] = {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8};
    assert_memory_equal(words, want, sizeof want);
}

static void moments(void **state) {
    (void)state;
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

static void filled_is_element_by_element(void **state) {
    (void)state;
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
static void shares(void **state) {
    (void)state;
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

static void names_and_seeds_differ(void **state) {
    (void)state;
    wfi_random_key a = {1, wfi_random_name("a")}, b = {1, wfi_random_name("b")},
                   c = {2, wfi_random_name("a")};
    assert_true(wfi_random_uniform(a, 0, 0) != wfi_random_uniform(b, 0, 0));
    assert_true(wfi_random_uniform(a, 0, 0) != wfi_random_uniform(c, 0, 0));
    assert_true(wfi_random_uniform(a, 0, 0) == wfi_random_uniform(a, 0, 0));
}

static void shuffle_is_a_permutation(void **state) {
    (void)state;
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_answer),
        cmocka_unit_test(moments),
        cmocka_unit_test(shares),
        cmocka_unit_test(filled_is_element_by_element),
        cmocka_unit_test(names_and_seeds_differ),
        cmocka_unit_test(shuffle_is_a_permutation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
