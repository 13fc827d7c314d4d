/* The consistency check of the ranks' options, before any long work begins. */
#pragma once

#include "job/job.h"

/* The command and its options, as they were given: all but those of one rank. Complains and returns
 * the exit status if they differ; so do the others. */
exit_status agree_on_options(const cli *c);
/* The samples, by their contents; the path may be another on each machine. */
exit_status agree_on_data(job *j);
/* Where the run begins and ends: after how many steps, at which sample. */
exit_status agree_on_place(const job *j, int64_t n_steps, int64_t epoch, int64_t sample);

/* Rank 0's text (malloc) becomes that of all; or its failure, of which it has said the reason. */
exit_status agree_on_text(const cli *c, exit_status bad, char **text);
