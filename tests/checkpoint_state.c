/* Training states that somebody has written otherwise than weft does: numbers that no run can have
 * are refused by name, and the trainer is as it was. And states that are still being written. */
#include "small_models.h"

#include "data_folder.h"
#include <math.h>
#include <sys/syscall.h>

#define MAX_TENSORS 64

static wf_trainer *make_lanes(wf_context *ctx, int64_t n_lanes) {
    wf_recipe recipe = SMALL_RECIPE(.n_threads = 1, .n_lanes = n_lanes, .optimizer = WF_ADAM);
    wf_model *model = test_model(ctx, "small", small_net, NULL, 0);
    return test_trainer(ctx, model, &recipe, "", NULL);
}

static wf_trainer *make_trainer(wf_context *ctx) {
    return make_lanes(ctx, small_recipe().n_lanes);
}

/* Writes the state "good" again as "bad", with another number of steps or, if `name` is given,
 * with `value` as that tensor's element `i`. */
static void rewrite(folder *f, const char *steps, const char *name, int i, float value) {
    scoped_safetensors file;
    wf_tensor_data tensors[MAX_TENSORS];
    const wf_metadata notes = {"weft.n_steps", steps};
    TEST_OK(f->ctx, wf_safetensors_open(f->ctx, folder_file(f, "good"), &file));
    int n = wf_safetensors_n_tensors(file), n_changed = 0;
    assert_in_range(n, 1, MAX_TENSORS);
    for (int k = 0; k < n; k++) {
        const wf_safetensors_entry *e = wf_safetensors_get(file, k);
        char *data = malloc(e->n_bytes);
        assert_non_null(data);
        TEST_OK(f->ctx, wf_safetensors_read(file, k, data, e->n_bytes));
        if (name && !strcmp(e->name, name)) {
            memcpy(data + (size_t)i * sizeof value, &value, sizeof value);
            n_changed++;
        }
        tensors[k] = (wf_tensor_data){e->name, e->dtype, {e->n_dims, {0}}, data};
        for (int d = 0; d < e->n_dims; d++) tensors[k].shape.dim[d] = e->dim[d];
    }
    assert_int_equal(n_changed, name != NULL);
    TEST_OK(f->ctx,
            wf_safetensors_write(f->ctx, folder_file(f, "bad"), tensors, n, &notes, steps ? 1 : 0));
    for (int k = 0; k < n; k++) free((void *)(uintptr_t)tensors[k].data);
}

TEST_IN_FOLDER(numbers_out_of_range) {
    static const struct {
        const char *steps, *name, *sentence;
        float value;
        int i;
    } cases[] = {
        {NULL, NULL, "it does not record the number of steps", 0, 0},
        {"", NULL, "its weft.n_steps is ''", 0, 0},
        {"-1", NULL, "its weft.n_steps is '-1'", 0, 0},
        {" 1", NULL, "its weft.n_steps is ' 1'", 0, 0},
        {"+1", NULL, "its weft.n_steps is '+1'", 0, 0},
        {"1x", NULL, "its weft.n_steps is '1x'", 0, 0},
        {"1.5", NULL, "its weft.n_steps is '1.5'", 0, 0},
        {"0x10", NULL, "its weft.n_steps is '0x10'", 0, 0},
        {"9007199254740993", NULL, "not a number of steps from 0 to 9007199254740992", 0, 0},
        {"9223372036854775807", NULL, "not a number of steps from 0 to 9007199254740992", 0, 0},
        {"99999999999999999999999", NULL, "'99999999999999999999999', which is not a number", 0, 0},
        {"\033[31m1", NULL, "[31m1', which is not a number", 0, 0},
        {"1", "fc.weight", "element 5 of fc.weight is nan", NAN, 5},
        {"1", "fc.bias", "element 2 of fc.bias is inf", INFINITY, 2},
        {"1", "optimizer.first_moment.fc.weight",
         "element 0 of optimizer.first_moment.fc.weight is -inf", -INFINITY, 0},
        {"1", "optimizer.second_moment.fc.bias",
         "element 1 of optimizer.second_moment.fc.bias is nan", NAN, 1},
        {"1", "optimizer.second_moment.fc.weight",
         "element 3 of optimizer.second_moment.fc.weight is -1e-30", -1e-30f, 3},
    };
    char before[65], after[65];
    scoped_trainer t = make_trainer(f->ctx);
    small_step(f->ctx, t, 0);
    wf_metadata note = {"where", "here"};
    char *noted;
    TEST_OK(f->ctx, wf_trainer_save_state(t, folder_file(f, "good"), &note, 1));
    TEST_OK(f->ctx, wf_trainer_state_metadata(f->ctx, f->file, "where", &noted));
    assert_string_equal(noted, "here");
    wf_text_free(f->ctx, noted);
    TEST_OK(f->ctx, wf_trainer_weights_sha256(t, before));
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        rewrite(f, cases[k].steps, cases[k].name, cases[k].i, cases[k].value);
        wf_status status = wf_trainer_load_state(t, folder_file(f, "bad"));
        expect_failure(f->ctx, status, WF_CORRUPT, cases[k].sentence);
        expect_sentence(f->ctx, f->file);
        assert_null(strchr(wf_context_error(f->ctx), '\033'));
        assert_int_equal(wf_trainer_n_steps(t), 1);
    }
    TEST_OK(f->ctx, wf_trainer_weights_sha256(t, after));
    assert_string_equal(before, after);
    rewrite(f, "9007199254740992", NULL, 0, 0);
    TEST_OK(f->ctx, wf_trainer_load_state(t, folder_file(f, "bad")));
}

