/* The picture of a drawing while its script is made. Places are in pixels from the top of the plot
 * but for the axis of time, so that rows have the same height in every picture. */
#pragma once

#include "draw/draw.h"
#include "draw/rows.h"

#define SHEET_WIDTH  1280
#define SHEET_RIGHT  30
#define SHEET_LEGEND 22 /* a line of the legend */

/* A table of the script, in memory. */
typedef struct table {
    FILE *out;
    char *text;
    size_t n_bytes;
} table;

enum { TABLE_BOXES, TABLE_ROWS, TABLE_LABELS, TABLE_NAMES, N_TABLES };

/* Kinds of memory that share a panel, from `first` to the one before `end`. */
typedef struct panel {
    int first, end, height;
    double peak_bytes; /* of all parts: as high as the panel; 0: none has any */
} panel;

typedef enum numbering { NUMBER_ALL, NUMBER_MOST, NUMBER_NONE } numbering;

typedef struct sheet {
    const drawing *d;
    double ms_per_pixel;
    int left, top;               /* names of rows; title and legend */
    int row, thin, gap, heading; /* heights; thin 0: nothing moves */
    int height;                  /* of the plot */
    int n_chunks;                /* of a rank, at most: the later, the paler */
    numbering numbers;           /* which boxes have the number of their microbatch */
    boxes boxes[WF_TRACE_MAX_PARTS];
    rows rows[WF_TRACE_MAX_PARTS];
    panel panels[2]; /* of the device, of the host and the disk */
    bool seen[WF_N_SPAN_KINDS], seen_memory[WF_N_MEMORY_KINDS];
    table tables[N_TABLES];
    FILE *script;
} sheet;

/* Colours of work are Okabe and Ito's, which colour-blind people can tell apart. Those of memory
 * are one hue from dark to pale, which no work has. */
unsigned sheet_color(const sheet *s, wf_span_kind kind, int chunk);
unsigned sheet_memory_color(wf_memory_kind kind);

void sheet_rectangle(const sheet *s, int to, double begin_ms, double end_ms, double top,
                     double bottom, unsigned color);

/* draw_legend.c: as lines from `y` on, if there is a script; returns how many lines there are. */
int sheet_legend(const sheet *s, int picture_height);

/* draw_panel.c: finds the content of a part's panels and their height, and draws them. */
void panel_look_at(sheet *s, const wf_timeline *timeline);
int panel_height(const sheet *s, const wf_timeline *timeline);
void panel_add(const sheet *s, const wf_timeline *timeline, double top);
