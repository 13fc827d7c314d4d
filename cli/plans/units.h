/* The table of units in weft plan: a line for each unit of the model, equal neighbours as one; with
 * --verbose, by rank, a line for each part. */
#pragma once

#include "common/cli.h"

/* All units of a program while ranks are looked at: with --verbose the lines of each rank, else
 * each unit once, whichever ranks have it. A unit is a part of an earlier one if its name begins
 * with that name and a dot, as slicing makes h.0.pair0.1 of h.0. */
typedef struct unit_table {
    const cli *c;
    const wf_program *program;
    wf_unit_summary *all; /* [n_all] in the order of the program; name NULL: not seen yet */
    int *name_bytes;      /* [n_all] of its unit's own name; with --verbose of all of it */
    char **texts;         /* [ranks] */
    int n_all, width;     /* width: of the longest name */
} unit_table;

/* False: no memory left. */
bool units_begin(const cli *c, const wf_program *p, unit_table *table);
/* Adds the rank's units, and describes them: "embed ... h.6". */
void units_add(int rank, const wf_unit_summary *units, int n, unit_table *table, char *range,
               size_t bytes);
/* The bytes of the name of the unit to which that of this name belongs. */
int units_name_bytes(const unit_table *table, const char *name);
void units_say(unit_table *table); /* once */
void units_release(unit_table *table);
