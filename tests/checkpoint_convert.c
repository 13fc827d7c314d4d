/* Files written again in another type: numbers to the nearest, ties to even, against the compiler's
 * own halves and against arithmetic; shards and back; what is too large or damaged leaves the old
 * file.
 *
 * label: serial
 */
#include "base/random.h"
#include "data_folder.h"
#include "state/header.h"
#include "test.h"

#include <math.h>

static uint16_t short_of(const char *type, float value, bool *fits_out) {
    uint16_t out;
    *fits_out = wfi_convert_to(type, &value, 1, &out) == 1;
    return out;
}

static float float_of(const char *type, uint16_t bits) {
    float value;
    wfi_convert(type, &bits, 1, &value);
    return value;
}

/* ---- numbers ---- */

/* Everything that a short can be comes back, with its sign. */
TEST_CASE(shorts_stay) {
    static const char *const types[] = {"F16", "BF16"};
    for (int t = 0; t < 2; t++)
        for (uint32_t k = 0; k < 65536; k++) {
            bool fits;
            float value = float_of(types[t], (uint16_t)k);
            uint16_t again = short_of(types[t], value, &fits);
            assert_true(fits);
            if (isnan(value))
                assert_true(isnan(float_of(types[t], again)));
            else
                assert_int_equal(again, k);
        }
}

/* Halfway between two neighbours it is the even one; a little off, the nearer one. */
TEST_CASE(ties_to_even) {
    static const char *const types[] = {"F16", "BF16"};
    for (int t = 0; t < 2; t++)
        for (uint32_t k = 0; k < (t ? 0x7F7Fu : 0x7BFFu); k++) {
            bool fits;
            float low = float_of(types[t], (uint16_t)k),
                  high = float_of(types[t], (uint16_t)(k + 1));
            float middle = (float)(((double)low + high) / 2);
            if (middle == low || middle == high) continue; /* of the smallest bfloats */
            assert_int_equal(short_of(types[t], middle, &fits), k + (k & 1));
            assert_int_equal(short_of(types[t], nextafterf(middle, 0), &fits), k);
            assert_int_equal(short_of(types[t], nextafterf(middle, INFINITY), &fits), k + 1);
            assert_int_equal(short_of(types[t], -middle, &fits), (k + (k & 1)) | 0x8000);
        }
}

#ifdef __FLT16_MAX__
TEST_CASE(as_the_compiler) {
    wfi_random_key key = {3, 4};
    for (uint64_t i = 0; i < 400000; i++) {
        uint32_t words[4];
        float value;
        bool fits;
        wfi_random_words(key, 0, i, words);
        memcpy(&value, words, sizeof value);
        _Float16 half = (_Float16)value;
        uint16_t want, got = short_of("F16", value, &fits);
        memcpy(&want, &half, sizeof want);
        if (isnan(value)) continue;
        assert_int_equal(got, want);
        assert_int_equal(fits, isinf(value) || !isinf((float)half));
    }
}
#endif

TEST_CASE(too_large) {
    bool fits;
    assert_int_equal(short_of("F16", nextafterf(65520, 0), &fits), 0x7BFF);
    assert_true(fits);
    short_of("F16", 65520, &fits);
    assert_false(fits);
    short_of("F16", -1e30f, &fits);
    assert_false(fits);
    assert_int_equal(short_of("F16", INFINITY, &fits), 0x7C00);
    assert_true(fits);
    short_of("BF16", 3.4e38f, &fits);
    assert_false(fits);
    short_of("BF16", 3.38e38f, &fits);
    assert_true(fits);
}

/* ---- files ---- */

enum { N_LARGE = 300000 }; /* more than is converted at a time */

