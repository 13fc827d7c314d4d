/* Numbers of the steps of a run. */
#pragma once

#include "common/samples.h"

/* Results of the steps of a run, in their order. */
typedef struct record {
    samples loss, ms;
    int64_t n_skipped;     /* steps that were not finite and changed nothing */
    double items, seconds; /* after the first step: samples or tokens, and their time */
} record;

bool record_add(record *r, double loss, double ms, double items);
void record_release(record *r);
