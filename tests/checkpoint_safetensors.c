/* The file format: round trips, and one refusal for each rule.
 *
 * label: serial
 */
#include "data_folder.h"

/* ---- round trip ---- */

static const float weight[6] = {1, -2, 3.5f, 0, 1e-30f, -0.0f};
static const int64_t steps = 7;
static const uint8_t flags[3] = {1, 0, 255};

static const wf_tensor_data three[] = {
    {"flags", WF_U8, {1, {3}}, flags},
    {"layer \"1\"/ä.weight", WF_F32, {2, {2, 3}}, weight},
    {"steps", WF_I64, {0, {0}}, &steps},
};
static const wf_metadata notes[] = {{"format", "pt"}, {"a\n\"b\"", "\\ ü {}"}};

TEST_IN_FOLDER(returns_what_was_written) {
    scoped_safetensors file;
    const char *path = folder_file(f, "a.safetensors");
    assert_int_equal(wf_safetensors_write(f->ctx, path, three, 3, notes, 2), WF_OK);
    assert_int_equal(wf_safetensors_open(f->ctx, path, &file), WF_OK);
    assert_int_equal(wf_safetensors_n_tensors(file), 3);
    assert_string_equal(wf_safetensors_metadata(file, "format"), "pt");
    assert_string_equal(wf_safetensors_metadata(file, "a\n\"b\""), "\\ ü {}");
    assert_null(wf_safetensors_metadata(file, "b"));
    assert_string_equal(wf_safetensors_metadata_get(file, 0)->key, "a\n\"b\"");
    assert_null(wf_safetensors_metadata_get(file, 2));
    assert_null(wf_safetensors_get(file, 3));
    assert_int_equal(wf_safetensors_find(file, "nothing"), -1);
    for (int i = 0; i < 3; i++) {
        int at = wf_safetensors_find(file, three[i].name);
        assert_int_equal(at, 2 - i); /* widest elements first */
        const wf_safetensors_entry *e = wf_safetensors_get(file, at);
        unsigned char bytes[64];
        assert_int_equal(e->dtype, three[i].dtype);
        assert_int_equal(e->n_dims, three[i].shape.n_dims);
        assert_memory_equal(e->dim, three[i].shape.dim, (size_t)e->n_dims * sizeof *e->dim);
        assert_int_equal(wf_safetensors_read(file, at, bytes, (size_t)e->n_bytes), WF_OK);
        assert_memory_equal(bytes, three[i].data, (size_t)e->n_bytes);
        expect_failure(f->ctx, wf_safetensors_read(file, at, bytes, (size_t)e->n_bytes + 1),
                       WF_SHAPE, "were requested");
    }
}

TEST_IN_FOLDER(writes_the_documented_bytes) {
    char bytes[256] = {0};
    const float one = 1;
    const wf_tensor_data tensors[] = {{"b", WF_F32, {1, {1}}, &one}, {"e", WF_F64, {1, {0}}, NULL}};
    const char expected[] = "\x70\0\0\0\0\0\0\0{\"__metadata__\":{\"k\":\"v\"},"
                            "\"e\":{\"dtype\":\"F64\",\"shape\":[0],\"data_offsets\":[0,0]},"
                            "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}";
    const char *path = folder_file(f, "a");
    const wf_metadata pair = {"k", "v"};
    assert_int_equal(wf_safetensors_write(f->ctx, path, tensors, 2, &pair, 1), WF_OK);
    FILE *in = fopen(path, "rb");
    assert_non_null(in);
    size_t n = fread(bytes, 1, sizeof bytes, in);
    fclose(in);
    size_t n_header = (unsigned char)bytes[0];
    assert_int_equal(n_header % 8, 0);
    assert_int_equal(n, 8 + n_header + 4);
    assert_memory_equal(bytes + 8, expected + 8, sizeof expected - 9);
    for (size_t i = sizeof expected - 1; i < 8 + n_header; i++) assert_int_equal(bytes[i], ' ');
    assert_memory_equal(bytes + 8 + n_header, &one, 4);
}

