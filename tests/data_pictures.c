/* Pictures in folders: what is found and refused, and what samples are. With words it is a tool for
 * other tests: data_pictures FOLDER CLASS... writes FOLDER/{train,val}/CLASS/0.png and so on, 12
 * and 4 of each class, whose colour tells it. */
#include "data_folder.h"
#include "write_picture.h"

#include "base/base.h"
#include <errno.h>
#include <ftw.h>
#include <math.h>
#include <sys/stat.h>
#include <zlib.h>

#define SIDE 16

/* ---- folders ---- */

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *ftw) {
    return ftw->level ? remove(path) : 0;
}

static int teardown(void **state) {
    nftw(((folder *)*state)->path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    return folder_teardown(state);
}

#define TEST_IN_TREE(name) TEST_IN(name, teardown)

/* A path in the folder, whose folders are made. */
static const char *place(folder *f, const char *name) {
    for (const char *slash = strchr(name, '/'); slash; slash = strchr(slash + 1, '/')) {
        char part[200];
        snprintf(part, sizeof part, "%.*s", (int)(slash - name), name);
        assert_true(mkdir(folder_file(f, part), 0777) == 0 || errno == EEXIST);
    }
    return folder_file(f, name);
}

/* All one colour, so that every part of it is the same. */
static void put(folder *f, const char *name, uint8_t r, uint8_t g, uint8_t b, int side) {
    uint8_t *rgb = malloc((size_t)side * (size_t)side * 3);
    assert_non_null(rgb);
    for (int i = 0; i < side * side; i++) memcpy(rgb + i * 3, (uint8_t[]){r, g, b}, 3);
    assert_true(write_rgb_png(place(f, name), rgb, side, side));
    free(rgb);
}

static wf_data_config config_of(const folder *f) {
    wf_data_config config = WF_DATA_CONFIG_INIT;
    config.name = f->path;
    config.normalize = WF_NORMALIZE_NONE;
    config.height = config.width = SIDE;
    return config;
}

static wf_data *open_set(folder *f, wf_data_config config) {
    wf_data *data;
    if (wf_data_open(f->ctx, &config, &data) != WF_OK) fail_msg("%s", wf_context_error(f->ctx));
    return data;
}

static wf_loader_config in_order(int64_t batch) {
    wf_loader_config order = WF_LOADER_CONFIG_INIT;
    order.shuffle = 0;
    order.batch = batch;
    order.n_workers = 3;
    return order;
}

static void refuse(folder *f, wf_data_config config, wf_status status, const char *words) {
    wf_data *data;
    expect_failure(f->ctx, wf_data_open(f->ctx, &config, &data), status, words);
}

/* ---- what is found ---- */

TEST_IN_TREE(finds_as_torchvision) {
    put(f, "train/dog/b.png", 0, 0, 0, 4);
    put(f, "train/dog/a-b/z.png", 0, 0, 0, 4);
    put(f, "train/dog/a/y.png", 0, 0, 0, 4);
    put(f, "train/dog/a/x/w.png", 0, 0, 0, 4);
    put(f, "train/Cat/B.PNG", 0, 0, 0, 4);
    put(f, "train/Cat/a.jpeg", 0, 0, 0, 4); /* a PNG all the same */
    put(f, "train/Cat/.hidden.jpg", 0, 0, 0, 4);
    put(f, "elsewhere/e.png", 0, 0, 0, 4);
    folder_write(f, "train/Cat/notes.txt", "x", 1);
    folder_write(f, "train/loose.png", "x", 1);
    char target[400];
    snprintf(target, sizeof target, "%s", folder_file(f, "elsewhere"));
    assert_int_equal(symlink(target, folder_file(f, "train/linked")), 0);
    assert_int_equal(symlink("b.png", folder_file(f, "train/dog/link.png")), 0);
    static const char *const files[] = {"Cat/.hidden.jpg", "Cat/B.PNG",     "Cat/a.jpeg",
                                        "dog/b.png",       "dog/link.png",  "dog/a/y.png",
                                        "dog/a/x/w.png",   "dog/a-b/z.png", "linked/e.png"};
    /* Folders in the order of their whole names, in which - comes before /. */
    static const int place_of[] = {0, 1, 2, 3, 4, 5, 7, 6, 8},
                     label[] = {0, 0, 0, 1, 1, 1, 1, 1, 2};
    wf_data *data = open_set(f, config_of(f));
    const wf_data_description *about = wf_data_describe(data);
    assert_int_equal(about->n_train, 9);
    assert_int_equal(about->n_test, 0);
    assert_int_equal(about->n_classes, 3);
    assert_string_equal(wf_data_class_name(data, 0), "Cat");
    assert_string_equal(wf_data_class_name(data, 2), "linked");
    assert_null(wf_data_class_name(data, 3));
    wf_loader_config order = in_order(9);
    wf_loader *loader;
    const wf_batch *batch;
    assert_int_equal(wf_loader_create(data, &order, &loader), WF_OK);
    if (wf_loader_next(loader, &batch) != WF_OK) fail_msg("%s", wf_context_error(f->ctx));
    for (int i = 0; i < 9; i++) {
        const char *name = wf_data_sample_name(data, WF_DATA_TRAIN, place_of[i]);
        if (!strstr(name, files[i]))
            fail_msg("sample %d is %s, not %s", place_of[i], name, files[i]);
        assert_int_equal(((const int32_t *)batch->y)[place_of[i]], label[i]);
    }
    wf_loader_destroy(loader);
    wf_data_close(data);
    wf_data_config plain = config_of(f);
    plain.unlabelled = 1;
    data = open_set(f, plain);
    assert_int_equal(wf_data_describe(data)->n_test, 11); /* a loose one, and a linked one twice */
    wf_data_close(data);
}

TEST_IN_TREE(refuses_folders) {
    wf_data_config config = config_of(f);
    refuse(f, config, WF_INVALID_ARG, "contains no data set: neither a folder train");
    place(f, "train/x");
    refuse(f, config, WF_CORRUPT, "contains no class folder");
    place(f, "train/cat/x");
    refuse(f, config, WF_CORRUPT, "train/cat contains no picture: a class needs one");
    put(f, "train/cat/a.png", 1, 2, 3, 4);
    put(f, "val/dog/a.png", 1, 2, 3, 4);
    refuse(f, config, WF_CORRUPT, "the classes in val are not those in train");
    put(f, "train/dog/a.png", 1, 2, 3, 4);
    put(f, "val/cat/a.png", 1, 2, 3, 4);
    wf_data_close(open_set(f, config));
    folder_write(f, "train/dog/old.BMP", "BM", 2);
    refuse(f, config, WF_CORRUPT, "old.BMP is a picture that is neither JPEG nor PNG");
    config.skip_broken = 1;
    wf_data_close(open_set(f, config));
    config.skip_broken = 0;
    assert_int_equal(remove(folder_file(f, "train/dog/old.BMP")), 0);
    assert_int_equal(symlink("..", folder_file(f, "train/dog/back")), 0);
    refuse(f, config, WF_IO, "more than 64 nested folders");
    assert_int_equal(remove(folder_file(f, "train/dog/back")), 0);
    config.channels = 2;
    refuse(f, config, WF_INVALID_ARG, "have 3 channels, or 1");
    config = config_of(f);
    config.resized = SIDE - 1;
    refuse(f, config, WF_INVALID_ARG, "too small for a centre of 16 pixels");
    config = config_of(f);
    config.normalize = WF_NORMALIZE_GIVEN;
    refuse(f, config, WF_INVALID_ARG, "normalised by mean 0 and deviation 0");
}

/* ---- samples ---- */

#define N_EACH 6

static void put_noise(folder *f, const char *name, int number) {
    static uint8_t rgb[40 * 50 * 3];
    unsigned seed = (unsigned)number;
    for (size_t i = 0; i < sizeof rgb; i++) {
        seed = seed * 1103515245 + 12345;
        rgb[i] = (uint8_t)(seed >> 16);
    }
    assert_true(write_rgb_png(place(f, name), rgb, 40, 50));
}

static void make_set(folder *f) {
    for (int i = 0; i < N_EACH; i++) {
        char name[60];
        snprintf(name, sizeof name, "train/%s/%d.png", i % 2 ? "odd" : "even", i);
        put_noise(f, name, i);
        snprintf(name, sizeof name, "val/%s/%d.png", i % 2 ? "odd" : "even", i);
        put_noise(f, name, 10 + i);
    }
}

/* CRC of three epochs of the training split, its samples put in the order of their numbers. */
static void read_epochs(wf_data *data, wf_loader_config config, uint32_t crc_out[3][N_EACH]) {
    scoped_loader loader;
    size_t x_bytes = wf_data_describe(data)->x_bytes;
    assert_int_equal(wf_loader_create(data, &config, &loader), WF_OK);
    for (int e = 0; e < 3; e++)
        for (int n = 0; n < N_EACH / config.n_parts;) {
            const wf_batch *batch;
            assert_int_equal(wf_loader_next(loader, &batch), WF_OK);
            assert_int_equal(batch->epoch, e);
            for (int64_t i = 0; i < batch->n_samples; i++, n++)
                crc_out[e][batch->index[i]] = (uint32_t)crc32(
                    0, (const uint8_t *)batch->x + (size_t)i * x_bytes, (uInt)x_bytes);
        }
}

/* Parts and flips go by epoch and sample, not by who decodes them, in which batch, from the cache
 * or not. */
TEST_IN_TREE(samples_are_functions) {
    make_set(f);
    wf_data_config config = config_of(f);
    scoped_data plain = open_set(f, config);
    config.cache_bytes = 2 * 6032 + 100; /* room for some */
    scoped_data cached = open_set(f, config);
    config.seed = 1;
    scoped_data other = open_set(f, config);
    uint32_t one[3][N_EACH] = {0}, two[3][N_EACH] = {0}, three[3][N_EACH] = {0};
    wf_loader_config order = WF_LOADER_CONFIG_INIT;
    order.augment = 1;
    order.batch = 2;
    read_epochs(plain, order, one);
    order.n_workers = 5;
    order.n_prefetch = 4;
    read_epochs(cached, order, two);
    assert_memory_equal(one, two, sizeof one);
    read_epochs(cached, order, two); /* what is decoded already */
    assert_memory_equal(one, two, sizeof one);
    read_epochs(other, order, two);
    assert_memory_not_equal(one, two, sizeof one);
    for (int i = 0; i < N_EACH; i++) assert_int_not_equal(one[0][i], one[1][i]);
    order.shuffle = 0;
    order.n_parts = order.n_micro = 2;
    for (order.part = 0; order.part < 2; order.part++) read_epochs(plain, order, three);
    assert_memory_equal(one, three, sizeof one);
    order.n_parts = 1;
    order.part = order.augment = 0;
    read_epochs(plain, order, two);
    for (int i = 0; i < N_EACH; i++) assert_int_equal(two[0][i], two[2][i]);
}

/* A flip is of what is not flipped, and both occur; grey is what the library makes of colours. */
TEST_IN_TREE(flips_and_greys) {
    put(f, "train/one/a.png", 10, 200, 90, 20);
    wf_data_config config = config_of(f);
    config.channels = 1;
    wf_data *data = open_set(f, config);
    wf_loader_config order = WF_LOADER_CONFIG_INIT;
    wf_loader *loader;
    const wf_batch *batch;
    order.batch = 1;
    assert_int_equal(wf_loader_create(data, &order, &loader), WF_OK);
    assert_int_equal(wf_loader_next(loader, &batch), WF_OK);
    assert_int_equal(batch->x_bytes, SIDE * SIDE * sizeof(float));
    for (int i = 0; i < SIDE * SIDE; i++)
        assert_true(((const float *)batch->x)[i] == 131.0f / 255.0f); /* of 130.65 */
    wf_loader_destroy(loader);
    wf_data_close(data);
    uint8_t halves[64 * 64 * 3]; /* dark at the left */
    for (int i = 0; i < 64 * 64 * 3; i++) halves[i] = (uint8_t)(i / 3 % 64 * 4);
    assert_true(write_rgb_png(folder_file(f, "train/one/a.png"), halves, 64, 64));
    data = open_set(f, config_of(f));
    order.augment = 1;
    assert_int_equal(wf_loader_create(data, &order, &loader), WF_OK);
    int n_flipped = 0;
    for (int e = 0; e < 40; e++) {
        assert_int_equal(wf_loader_next(loader, &batch), WF_OK);
        const float *x = batch->x;
        n_flipped += x[0] > x[SIDE - 1];
    }
    assert_in_range(n_flipped, 8, 32);
    wf_loader_destroy(loader);
    wf_data_close(data);
}

/* torchvision's RandomResizedCrop: a uniform area from 8 %, as often wide as high, anywhere. Red is
 * the column and green the row, so an image shows which part it is of. */
TEST_IN_TREE(parts_as_in_torchvision) {
    enum { N = 1500, WHOLE = 64 };
    uint8_t rgb[WHOLE * WHOLE * 3] = {0};
    for (int i = 0; i < WHOLE * WHOLE; i++) {
        rgb[i * 3] = (uint8_t)(i % WHOLE * 4);
        rgb[i * 3 + 1] = (uint8_t)(i / WHOLE * 4);
    }
    assert_true(write_rgb_png(place(f, "train/one/a.png"), rgb, WHOLE, WHOLE));
    wf_data *data = open_set(f, config_of(f));
    wf_loader_config order = WF_LOADER_CONFIG_INIT;
    wf_loader *loader;
    const wf_batch *batch;
    order.batch = order.augment = 1;
    assert_int_equal(wf_loader_create(data, &order, &loader), WF_OK);
    double least = 1, n_wide = 0, product = 0, squares[2] = {0};
    for (int e = 0; e < N; e++) {
        assert_int_equal(wf_loader_next(loader, &batch), WF_OK);
        const float *red = batch->x, *green = red + SIDE * SIDE;
        /* Between the centres of the outer pixels lie so many of the part's. */
        double scale = 255.0 / 4 / (SIDE - 1), last = SIDE * SIDE - 1;
        double width = fabs((double)red[SIDE - 1] - (double)red[0]) * scale * SIDE;
        double height = fabs((double)green[(int)last] - (double)green[0]) * scale * SIDE;
        double x = (double)(red[0] + red[SIDE - 1]) / 2 - 0.5,
               y = (double)(green[0] + green[(int)last]) / 2 - 0.5;
        double share = width * height / WHOLE / WHOLE;
        least = share < least ? share : least;
        n_wide += width > height;
        product += x * y;
        squares[0] += x * x;
        squares[1] += y * y;
    }
    wf_loader_destroy(loader);
    wf_data_close(data);
    double wide = n_wide / N, correlation = product / sqrt(squares[0] * squares[1]);
    if (!(least < 0.12 && fabs(wide - 0.5) < 0.03 && fabs(correlation) < 0.2))
        fail_msg("areas of %g and more; %g are wide; places correlate by %g", least, wide,
                 correlation);
}

TEST_IN_TREE(names_what_is_broken) {
    make_set(f);
    folder_write(f, "train/odd/broken.png", "\x89PNG\r\n\x1a\n and then?", 18);
    folder_write(f, "val/even/text.jpg", "no picture", 10);
    assert_int_equal(symlink("nowhere", folder_file(f, "train/odd/gone.png")), 0);
    wf_data_config config = config_of(f);
    wf_data *data = open_set(f, config);
    wf_loader_config order = in_order(4);
    wf_loader *loader;
    const wf_batch *batch;
    assert_int_equal(wf_loader_create(data, &order, &loader), WF_OK);
    assert_int_equal(wf_loader_next(loader, &batch), WF_OK);
    expect_failure(f->ctx, wf_loader_next(loader, &batch), WF_CORRUPT,
                   "train/odd/broken.png is truncated or damaged");
    assert_int_equal(wf_loader_next(loader, &batch), WF_OK); /* the next epoch's first */
    wf_loader_destroy(loader);
    wf_data_close(data);
    config.skip_broken = 1;
    data = open_set(f, config);
    assert_int_equal(wf_data_describe(data)->n_train, N_EACH);
    assert_int_equal(wf_data_describe(data)->n_test, N_EACH);
    uint32_t crc[3][N_EACH];
    read_epochs(data, order, crc);
    wf_data_close(data);
}

static void *no_pictures(void *self, size_t bytes) {
    const bool *is_scarce = self;
    bool is_picture = bytes >= 40 * 50 * 3 && bytes < 40 * 50 * 3 + 200;
    return *is_scarce && is_picture ? NULL : aligned_alloc(64, (bytes + 63) / 64 * 64);
}

static void plain_free(void *self, void *block) {
    free(block);
}

/* A set that has to do with less memory is not a smaller one. */
TEST_IN_TREE(no_memory_breaks_no_picture) {
    wf_context_config few = WF_CONTEXT_CONFIG_INIT;
    wf_context *ctx;
    wf_data *data;
    bool is_scarce = false;
    make_set(f);
    put(f, "train/odd/small.png", 1, 2, 3, 4); /* which fits */
    put(f, "val/odd/small.png", 1, 2, 3, 4);
    wf_data_config config = config_of(f);
    config.skip_broken = 1;
    few.allocator = (wf_allocator){no_pictures, plain_free, &is_scarce};
    assert_int_equal(wf_context_create(&few, &ctx), WF_OK);
    is_scarce = true;
    expect_failure(ctx, wf_data_open(ctx, &config, &data), WF_NO_MEMORY, "memory");
    wf_context_destroy(ctx);
}

/* Two sets are one if their files are; another file, name or class makes another. */
TEST_IN_TREE(hashes) {
    char before[WF_DATA_HASH_BYTES], after[WF_DATA_HASH_BYTES];
    make_set(f);
    wf_data *data = open_set(f, config_of(f));
    assert_int_equal(wf_data_hash(data, before), WF_OK);
    assert_int_equal(wf_data_hash(data, after), WF_OK);
    assert_string_equal(before, after);
    put_noise(f, "val/odd/5.png", 77);
    assert_int_equal(wf_data_hash(data, after), WF_OK);
    assert_string_not_equal(before, after);
    put_noise(f, "val/odd/5.png", 15);
    assert_int_equal(wf_data_hash(data, after), WF_OK);
    assert_string_equal(before, after);
    wf_data_close(data);
    char from[400];
    snprintf(from, sizeof from, "%s", folder_file(f, "val/odd/5.png"));
    assert_int_equal(rename(from, folder_file(f, "val/odd/6.png")), 0);
    data = open_set(f, config_of(f));
    assert_int_equal(wf_data_hash(data, after), WF_OK);
    assert_string_not_equal(before, after);
    wf_data_close(data);
}

/* ---- for other tests ---- */

static int make_folder(int argc, char **argv) {
    for (int k = 2; k < argc; k++)
        for (int i = 0; i < 16; i++) {
            uint8_t rgb[40 * 36 * 3];
            char path[600];
            snprintf(path, sizeof path, "%.200s/%s", argv[1], i < 12 ? "train" : "val");
            (void)(mkdir(argv[1], 0777) | mkdir(path, 0777));
            snprintf(path + strlen(path), 210, "/%.200s", argv[k]);
            (void)mkdir(path, 0777);
            snprintf(path + strlen(path), 30, "/%d.%s", i, i % 2 ? "jpg" : "png");
            for (int p = 0; p < (int)sizeof rgb; p++)
                rgb[p] = (uint8_t)(p % 3 == k % 3 ? 200 + (p * 7 + i * 11) % 50
                                                  : 40 + (p + i * 13) % 60);
            if (!(i % 2 ? write_jpeg(path, rgb, 40, 36, 3, 0) : write_rgb_png(path, rgb, 40, 36)))
                return 1;
        }
    return 0;
}

int main(int argc, char **argv) {
    if (argc > 1) return make_folder(argc, argv);
    return test_run(NULL, NULL);
}
