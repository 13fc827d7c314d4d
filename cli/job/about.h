/* Metadata of saved weights: the model and its sizes, and the tokenizer, or the meaning of pixels
 * and classes. The metadata (weft.model, JSON) is in every file of tensors that weft train writes,
 * or comes from Hugging Face's config.json next to the weights. Nothing of it is trusted: sizes
 * have their ranges, a tokenizer its hash. */
#pragma once

#include "common/cli.h"

#define ABOUT_KEY "weft.model"

/* Metadata of a model that reads images; 0 and NULL: not in the metadata. */
typedef struct saved_images {
    int64_t channels, height, width, n_classes;
    const json_t *class_names; /* of `all`: [n_classes] */
    bool is_normalized;        /* by these, per channel */
    double mean[3], std[3];
} saved_images;

typedef struct saved_model {
    const char *path; /* of the weights; NULL: there are none, or they say nothing */
    json_t *all;      /* owned */
    int64_t vocab, positions, tokens; /* 0: the weights do not say it */
    const char *tokenizer, *hash,
        *words; /* of `all`, or NULL: kind, wf_tokenizer_hash, vocabulary */
    saved_images images;
} saved_model;

/* Rank 0 reads the metadata of --init, or with --resume of the run's state; all ranks get it, and
 * c->o takes model and sizes over; contradictions are refused, and so is a file that cannot be
 * read. */
exit_status about_read(cli *c, saved_model *about_out);
void about_release(saved_model *a);
/* Sets the fields that no option sets. */
void about_take_properties(const saved_model *a, wf_model_config *config);

/* The folder of the weights, or that they are. */
void about_folder_of(const char *path, char *folder, size_t bytes);
/* A small file of JSON beside weights; NULL: there is none, or it is none. */
json_t *about_read_json(const cli *c, const char *path);

/* The tokenizer of a text, for *tokenizer_out: --tokenizer's, or of the words that the weights
 * know; NULL: bytes, or words of the text's own. */
exit_status about_tokenizer(const cli *c, const saved_model *a, wf_tokenizer **tokenizer_out);
/* Whether tokens that `t` has made (NULL: tokens of a file) are those that the weights were trained
 * with. */
exit_status about_check(const cli *c, const saved_model *a, const wf_tokenizer *t);

/* The same of a model and its data, for the files of a run: JSON, NULL without memory; free() it.
 */
char *about_text(const cli *c, const saved_model *a, const wf_model *model, const wf_data *data);

/* ---- about_images.c ---- */

/* Reads the metadata of images in `all`; c->o takes image and stem over. */
exit_status about_take_images(cli *c, saved_model *a);
/* Pixels must be normalized as for the training of the weights, unless --other-data is given. */
void about_prepare(const cli *c, const saved_model *a, wf_data_config *config);
/* Whether the data's pictures and classes are those that the weights were trained with. */
exit_status about_check_images(const cli *c, const saved_model *a, const wf_data *data);
/* Adds the metadata of these images to `all`. */
void about_add_images(const cli *c, const wf_model_info *info, const wf_data *data, json_t *all);
/* A size that is not given comes from this key of `all`; another size is refused. */
exit_status about_take(cli *c, const saved_model *a, option_id id, const char *key);
