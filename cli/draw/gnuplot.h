/* gnuplot as a program that may be missing. */
#ifndef CLI_GNUPLOT_H
#define CLI_GNUPLOT_H

/* What gnuplot_run returns when gnuplot cannot be started. */
#define GNUPLOT_MISSING (-1)

/* Runs the script in `dir`, silently; gnuplot's exit status. */
int gnuplot_run(const char *dir, const char *script);

/* `text` as it can stand between quotes in a script: what gnuplot would take for markup, a
 * quote or a command becomes a space. Changes and returns it. */
char *gnuplot_plain(char *text);

#endif
