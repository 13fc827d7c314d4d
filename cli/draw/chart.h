/* A chart: a CSV file and the picture that gnuplot draws from it, side by side in --out. */
#ifndef CLI_CHART_H
#define CLI_CHART_H

#include "common/output.h"

/* Okabe and Ito's colours, which colour-blind people can tell apart. */
#define CHART_GREY   0x999999u
#define CHART_BLUE   0x0072b2u
#define CHART_SKY    0x56b4e9u
#define CHART_RED    0xd55e00u
#define CHART_ORANGE 0xe69f00u
#define CHART_GREEN  0x009e73u
#define CHART_PINK   0xcc79a7u
#define CHART_BLACK  0x333333u

typedef struct chart {
    const cli *c;
    const char *name; /* of both files, without their ends */
    char title[200];
    output out;
    FILE *csv;
} chart;

/* Begins DIR/name.csv with its first line. `title`: a format. Complains. */
exit_status chart_begin(chart *p, const cli *c, const char *name, const char *header,
                        const char *title, ...) __attribute__((format(printf, 5, 6)));
/* Writes it, draws DIR/name.png by `drawing`, the format of a gnuplot script with the variable
 * `csv`, and says so; or why not, which is no error. Complains if a file could not be written. */
exit_status chart_end(chart *p, const char *drawing, ...) __attribute__((format(printf, 2, 3)));

#endif
