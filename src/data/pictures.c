/* Pictures in files as samples, prepared as PyTorch's ImageNet example does: to train on, a random
 * part is resized and perhaps flipped; else the shorter side is resized and the centre cut out. */
#include "data/pictures.h"
#include "base/file.h"
#include "base/random.h"
#include "data/images.h"
#include "data/resize.h"
#include "data/source.h"

#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <weft/info.h>

#define SIDE           224 /* of an image, and ... */
#define RESIZED        256 /* ... of the picture around its center crop */
#define N_ATTEMPTS     10  /* at a random part that fits */
#define MAX_FILE_BYTES (512 << 20)
#define END_BYTES      4096 /* at each end of a file that tell it from others */
#define MAX_CHECKERS   64

typedef struct pictures {
    wfi_pool pool; /* names */
    wfi_picture_list split[2];
    int64_t channels, side, resized;
    float value_of[3][256];   /* value of each byte of a pixel */
    atomic_size_t room_bytes; /* for pictures to be kept decoded */
} pictures;

/* ---- a picture ---- */

static wf_status read_file(wf_context *ctx, const char *path, uint8_t **bytes_out,
                           size_t *n_bytes_out) {
    WF_TRY(wfi_file_size(ctx, path, n_bytes_out));
    if (*n_bytes_out > MAX_FILE_BYTES)
        return wfi_fail(ctx, WF_CORRUPT, "%s has %zu bytes; a picture has at most %d", path,
                        *n_bytes_out, MAX_FILE_BYTES);
    return wfi_file_read(ctx, path, bytes_out, n_bytes_out);
}

static wf_status decode(wf_context *ctx, const char *path, wfi_picture *picture_out) {
    uint8_t *bytes;
    size_t n_bytes;
    WF_TRY(read_file(ctx, path, &bytes, &n_bytes));
    wf_status status = wfi_picture_decode(ctx, path, bytes, n_bytes, picture_out);
    wfi_free(ctx, bytes);
    return status;
}

/* Whether there was room for it; then it is the file's. */
static bool keep(wf_context *ctx, pictures *p, wfi_picture_file *file, const wfi_picture *picture) {
    size_t n_bytes = (size_t)(picture->width * picture->height * 3) + sizeof *picture;
    size_t room = atomic_load(&p->room_bytes);
    do {
        if (room < n_bytes) return false;
    } while (!atomic_compare_exchange_weak(&p->room_bytes, &room, room - n_bytes));
    wfi_picture *none = NULL, *kept = wfi_alloc(ctx, 1, sizeof *kept, "a picture");
    if (kept) *kept = *picture;
    if (kept && atomic_compare_exchange_strong(&file->kept, &none, kept)) return true;
    wfi_free(ctx, kept); /* another thread was faster */
    atomic_fetch_add(&p->room_bytes, n_bytes);
    return false;
}

/* Decoded, now or before; *is_own_out: to be freed. */
static wf_status get_picture(wf_context *ctx, pictures *p, wfi_picture_file *file,
                             wfi_picture *picture_out, bool *is_own_out) {
    const wfi_picture *kept = atomic_load(&file->kept);
    *is_own_out = false;
    if (kept) {
        *picture_out = *kept;
        return WF_OK;
    }
    WF_TRY(decode(ctx, file->path, picture_out));
    *is_own_out = !keep(ctx, p, file, picture_out);
    return WF_OK;
}

/* ---- which part of it ---- */

static double uniform(uint32_t word, double low, double high) {
    return low + (high - low) * ((double)word * 0x1p-32);
}

static int64_t below(uint32_t word, int64_t n) {
    return (int64_t)((uint64_t)word * (uint64_t)n >> 32);
}

