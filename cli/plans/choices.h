/* Pictures of plans that a search on a cluster has found. */
#pragma once

#include "common/cli.h"

/* The rows of a decision table, as bars of the time of a step. `recommended` -1: none. */
exit_status choices_draw_rows(const cli *c, const char *path, const char *title,
                              const wf_choice *rows, int n, int recommended);

/* A plan as a point: time and peak. */
typedef struct choice_point {
    double ms, bytes;
    bool fits;
    int64_t n_micro;
    char plan[200];
} choice_point;

/* Time against memory of n points, which are sorted, and numbers of those that no other point
 * beats in both. `memory` of a device. */
exit_status choices_draw_front(const cli *c, const char *path, const char *title,
                               choice_point *points, size_t n, double memory);
