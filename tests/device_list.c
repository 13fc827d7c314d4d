/* Lists of devices as users type them. */
#include "run/worker.h"
#include "test.h"

static wfi_device_list list;

static void good(void **state) {
    (void)state;
    wf_context *ctx = test_context();
    const struct {
        const char *text;
        int n, n_places, first, last;
    } cases[] = {
        {"cpu", 1, 1, 0, 0},         {"cpu:1", 1, 1, 0, 0},       {"cpu:4", 4, 4, 0, 3},
        {"cpu:0,cpu:1", 2, 2, 0, 1}, {"cpu:1,cpu:0", 2, 2, 1, 0}, {"cpu:0,cpu:0", 2, 1, 0, 0},
        {"cpu,cpu,cpu", 3, 3, 0, 2}, {"cpu:2,cpu:5", 2, 6, 2, 5},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        TEST_OK(ctx, wfi_devices_parse(ctx, cases[i].text, &list));
        assert_string_equal(list.kind, "cpu");
        assert_int_equal(list.n, cases[i].n);
        assert_int_equal(list.n_places, cases[i].n_places);
        assert_int_equal(list.place[0], cases[i].first);
        assert_int_equal(list.place[list.n - 1], cases[i].last);
    }
    test_context_end(ctx);
}

static void bad(void **state) {
    (void)state;
    wf_context *ctx = test_context();
    const struct {
        const char *text;
        wf_status status;
        const char *says;
    } cases[] = {
        {"", WF_INVALID_ARG, "expected a kind"},
        {":2", WF_INVALID_ARG, "expected a kind"},
        {"averyveryverylongkind:1", WF_INVALID_ARG, "expected a kind"},
        {"cpu:", WF_INVALID_ARG, "expected KIND:N"},
        {"cpu:x", WF_INVALID_ARG, "expected KIND:N"},
        {"cpu:-1", WF_INVALID_ARG, "expected KIND:N"},
        {"cpu:99999999999999999999", WF_INVALID_ARG, "expected KIND:N"},
        {"cpu:0", WF_INVALID_ARG, "no device"},
        {"cpu:0,", WF_INVALID_ARG, "expected KIND:N"},
        {"cpu:0,,cpu:1", WF_UNSUPPORTED, "different kinds"},
        {"cpu:0,gpu:1", WF_UNSUPPORTED, "different kinds"},
        {"cpu:0,cpux:1", WF_UNSUPPORTED, "different kinds"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        TEST_REFUSED(ctx, wfi_devices_parse(ctx, cases[i].text, &list), cases[i].status,
                     cases[i].says);
    test_context_end(ctx);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(good), cmocka_unit_test(bad)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