TEST_IN_FOLDER(writes_in_any_order) {
    wf_safetensors_writer *w;
    wf_safetensors *file;
    int64_t read_back = 0;
    const char *path = folder_file(f, "a");
    wf_context *ctx = f->ctx;
    assert_int_equal(wf_safetensors_writer_create(ctx, path, &w), WF_OK);
    for (int i = 0; i < 3; i++)
        assert_int_equal(
            wf_safetensors_writer_add_tensor(w, three[i].name, three[i].dtype, &three[i].shape),
            WF_OK);
    expect_failure(ctx, wf_safetensors_writer_add_tensor(w, "flags", WF_F32, &three[0].shape),
                   WF_INVALID_ARG, "flags is declared already");
    expect_failure(ctx, wf_safetensors_writer_write(w, 1, weight, 23), WF_SHAPE,
                   "was declared with 24 bytes, but is given 23");
    assert_int_equal(wf_safetensors_writer_write(w, 1, weight, 24), WF_OK);
    expect_failure(ctx, wf_safetensors_writer_add_metadata(w, "k", "v"), WF_INVALID_ARG,
                   "too late");
    assert_int_equal(wf_safetensors_writer_write(w, 0, flags, 3), WF_OK);
    expect_failure(ctx, wf_safetensors_writer_commit(w), WF_INVALID_ARG,
                   "steps was declared, but not written");
    expect_failure(ctx, wf_safetensors_writer_write(w, 0, flags, 3), WF_INVALID_ARG,
                   "written already");
    expect_failure(ctx, wf_safetensors_writer_write(w, 3, flags, 3), WF_INVALID_ARG, "none is 3");
    assert_int_equal(wf_safetensors_writer_write(w, 2, &steps, 8), WF_OK);
    assert_int_equal(wf_safetensors_writer_commit(w), WF_OK);
    wf_safetensors_writer_destroy(w);
    assert_int_equal(wf_safetensors_open(ctx, path, &file), WF_OK);
    int at = wf_safetensors_find(file, "steps");
    assert_int_equal(wf_safetensors_read(file, at, &read_back, 8), WF_OK);
    assert_int_equal(read_back, 7);
    wf_safetensors_close(file);
}

TEST_IN_FOLDER(refuses_bad_declarations) {
    wf_safetensors_writer *w;
    wf_context *ctx = f->ctx;
    wf_shape huge = {3, {INT64_C(1) << 31, INT64_C(1) << 31, 2}}, negative = {1, {-1}};
    assert_int_equal(wf_safetensors_writer_create(ctx, folder_file(f, "a"), &w), WF_OK);
    expect_failure(ctx, wf_safetensors_writer_add_tensor(w, "a\xff", WF_F32, &three[0].shape),
                   WF_INVALID_ARG, "is not UTF-8");
    expect_failure(ctx, wf_safetensors_writer_add_tensor(w, "a", WF_F32, &huge), WF_INVALID_ARG,
                   "overflows");
    expect_failure(ctx, wf_safetensors_writer_add_tensor(w, "a", WF_F32, &negative), WF_INVALID_ARG,
                   "negative");
    expect_failure(ctx,
                   wf_safetensors_writer_add_tensor(w, "__metadata__", WF_F32, &three[0].shape),
                   WF_INVALID_ARG, "is not a valid tensor name");
    assert_int_equal(wf_safetensors_writer_add_metadata(w, "k", "v"), WF_OK);
    expect_failure(ctx, wf_safetensors_writer_add_metadata(w, "k", "w"), WF_INVALID_ARG,
                   "k is in the metadata already");
    wf_safetensors_writer_destroy(w);
}

/* ---- one refusal for each rule ---- */

/* Writes a file with `header` and n_data bytes after it, and opens it. */
static wf_status open_header(folder *f, const char *header, size_t n_data, wf_safetensors **file) {
    size_t n = strlen(header);
    unsigned char bytes[1024] = {(unsigned char)n, (unsigned char)(n >> 8)};
    memcpy(bytes + 8, header, n);
    return wf_safetensors_open(f->ctx, folder_write(f, "x", bytes, 8 + n + n_data), file);
}

