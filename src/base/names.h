/* Lists of names, joined by + or commas, such as "conv1+layer1". A name matches itself and all
 * names that begin with it and a dot. Private. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

typedef struct wfi_word {
    const char *start; /* NULL: before the first */
    size_t n;
} wfi_word;

/* The next word of the list, which may be NULL or empty; false: that was the last. */
bool wfi_names_next(const char *names, wfi_word *word);
bool wfi_word_names(wfi_word word, const char *name);
/* Whether any of the list does. */
bool wfi_names_has(const char *names, const char *name);

/* "rank 2", "ranks 0, 1 and 5": those of n_ranks that are meant; "": none. */
void wfi_name_ranks(int n_ranks, bool (*is_meant)(const void *self, int rank), const void *self,
                    char *text, size_t bytes);

/* Parses n characters as a finite number with a decimal point, independently of the host program's
 * locale.
 */
bool wfi_parse_real(const char *text, size_t n, double *value_out);
