/* Pictures of timelines: SVG, PNG or text, the same in all three; memory in time is in the first
 * two. */
#pragma once

#include "common/cli.h"
#include "draw/boxes.h"

/* Words of a drawing with other ranks than those of a plan. Each rank has a row, which shows all of
 * its updates. */
typedef struct drawing_words {
    const char *const *names; /* [ranks] of rows */
    const char *heading;      /* above the rows */
    const char *number;       /* meaning of the numbers in boxes */
    const char *work;         /* meaning of boxes of both gradients; NULL: as for a plan's ranks */
} drawing_words;

/* What is drawn: timelines one above the other, on one scale of time. */
typedef struct drawing {
    const char *title;
    const wf_plan *plan; /* names the ranks' parts; NULL: they have numbers only */
    const wf_trace_part *parts;
    int n_parts;
    const drawing_words *words; /* NULL: steps of a plan's ranks */
} drawing;

/* Whether `path` ends as one of the kinds of pictures; complains. */
exit_status draw_check(const char *path);
/* The same without .txt. */
exit_status draw_check_picture(const char *path);
/* Draws a script, which has no terminal, of so many pixels. */
exit_status draw_by_script(const cli *c, const char *path, int width, int height,
                           const char *script);
/* Draws to `path`, by its end; leaves no half of a picture. */
exit_status draw_file(const cli *c, const char *path, const drawing *d);

/* The longest step, which is as wide as the picture. */
double draw_width_us(const drawing *d);
/* So that a time in ms has about four digits. */
int draw_decimals(double ms);
/* "simulated: 812.3 ms a step; bubble 17.2 %, ...", or the drawing's own heading. */
void draw_heading(const drawing *d, int part, char *text, size_t bytes);
/* The rank and moment with most memory on the device in a timeline (rank -1: none has any). */
typedef struct draw_peak {
    int rank, moment;
    double bytes;
} draw_peak;
draw_peak draw_find_peak(const wf_timeline *timeline);
/* The meaning of its boxes, for people. */
const char *draw_kind_help(const drawing *d, wf_span_kind kind);
/* Whether weight gradients are boxes of their own somewhere. */
bool draw_is_split(const drawing *d);
/* Stages that a rank has, at most. */
int draw_n_chunks(const drawing *d);

/* timeline_text.c: `columns` wide; false: it cannot be written, or no memory left. */
bool draw_text(FILE *out, const drawing *d, int columns, bool has_color);

/* draw_picture.c: gnuplot's script, to be freed, and how many rows there are; NULL: they are too
 * many, or there is no memory left. */
typedef enum picture_kind { PICTURE_SVG, PICTURE_PNG } picture_kind;
char *draw_script(const drawing *d, picture_kind kind, int *n_rows_out);
/* More rows of ranks than one can look at. */
#define DRAW_MAX_ROWS 256
