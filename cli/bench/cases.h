/* Tables, reports and pictures of benches, which bench/cases/ makes. */
#pragma once

#include "bench/apart.h"
#include "common/processor.h"

/* Checks that Python can run the script. Complains. */
exit_status cases_check(const cli *c);
/* Shows measured rows: the "rows" of `state`, a new reference, and what else their case in
 * bench/cases reads there. Prints the table and the effort (or NULL), draws the pictures into
 * --out, and writes the report. Complains. */
exit_status cases_show(const cli *c, json_t *state, const effort *spent);
/* Lets the script run the rows of the bench, with more words for it, and shows them. `child`: the
 * command of the runs, which get the options that were given; `peer`: PyTorch's script, or NULL.
 * Complains. */
exit_status cases_run(const cli *c, unsigned child, const char *peer, const words *more);
