/* Texts of keys and values, such as "dp=2,pp=2": plans and recipes. Private.
 *
 * A text may be hostile: its length is bounded, every byte is checked, and errors say where.
 */
#pragma once

#include "base/base.h"

typedef struct wfi_pair {
    wf_context *ctx;
    const char *what;  /* "plan"; sentences begin with it */
    const char *key;   /* into a copy of the text, as the value */
    const char *value; /* NULL: a word without = */
    int position;      /* of the key, counted from 1 */
} wfi_pair;

/* Gives each pair of the text, which may be NULL and has at most `most` characters, to `take`.
 * Errors: INVALID_ARG, those of `take`, NO_MEMORY. */
wf_status wfi_each_pair(wf_context *ctx, const char *what, const char *text, size_t most,
                        wf_status (*take)(void *self, const wfi_pair *pair), void *self);

/* Errors of `take`, all INVALID_ARG. */
/* "plan: dp='x' at position 1; it takes" and the rest. */
wf_status wfi_pair_refuse(const wfi_pair *pair, const char *takes, ...) WFI_PRINTF(2, 3);
wf_status wfi_pair_has_no_value(const wfi_pair *pair);
wf_status wfi_pair_is_second(const wfi_pair *pair);
wf_status wfi_pair_is_unknown(const wfi_pair *pair, const char *(*name)(int i));

/* The index of a word of n characters, in any case, in "a|b|c"; -1: none. */
int wfi_word_find(const char *words, const char *word, size_t n);