/* A load finds what this trainer has saved, also where a thread is still writing it. */
TEST_IN_FOLDER(loads_what_is_being_saved) {
    const char *path = folder_file(f, "meanwhile");
    wf_trainer_config config = WF_TRAINER_CONFIG_INIT;
    wf_recipe recipe = SMALL_RECIPE(.n_threads = 1);
    char saved[65], loaded[65];
    config.save_async = 1;
    wf_model *model = test_model(f->ctx, "small", small_net, NULL, 0);
    scoped_trainer t = test_trainer(f->ctx, model, &recipe, "", &config);
    for (int round = 0; round < 4; round++) {
        small_step(f->ctx, t, round);
        TEST_OK(f->ctx, wf_trainer_weights_sha256(t, saved));
        TEST_OK(f->ctx,
                round % 2 ? wf_trainer_save(t, path) : wf_trainer_save_state(t, path, NULL, 0));
        TEST_OK(f->ctx,
                round % 2 ? wf_trainer_load_weights(t, path) : wf_trainer_load_state(t, path));
        TEST_OK(f->ctx, wf_trainer_weights_sha256(t, loaded));
        assert_string_equal(loaded, saved);
    }
}

/* PyTorch's ReduceLROnPlateau begins with an infinite loss, to which the first is compared: so one
 * that is no number is not the best for ever. Also where a state is saved in between. */
TEST_IN_FOLDER(plateau_after_no_number) {
    static const double losses[] = {NAN, NAN, 3, 2, NAN, 1, 4, 1};
    static const double n_cuts[2][8] = {{1, 2, 2, 2, 3, 3, 4, 5}, {0, 1, 1, 1, 1, 1, 1, 2}};
    for (int patience = 0; patience < 2; patience++) {
        wf_recipe recipe = SMALL_RECIPE(.n_threads = 1, .lr_schedule = WF_LR_PLATEAU, .lr = 1,
                                        .lr_gamma = 0.5, .lr_patience = patience);
        scoped_trainer t = small_trainer(f->ctx, small_net, &recipe, 0);
        for (size_t k = 0; k < sizeof losses / sizeof *losses; k++) {
            small_batch b;
            wf_step_result result;
            wf_trainer_evaluated(t, losses[k]);
            TEST_OK(f->ctx, wf_trainer_save_state(t, folder_file(f, "plateau"), NULL, 0));
            TEST_OK(f->ctx, wf_trainer_load_state(t, folder_file(f, "plateau")));
            small_batch_fill(&b, 0);
            const wf_feed feeds[] = {{"x", b.x, sizeof b.x}, {"y", b.y, sizeof b.y}};
            TEST_OK(f->ctx, wf_trainer_step(t, feeds, 2, SMALL_BATCH, &result));
            if (result.lr != exp2(-n_cuts[patience][k]))
                fail_msg("patience %d, test %zu: the rate is %g, not %g", patience, k + 1,
                         result.lr, exp2(-n_cuts[patience][k]));
        }
    }
}