static void write_weights(folder *f, const char *name, float first) {
    static float large[N_LARGE];
    static const double twice[] = {0.1, -1e-300, 3};
    static const int64_t count = 7;
    static const wf_metadata metadata = {"format", "pt"};
    wfi_random_key key = {5, 6};
    wfi_random_fill_normal(key, 0, 0, 1, N_LARGE, large);
    large[0] = first;
    const wf_tensor_data tensors[] = {{"large", WF_F32, {2, {3, N_LARGE / 3}}, large},
                                      {"twice", WF_F64, {1, {3}}, twice},
                                      {"count", WF_I64, {0, {0}}, &count},
                                      {"none", WF_F32, {1, {0}}, NULL}};
    TEST_OK(f->ctx, wf_safetensors_write(f->ctx, folder_file(f, name), tensors, 4, &metadata, 1));
}

static wf_status convert(folder *f, const char *from, const char *to, const char *dtype,
                         uint64_t shard_bytes, uint64_t *n_bytes_out) {
    wf_convert_config config = WF_CONVERT_CONFIG_INIT;
    char path[400];
    int n;
    snprintf(path, sizeof path, "%s", folder_file(f, from));
    config.dtype = dtype;
    config.shard_bytes = shard_bytes;
    wf_status status =
        wf_safetensors_convert(f->ctx, path, folder_file(f, to), &config, &n, n_bytes_out);
    if (status == WF_OK) assert_int_equal(n, 4);
    return status;
}

/* Every float of tensor `name`, read as F32. */
static float *read_floats(folder *f, const char *file_name, const char *name, size_t n) {
    scoped_safetensors file;
    float *values = malloc(n * sizeof *values);
    TEST_OK(f->ctx, wf_safetensors_open(f->ctx, folder_file(f, file_name), &file));
    int i = wf_safetensors_find(file, name);
    assert_true(i >= 0);
    TEST_OK(f->ctx,
            wfi_safetensors_read_part(file, i, WF_F32, 0, values, n * sizeof *values, NULL));
    assert_string_equal(wf_safetensors_metadata(file, "format"), "pt");
    return values;
}

TEST_IN_FOLDER(files) {
    static const struct {
        const char *dtype, *type;
        uint64_t n_bytes;
    } kinds[] = {{"f16", "F16", 2 * N_LARGE + 6 + 8},
                 {"bf16", "BF16", 2 * N_LARGE + 6 + 8},
                 {"f32", NULL, 4 * N_LARGE + 12 + 8},
                 {NULL, NULL, 4 * N_LARGE + 24 + 8}};
    write_weights(f, "w.safetensors", 2.5f);
    float *want = read_floats(f, "w.safetensors", "large", N_LARGE);
    for (size_t k = 0; k < WFI_COUNT(kinds); k++)
        for (int is_divided = 0; is_divided < 2; is_divided++) {
            uint64_t n_bytes, shard = is_divided ? 100000 : 0;
            TEST_OK(f->ctx,
                    convert(f, "w.safetensors", "to.safetensors", kinds[k].dtype, shard, &n_bytes));
            assert_int_equal(n_bytes, kinds[k].n_bytes);
            assert_int_equal(access(folder_file(f, "to.safetensors.index.json"), F_OK) == 0,
                             is_divided);
            float *got = read_floats(f, "to.safetensors", "large", N_LARGE);
            for (size_t i = 0; i < N_LARGE; i++) {
                uint16_t bits;
                float rounded = want[i];
                if (kinds[k].type) {
                    assert_int_equal(wfi_convert_to(kinds[k].type, &want[i], 1, &bits), 1);
                    rounded = float_of(kinds[k].type, bits);
                }
                assert_true(got[i] == rounded);
            }
            free(got);
            got = read_floats(f, "to.safetensors", "twice", 3);
            assert_true(got[2] == 3 && got[1] == 0 && fabsf(got[0] - 0.1f) < 1e-3f);
            free(got);
        }
    free(want);
}

/* A double is rounded once: what is a little off the middle of two neighbours, by less than a float
 * can be, is the nearer one. */
