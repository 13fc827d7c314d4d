/* Output files of a command: reports, tables, pictures. The content is made in memory first. A file
 * is then replaced as a whole (weft/file.h). "-", and a path that is not a regular file, such as
 * /dev/null or a pipe, is written in place. */
#pragma once

#include "common/cli.h"

typedef struct output {
    const cli *c;
    const char *what; /* "the report", for sentences */
    char path[4096];
    FILE *stream; /* to be written to; errors are seen in the end */
    char *text;
    size_t n;
} output;

/* Before the work: whether `path` can be written. Nothing is changed, and a pipe is not opened.
 * Complains. */
exit_status output_check(const char *what, const char *path);
/* The same where only a file will do. */
exit_status output_check_file(const char *what, const char *path);

/* Complains. */
exit_status output_begin(output *out, const cli *c, const char *what, const char *path);
/* Moves the output to its path. Complains, with the reason. */
exit_status output_end(output *out);
/* Instead: nothing is written. After output_end it does nothing. */
void output_drop(output *out);
