#include "base/names.h"

#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SEPARATORS "+,"
#define MAX_NUMBER 64 /* characters */

bool wfi_names_next(const char *names, wfi_word *word) {
    if (!names || !*names) return false;
    if (word->start && !word->start[word->n]) return false;
    word->start = word->start ? word->start + word->n + 1 : names;
    word->n = strcspn(word->start, SEPARATORS);
    return true;
}

bool wfi_word_names(wfi_word word, const char *name) {
    return word.n && !strncmp(name, word.start, word.n) && (!name[word.n] || name[word.n] == '.');
}

bool wfi_names_has(const char *names, const char *name) {
    for (wfi_word word = {0}; wfi_names_next(names, &word);)
        if (wfi_word_names(word, name)) return true;
    return false;
}

void wfi_name_ranks(int n_ranks, bool (*is_meant)(const void *self, int rank), const void *self,
                    char *text, size_t bytes) {
    int last = n_ranks - 1;
    size_t n = 0;
    *text = 0;
    while (last >= 0 && !is_meant(self, last)) last--;
    for (int rank = 0; rank <= last && n < bytes; rank++) {
        if (!is_meant(self, rank)) continue;
        const char *before = rank == last ? (n ? " and " : "rank ") : n ? ", " : "ranks ";
        n += (size_t)snprintf(text + n, bytes - n, "%s%d", before, rank);
    }
}

bool wfi_parse_real(const char *text, size_t n, double *value_out) {
    char number[MAX_NUMBER + 1], *end;
    if (!n || n > MAX_NUMBER || strspn(text, "0123456789+-.eE") < n) return false;
    locale_t c = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    if (!c) return false;
    snprintf(number, sizeof number, "%.*s", (int)n, text);
    *value_out = strtod_l(number, &end, c);
    freelocale(c);
    return !*end && isfinite(*value_out);
}