#define ENTRY(name, dtype, shape, offsets)                                                         \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"

TEST_IN_FOLDER(accepts_what_is_legal) {
    wf_safetensors *file;
    static const struct {
        const char *header;
        size_t n_data;
    } legal[] = {
        {"{}", 0},
        {"{}  \n", 0},
        {"{\"__metadata__\":{}}", 0},
        {"{" ENTRY("a", "F32", "[]", "[0,4]") "}", 4},
        {"{" ENTRY("a", "F32", "[0,5]", "[0,0]") "," ENTRY("b", "I64", "[1]", "[0,8]") "}", 8},
        {"{ " ENTRY("b", "U8", "[2]", "[4,6]") " , " ENTRY("a", "F16", "[2]", "[0,4]") " } ", 6},
        {"{" ENTRY("a", "F32", "[1,1,1,1,1,1,1,1,1]", "[0,4]") "}", 4},
        {"{" ENTRY("a", "F4_NEW", "[3]", "[0,2]") "}", 2},
    };
    for (size_t i = 0; i < sizeof legal / sizeof *legal; i++) {
        wf_status status = open_header(f, legal[i].header, legal[i].n_data, &file);
        if (status != WF_OK) fail_msg("%s: %s", legal[i].header, wf_context_error(f->ctx));
        wf_safetensors_close(file);
    }
}

TEST_IN_FOLDER(uses_only_known_types) {
    scoped_safetensors file;
    char bytes[4];
    assert_int_equal(open_header(f, "{" ENTRY("a", "F16", "[2]", "[0,4]") "}", 4, &file), WF_OK);
    assert_int_equal(wf_safetensors_get(file, 0)->dtype, WF_N_DTYPES);
    assert_string_equal(wf_safetensors_get(file, 0)->dtype_name, "F16");
    expect_failure(f->ctx, wf_safetensors_read(file, 0, bytes, 4), WF_UNSUPPORTED,
                   "tensor a is of type F16, which weft cannot use");
}

