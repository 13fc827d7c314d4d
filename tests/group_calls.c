#include "group_ranks.h"
static const char *body(ranks_one *one) {
    float *x;
    RANKS_TRY(one, wf_group_alloc(one->group, 100000 * 4, (void **)&x));
    for (int i = 0; i < 100000; i++) x[i] = i + one->rank;
    RANKS_TRY(one, wf_all_reduce(one->group, x, x, 100000, WF_F32, WF_SUM, NULL));
    for (int i = 0; i < 100000; i++) {
        float want = (float)one->n * i + one->n * (one->n - 1) / 2;
        if (x[i] != want) return ranks_text("%d: %g %g", i, x[i], want);
    }
    float *y = malloc(4000000);
    for (int i = 0; i < 1000000; i++) y[i] = i % 1000 + one->rank;
    RANKS_TRY(one, wf_all_reduce(one->group, y, y, 1000000, WF_F32, WF_SUM, NULL));
    for (int i = 0; i < 1000000; i++) {
        float want = (float)one->n * (i % 1000) + one->n * (one->n - 1) / 2;
        if (y[i] != want) return ranks_text("plain %d: %g %g", i, y[i], want);
    }
    free(y);
    RANKS_TRY(one, wf_barrier(one->group, NULL));
    RANKS_TRY(one, wf_broadcast(one->group, x, x, 100000, WF_F32, 0, NULL));
    wf_group_free(one->group, x);
    return NULL;
}
static void t(void **s) {
    (void)s;
    for (int n = 1; n < 6; n++) {
        ranks_threads(n, NULL, body, NULL);
        ranks_processes(n, NULL, body, NULL, 0);
    }
}
int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(t)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
