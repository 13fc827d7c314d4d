/* Loops compiled for several instruction sets give the same bits.
 *
 * label: serial
 */
#include "optimizer/optimizer.h"
#include "test.h"

#include <stdlib.h>
#include <string.h>

#define N 1037 /* no multiple of any vector */

static float odd_number(uint64_t *state) {
    static const float special[] = {0.0f,     -0.0f, 1e-45f, -3e-39f, 1.17549435e-38f, 3e38f,
                                    -3.4e38f, 1.0f,  1e-8f,  -1e20f,  1.9999999f};
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    uint64_t r = *state >> 33;
    if (r % 16 == 0) return special[r / 16 % (sizeof special / sizeof *special)];
    return ((float)(r % 2000003) / 1000001 - 1) * (r % 3 ? 1.0f : 1e-4f);
}

typedef struct buffers {
    float param[N], gradient[N], state[WFI_MAX_STATES][N];
} buffers;

static void fill(buffers *b) {
    uint64_t seed = 7;
    for (int i = 0; i < N; i++) {
        b->param[i] = odd_number(&seed);
        b->gradient[i] = odd_number(&seed);
        b->state[0][i] = odd_number(&seed);
        b->state[1][i] = odd_number(&seed);
        if (b->state[1][i] < 0) b->state[1][i] = -b->state[1][i];
    }
}

static void update(const wf_recipe *recipe, wfi_variant variant, buffers *b) {
    fill(b);
    for (int step = 0; step < 5; step++) {
        const wfi_update u = {.recipe = recipe,
                              .lr = 0.01,
                              .step = step,
                              .scale = 0.37f,
                              .param = b->param,
                              .gradient = b->gradient,
                              .state = {b->state[0], b->state[1]},
                              .n = N};
        wfi_optimizer_of(recipe)->update(variant, &u);
    }
}

static void updates(void **state) {
    (void)state;
    static buffers start, one, other;
    int n_compared = 0;
    fill(&start);
    for (int k = 0; k < 5; k++) {
        wf_recipe r = WF_RECIPE_INIT;
        r.optimizer = k < 3 ? WF_SGD : k == 3 ? WF_ADAM : WF_ADAMW;
        r.momentum = k > 0 ? 0.9 : 0;
        r.nesterov = k == 2;
        r.weight_decay = 0.05;
        update(&r, WFI_BASELINE, &one);
        assert_memory_not_equal(one.param, start.param, sizeof one.param);
        for (int v = WFI_AVX2; v <= (int)wfi_best_variant(); v++) {
            update(&r, (wfi_variant)v, &other);
            if (memcmp(&one, &other, sizeof one))
                fail_msg("optimizer %d: %s gives other bits", k, wfi_variant_name((wfi_variant)v));
            n_compared++;
        }
    }
    print_message("%d updates compared with the baseline's, best is %s\n", n_compared,
                  wfi_variant_name(wfi_best_variant()));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(updates),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