/* A recipe that leaves lanes to the plan has others under another plan, and so other bits. */
TEST_IN_FOLDER(other_sums) {
    const char *path = folder_file(f, "one");
    char before[65], after[65];
    scoped_trainer one = make_lanes(f->ctx, 1);
    scoped_trainer two = make_lanes(f->ctx, 2);
    small_step(f->ctx, one, 0);
    TEST_OK(f->ctx, wf_trainer_save_state(one, path, NULL, 0));
    TEST_OK(f->ctx, wf_trainer_weights_sha256(two, before));
    expect_failure(f->ctx, wf_trainer_load_state(two, path), WF_INVALID_ARG,
                   "lanes=1,slices=1 in its recipe");
    TEST_OK(f->ctx, wf_trainer_weights_sha256(two, after));
    assert_string_equal(before, after);
    TEST_OK(f->ctx, wf_trainer_load_state(one, path));
}

/* ---- a bit that has flipped on the disk ---- */

/* Flips the lowest bit of that byte of the file; twice: it is as it was. */
static void flip(const char *path, uint64_t at) {
    FILE *stream = fopen(path, "r+b");
    assert_non_null(stream);
    assert_int_equal(fseek(stream, (long)at, SEEK_SET), 0);
    int byte = fgetc(stream);
    assert_int_not_equal(byte, EOF);
    assert_int_equal(fseek(stream, (long)at, SEEK_SET), 0);
    assert_int_equal(fputc(byte ^ 1, stream), byte ^ 1);
    assert_int_equal(fclose(stream), 0);
}

/* Exchanges four bytes of the file. */
static void exchange(const char *path, uint64_t at, unsigned char bytes[4]) {
    unsigned char held[4];
    FILE *stream = fopen(path, "r+b");
    assert_non_null(stream);
    assert_int_equal(fseek(stream, (long)at, SEEK_SET), 0);
    assert_int_equal(fread(held, 1, 4, stream), 4);
    assert_int_equal(fseek(stream, (long)at, SEEK_SET), 0);
    assert_int_equal(fwrite(bytes, 1, 4, stream), 4);
    assert_int_equal(fclose(stream), 0);
    memcpy(bytes, held, 4);
}

/* In each tensor, in its first, middle and last element: the least that can change in it, and what
 * makes it no number. */
TEST_IN_FOLDER(flipped_bits) {
    const char *path = folder_file(f, "flipped");
    char before[65], after[65], data[16384];
    uint8_t prefix[8];
    wf_safetensors *file;
    const wf_metadata own = {"weft.crc32.fc.bias", "00000000"};
    scoped_trainer t = make_trainer(f->ctx);
    small_step(f->ctx, t, 0);
    expect_failure(f->ctx, wf_trainer_save_state(t, path, &own, 1), WF_INVALID_ARG,
                   "weft.crc32.fc.bias is a digest");
    TEST_OK(f->ctx, wf_trainer_save_state(t, path, NULL, 0));
    TEST_OK(f->ctx, wf_trainer_weights_sha256(t, before));
    TEST_OK(f->ctx, wf_safetensors_open(f->ctx, path, &file));
    FILE *stream = fopen(path, "rb");
    assert_non_null(stream);
    assert_int_equal(fread(prefix, 1, sizeof prefix, stream), sizeof prefix);
    assert_int_equal(fclose(stream), 0);
    uint64_t data_start = sizeof prefix + (uint64_t)prefix[0] + ((uint64_t)prefix[1] << 8);
    for (int k = 0; k < wf_safetensors_n_tensors(file); k++)
        for (uint64_t third = 0; third < 3; third++) {
            const wf_safetensors_entry *e = wf_safetensors_get(file, k);
            uint64_t element = (e->n_bytes / 4 - 1) * third / 2;
            char sentence[200];
            snprintf(sentence, sizeof sentence, "tensor %s is damaged", e->name);
            flip(path, data_start + e->offset + 4 * element);
            expect_failure(f->ctx, wf_trainer_load_state(t, path), WF_CORRUPT, sentence);
            assert_in_range(e->n_bytes, 4, sizeof data);
            expect_failure(f->ctx, wf_safetensors_read(file, k, data, e->n_bytes), WF_CORRUPT,
                           sentence);
            flip(path, data_start + e->offset + 4 * element);
            unsigned char bytes[4] = {0, 0, 0xC0, 0x7F};
            exchange(path, data_start + e->offset + 4 * element, bytes);
            expect_failure(f->ctx, wf_trainer_load_state(t, path), WF_CORRUPT, sentence);
            exchange(path, data_start + e->offset + 4 * element, bytes);
        }
    wf_safetensors_close(file);
    TEST_OK(f->ctx, wf_trainer_weights_sha256(t, after));
    assert_string_equal(before, after);
    TEST_OK(f->ctx, wf_trainer_load_state(t, path));
}