/* torchvision's RandomResizedCrop: 8 to 100 % of the pixels, 3:4 to 4:3. */
static wfi_box random_part(const wf_data *data, const wfi_sample *sample, int64_t width,
                           int64_t height) {
    const wfi_random_key key = {data->seed, wfi_random_name("augment.part")};
    const double narrow = 3.0 / 4, wide = 4.0 / 3;
    for (int k = 0; k < N_ATTEMPTS; k++) {
        uint32_t words[4];
        wfi_random_words(key, (uint64_t)sample->epoch, (uint64_t)(sample->index * N_ATTEMPTS + k),
                         words);
        double area = (double)(width * height) * uniform(words[0], 0.08, 1);
        double ratio = exp(uniform(words[1], log(narrow), log(wide)));
        int64_t w = (int64_t)rint(sqrt(area * ratio)), h = (int64_t)rint(sqrt(area / ratio));
        if (w > 0 && w <= width && h > 0 && h <= height)
            return (wfi_box){below(words[3], width - w + 1), below(words[2], height - h + 1), w, h};
    }
    double ratio = (double)width / (double)height;
    int64_t w = width, h = height;
    if (ratio < narrow) h = (int64_t)rint((double)w / narrow);
    if (ratio > wide) w = (int64_t)rint((double)h * wide);
    return (wfi_box){(width - w) / 2, (height - h) / 2, w, h};
}

static bool random_flip(const wf_data *data, const wfi_sample *sample) {
    uint32_t words[4];
    wfi_random_words((wfi_random_key){data->seed, wfi_random_name("augment.flip")},
                     (uint64_t)sample->epoch, (uint64_t)sample->index, words);
    return words[0] >> 31;
}

static wf_status prepare(const wf_data *data, const wfi_sample *sample, const wfi_picture *picture,
                         uint8_t *rgb) {
    const pictures *p = data->state;
    int64_t w = picture->width, h = picture->height, side = p->side;
    if (sample->augment)
        return wfi_picture_resize(data->ctx, picture, random_part(data, sample, w, h), side, side,
                                  (wfi_box){0, 0, side, side}, rgb);
    int64_t to_w = w <= h ? p->resized : p->resized * w / h;
    int64_t to_h = w <= h ? p->resized * h / w : p->resized;
    if (to_w > WFI_PICTURE_MAX_PIXELS || to_h > WFI_PICTURE_MAX_PIXELS)
        return wfi_fail(data->ctx, WF_CORRUPT,
                        "data: a picture of %" PRId64 " x %" PRId64 " pixels is too narrow", w, h);
    /* Python rounds halves to even, as rint does. */
    wfi_box centre = {(int64_t)rint((double)(to_w - side) / 2),
                      (int64_t)rint((double)(to_h - side) / 2), side, side};
    return wfi_picture_resize(data->ctx, picture, (wfi_box){0, 0, w, h}, to_w, to_h, centre, rgb);
}

/* ---- a sample ---- */

static void write_row(const pictures *p, const uint8_t *rgb, int64_t step, float *x) {
    int64_t plane = p->side * p->side;
    for (int64_t i = 0; i < p->side; i++, rgb += 3 * step, x++) {
        /* ITU-R 601-2, as the Python Imaging Library rounds it. */
        int32_t grey = rgb[0] * 19595 + rgb[1] * 38470 + rgb[2] * 7471 + 0x8000;
        if (p->channels == 1)
            *x = p->value_of[0][grey >> 16];
        else
            for (int64_t c = 0; c < 3; c++) x[c * plane] = p->value_of[c][rgb[c]];
    }
}

static wf_status pictures_fill(const wf_data *data, const wfi_sample *sample, void *x, void *y) {
    pictures *p = data->state;
    wfi_picture_file *file = &p->split[sample->split].files[sample->index];
    wfi_picture picture;
    bool is_own;
    uint8_t *rgb = wfi_alloc(data->ctx, (size_t)(p->side * p->side), 3, "an image");
    if (!rgb) return WF_NO_MEMORY;
    wf_status status = get_picture(data->ctx, p, file, &picture, &is_own);
    if (status == WF_OK) {
        status = prepare(data, sample, &picture, rgb);
        if (is_own) wfi_free(data->ctx, picture.rgb);
    }
    bool flips = sample->augment && random_flip(data, sample);
    for (int64_t i = 0; status == WF_OK && i < p->side; i++)
        write_row(p, rgb + (i * p->side + (flips ? p->side - 1 : 0)) * 3, flips ? -1 : 1,
                  (float *)x + i * p->side);
    wfi_free(data->ctx, rgb);
    *(int32_t *)y = file->label;
    return status;
}

/* Hashes the file's name within the folder, its length and the bytes at both ends: reading a
 * million pictures whole would delay the start too long. */
