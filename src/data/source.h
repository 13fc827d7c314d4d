/* A data set as the loader uses it: a description and a function that writes one sample.
 * Private. */
#pragma once

#include "data/hash.h"

#include <stdbool.h>

/* A sample, and the other values that its bytes may depend on. */
typedef struct wfi_sample {
    wf_data_split split;
    int64_t index, epoch;
    bool augment;
} wfi_sample;

typedef struct wfi_source {
    /* Writes x_bytes and y_bytes of the description. Called from several threads at a time. Samples
     * in memory have been checked and do not fail. Errors of samples read now: IO, CORRUPT,
     * NO_MEMORY. */
    wf_status (*fill)(const wf_data *data, const wfi_sample *sample, void *x, void *y);
    /* Adds all that a sample's bytes depend on, beside the description and the loader's
     * configuration. */
    void (*hash)(const wf_data *data, wfi_data_hash *hash);
    /* Frees `state`, which may be half made. */
    void (*close)(wf_data *data);
    /* As wf_data_sample_name; NULL: none has a name. */
    const char *(*sample_name)(const wf_data *data, wf_data_split split, int64_t i);
} wfi_source;

struct wf_data {
    wf_context *ctx;
    uint64_t seed;
    wf_data_description about;
    const wf_tokenizer *tokenizer; /* see wf_data_tokenizer */
    wf_tokenizer *own_tokenizer;   /* or NULL */
    const char *const *classes;    /* [n_classes] their names, the state's or static; or NULL */
    const wfi_source *source;      /* NULL until the set owns something */
    void *state;
};

/* The set's own state, of so many bytes, all zero; from here on close frees it. NULL: no memory. */
void *wfi_data_own(wf_data *data, const wfi_source *source, size_t bytes, const char *what);

/* Each opens one sort of set. On failure the parts already made stay in `data`, for close. */
wf_status wfi_synthetic_open(wf_data *data, const wf_data_config *config);
wf_status wfi_pictures_open(wf_data *data, const wf_data_config *config, const char *path);
wf_status wfi_mnist_open(wf_data *data, const wf_data_config *config, const char *folder);
wf_status wfi_cifar_open(wf_data *data, const wf_data_config *config, const char *folder);
wf_status wfi_text_open(wf_data *data, const wf_data_config *config, const char *path);
wf_status wfi_tokens_open(wf_data *data, const wf_data_config *config, const char *path);

/* Whether `path` is a folder with at least one training file of the layout. */
bool wfi_pictures_is_here(const char *path);
bool wfi_mnist_is_here(const char *path);
bool wfi_cifar_is_here(const char *path);
/* The same, or a file with a header of llm.c. */
bool wfi_tokens_is_here(const char *path);
