/* Lines of a table by rank. Ranks with equal lines share one. */
#pragma once

#include "common/cli.h"

#define RANKS_BYTES 80

/* "rank 0", "ranks 0-3", "ranks 0-1, 4-5" or, of more than three runs, "ranks 0, 4 ... 28 (8)": the
 * ranks r with same_as[r] == first. Returns `text`. */
char *text_of_ranks(char text[RANKS_BYTES], const int *same_as, int n_ranks, int first);

/* Prints the heading, unless it is NULL, and each text behind its ranks, equal texts once; of a
 * single rank without its number. A text may have several lines. `label`, or NULL: in front of the
 * first line, as a column. More than `most` different texts are cut off, with a note, unless
 * --verbose is given. Frees the texts and the array; where one is NULL, prints nothing. */
void say_by_rank(const cli *c, const char *label, const char *heading, char **texts, int n_ranks,
                 int most);

/* Without --verbose a table of ranks has so many rows at most. */
#define FOLD_MOST_ROWS 16