static void hash_file(const wfi_picture_file *file, wfi_data_hash *hash) {
    uint8_t bytes[END_BYTES];
    struct stat st;
    int fd = open(file->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &st) || !S_ISREG(st.st_mode)) st.st_size = -1;
    wfi_data_hash_number(hash, st.st_size);
    for (int end = 0; end < 2 && st.st_size >= 0; end++) {
        ssize_t n = pread(fd, bytes, sizeof bytes,
                          end && st.st_size > END_BYTES ? st.st_size - END_BYTES : 0);
        if (n > 0) wfi_data_hash_add(hash, bytes, (size_t)n);
    }
    if (fd >= 0) close(fd);
}

static void pictures_hash(const wf_data *data, wfi_data_hash *hash) {
    const pictures *p = data->state;
    wfi_data_hash_number(hash, p->resized);
    for (int s = 0; s < 2; s++) {
        const wfi_picture_list *list = &p->split[s];
        for (size_t k = 0; k < list->n_classes; k++)
            wfi_data_hash_add(hash, list->classes[k], strlen(list->classes[k]) + 1);
        for (size_t i = 0; i < list->n; i++) {
            const char *name = strrchr(list->files[i].path, '/');
            wfi_data_hash_number(hash, list->files[i].label);
            if (name) wfi_data_hash_add(hash, name, strlen(name) + 1);
            hash_file(&list->files[i], hash);
        }
    }
}

static const char *pictures_name(const wf_data *data, wf_data_split split, int64_t i) {
    const pictures *p = data->state;
    return p->split[split].files[i].path;
}

static void pictures_close(wf_data *data) {
    pictures *p = data->state;
    for (int s = 0; s < 2; s++) wfi_pictures_list_release(data->ctx, &p->split[s]);
    wfi_pool_release(&p->pool);
    wfi_free(data->ctx, p);
}

static const wfi_source pictures_source = {pictures_fill, pictures_hash, pictures_close,
                                           pictures_name};

/* ---- --skip-broken: all are decoded, and those that cannot be are left out ---- */

typedef struct check {
    wf_data *data;
    wfi_picture_list *list;
    atomic_size_t next;
    atomic_bool no_memory; /* not an error of the picture */
} check;

static void *check_files(void *self) {
    check *c = self;
    wf_context *ctx = c->data->ctx;
    for (size_t i = atomic_fetch_add(&c->next, 1); i < c->list->n;
         i = atomic_fetch_add(&c->next, 1)) {
        wfi_picture picture;
        bool is_own;
        wf_status status = get_picture(ctx, c->data->state, &c->list->files[i], &picture, &is_own);
        if (status == WF_NO_MEMORY) {
            atomic_store(&c->no_memory, true);
            break;
        }
        if (status != WF_OK) {
            wfi_log(ctx, WF_LOG_WARN, "data", "skipped: %s", wf_context_error(ctx));
            c->list->files[i].label = -1;
        } else if (is_own) {
            wfi_free(ctx, picture.rgb);
        }
    }
    return NULL;
}

static wf_status skip_broken(wf_data *data, wfi_picture_list *list) {
    check c = {.data = data, .list = list};
    pthread_t threads[MAX_CHECKERS];
    int n_threads = 0, n_cores = wf_info_limits().n_cores;
    while (n_threads < n_cores - 1 && n_threads < MAX_CHECKERS &&
           !pthread_create(&threads[n_threads], NULL, check_files, &c))
        n_threads++;
    check_files(&c);
    while (n_threads > 0) pthread_join(threads[--n_threads], NULL);
    if (atomic_load(&c.no_memory)) return wfi_no_memory(data->ctx, 0, "decoded pictures");
    size_t n = 0;
    for (size_t i = 0; i < list->n; i++) {
        wfi_picture_file *from = &list->files[i], *to = &list->files[n];
        if (from->label < 0) continue;
        to->path = from->path;
        to->n_folder = from->n_folder;
        to->label = from->label;
        atomic_store(&to->kept, atomic_exchange(&from->kept, NULL));
        n++;
    }
    bool is_empty = !n && list->n;
    list->n = n;
    if (is_empty)
        return wfi_fail(data->ctx, WF_CORRUPT, "data: no picture is left, all are broken");
    return WF_OK;
}

/* ---- opening ---- */

bool wfi_pictures_is_here(const char *path) {
    char train[PATH_MAX];
    struct stat st;
    int n = snprintf(train, sizeof train, "%s/train", path);
    return n > 0 && n < PATH_MAX && !stat(train, &st) && S_ISDIR(st.st_mode);
}

