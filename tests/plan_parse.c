/* Plan strings: what is understood, and the sentence for what is not. */
#include "test.h"

#include <weft/plan.h>

static void good(void **state) {
    (void)state;
    wf_context *ctx = test_context();
    const struct {
        const char *text, *canonical;
        int n_ranks;
    } cases[] = {
        {"", "dp=1,pp=1,schedule=1f1b", 1},
        {"dp=2", "dp=2,pp=1,schedule=1f1b", 2},
        {"pp=2,schedule=gpipe", "dp=1,pp=2,schedule=gpipe", 2},
        {"schedule=1f1b,pp=3,dp=4,cut=a+b", "dp=4,pp=3,schedule=1f1b,cut=a+b", 12},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        wf_plan *plan, *again;
        TEST_OK(ctx, wf_plan_parse(ctx, cases[i].text, &plan));
        assert_string_equal(wf_plan_text(plan), cases[i].canonical);
        assert_int_equal(wf_plan_n_ranks(plan), cases[i].n_ranks);
        TEST_OK(ctx, wf_plan_parse(ctx, wf_plan_text(plan), &again));
        assert_string_equal(wf_plan_text(again), wf_plan_text(plan));
        wf_plan_destroy(plan);
        wf_plan_destroy(again);
    }
    test_context_end(ctx);
}

static void bad(void **state) {
    (void)state;
    wf_context *ctx = test_context();
    const struct {
        const char *text, *says;
    } cases[] = {
        {"dp=0", "dp='0' at position 1"},
        {"dp=-1", "dp='-1'"},
        {"dp=99999999999999999999", "whole number"},
        {"dp=2x", "dp='2x'"},
        {"pp=2,dp= 3", "position 6"},
        {"tp=2", "unknown key 'tp'"},
        {"dp", "expected key=value"},
        {"dp=2,", "expected key=value"},
        {",dp=2", "expected key=value"},
        {"dp=2,,pp=2", "expected key=value"},
        {"=2", "expected key=value"},
        {"dp=2,dp=2", "given twice"},
        {"schedule=fast", "there are naive, gpipe, 1f1b, zb1, zb2, auto"},
        {"cut=layer3", "add pp=2"},
        {"pp=2,cut=", "names no unit"},
        {"dp=2\n", "is not text"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        wf_plan *plan;
        TEST_REFUSED(ctx, wf_plan_parse(ctx, cases[i].text, &plan), WF_INVALID_ARG, cases[i].says);
    }
    test_context_end(ctx);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(good), cmocka_unit_test(bad)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
