/* What saved weights say of themselves: the model and its sizes, and what a token is. It stands in
 * the metadata of every file of tensors that weft train writes (weft.model, JSON), or is read from
 * Hugging Face's config.json beside them. Nothing of it is trusted: sizes have their ranges, a
 * tokenizer its hash. */
#ifndef CLI_ABOUT_H
#define CLI_ABOUT_H

#include "cli.h"

#define ABOUT_KEY "weft.model"

typedef struct saved_model {
    const char *path; /* of the weights; NULL: there are none, or they say nothing */
    json_t *all;      /* owned */
    int64_t vocab, positions;
    const char *tokenizer, *hash,
        *words; /* of `all`, or NULL: kind, wf_tokenizer_hash, vocabulary */
} saved_model;

/* Rank 0 reads what --init, or with --resume the run's state, says; all ranks get it, and c->o
 * takes model and sizes over; contradictions are refused. What cannot be read is left to who loads
 * the tensors. */
exit_status about_read(cli *c, saved_model *about_out);
void about_release(saved_model *a);

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
char *about_text(const cli *c, const saved_model *a, const wf_model *model, const wf_tokenizer *t);

#endif
