/* A chart: a CSV file and the picture that gnuplot draws from it, side by side in --out. */
#pragma once

#include "common/output.h"

/* Writes DIR/name.csv, draws DIR/name.png by `script`, which has the variable `csv`, and says so;
 * or why not, which is no error. Complains if a file could not be written. */
exit_status chart_draw(const cli *c, const char *name, const char *csv, const char *title,
                       const char *script);
