/* MNIST's layout: the parser, gzip, and folders of both.
 *
 * label: serial
 */
#include "data_folder.h"

#include "base/base.h"
#include "data/augment.h"
#include "data/gzip.h"
#include "data/idx.h"
#include <math.h>
#include <zlib.h>

#define SIDE 4

static size_t make_idx(uint8_t *bytes, int n_dims, const uint32_t *dim, size_t n_values) {
    size_t n = 0;
    bytes[n++] = 0;
    bytes[n++] = 0;
    bytes[n++] = 8;
    bytes[n++] = (uint8_t)n_dims;
    for (int d = 0; d < n_dims; d++)
        for (int shift = 24; shift >= 0; shift -= 8) bytes[n++] = (uint8_t)(dim[d] >> shift);
    for (size_t i = 0; i < n_values; i++) bytes[n++] = (uint8_t)(i * 7 % 256);
    return n;
}

static void write_images(folder *f, const char *name, uint32_t n) {
    uint8_t bytes[1024];
    folder_write(f, name, bytes, make_idx(bytes, 3, (uint32_t[]){n, SIDE, SIDE}, n * SIDE * SIDE));
}

static void write_labels(folder *f, const char *name, uint32_t n, int last) {
    uint8_t bytes[128];
    size_t size = make_idx(bytes, 1, &n, n);
    for (uint32_t i = 0; i < n; i++) bytes[8 + i] = (uint8_t)(i % 10);
    bytes[size - 1] = (uint8_t)last;
    folder_write(f, name, bytes, size);
}

static void write_set(folder *f) {
    write_images(f, "train-images-idx3-ubyte", 12);
    write_labels(f, "train-labels-idx1-ubyte", 12, 3);
    write_images(f, "t10k-images-idx3-ubyte", 5);
    write_labels(f, "t10k-labels-idx1-ubyte", 5, 4);
}

static wf_status open_set(folder *f, wf_data_normalize normalize, wf_data **data_out) {
    wf_data_config config = WF_DATA_CONFIG_INIT;
    config.name = f->path;
    config.normalize = normalize;
    return wf_data_open(f->ctx, &config, data_out);
}

TEST_IN_FOLDER(parses) {
    uint8_t bytes[256];
    wfi_idx idx;
    size_t n = make_idx(bytes, 3, (uint32_t[]){2, 3, 5}, 30);
    assert_int_equal(wfi_idx_parse(f->ctx, "x", bytes, n, 3, &idx), WF_OK);
    assert_int_equal(idx.dim[0], 2);
    assert_int_equal(idx.dim[2], 5);
    assert_ptr_equal(idx.values, bytes + 16);
}

TEST_IN_FOLDER(refuses_bad_headers) {
    uint8_t bytes[256];
    wfi_idx idx;
    size_t n = make_idx(bytes, 3, (uint32_t[]){2, 3, 5}, 30);
    wf_context *ctx = f->ctx;
    for (size_t shorter = 0; shorter < n; shorter++)
        expect_failure(ctx, wfi_idx_parse(ctx, "x", bytes, shorter, 3, &idx), WF_CORRUPT,
                       "x is truncated");
    expect_failure(ctx, wfi_idx_parse(ctx, "x", bytes, n + 2, 3, &idx), WF_CORRUPT,
                   "x has 2 bytes after the 30 values");
    expect_failure(ctx, wfi_idx_parse(ctx, "x", bytes, n, 1, &idx), WF_CORRUPT,
                   "begins with 0x00000803, not with 0x00000801");
    bytes[2] = 0x0d;
    expect_failure(ctx, wfi_idx_parse(ctx, "x", bytes, n, 3, &idx), WF_CORRUPT, "0x00000d03");
    n = make_idx(bytes, 3, (uint32_t[]){UINT32_MAX, UINT32_MAX, UINT32_MAX}, 30);
    expect_failure(ctx, wfi_idx_parse(ctx, "x", bytes, n, 3, &idx), WF_CORRUPT, "overflow");
    n = make_idx(bytes, 3, (uint32_t[]){2, 0, 5}, 0);
    expect_failure(ctx, wfi_idx_parse(ctx, "x", bytes, n, 3, &idx), WF_CORRUPT, "is empty");
}

