/* gnuplot as a program that may be missing. */
#pragma once

#include "common/cli.h"

/* The status when gnuplot cannot be started, when it had not ended after half a minute (or
 * WEFT_TIMEOUT_MS, if that is less), and when somebody asked this process to stop: it was killed
 * then. */
#define GNUPLOT_MISSING     (-1)
#define GNUPLOT_LATE        (-2)
#define GNUPLOT_INTERRUPTED (-3)

/* Runs the script in `dir`, silently, and puts the picture to `path`, as a whole. *status_out:
 * gnuplot's exit status; not 0: there is no picture, and the path is as it was. Complains if it
 * cannot be written. */
exit_status gnuplot_draw(const cli *c, const char *dir, const char *script, const char *path,
                         int *status_out);
/* Such a status, not 0, in words: "gnuplot is not installed". */
const char *gnuplot_meaning(int status);

/* `text` as it can stand between quotes in a script: gnuplot's markup, quotes and commands become
 * spaces. Changes and returns it. */
char *gnuplot_plain(char *text);
