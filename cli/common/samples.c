#include "common/samples.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

bool samples_add(samples *s, double value) {
    if (s->n == s->capacity) {
        size_t more = s->capacity ? 2 * s->capacity : 16;
        double *moved = realloc(s->at, more * sizeof *moved);
        if (!moved) return false;
        s->at = moved;
        s->capacity = more;
    }
    s->at[s->n++] = value;
    return true;
}

void samples_release(samples *s) {
    free(s->at);
    memset(s, 0, sizeof *s);
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double samples_median(const samples *s, size_t first) {
    size_t n = s->n > first ? s->n - first : 0;
    double *sorted = n ? malloc(n * sizeof *sorted) : NULL;
    if (!sorted) return NAN;
    memcpy(sorted, s->at + first, n * sizeof *sorted);
    qsort(sorted, n, sizeof *sorted, compare);
    double median = (sorted[(n - 1) / 2] + sorted[n / 2]) / 2;
    free(sorted);
    return median;
}

double samples_least(const samples *s, size_t first) {
    double least = NAN;
    for (size_t i = first; i < s->n; i++) least = fmin(least, s->at[i]);
    return least;
}

json_t *samples_json(const samples *s) {
    json_t *list = json_array();
    for (size_t i = 0; i < s->n; i++) json_array_append_new(list, json_number(s->at[i]));
    return list;
}

json_t *json_number(double value) {
    return isfinite(value) ? json_real(value) : json_null();
}

double json_member(const json_t *object, const char *key) {
    const json_t *value = json_object_get(object, key);
    return json_is_number(value) ? json_number_value(value) : NAN;
}