TEST_IN_FOLDER(opens_a_folder) {
    scoped_data data;
    write_set(f);
    assert_int_equal(open_set(f, WF_NORMALIZE_NONE, &data), WF_OK);
    const wf_data_description *about = wf_data_describe(data);
    assert_int_equal(about->kind, WF_DATA_IMAGES);
    assert_int_equal(about->n_train, 12);
    assert_int_equal(about->n_test, 5);
    assert_int_equal(about->n_classes, 10);
    assert_int_equal(about->x_bytes, SIDE * SIDE * 4);
    assert_int_equal(about->y_bytes, 4);
    wf_loader_config order = WF_LOADER_CONFIG_INIT;
    order.batch = 12;
    order.shuffle = 0;
    scoped_loader loader;
    const wf_batch *batch;
    assert_int_equal(wf_loader_create(data, &order, &loader), WF_OK);
    assert_int_equal(wf_loader_next(loader, &batch), WF_OK);
    for (int i = 0; i < 12 * SIDE * SIDE; i++)
        assert_true(((const float *)batch->x)[i] == (float)(i * 7 % 256) / 255.0f);
    for (int i = 0; i < 12; i++)
        assert_int_equal(((const int32_t *)batch->y)[i], i == 11 ? 3 : i % 10);
}

TEST_IN_FOLDER(normalizes) {
    scoped_data data;
    write_set(f);
    assert_int_equal(open_set(f, WF_NORMALIZE_DEFAULT, &data), WF_OK);
    wf_loader_config order = WF_LOADER_CONFIG_INIT;
    order.batch = 12;
    scoped_loader loader;
    const wf_batch *batch;
    assert_int_equal(wf_loader_create(data, &order, &loader), WF_OK);
    assert_int_equal(wf_loader_next(loader, &batch), WF_OK);
    double sum = 0, squares = 0;
    int n = 12 * SIDE * SIDE;
    for (int i = 0; i < n; i++) {
        double value = ((const float *)batch->x)[i];
        sum += value;
        squares += value * value;
    }
    assert_true(fabs(sum / n) < 1e-6);
    assert_true(fabs(squares / n - 1) < 1e-5);
}

/* Who predicts has a model of other classes, and no use for labels. */
TEST_IN_FOLDER(drops_labels) {
    write_images(f, "train-images-idx3-ubyte", 12);
    write_labels(f, "train-labels-idx1-ubyte", 12, 10);
    wf_data_config unlabelled = WF_DATA_CONFIG_INIT;
    wf_loader_config order = WF_LOADER_CONFIG_INIT;
    scoped_data data;
    scoped_loader loader;
    const wf_batch *batch;
    unlabelled.name = f->path;
    unlabelled.unlabelled = 1;
    unlabelled.n_classes = 3;
    order.batch = 12;
    assert_int_equal(wf_data_open(f->ctx, &unlabelled, &data), WF_OK);
    assert_int_equal(wf_data_describe(data)->n_classes, 3);
    assert_int_equal(wf_loader_create(data, &order, &loader), WF_OK);
    assert_int_equal(wf_loader_next(loader, &batch), WF_OK);
    for (int i = 0; i < 12; i++) assert_int_equal(((const int32_t *)batch->y)[i], 0);
}

