/* Tables of kernels by shape: weft tune writes them and --kernels reads them. */
#pragma once

#include "common/options.h"

struct cli;

#define TUNED_VERSION 1     /* of the tables */
#define TUNED_MOST    16383 /* characters that a recipe takes */

/* Adds the table's choices that differ from the defaults to `tuned` of the recipe. The table is not
 * trusted. `where` names it in errors. */
bool tuned_of_table(options *o, const json_t *root, const char *where);
/* Where a table is measured, or used: on a CPU, or the first device of another kind. */
typedef struct tuned_place {
    char processor[100], library[450];
    int n_threads; /* of other devices 1 */
} tuned_place;

/* The first device of that kind, which is not the CPU. Errors: UNSUPPORTED: there is none here. */
wf_status tuned_on(const struct cli *c, const char *kind, tuned_place *out);
/* Errors: those. */
wf_status tuned_here(const struct cli *c, int n_threads, tuned_place *out);
/* Says so, if the table was measured in another place than the program is for, or none of its
 * kernels is computed in another way by it. */
void tuned_warn(const struct cli *c, const wf_program *program);
