/* A file that is divided into shards, by us or by others: what it holds, whom it trusts, and that
 * nobody sees old shards beside new ones.
 *
 * label: serial
 */
#include "data_folder.h"
#include "test.h"

#include "state/header.h"
#include "state/match.h"

#include <math.h>
#include <sys/stat.h>

#define N_TENSORS 5

/* ---- writing ---- */

static wf_status add(wf_safetensors_writer *w, uint64_t shard_bytes, float value) {
    static const int64_t sizes[N_TENSORS] = {4, 2, 100, 1, 3};
    float values[100];
    wf_status status = wf_safetensors_writer_divide(w, shard_bytes);
    for (int i = 0; i < 100; i++) values[i] = value + (float)i;
    for (int i = 0; i < N_TENSORS && status == WF_OK; i++) {
        const char name[] = {'t', (char)('0' + i), 0};
        wf_shape shape = {1, {sizes[i]}};
        status = wf_safetensors_writer_add_tensor(w, name, WF_F32, &shape);
    }
    if (status == WF_OK) status = wf_safetensors_writer_add_metadata(w, "k", "v");
    for (int i = N_TENSORS; i-- > 0 && status == WF_OK;)
        status = wf_safetensors_writer_write(w, i, values, (size_t)sizes[i] * sizeof(float));
    return status;
}

static wf_status save(folder *f, uint64_t shard_bytes, float value, bool commits) {
    wf_safetensors_writer *w;
    wf_status status =
        wf_safetensors_writer_create(f->ctx, folder_file(f, "model.safetensors"), &w);
    if (status != WF_OK) return status;
    status = add(w, shard_bytes, value);
    if (status == WF_OK && commits) status = wf_safetensors_writer_commit(w);
    wf_safetensors_writer_destroy(w);
    return status;
}

static float saved_value(folder *f, const char *name) {
    wf_safetensors *file;
    float found[100] = {0};
    wf_status status = wf_safetensors_open(f->ctx, folder_file(f, name), &file);
    if (status != WF_OK) fail_msg("%s", wf_context_error(f->ctx));
    assert_int_equal(wf_safetensors_n_tensors(file), N_TENSORS);
    assert_string_equal(wf_safetensors_metadata(file, "k"), "v");
    for (int i = 0; i < N_TENSORS; i++) {
        const char tensor[] = {'t', (char)('0' + i), 0};
        int at = wf_safetensors_find(file, tensor);
        const wf_safetensors_entry *e = wf_safetensors_get(file, at);
        assert_non_null(e);
        assert_string_equal(e->name, tensor);
        float first = found[0];
        assert_int_equal(wf_safetensors_read(file, at, found, (size_t)e->n_bytes), WF_OK);
        if (i) assert_true(found[0] == first);
        for (int64_t k = 1; k < e->dim[0]; k++) assert_true(found[k] == found[0] + (float)k);
    }
    assert_int_equal(wf_safetensors_find(file, "t5"), -1);
    assert_null(wf_safetensors_get(file, N_TENSORS));
    wf_safetensors_close(file);
    return found[0];
}

static bool is_there(folder *f, const char *name) {
    return access(folder_file(f, name), F_OK) == 0;
}

/* 16, 8, 400, 4 and 12 bytes: t0 and t1; t2, which is larger than a shard; t3 and t4. */
TEST_IN_FOLDER(divides) {
    assert_int_equal(save(f, 24, 1, true), WF_OK);
    assert_int_equal(folder_count(f, 0), 4);
    assert_true(is_there(f, "model.safetensors.index.json"));
    for (int k = 1; k <= 3; k++) {
        static const uint64_t bytes[] = {24, 400, 16};
        char name[64];
        scoped_safetensors shard;
        snprintf(name, sizeof name, "model-%05d-of-00003.safetensors", k);
        assert_int_equal(wf_safetensors_open(f->ctx, folder_file(f, name), &shard), WF_OK);
        assert_string_equal(wf_safetensors_metadata(shard, "format"), "pt");
        uint64_t n = 0;
        for (int i = 0; i < wf_safetensors_n_tensors(shard); i++)
            n += wf_safetensors_get(shard, i)->n_bytes;
        assert_int_equal(n, bytes[k - 1]);
    }
    assert_true(saved_value(f, "model.safetensors.index.json") == 1);
    assert_true(saved_value(f, "model.safetensors") == 1); /* stands for its index */
    assert_true(saved_value(f, ".") == 1);
    assert_int_equal(save(f, 1000, 2, true), WF_OK); /* all in one: no index */
    assert_int_equal(folder_count(f, 0), 1);
    assert_true(saved_value(f, "") == 2);
}

