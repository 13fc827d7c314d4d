/* Measured values in their order, and their statistics. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

typedef struct samples {
    double *at; /* [n] */
    size_t n, capacity;
} samples;

/* False: no memory left. */
bool samples_add(samples *s, double value);
void samples_release(samples *s);

/* Statistics of the values from `first` on; NAN if there are none. */
double samples_median(const samples *s, size_t first);
double samples_least(const samples *s, size_t first);
json_t *samples_json(const samples *s);

/* A number, or null where it is none. */
json_t *json_number(double value);
/* The number of that name; NAN if there is none. */
double json_member(const json_t *object, const char *key);