TEST_IN_FOLDER(refuses_bad_headers) {
    wf_safetensors *file;
    static const struct {
        const char *header;
        size_t n_data;
        const char *sentence;
    } bad[] = {
        {"", 0, "does not begin with {"},
        {" {}", 0, "does not begin with {"},
        {"[]", 0, "does not begin with {"},
        {"{", 0, "not JSON"},
        {"{}x", 0, "nothing more expected"},
        {"{\"a\"}", 0, "a colon expected"},
        {"{a:1}", 0, "a name in quotes expected"},
        {"{\"a\xff\":{}}", 0, "not JSON"},
        {"{\"a\\u0000\":{}}", 0, "not JSON"},
        {"{" ENTRY("a", "U8", "[1]", "[0,1]") ",}", 1, "a name in quotes expected"},
        {"{" ENTRY("a", "U8", "[1]", "[0,1]") " " ENTRY("b", "U8", "[1]", "[1,2]") "}", 2,
         "a comma or a closing brace expected"},
        /* entries */
        {"{\"a\":1}", 0, "tensor a must have dtype, shape and data_offsets, and nothing else"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1]}}", 1, "must have"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1],\"x\":1}}", 1, "must have"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"shape\":[1],\"data_offsets\":[0,1]}}", 1,
         "duplicate"},
        {"{\"a\":{\"dtype\":8,\"shape\":[1],\"data_offsets\":[0,1]}}", 1, "no dtype string"},
        {"{" ENTRY("a", "U8", "1", "[0,1]") "}", 1, "no shape array"},
        {"{" ENTRY("a", "U8", "[-1]", "[0,1]") "}", 1, "a dim 0 that is not a size"},
        {"{" ENTRY("a", "U8", "[1.0]", "[0,1]") "}", 1, "a dim 0 that is not a size"},
        {"{" ENTRY("a", "U8", "[9223372036854775808]", "[0,1]") "}", 1, "too big integer"},
        {"{" ENTRY("a", "U8", "[1]", "[0]") "}", 1, "no pair of sizes"},
        {"{" ENTRY("a", "U8", "[1]", "[0,1,2]") "}", 1, "no pair of sizes"},
        {"{" ENTRY("a", "U8", "[1]", "[-1,0]") "}", 1, "no pair of sizes"},
        /* sizes */
        {"{" ENTRY("a", "F32", "[2]", "[0,4]") "}", 4, "has 4 bytes, but its shape of F32 makes 8"},
        {"{" ENTRY("a", "F16", "[2]", "[0,8]") "}", 8, "has 8 bytes, but its shape of F16 makes 4"},
        {"{" ENTRY("a", "F32", "[4294967296,4294967296]", "[0,0]") "}", 0, "overflows 64 bits"},
        {"{" ENTRY("a", "U8", "[9223372036854775807,2,2]", "[0,0]") "}", 0, "overflows 64 bits"},
        /* offsets */
        {"{" ENTRY("a", "U8", "[1]", "[1,0]") "}", 1, "begins at byte 1 after its end at 0"},
        {"{" ENTRY("a", "U8", "[2]", "[0,2]") "}", 1,
         "ends at byte 2, but the file has 1 bytes of data"},
        {"{" ENTRY("a", "U8", "[9223372036854775807]", "[0,9223372036854775807]") "}", 1,
         "truncated"},
        {"{" ENTRY("a", "U8", "[2]", "[0,2]") "," ENTRY("b", "U8", "[2]", "[1,3]") "}", 3,
         "tensor b begins at byte 1, inside another that ends at 2"},
        {"{" ENTRY("a", "U8", "[2]", "[0,2]") "," ENTRY("b", "U8", "[2]", "[0,2]") "}", 2,
         "inside another"},
        {"{" ENTRY("a", "U8", "[1]", "[0,1]") "," ENTRY("b", "U8", "[1]", "[2,3]") "}", 3,
         "tensor b begins at byte 2 after a hole from 1"},
        {"{" ENTRY("a", "U8", "[1]", "[1,2]") "}", 2, "after a hole from 0"},
        {"{" ENTRY("a", "U8", "[1]", "[0,1]") "}", 4, "3 bytes follow its last tensor"},
        {"{}", 1, "1 bytes follow its last tensor"},
        /* names */
        {"{" ENTRY("a", "U8", "[1]", "[0,1]") "," ENTRY("a", "U8", "[1]", "[1,2]") "}", 2,
         "tensor a occurs twice"},
        {"{" ENTRY("a", "U8", "[1]", "[0,1]") "," ENTRY("\\u0061", "U8", "[1]", "[1,2]") "}", 2,
         "tensor a occurs twice"},
        {"{" ENTRY("\\u001b[2J", "U8", "[1]", "[0,2]") "}", 2, "tensor \\x1b[2J has"},
        /* metadata */
        {"{\"__metadata__\":1}", 0, "an object expected"},
        {"{\"__metadata__\":{\"a\":1}}", 0, "a value that is not text: a"},
        {"{\"__metadata__\":{\"a\":\"\",\"a\":\"\"}}", 0, "a occurs twice in __metadata__"},
        {"{\"__metadata__\":{},\"__metadata__\":{}}", 0, "__metadata__ occurs twice"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        wf_status status = open_header(f, bad[i].header, bad[i].n_data, &file);
        if (status == WF_OK) fail_msg("%s was accepted", bad[i].header);
        expect_failure(f->ctx, status, WF_CORRUPT, bad[i].sentence);
        expect_sentence(f->ctx, folder_file(f, "x"));
    }
}