TEST_IN_FOLDER(refuses_bad_folders) {
    scoped_data data;
    expect_failure(f->ctx, open_set(f, WF_NORMALIZE_NONE, &data), WF_INVALID_ARG,
                   "contains no data set");
    write_images(f, "train-images-idx3-ubyte", 12);
    expect_failure(f->ctx, open_set(f, WF_NORMALIZE_NONE, &data), WF_IO,
                   "has no file train-labels-idx1-ubyte");
    write_labels(f, "train-labels-idx1-ubyte", 11, 0);
    expect_failure(f->ctx, open_set(f, WF_NORMALIZE_NONE, &data), WF_CORRUPT, "holds 12 images");
    write_labels(f, "train-labels-idx1-ubyte", 12, 10);
    expect_failure(f->ctx, open_set(f, WF_NORMALIZE_NONE, &data), WF_CORRUPT,
                   "the label of sample 11 is 10, but there are 10 classes");
    write_labels(f, "train-labels-idx1-ubyte", 12, 9);
    assert_int_equal(open_set(f, WF_NORMALIZE_NONE, &data), WF_OK);
    assert_int_equal(wf_data_describe(data)->n_test, 0);
    wf_loader_config order = WF_LOADER_CONFIG_INIT;
    wf_loader *loader;
    order.split = WF_DATA_TEST;
    expect_failure(f->ctx, wf_loader_create(data, &order, &loader), WF_INVALID_ARG,
                   "no test samples");
}

TEST_IN_FOLDER(refuses_unknown_names) {
    wf_data *data;
    wf_data_config config = WF_DATA_CONFIG_INIT;
    config.name = "no-such-set";
    expect_failure(f->ctx, wf_data_open(f->ctx, &config, &data), WF_INVALID_ARG,
                   "no data set and no file called no-such-set; known are synthetic");
    write_set(f);
    config.name = f->path;
    config.kind = WF_DATA_TOKENS;
    config.n_tokens = 8;
    expect_failure(f->ctx, wf_data_open(f->ctx, &config, &data), WF_INVALID_ARG,
                   "holds images, but the model reads tokens");
}

/* Packs `bytes` as gzip. */
static size_t zip(const uint8_t *bytes, size_t n, uint8_t *packed, size_t capacity) {
    z_stream z = {.next_in = (Bytef *)bytes,
                  .avail_in = (uInt)n,
                  .next_out = packed,
                  .avail_out = (uInt)capacity};
    assert_int_equal(deflateInit2(&z, 9, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY), Z_OK);
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    size_t n_packed = capacity - z.avail_out;
    deflateEnd(&z);
    return n_packed;
}

/* Says what it is told to say; the first bytes have to be those of the file. */
typedef struct announcement {
    const uint8_t *head;
    size_t n_bytes;
} announcement;

static wf_status announced(wf_context *ctx, const char *path, const uint8_t *head, size_t n_head,
                           const void *self, size_t *n_bytes_out) {
    const announcement *a = self;
    if (memcmp(head, a->head, n_head)) return wfi_fail(ctx, WF_CORRUPT, "%s: other bytes", path);
    *n_bytes_out = a->n_bytes;
    return WF_OK;
}

static wf_status unzip(wf_context *ctx, const uint8_t *packed, size_t n_packed,
                       const announcement *a, uint8_t **bytes_out, size_t *n_bytes_out) {
    return wfi_gzip_unpack(ctx, "x", packed, n_packed, 16, announced, a, bytes_out, n_bytes_out);
}