/* Old files go when new ones are there, of the same number of shards or another, and only they. */
TEST_IN_FOLDER(replaces) {
    static const uint64_t sizes[] = {0, 24, 24, 4, 24, 440, 24, 24};
    static const int n_files[] = {1, 4, 4, 6, 4, 1, 4, 4};
    static const char *const alike[] = {"model-1-of-00003.safetensors", "model-00001-of-00003.txt",
                                        "model-c-00001-of-00003.safetensors",
                                        "other-00001-of-00003.safetensors"};
    for (size_t k = 0; k < 4; k++) folder_write(f, alike[k], "x", 1);
    folder_write(f, "model-b-00007-of-00009.safetensors", "left", 4);
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        float before = k ? saved_value(f, "model.safetensors") : 0;
        assert_int_equal(save(f, sizes[k], -1, false), WF_OK); /* given up */
        if (k) assert_true(saved_value(f, "model.safetensors") == before);
        if (k > 1) assert_int_equal(folder_count(f, 0), n_files[k - 1] + 4);
        assert_int_equal(save(f, sizes[k], (float)k, true), WF_OK);
        assert_true(saved_value(f, "model.safetensors") == (float)k);
        if (k) assert_int_equal(folder_count(f, 0), n_files[k] + 4);
    }
    for (size_t k = 0; k < 4; k++) assert_true(is_there(f, alike[k]));
}

/* A writer that does not divide knows nothing of shards that are others'. */
TEST_IN_FOLDER(leaves_the_shards_of_others) {
    assert_int_equal(save(f, 24, 1, true), WF_OK);
    assert_int_equal(save(f, 0, 2, true), WF_OK);
    assert_int_equal(folder_count(f, 0), 5);
    assert_true(saved_value(f, "model.safetensors") == 2);
    assert_true(saved_value(f, "model.safetensors.index.json") == 1);
}

/* The last shard cannot get its name: the old ones stay, and nothing of the new ones. */
TEST_IN_FOLDER(takes_back_what_is_half_there) {
    assert_int_equal(save(f, 24, 1, true), WF_OK);
    assert_int_equal(mkdir(folder_file(f, "model-b-00003-of-00003.safetensors"), 0700), 0);
    wf_safetensors_writer *w;
    assert_int_equal(rmdir(f->file), 0);
    assert_int_equal(wf_safetensors_writer_create(f->ctx, folder_file(f, "model.safetensors"), &w),
                     WF_OK);
    assert_int_equal(add(w, 24, 2), WF_OK);
    assert_int_equal(mkdir(folder_file(f, "model-b-00003-of-00003.safetensors"), 0700), 0);
    expect_failure(f->ctx, wf_safetensors_writer_commit(w), WF_IO, "cannot be moved into place");
    wf_safetensors_writer_destroy(w);
    assert_int_equal(rmdir(folder_file(f, "model-b-00003-of-00003.safetensors")), 0);
    assert_int_equal(folder_count(f, 0), 4);
    assert_true(saved_value(f, "model.safetensors") == 1);
}

TEST_IN_FOLDER(refuses_too_many) {
    wf_safetensors_writer *w;
    const wf_shape one = {1, {1}};
    float value = 1;
    assert_int_equal(wf_safetensors_writer_create(f->ctx, folder_file(f, "a"), &w), WF_OK);
    assert_int_equal(wf_safetensors_writer_divide(w, 4), WF_OK);
    for (int i = 0; i < 301; i++) {
        char name[16];
        snprintf(name, sizeof name, "t%d", i);
        assert_int_equal(wf_safetensors_writer_add_tensor(w, name, WF_F32, &one), WF_OK);
    }
    expect_failure(f->ctx, wf_safetensors_writer_write(w, 0, &value, 4), WF_INVALID_ARG,
                   "would be more than 300 files");
    wf_safetensors_writer_destroy(w);
    assert_int_equal(folder_count(f, 0), 0);
}

/* ---- reading what others wrote ---- */

static void write_shard(folder *f, const char *name, const char *const *tensors, int n) {
    wf_tensor_data data[4];
    float value = 1;
    for (int i = 0; i < n; i++) data[i] = (wf_tensor_data){tensors[i], WF_F32, {1, {1}}, &value};
    assert_int_equal(wf_safetensors_write(f->ctx, folder_file(f, name), data, n, NULL, 0), WF_OK);
}