TEST_IN_FOLDER(refuses_bad_lengths) {
    wf_safetensors *file;
    unsigned char bytes[8] = {0};
    wf_context *ctx = f->ctx;
    expect_failure(ctx, wf_safetensors_open(ctx, folder_file(f, "x"), &file), WF_IO,
                   "cannot be opened");
    expect_failure(ctx, wf_safetensors_open(ctx, f->path, &file), WF_IO,
                   "holds neither model.safetensors nor model.safetensors.index.json");
    expect_failure(ctx, wf_safetensors_open(ctx, folder_write(f, "x", bytes, 7), &file), WF_CORRUPT,
                   "it has only 7 bytes");
    bytes[7] = 0x80;
    expect_failure(ctx, wf_safetensors_open(ctx, folder_write(f, "x", bytes, 8), &file), WF_CORRUPT,
                   "announces a header of 9223372036854775808 bytes");
    memset(bytes, 0xff, 8);
    expect_failure(ctx, wf_safetensors_open(ctx, folder_write(f, "x", bytes, 8), &file), WF_CORRUPT,
                   "announces a header of 18446744073709551615 bytes");
    memset(bytes, 0, 8);
    bytes[0] = 3;
    expect_failure(ctx, wf_safetensors_open(ctx, folder_write(f, "x", bytes, 8), &file), WF_CORRUPT,
                   "is truncated: it announces a header of 3 bytes, but has 8 in all");
}

/* What a file says of a tensor's bytes is compared as it stands there, with that tensor's. */
TEST_IN_FOLDER(compares_digests) {
    static const struct {
        const char *key, *said;
        bool fits;
    } cases[] = {
        {"weft.crc32.flags", "d3815ca8", true},
        {"weft.crc32.layer \"1\"/ä.weight", "e80cb0f4", true},
        {"weft.crc32.steps", "6fe7d670", true},
        {"weft.crc32.flag", "d3815ca9", true}, /* of no tensor */
        {"weft.crc32.", "d3815ca9", true},
        {"weft.crc3", "d3815ca9", true},
        {"weft.crc32.flags", "d3815ca9", false},
        {"weft.crc32.layer \"1\"/ä.weight", "d3815ca8", false}, /* another's */
        {"weft.crc32.steps", "6fe7d67", false},
        {"weft.crc32.steps", "6fe7d6700", false},
        {"weft.crc32.steps", "06fe7d670", false},
        {"weft.crc32.steps", "6FE7D670", false},
        {"weft.crc32.steps", "", false},
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        scoped_safetensors file = NULL;
        const char *path = folder_file(f, "digests.safetensors");
        const wf_metadata metadata[] = {{"a", "b"}, {cases[k].key, cases[k].said}, {"x", "y"}};
        int n_refused = 0;
        assert_int_equal(wf_safetensors_write(f->ctx, path, three, 3, metadata, 3), WF_OK);
        assert_int_equal(wf_safetensors_open(f->ctx, path, &file), WF_OK);
        for (int i = 0; i < 3; i++) {
            unsigned char bytes[64];
            const wf_safetensors_entry *e = wf_safetensors_get(file, i);
            wf_status status = wf_safetensors_read(file, i, bytes, (size_t)e->n_bytes);
            if (status == WF_OK) continue;
            n_refused++;
            assert_int_equal(status, WF_CORRUPT);
            assert_string_equal(e->name, cases[k].key + strlen("weft.crc32."));
            assert_non_null(strstr(wf_context_error(f->ctx), "is damaged: the CRC-32"));
        }
        if (n_refused != !cases[k].fits)
            fail_msg("%s '%s': %d tensors are refused", cases[k].key, cases[k].said, n_refused);
    }
}

TEST_IN_FOLDER(bounds_one_entry) {
    enum { N = 100000 };
    char *bytes = calloc(1, N + 64);
    wf_safetensors *file;
    assert_non_null(bytes);
    size_t n = (size_t)sprintf(bytes + 8, "{\"a\":{\"dtype\":\"U8\",\"shape\":[");
    while (n < N) n += (size_t)sprintf(bytes + 8 + n, "1,");
    memcpy(bytes, &(uint64_t){n}, 8);
    expect_failure(f->ctx, wf_safetensors_open(f->ctx, folder_write(f, "x", bytes, 8 + n), &file),
                   WF_CORRUPT, "a value of more than 65536 bytes");
    free(bytes);
}
