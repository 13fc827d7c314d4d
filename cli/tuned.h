/* Tables of kernels by shape: what weft tune writes and --kernels reads. */
#ifndef CLI_TUNED_H
#define CLI_TUNED_H

#include "options.h"

#define TUNED_VERSION 1 /* of the tables */

/* Takes over what the table, which is not trusted, has computed in another way than the usual one:
 * `tuned` of the recipe. `where` names it in errors. */
bool tuned_of_table(options *o, const json_t *root, const char *where);
/* Says so, if the table was measured on another processor, with another library or with other
 * threads than the program has, or none of its kernels is computed in another way by it. */
void tuned_warn(const options *o, const wf_program *program);

#endif