TEST_IN_FOLDER(trusts_no_index) {
    static const struct {
        const char *text, *said;
    } cases[] = {
        {"", "it is not JSON at byte 0: an object expected"},
        {"[]", "it is not JSON at byte 0"},
        {"{\"weight_map\":{}}x", "it is not JSON at byte 17: nothing more expected"},
        {"{}", "has no weight_map"},
        {"{\"weight_map\":[]}", "an object expected"},
        {"{\"weight_map\":{},\"weight_map\":{}}", "weight_map occurs twice"},
        {"{\"metadata\":{},\"metadata\":{},\"weight_map\":{}}", "metadata occurs twice"},
        {"{\"metadata\":{\"a\":\"\",\"a\":\"\"},\"weight_map\":{}}", "a occurs twice in metadata"},
        {"{\"metadata\":[],\"weight_map\":{}}", "an object expected"},
        {"{\"weight_map\":{\"a\":1}}", "tensor a has a location that is not a file name"},
        {"{\"weight_map\":{\"a\":\"one\",\"b\":\"one\",\"a\":\"one\"}}", "tensor a occurs twice"},
        {"{\"weight_map\":{\"a\":\"../one\"}}", "tensor a is listed in '../one'"},
        {"{\"weight_map\":{\"a\":\"/etc/passwd\"}}", "not the name of a file in the same folder"},
        {"{\"weight_map\":{\"a\":\"sub/one\"}}", "not the name of a file in the same folder"},
        {"{\"weight_map\":{\"a\":\"..\"}}", "not the name of a file in the same folder"},
        {"{\"weight_map\":{\"a\":\"\"}}", "not the name of a file in the same folder"},
        {"{\"weight_map\":{\"a\":\"o\\u0007ne\"}}", "not the name of a file in the same folder"},
        {"{\"weight_map\":{\"a\":\"link\"}}", "link is a link, which may lead out of its folder"},
        {"{\"weight_map\":{\"a\":\"none\"}}", "none cannot be opened: No such file"},
        {"{\"weight_map\":{\"a\":\"pipe\"}}", "pipe is not a regular file, but a folder"},
        {"{\"weight_map\":{\"a\":\"x.index.json\"}}", "x.index.json announces a header"},
        {"{\"weight_map\":{\"a\":\"one\"}}", "one has a tensor b, which "},
        {"{\"weight_map\":{\"a\":\"one\",\"b\":\"one\",\"c\":\"one\"}}",
         "one has no tensor c, though "},
        {"{\"weight_map\":{\"a\":\"one\",\"b\":\"one\",\"c\":\"two\"}}",
         "two has a tensor b, which "},
        {"{\"weight_map\":{\"a\":\"one\",\"b\":\"two\",\"c\":\"two\"}}",
         "one has a tensor b, which "},
        {"{\"metadata\":{\"total_size\":12},\"weight_map\":{\"a\":\"one\",\"b\":\"one\"}}",
         "its tensors have 12 bytes (total_size), but its shards have 8"},
        {"{\"metadata\":{\"total_size\":0},\"weight_map\":{\"a\":\"one\",\"b\":\"one\"}}",
         "its tensors have 0 bytes"},
        {"{\"metadata\":{\"total_size\":8},\"weight_map\":{\"a\":\"one\",\"b\":\"one\"}}", NULL},
        {"{\"metadata\":{\"total_size\":1.5e300,\"n\":{}},\"weight_map\":{\"a\":\"one\",\"b\":"
         "\"one\"},\"new\":[1]}",
         NULL},
    };
    wf_safetensors *file;
    write_shard(f, "one", (const char *const[]){"a", "b"}, 2);
    write_shard(f, "two", (const char *const[]){"b", "c"}, 2);
    assert_int_equal(symlink("one", folder_file(f, "link")), 0);
    assert_int_equal(mkdir(folder_file(f, "pipe"), 0700), 0);
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        folder_write(f, "x.index.json", cases[k].text, strlen(cases[k].text));
        wf_status status = wf_safetensors_open(f->ctx, folder_file(f, "x.index.json"), &file);
        if (!cases[k].said) {
            assert_int_equal(status, WF_OK);
            assert_int_equal(wf_safetensors_n_tensors(file), 2);
            assert_null(wf_safetensors_metadata(file, "total_size"));
            wf_safetensors_close(file);
            continue;
        }
        if (status == WF_OK) fail_msg("%s is accepted", cases[k].text);
        expect_failure(f->ctx, status, status, cases[k].said);
        assert_true(status == WF_CORRUPT || status == WF_IO);
    }
    assert_int_equal(rmdir(folder_file(f, "pipe")), 0);
}

