/* Random samples that cost nothing to make, for benchmarks. */
#include "base/base.h"
#include "base/random.h"
#include "data/source.h"

#include <string.h>

/* Standard normal values made once. An image is a window of them at a random place,
 * wrapping around: a copy, where making 32 fresh images of 128 x 128 would take tens of
 * milliseconds of the core that is being measured. 1 MiB, 8 ms at start-up. */
#define N_NORMALS 262144

typedef struct synthetic {
    float *normals; /* [n_normals], images only */
    int64_t n_normals;
} synthetic;

static uint64_t random_place(const wf_data *data, const char *what, int64_t sample, int64_t n) {
    uint32_t words[4];
    wfi_random_key key = {data->seed, wfi_random_name(what)};
    wfi_random_words(key, 0, (uint64_t)sample, words);
    return (uint64_t)words[0] * (uint64_t)n >> 32;
}

static wf_status fill_image(const wf_data *data, const wfi_sample *sample, void *x, void *y) {
    const synthetic *set = data->state;
    const wf_data_description *about = &data->about;
    int64_t n = about->channels * about->height * about->width;
    int64_t from = (int64_t)random_place(data, "synthetic.image", sample->index, set->n_normals);
    for (int64_t done = 0; done < n; from = 0) {
        int64_t run = wfi_min_i64(n - done, set->n_normals - from);
        memcpy((float *)x + done, set->normals + from, (size_t)run * sizeof(float));
        done += run;
    }
    uint64_t label = random_place(data, "synthetic.label", sample->index, about->n_classes);
    if (about->targets == WF_TARGETS_LABELS) {
        *(int32_t *)y = (int32_t)label;
    } else {
        memset(y, 0, about->y_bytes);
        ((float *)y)[label] = 1;
    }
    return WF_OK;
}

static wf_status fill_tokens(const wf_data *data, const wfi_sample *sample, void *x, void *y) {
    const wf_data_description *about = &data->about;
    wfi_random_key key = {data->seed, wfi_random_name("synthetic.token")};
    uint32_t words[4] = {0};
    for (int64_t i = 0; i <= about->n_tokens; i++) {
        if (i % 4 == 0) wfi_random_words(key, (uint64_t)sample->index, (uint64_t)i / 4, words);
        int32_t token = (int32_t)((uint64_t)words[i % 4] * (uint64_t)about->n_classes >> 32);
        if (i < about->n_tokens) ((int32_t *)x)[i] = token;
        if (i > 0) ((int32_t *)y)[i - 1] = token;
    }
    return WF_OK;
}

/* Samples are made of the seed and the description. */
static void synthetic_hash(const wf_data *data, wfi_data_hash *hash) {
    wfi_data_hash_add(hash, "synthetic", sizeof "synthetic");
    wfi_data_hash_number(hash, (int64_t)data->seed);
}

static void synthetic_close(wf_data *data) {
    synthetic *set = data->state;
    wfi_free(data->ctx, set->normals);
    wfi_free(data->ctx, set);
}

static const wfi_source image_source = {fill_image, synthetic_hash, synthetic_close, NULL};
static const wfi_source token_source = {fill_tokens, synthetic_hash, synthetic_close, NULL};

static wf_status make_normals(wf_data *data, synthetic *set) {
    set->n_normals = N_NORMALS;
    set->normals = wfi_alloc(data->ctx, N_NORMALS, sizeof(float), "synthetic images");
    if (!set->normals) return WF_NO_MEMORY;
    wfi_random_key key = {data->seed, wfi_random_name("synthetic.normal")};
    for (uint64_t i = 0; i < N_NORMALS; i++) set->normals[i] = wfi_random_normal(key, 0, i);
    return WF_OK;
}

wf_status wfi_synthetic_open(wf_data *data, const wf_data_config *config) {
    bool images = config->kind == WF_DATA_IMAGES;
    bool one_hot = images && config->targets == WF_TARGETS_ONE_HOT;
    synthetic *set =
        wfi_data_own(data, images ? &image_source : &token_source, sizeof *set, "a synthetic set");
    if (!set) return WF_NO_MEMORY;
    wf_data_description *about = &data->about;
    about->kind = config->kind;
    about->targets = one_hot ? WF_TARGETS_ONE_HOT : WF_TARGETS_LABELS;
    about->x_dtype = images ? WF_F32 : WF_I32;
    about->y_dtype = one_hot ? WF_F32 : WF_I32;
    about->n_classes = config->n_classes ? config->n_classes : images ? 10 : 256;
    about->n_train = config->n_synthetic;
    if (!images) {
        about->n_tokens = config->n_tokens;
        about->x_shape = about->y_shape = WF_SHAPE(config->n_tokens);
        return WF_OK;
    }
    about->channels = config->channels;
    about->height = config->height;
    about->width = config->width;
    about->x_shape = WF_SHAPE(config->channels, config->height, config->width);
    about->y_shape = one_hot ? WF_SHAPE(about->n_classes) : WF_SCALAR;
    return make_normals(data, set);
}