TEST_IN_FOLDER(unpacks_gzip) {
    static uint8_t bytes[100000], packed[110000];
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (uint8_t)(i * i >> 7);
    size_t n_packed = zip(bytes, sizeof bytes, packed, sizeof packed - 16), n;
    uint8_t *out;
    announcement a = {bytes, sizeof bytes};
    wf_context *ctx = f->ctx;
    assert_int_equal(unzip(ctx, packed, n_packed, &a, &out, &n), WF_OK);
    assert_int_equal(n, sizeof bytes);
    assert_memory_equal(out, bytes, n);
    assert_int_equal(wf_context_memory(ctx).n_live, 1); /* zlib's blocks are gone */
    wfi_free(ctx, out);
    for (size_t shorter = 0; shorter < n_packed; shorter += 97)
        assert_int_equal(unzip(ctx, packed, shorter, &a, &out, &n), WF_CORRUPT);
    a.n_bytes--;
    expect_failure(ctx, unzip(ctx, packed, n_packed, &a, &out, &n), WF_CORRUPT,
                   "more than the 99999 bytes that its header announces");
    a.n_bytes += 2;
    expect_failure(ctx, unzip(ctx, packed, n_packed, &a, &out, &n), WF_CORRUPT,
                   "its end or its length is wrong");
    a.n_bytes = sizeof packed * 1100;
    expect_failure(ctx, unzip(ctx, packed, 100, &a, &out, &n), WF_CORRUPT,
                   "more than 100 packed bytes can hold");
    a.n_bytes = sizeof bytes;
    packed[n_packed / 2] ^= 1;
    expect_failure(ctx, unzip(ctx, packed, n_packed, &a, &out, &n), WF_CORRUPT,
                   "x is truncated or damaged");
    packed[n_packed / 2] ^= 1;
    memcpy(packed + n_packed, "\0\0\x1f\x8b", 4);
    expect_failure(ctx, unzip(ctx, packed, n_packed + 4, &a, &out, &n), WF_CORRUPT,
                   "x has 2 bytes after the end");
}

/* As cat a.gz b.gz gives, with the zeros of a tape or a disk behind. */
TEST_IN_FOLDER(unpacks_members) {
    static uint8_t bytes[1000], packed[4000], *out;
    size_t cuts[] = {0, 0, 7, 700, sizeof bytes, sizeof bytes}, n_packed = 0, n;
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (uint8_t)(i * i >> 7);
    for (size_t k = 0; k + 1 < sizeof cuts / sizeof *cuts; k++) {
        announcement a = {bytes, cuts[k]};
        if (cuts[k] > 16) {
            assert_int_equal(unzip(f->ctx, packed, n_packed, &a, &out, &n), WF_OK);
            wfi_free(f->ctx, out);
        }
        n_packed += zip(bytes + cuts[k], cuts[k + 1] - cuts[k], packed + n_packed,
                        sizeof packed - n_packed);
    }
    announcement a = {bytes, sizeof bytes};
    for (size_t padding = 0; padding < 600; padding += 512) {
        assert_int_equal(unzip(f->ctx, packed, n_packed + padding, &a, &out, &n), WF_OK);
        assert_memory_equal(out, bytes, n);
        wfi_free(f->ctx, out);
    }
    expect_failure(f->ctx, unzip(f->ctx, packed, n_packed - 30, &a, &out, &n), WF_CORRUPT,
                   "x is truncated or damaged");
}

/* A file that announces little and unpacks to much is refused before memory is taken for it. */
TEST_IN_FOLDER(bombs_take_no_memory) {
    enum { N_HELD = 1 << 24, N_PACKED = 1 << 16 };
    wf_data *data;
    uint8_t *held = calloc(1, N_HELD), *packed = malloc(N_PACKED);
    assert_true(held && packed);
    write_set(f);
    unlink(folder_file(f, "train-images-idx3-ubyte"));
    make_idx(held, 3, (uint32_t[]){40, 28, 28}, 40 * 28 * 28);
    size_t n_packed = zip(held, N_HELD, packed, N_PACKED);
    folder_write(f, "train-images-idx3-ubyte.gz", packed, n_packed);
    expect_failure(f->ctx, open_set(f, WF_NORMALIZE_NONE, &data), WF_CORRUPT,
                   "more than the 31376 bytes that its header announces");
    assert_true(wf_context_memory(f->ctx).peak_bytes < N_HELD / 32);
    free(held);
    free(packed);
}

