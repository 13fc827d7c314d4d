/* The tests of a run: which one was the best, and whether it is worth going on. They are a part of
 * its state: a run that goes on from a checkpoint knows them.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct scores {
    double best_loss;  /* the lowest; NAN: there was no test */
    int64_t best_step; /* after which it was tested */
    int64_t n_since;   /* tests after that one */
    int64_t last_step; /* of the last test; -1 */
} scores;

scores scores_none(void);
/* True: it is the best so far. */
bool scores_add(scores *s, int64_t step, double loss);

/* NULL: no memory left. */
json_t *scores_json(const scores *s);
/* What scores_json gave; false: it is none, and *s is as it was. */
bool scores_read(scores *s, const json_t *json);