TEST_IN_FOLDER(doubles) {
    static const char *const types[] = {"F16", "BF16"}, *const names[] = {"f16", "bf16"};
    enum { N = 0x7BFF };
    static double values[N][3];
    static uint16_t got[N][3];
    for (int t = 0; t < 2; t++) {
        const wf_tensor_data tensor = {"w", WF_F64, {2, {N, 3}}, values};
        wf_convert_config config = WF_CONVERT_CONFIG_INIT;
        wf_safetensors *file;
        char path[400];
        uint64_t n_bytes;
        int n;
        for (uint16_t k = 0; k < N; k++) {
            values[k][0] = ((double)float_of(types[t], k) + float_of(types[t], k + 1)) / 2;
            values[k][1] = nextafter(values[k][0], 0);
            values[k][2] = -nextafter(values[k][0], INFINITY);
        }
        snprintf(path, sizeof path, "%s", folder_file(f, "twice.safetensors"));
        TEST_OK(f->ctx, wf_safetensors_write(f->ctx, path, &tensor, 1, NULL, 0));
        config.dtype = names[t];
        TEST_OK(f->ctx, wf_safetensors_convert(f->ctx, path, folder_file(f, "to.safetensors"),
                                               &config, &n, &n_bytes));
        TEST_OK(f->ctx, wf_safetensors_open(f->ctx, folder_file(f, "to.safetensors"), &file));
        TEST_OK(f->ctx, wfi_safetensors_read_part(file, 0, WF_N_DTYPES, 0, got, sizeof got, NULL));
        wf_safetensors_close(file);
        for (uint16_t k = 0; k < N; k++) {
            assert_int_equal(got[k][0], k + (k & 1));
            assert_int_equal(got[k][1], k);
            assert_int_equal(got[k][2], (k + 1) | 0x8000);
        }
    }
    static const double most[] = {65519.99999999999, 65520};
    static const wf_tensor_data large[] = {{"w", WF_F64, {1, {1}}, &most[0]},
                                           {"w", WF_F64, {1, {1}}, &most[1]}};
    for (int k = 0; k < 2; k++) {
        wf_convert_config config = WF_CONVERT_CONFIG_INIT;
        char path[400];
        uint64_t n_bytes;
        int n;
        config.dtype = "f16";
        snprintf(path, sizeof path, "%s", folder_file(f, "twice.safetensors"));
        TEST_OK(f->ctx, wf_safetensors_write(f->ctx, path, &large[k], 1, NULL, 0));
        wf_status status = wf_safetensors_convert(f->ctx, path, folder_file(f, "to.safetensors"),
                                                  &config, &n, &n_bytes);
        assert_int_equal(status, k ? WF_NOT_FINITE : WF_OK);
    }
}

/* In its own place; and twice is as once. */
TEST_IN_FOLDER(in_place) {
    uint64_t n_bytes;
    write_weights(f, "w.safetensors", 2.5f);
    TEST_OK(f->ctx, convert(f, "w.safetensors", "w.safetensors", "bf16", 0, &n_bytes));
    float *once = read_floats(f, "w.safetensors", "large", N_LARGE);
    TEST_OK(f->ctx, convert(f, "w.safetensors", "w.safetensors", "bf16", 200000, &n_bytes));
    assert_int_not_equal(access(folder_file(f, "w.safetensors"), F_OK), 0);
    TEST_OK(f->ctx, convert(f, "w.safetensors.index.json", "w.safetensors", "f32", 0, &n_bytes));
    assert_int_equal(folder_count(f, 0), 1);
    float *twice = read_floats(f, "w.safetensors", "large", N_LARGE);
    assert_memory_equal(once, twice, N_LARGE * sizeof *once);
    free(once);
    free(twice);
}