static wf_status check_classes(const wf_data *data, const char *root) {
    const pictures *p = data->state;
    const wfi_picture_list *train = &p->split[WF_DATA_TRAIN], *test = &p->split[WF_DATA_TEST];
    bool same = train->n_classes == test->n_classes;
    for (size_t k = 0; same && k < train->n_classes; k++)
        same = !strcmp(train->classes[k], test->classes[k]);
    if (same) return WF_OK;
    return wfi_fail(
        data->ctx, WF_CORRUPT,
        "%s: the classes in val are not those in train, so class numbers would not match", root);
}

static wf_status list_splits(wf_data *data, const wf_data_config *config, const char *path) {
    pictures *p = data->state;
    bool skips = config->skip_broken;
    if (config->unlabelled)
        return wfi_pictures_list_plain(&p->pool, path, skips, &p->split[WF_DATA_TEST]);
    const char *train = wfi_pool_format(&p->pool, "%s/train", path);
    const char *val = wfi_pool_format(&p->pool, "%s/val", path);
    if (!train || !val) return WF_NO_MEMORY;
    WF_TRY(wfi_pictures_list(&p->pool, train, skips, &p->split[WF_DATA_TRAIN]));
    if (access(val, F_OK)) return WF_OK;
    WF_TRY(wfi_pictures_list(&p->pool, val, skips, &p->split[WF_DATA_TEST]));
    return check_classes(data, path);
}

static wf_status check_config(wf_context *ctx, const wf_data_config *c) {
    if (c->height != c->width || c->height < 0 || c->height > 1 << 14)
        return wfi_fail(ctx, WF_INVALID_ARG,
                        "data: pictures become squares of up to %d pixels, not %" PRId64
                        " x %" PRId64,
                        1 << 14, c->height, c->width);
    if (c->channels != 3 && c->channels != 1)
        return wfi_fail(ctx, WF_INVALID_ARG,
                        "data: pictures have 3 channels, or 1 for grey, not %" PRId64, c->channels);
    if (c->resized && (c->resized < c->height || c->resized > 1 << 15))
        return wfi_fail(ctx, WF_INVALID_ARG,
                        "data: pictures resized to %" PRId64
                        " are too small for a centre of %" PRId64 " pixels",
                        c->resized, c->height);
    return WF_OK;
}

/* Mean and standard deviation of ImageNet's training images, with which models pretrained on
 * ImageNet normalize.
 */
static void set_values(wf_data *data, const wf_data_config *config) {
    static const double mean[3] = {0.485, 0.456, 0.406}, std[3] = {0.229, 0.224, 0.225};
    pictures *p = data->state;
    bool is_given = config->normalize == WF_NORMALIZE_GIVEN;
    for (int64_t c = 0; c < p->channels; c++) {
        if (config->normalize == WF_NORMALIZE_NONE) continue;
        data->about.mean[c] = is_given ? config->mean[c] : mean[c];
        data->about.std[c] = is_given ? config->std[c] : std[c];
    }
    wfi_images_describe(data, p->channels, p->side, p->side, p->value_of);
}

wf_status wfi_pictures_open(wf_data *data, const wf_data_config *config, const char *path) {
    WF_TRY(check_config(data->ctx, config));
    pictures *p = wfi_alloc(data->ctx, 1, sizeof *p, "a set of pictures");
    if (!p) return WF_NO_MEMORY;
    wfi_pool_init(&p->pool, data->ctx);
    data->state = p;
    data->source = &pictures_source;
    p->channels = config->channels;
    p->side = config->height ? config->height : SIDE;
    p->resized = config->resized ? config->resized : p->side * RESIZED / SIDE;
    atomic_init(&p->room_bytes, config->cache_bytes);
    WF_TRY(list_splits(data, config, path));
    for (int s = 0; s < 2 && config->skip_broken; s++) WF_TRY(skip_broken(data, &p->split[s]));
    set_values(data, config);
    const wfi_picture_list *named = &p->split[WF_DATA_TRAIN];
    wf_data_description *about = &data->about;
    about->resized = p->resized;
    about->n_classes = config->unlabelled ? config->n_classes : (int64_t)named->n_classes;
    about->n_train = (int64_t)named->n;
    about->n_test = (int64_t)p->split[WF_DATA_TEST].n;
    data->classes = named->classes;
    return WF_OK;
}
