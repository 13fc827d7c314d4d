/* Rows of a picture: a rank each, or several that do the same at the same times, as replicas do. */
#pragma once

#include "draw/draw.h"

#define ROW_NAME_BYTES 96

typedef struct row {
    int rank; /* the first of them; the row shows its boxes */
    char name[ROW_NAME_BYTES];
} row_of_ranks;

typedef struct rows {
    row_of_ranks *items;
    int *row_of;   /* [ranks] the row of the rank; -1: another rank's boxes are drawn for it */
    int *first_of; /* [ranks] the lowest rank that does the same, with other microbatches perhaps */
    int n;
    bool is_folded; /* some row is of several ranks */
} rows;

/* Makes the rows of a part of the drawing, from its boxes. False: no memory left. */
bool rows_create(const drawing *d, const wf_timeline *timeline, const boxes *b, rows *out);
void rows_release(rows *r);

/* The role of a rank in the plan: "replica 1, stage 0"; "rank 3" if it is unknown. */
char *role_of_rank(const drawing *d, int rank, char text[ROW_NAME_BYTES]);
