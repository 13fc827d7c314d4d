/* weft simulate: a pipeline schedule (simulate.c) or, with --update, workers (simulate_updates.c).
 */
#pragma once

#include "common/cli.h"

/* Reads the first n characters of the option's value as milliseconds; complains. */
exit_status simulate_read_time(option_id id, const char *text, size_t n, double *time_out);

/* Complains about an option that has no effect with the given --update, or without --update. */
exit_status simulate_check_use(const options *o);
exit_status simulate_updates(cli *c);