TEST_IN_FOLDER(opens_packed_files) {
    uint8_t bytes[1024], packed[2048];
    wf_data *data;
    write_set(f);
    size_t n = make_idx(bytes, 3, (uint32_t[]){12, SIDE, SIDE}, 12 * SIDE * SIDE);
    unlink(folder_file(f, "train-images-idx3-ubyte"));
    size_t n_packed = zip(bytes, n, packed, sizeof packed);
    folder_write(f, "train-images-idx3-ubyte.gz", packed, n_packed);
    assert_int_equal(open_set(f, WF_NORMALIZE_NONE, &data), WF_OK);
    wf_data_close(data);
    folder_write(f, "train-images-idx3-ubyte.gz", packed, n_packed - 9);
    expect_failure(f->ctx, open_set(f, WF_NORMALIZE_NONE, &data), WF_CORRUPT,
                   "train-images-idx3-ubyte.gz is truncated or damaged");
}

/* Against the definition, pixel by pixel. */
TEST_CASE(augments) {
    enum { H = 5, W = 7 };
    uint8_t src[H * W];
    float value_of[256], dst[H * W];
    for (int i = 0; i < 256; i++) value_of[i] = (float)i + 0.5f;
    for (int i = 0; i < H * W; i++) src[i] = (uint8_t)(i + 1);
    for (int down = -6; down <= 6; down++)
        for (int right = -8; right <= 8; right++)
            for (int flip = 0; flip < 2; flip++) {
                wfi_augment_apply((wfi_augment){down, right, flip != 0}, src, H, W, value_of, dst);
                for (int y = 0; y < H; y++)
                    for (int x = 0; x < W; x++) {
                        int from_y = y + down, from_x = (flip ? W - 1 - x : x) + right;
                        int inside = from_y >= 0 && from_y < H && from_x >= 0 && from_x < W;
                        float expected = value_of[inside ? src[from_y * W + from_x] : 0];
                        assert_true(dst[y * W + x] == expected);
                    }
            }
    int seen[5] = {0}, flips = 0, both[2][2] = {0}; /* flipped; moved up or left */
    for (int i = 0; i < 1000; i++) {
        wfi_augment a = wfi_augment_make(1, 2, i, 2, true), b = wfi_augment_make(1, 2, i, 2, true);
        assert_true(a.down == b.down && a.right == b.right && a.flip == b.flip);
        assert_in_range(a.down + 2, 0, 4);
        seen[a.right + 2]++;
        flips += a.flip;
        both[0][0] += a.flip && a.down < 0;
        both[0][1] += a.flip && a.right < 0;
        both[1][0] += !a.flip && a.down < 0;
        both[1][1] += !a.flip && a.right < 0;
    }
    for (int k = 0; k < 4; k++) assert_in_range(both[k / 2][k % 2], 140, 260);
    for (int i = 0; i < 5; i++) assert_in_range(seen[i], 150, 250);
    assert_in_range(flips, 440, 560);
}

/* Two loaders, one started at the second epoch, give the same augmented bytes. */
TEST_IN_FOLDER(augments_by_epoch) {
    scoped_data data;
    scoped_loader whole;
    scoped_loader resumed;
    const wf_batch *first, *a, *b;
    float pixels[SIDE * SIDE * 12];
    write_set(f);
    assert_int_equal(open_set(f, WF_NORMALIZE_DEFAULT, &data), WF_OK);
    wf_loader_config order = WF_LOADER_CONFIG_INIT;
    order.batch = 12;
    order.shuffle = 0;
    order.augment = 1;
    assert_int_equal(wf_loader_create(data, &order, &whole), WF_OK);
    order.first_epoch = 1;
    assert_int_equal(wf_loader_create(data, &order, &resumed), WF_OK);
    assert_int_equal(wf_loader_next(whole, &first), WF_OK);
    memcpy(pixels, first->x, sizeof pixels);
    assert_int_equal(wf_loader_next(whole, &a), WF_OK);
    assert_int_equal(wf_loader_next(resumed, &b), WF_OK);
    assert_int_equal(a->x_bytes, sizeof pixels);
    assert_memory_equal(a->x, b->x, sizeof pixels);
    assert_memory_not_equal(a->x, pixels, sizeof pixels);
}
