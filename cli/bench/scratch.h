#pragma once

#include "common/cli.h"

#include <dirent.h>

/* A folder for files of one run, in TMPDIR or /tmp. If this process is killed before it closes the
 * folder, a keeper removes it: a process that waits for the end of this one. */
typedef struct scratch {
    char folder[200];
    DIR *listing;
    int fd; /* of the pipe to the keeper */
    pid_t keeper;
} scratch;

/* Complains if the folder cannot be made. Signals that end this process must wait until
 * scratch_close. */
exit_status scratch_open(scratch *s);
void scratch_close(scratch *s);
