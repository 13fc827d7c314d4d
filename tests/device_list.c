/* Lists of devices as users type them.
 *
 * label: serial
 */
#include "execute/worker.h"
#include "small_models.h"

static wfi_device_list list;

TEST(good) {
    const struct {
        const char *text;
        int n, n_places, first, last;
    } cases[] = {
        {"cpu", 1, 1, 0, 0},         {"cpu:1", 1, 1, 0, 0},       {"cpu:4", 4, 4, 0, 3},
        {"cpu:0,cpu:1", 2, 2, 0, 1}, {"cpu:1,cpu:0", 2, 2, 1, 0}, {"cpu:0,cpu:0", 2, 1, 0, 0},
        {"cpu,cpu,cpu", 3, 3, 0, 2}, {"cpu:2,cpu:5", 2, 6, 2, 5}, {"cpu:3,", 1, 4, 3, 3},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        TEST_OK(ctx, wfi_devices_parse(ctx, cases[i].text, 1, &list));
        assert_string_equal(wfi_device_kind_of(&list, 0)->name, "cpu");
        assert_int_equal(list.n, cases[i].n);
        assert_int_equal(list.n_places, cases[i].n_places);
        assert_int_equal(list.place[0], cases[i].first);
        assert_int_equal(list.place[list.n - 1], cases[i].last);
    }
}

TEST(bad) {
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
        {"cpu:99999999999999999999", WF_INVALID_ARG, "there are at most"},
        {"cpu:0", WF_INVALID_ARG, "the number counts devices; cpu:1 is one device"},
        {"cpu:0,cpu:1,", WF_INVALID_ARG, "expected KIND:N"},
        {"cpu:0,,cpu:1", WF_INVALID_ARG, "expected a kind"},
        {"cpu:0,gpu:1", WF_INVALID_ARG, "expected a kind"},
        {"cpu:0,cpux:1", WF_INVALID_ARG, "expected a kind"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        TEST_REFUSED(ctx, wfi_devices_parse(ctx, cases[i].text, 1, &list), cases[i].status,
                     cases[i].says);
}

TEST(names) {
    char name[WF_DEVICE_NAME_BYTES];
    TEST_OK(ctx, wf_devices_name(ctx, "cpu:3", 2, name));
    assert_string_equal(name, "cpu:2");
    TEST_OK(ctx, wf_devices_name(ctx, "cpu:4,cpu:1,cpu:4", 2, name));
    assert_string_equal(name, "cpu:4");
    TEST_REFUSED(ctx, wf_devices_name(ctx, "cpu:3", 3, name), WF_INVALID_ARG, "no rank 3");
    TEST_REFUSED(ctx, wf_devices_name(ctx, "cpu:3", -1, name), WF_INVALID_ARG, "no rank -1");
    TEST_REFUSED(ctx, wf_devices_name(ctx, "cpu:x", 0, name), WF_INVALID_ARG, "KIND:N");
}

/* Ranks that share a device have the bits of ranks that do not, and of one. */
TEST(shared) {
    static const char *const devices[] = {"cpu:0,cpu:0,cpu:0,cpu:0", "cpu:0,cpu:1,cpu:0,cpu:1",
                                          "cpu:3,cpu:0,cpu:3,cpu:1"};
    wf_recipe recipe = SMALL_RECIPE(.n_micro = 4, .n_lanes = 2);
    char want[65], sha[65];
    wf_trainer *one = planned_trainer(ctx, small_net, &recipe, "", "cpu", 0);
    for (int s = 0; s < 2; s++) small_step(ctx, one, s);
    TEST_OK(ctx, wf_trainer_weights_sha256(one, want));
    wf_trainer_destroy(one);
    for (size_t k = 0; k < sizeof devices / sizeof *devices; k++) {
        scoped_trainer t = planned_trainer(ctx, small_net, &recipe, "dp=2,pp=2", devices[k], 0);
        for (int s = 0; s < 2; s++) small_step(ctx, t, s);
        TEST_OK(ctx, wf_trainer_weights_sha256(t, sha));
        assert_string_equal(sha, want);
    }
    wf_trainer *none;
    wf_trainer_config config = WF_TRAINER_CONFIG_INIT;
    config.devices = "cpu:0,null:0,cpu:0,null:0";
    scoped_plan plan = test_plan(ctx, "dp=2,pp=2");
    scoped_model model = test_model(ctx, "small", small_net, NULL, 0);
    TEST_REFUSED(ctx, wf_trainer_create(ctx, model, &recipe, plan, &config, &none), WF_UNSUPPORTED,
                 "the null device has no memory");
}