TEST_IN_FOLDER(refuses) {
    static const wf_metadata steps = {"weft.n_steps", "3"};
    static const float one = 1;
    static const wf_tensor_data weight = {"w", WF_F32, {1, {1}}, &one};
    uint64_t n_bytes;
    write_weights(f, "old.safetensors", 1);
    write_weights(f, "w.safetensors", 70000);
    TEST_REFUSED(f->ctx, convert(f, "w.safetensors", "old.safetensors", "f16", 0, &n_bytes),
                 WF_NOT_FINITE, "element 0 of large is 70000, which is too large for F16");
    TEST_REFUSED(f->ctx, convert(f, "w.safetensors", "old.safetensors", "f8", 0, &n_bytes),
                 WF_INVALID_ARG, "not one of f16, bf16 and f32");
    static const double huge = 1e300;
    static const wf_tensor_data wide = {"w", WF_F64, {1, {1}}, &huge};
    TEST_OK(f->ctx,
            wf_safetensors_write(f->ctx, folder_file(f, "wide.safetensors"), &wide, 1, NULL, 0));
    TEST_REFUSED(f->ctx, convert(f, "wide.safetensors", "old.safetensors", "f32", 0, &n_bytes),
                 WF_NOT_FINITE, "element 0 of w is 1e+300");
    TEST_OK(f->ctx, wf_safetensors_write(f->ctx, folder_file(f, "state.safetensors"), &weight, 1,
                                         &steps, 1));
    TEST_REFUSED(f->ctx, convert(f, "state.safetensors", "old.safetensors", "bf16", 0, &n_bytes),
                 WF_INVALID_ARG, "is a training state");
    /* A bit flips behind a file's digests. */
    TEST_OK(f->ctx, convert(f, "w.safetensors", "sums.safetensors", NULL, 0, &n_bytes));
    FILE *file = fopen(folder_file(f, "sums.safetensors"), "r+b");
    assert_int_equal(fseek(file, -9, SEEK_END), 0);
    int byte = fgetc(file);
    assert_int_equal(fseek(file, -9, SEEK_END), 0);
    fputc(byte ^ 4, file);
    fclose(file);
    TEST_REFUSED(f->ctx, convert(f, "sums.safetensors", "old.safetensors", "bf16", 0, &n_bytes),
                 WF_CORRUPT, "tensor large is damaged");
    float *old = read_floats(f, "old.safetensors", "large", N_LARGE);
    assert_true(old[0] == 1);
    free(old);
}

/* What weft has no name for is copied: a newer writer's types. */
TEST_IN_FOLDER(other_types) {
    static const char header[] =
        "{\"a\":{\"dtype\":\"F8_E4M3\",\"shape\":[3],\"data_offsets\":[0,3]},"
        "\"b\":{\"dtype\":\"F4\",\"shape\":[4],\"data_offsets\":[3,5]}}";
    static const char data[] = {1, 2, 3, 4, 5};
    char bytes[8 + sizeof header - 1 + sizeof data] = {(char)(sizeof header - 1)};
    wf_convert_config config = WF_CONVERT_CONFIG_INIT;
    scoped_safetensors file;
    char path[400];
    uint64_t n_bytes;
    int n;
    memcpy(bytes + 8, header, sizeof header - 1);
    memcpy(bytes + 8 + sizeof header - 1, data, sizeof data);
    folder_write(f, "new.safetensors", bytes, sizeof bytes);
    snprintf(path, sizeof path, "%s", folder_file(f, "new.safetensors"));
    config.dtype = "f16";
    TEST_OK(f->ctx, wf_safetensors_convert(f->ctx, path, folder_file(f, "to.safetensors"), &config,
                                           &n, &n_bytes));
    assert_true(n == 2 && n_bytes == 5);
    TEST_OK(f->ctx, wf_safetensors_open(f->ctx, folder_file(f, "to.safetensors"), &file));
    for (int i = 0; i < 2; i++) {
        char got[3];
        const wf_safetensors_entry *e = wf_safetensors_get(file, i);
        bool is_a = !strcmp(e->name, "a");
        assert_string_equal(e->dtype_name, is_a ? "F8_E4M3" : "F4");
        TEST_OK(f->ctx, wfi_safetensors_read_part(file, i, WF_N_DTYPES, 0, got, e->n_bytes, NULL));
        assert_memory_equal(got, data + (is_a ? 0 : 3), e->n_bytes);
    }
}