/* An index of nothing is legal, and so is a file without tensors. */
TEST_IN_FOLDER(reads_nothing) {
    scoped_safetensors file;
    folder_write(f, "x.json", "{\"weight_map\":{}}", 17);
    assert_int_equal(wf_safetensors_open(f->ctx, f->file, &file), WF_OK);
    assert_int_equal(wf_safetensors_n_tensors(file), 0);
    assert_int_equal(wf_safetensors_find(file, "a"), -1);
    assert_null(wf_safetensors_get(file, 0));
}

/* What the safetensors library wrote (golden/make_shards.py), bit for bit, also in parts. */
TEST_IN_FOLDER(converts) {
    static const wfi_wanted wanted[] = {{"bfloats", WF_F32, {2, {3, 4}}},
                                        {"doubles", WF_F32, {2, {3, 4}}},
                                        {"halves", WF_F32, {2, {3, 4}}}};
    static const uint32_t crc32_of[] = {0xC5D9E0D4, 0x60D5A171, 0x9B78BB7B}; /* of their bytes */
    scoped_safetensors file;
    float want[3][12], got[12];
    int index[3];
    FILE *values = fopen("tests/golden/shards/values.bin", "rb");
    assert_non_null(values);
    assert_int_equal(fread(want, sizeof want, 1, values), 1);
    fclose(values);
    TEST_OK(f->ctx, wf_safetensors_open(f->ctx, "tests/golden/shards", &file));
    TEST_OK(f->ctx, wfi_match_weights(f->ctx, file, wanted, 3, NULL, index));
    for (int i = 0; i < 3; i++)
        for (size_t n = 12; n > 0; n /= 2) { /* 12, 6, 3, 1 at a time */
            uint32_t sum = 0;
            for (size_t k = 0; k < 12; k += n)
                TEST_OK(f->ctx, wfi_safetensors_read_part(file, index[i], WF_F32, 4 * k, got + k,
                                                          4 * n, &sum));
            assert_memory_equal(got, want[i], sizeof got);
            assert_int_equal(sum, crc32_of[i]);
        }
    wfi_wanted integers = {"halves", WF_I64, {2, {3, 4}}};
    expect_failure(f->ctx,
                   wfi_match_weights(f->ctx, file,
                                     (const wfi_wanted[]){wanted[0], wanted[1], integers}, 3, NULL,
                                     index),
                   WF_SHAPE, "tensor halves is F16 [3, 4], but the model's halves is I64 [3, 4]");
}

/* More than is converted at a time. */
TEST_IN_FOLDER(converts_much) {
    enum { N = 10000 };
    static double values[N];
    static float got[N];
    const wf_tensor_data data = {"a", WF_F64, {1, {N}}, values};
    scoped_safetensors file;
    for (int i = 0; i < N; i++) values[i] = i;
    TEST_OK(f->ctx, wf_safetensors_write(f->ctx, folder_file(f, "a"), &data, 1, NULL, 0));
    TEST_OK(f->ctx, wf_safetensors_open(f->ctx, f->file, &file));
    TEST_OK(f->ctx, wfi_safetensors_read_part(file, 0, WF_F32, 4, got, sizeof got - 4, NULL));
    for (int i = 0; i < N - 1; i++) assert_true(got[i] == (float)(i + 1));
}

/* Every half there is, by what it means. */
TEST_CASE(converts_all_halves) {
    for (unsigned bits = 0; bits < 65536; bits++) {
        uint16_t half = (uint16_t)bits;
        float got, size = (float)(bits & 1023);
        int exponent = (int)(bits >> 10 & 31);
        wfi_convert("F16", &half, 1, &got);
        assert_int_equal(signbit(got) != 0, bits >> 15);
        if (exponent == 31)
            assert_true(bits & 1023 ? isnan(got) : isinf(got));
        else
            assert_true(fabsf(got) == (exponent ? powf(2, (float)exponent - 15) * (1 + size / 1024)
                                                : powf(2, -14) * (size / 1024)));
    }
}
