/* The state as an image in memory: read under other plans, it continues with the same bits; damage,
 * other models and unfinished writes are refused. */
#include "small_models.h"

#include <unistd.h>

#define N_STEPS 2

static wf_trainer *make_trainer(wf_context *ctx, const char *plan, uint64_t seed,
                                wf_optimizer optimizer, int no_init) {
    wf_trainer_config config = WF_TRAINER_CONFIG_INIT;
    wf_recipe recipe =
        SMALL_RECIPE(.n_micro = 8, .n_lanes = 4, .n_threads = 1, .optimizer = optimizer,
                     .lr_schedule = WF_LR_PLATEAU, .lr_patience = 0, .seed = seed);
    config.no_init = no_init;
    wf_model *model = test_model(ctx, "small", small_net, NULL, 0);
    return test_trainer(ctx, model, &recipe, plan, &config);
}

/* The image after N_STEPS steps with dp=2, and the run's next steps. */
static char *make_image(wf_context *ctx, size_t *bytes_out, char *said, size_t bytes) {
    scoped_trainer t = make_trainer(ctx, "dp=2", 5, WF_ADAMW, 0);
    *bytes_out = wf_program_image_bytes(wf_trainer_program(t));
    char *image = calloc(1, *bytes_out);
    assert_non_null(image);
    assert_int_equal(wf_image_step(image), -1);
    for (int s = 0; s < N_STEPS; s++) {
        small_step(ctx, t, s);
        wf_trainer_evaluated(t, s); /* the second loss is larger, so the learning rate falls */
        TEST_OK(ctx, wf_trainer_write_image(t, image, *bytes_out));
        assert_int_equal(wf_image_step(image), s + 1);
    }
    assert_int_equal(wf_trainer_write_image(t, image, *bytes_out - 1), WF_SHAPE);
    small_go_on(ctx, t, N_STEPS, said, bytes);
    return image;
}

TEST(any_plan_reads) {
    static const char *const plans[] = {"", "pp=2", "dp=4,zero=1", "dp=2,pp=2", "dp=2,zero=3"};
    char want[200], said[200], path[] = "/tmp/weft-test-XXXXXX";
    size_t bytes;
    char *image = make_image(ctx, &bytes, want, sizeof want);
    close(mkstemp(path));
    for (size_t k = 0; k < sizeof plans / sizeof *plans; k++) {
        scoped_trainer t = make_trainer(ctx, plans[k], 99, WF_ADAMW, 1);
        assert_int_equal(wf_trainer_save(t, path), WF_NOT_FINITE);
        assert_int_equal(wf_trainer_write_image(t, image, bytes), WF_NOT_FINITE);
        TEST_OK(ctx, wf_trainer_read_image(t, image, bytes));
        assert_int_equal(wf_trainer_n_steps(t), N_STEPS);
        TEST_OK(ctx, wf_trainer_save(t, path));
        small_go_on(ctx, t, N_STEPS, said, sizeof said);
        if (strcmp(said, want)) fail_msg("plan '%s': '%s', not '%s'", plans[k], said, want);
    }
    unlink(path);
    free(image);
}

TEST(bad_images_are_refused) {
    char said[200];
    size_t bytes;
    char *image = make_image(ctx, &bytes, said, sizeof said);
    char *places[] = {image + 32, image + bytes / 2, image + bytes - 1}; /* 0: of the plateau */
    int64_t *words = (int64_t *)(void *)image, *hash = &words[1], *n_processes = &words[3];
    wf_trainer *t = make_trainer(ctx, "dp=2", 99, WF_ADAMW, 0);
    while (!*places[2]) places[2]--; /* there may be gaps after tensors */
    for (int k = 0; k < 3; k++) {
        char *at = places[k];
        *at = (char)(*at ^ 4);
        assert_int_equal(wf_trainer_read_image(t, image, bytes), WF_CORRUPT);
        assert_non_null(strstr(wf_context_error(ctx), "is damaged"));
        *at = (char)(*at ^ 4);
    }
    TEST_OK(ctx, wf_trainer_read_image(t, image, bytes));
    *hash ^= 1; /* of another model */
    assert_int_equal(wf_trainer_read_image(t, image, bytes), WF_CORRUPT);
    memset(image, 0, 8);
    assert_int_equal(wf_image_step(image), -1);
    assert_int_equal(wf_trainer_read_image(t, image, bytes), WF_CORRUPT);
    /* The entries of other processes have this step already, but these have not written again. */
    for (int k = 0; k < 200; k++) words[k] = N_STEPS;
    TEST_OK(ctx, wf_trainer_write_image(t, image, bytes));
    assert_int_equal(wf_image_step(image), N_STEPS);
    *n_processes = 2;
    assert_int_equal(wf_image_step(image), -1);
    wf_trainer_destroy(t);
    t = make_trainer(ctx, "", 99, WF_SGD, 0);
    assert_int_equal(wf_trainer_read_image(t, image, bytes), WF_SHAPE);
    wf_trainer_destroy(t);
    free(image);
}