/* Each bit of the header counts; only in the name of its own digest a flip does no harm. */
TEST_IN_FOLDER(flipped_bits_of_the_header) {
    const char *path = folder_file(f, "flipped");
    const wf_metadata about = {"sample", "128"};
    wf_safetensors *file;
    scoped_trainer t = make_trainer(f->ctx);
    char head[4096] = {0};
    small_step(f->ctx, t, 0);
    TEST_OK(f->ctx, wf_trainer_save_state(t, path, &about, 1));
    FILE *stream = fopen(path, "rb");
    assert_non_null(stream);
    assert_true(fread(head, 1, sizeof head - 1, stream) > 8);
    assert_int_equal(fclose(stream), 0);
    size_t n = (size_t)(uint8_t)head[0] + ((size_t)(uint8_t)head[1] << 8);
    const char *name = strstr(head + 8, "weft.crc32\"");
    assert_non_null(name);
    for (size_t at = 8; at < 8 + n; at++) {
        flip(path, at);
        wf_status status = wf_safetensors_open(f->ctx, path, &file);
        flip(path, at);
        if (status == WF_OK) wf_safetensors_close(file);
        bool is_harmless = head + at >= name && head + at < name + strlen("weft.crc32");
        if ((status == WF_OK) != is_harmless) fail_msg("byte %zu: status %d", at, (int)status);
    }
}

/* ---- a file that breaks off ---- */

static int n_reads = INT32_MAX; /* before every file seems to end */
static int n_read;

/* In the C library's place, also for the library under test. */
ssize_t pread(int fd, void *dst, size_t n_bytes, off_t offset) {
    if (n_read++ >= n_reads) return 0;
    return syscall(SYS_pread64, fd, dst, n_bytes, offset);
}

/* Whichever read it is that fails: until the first bytes are moved the trainer is as it was, and
 * from then on nothing of it is saved before a whole state is loaded. */
TEST_IN_FOLDER(a_file_that_breaks_off) {
    char before[65], good[65], now[65];
    int n_all, n_whole = 0, n_spoiled = 0;
    scoped_trainer t = make_trainer(f->ctx);
    small_step(f->ctx, t, 0);
    TEST_OK(f->ctx, wf_trainer_save_state(t, folder_file(f, "good"), NULL, 0));
    TEST_OK(f->ctx, wf_trainer_weights_sha256(t, good));
    small_step(f->ctx, t, 1);
    TEST_OK(f->ctx, wf_trainer_save_state(t, folder_file(f, "before"), NULL, 0));
    TEST_OK(f->ctx, wf_trainer_weights_sha256(t, before));
    n_read = 0;
    TEST_OK(f->ctx, wf_trainer_load_state(t, folder_file(f, "good")));
    n_all = n_read;
    assert_true(n_all > 20);
    for (n_reads = 0; n_reads < n_all; n_reads++) {
        int n = n_reads;
        n_reads = INT32_MAX;
        TEST_OK(f->ctx, wf_trainer_load_state(t, folder_file(f, "before")));
        n_reads = n;
        n_read = 0;
        assert_int_not_equal(wf_trainer_load_state(t, folder_file(f, "good")), WF_OK);
        wf_status status = wf_trainer_save(t, folder_file(f, "saved"));
        if (status == WF_OK) {
            TEST_OK(f->ctx, wf_trainer_weights_sha256(t, now));
            assert_string_equal(now, before);
            assert_int_equal(n_spoiled, 0);
            n_whole++;
        } else {
            expect_failure(f->ctx, status, WF_NOT_FINITE, "loading a file was interrupted");
            status = wf_trainer_save_state(t, folder_file(f, "saved"), NULL, 0);
            expect_failure(f->ctx, status, WF_NOT_FINITE, "loading a file was interrupted");
            n_spoiled++;
        }
    }
    assert_true(n_whole > 10 && n_spoiled > 10);
    /* Weights alone replace not all of it. */
    n_reads = INT32_MAX;
    TEST_OK(f->ctx, wf_trainer_load_weights(t, folder_file(f, "saved")));
    expect_failure(f->ctx, wf_trainer_save(t, folder_file(f, "saved")), WF_NOT_FINITE,
                   "was interrupted");
    TEST_OK(f->ctx, wf_trainer_load_state(t, folder_file(f, "good")));
    TEST_OK(f->ctx, wf_trainer_save(t, folder_file(f, "saved")));
    TEST_OK(f->ctx, wf_trainer_weights_sha256(t, now));
    assert_string_equal(now, good);
}

int main(void) {
    return test_run(NULL, NULL);
}
