/* Boxes of a picture: the work of a rank over time, made of the instructions of a timeline. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <weft/weft.h>

typedef struct box {
    wf_span_kind kind;
    int rank;
    bool is_move;  /* beside the compute stream: a transfer, a reduction, the host */
    int64_t micro; /* or -1 */
    int chunk;
    double begin_us, end_us;
} box;

typedef struct boxes {
    box *items; /* by rank; of each, first those of compute, in the order of time */
    size_t n, capacity;
    double hair_us;
} boxes;

/* Successive instructions of one kind, microbatch and chunk are one box. `hair_us`: the longest
 * time that is too short to be seen; gaps and updates as short as that are left out. A rank that
 * does the same as another one (wf_timeline_like) has no boxes. False: no memory left.
 */
bool boxes_create(const wf_timeline *timeline, double hair_us, boxes *b);
/* Adds the boxes of ranks that do the same as others and have a row (row_of [n_ranks], or -1). */
bool boxes_add_followers(const wf_timeline *timeline, const int *row_of, boxes *b);
void boxes_release(boxes *b);

/* Share of the step, in the mean over the ranks, and in percent. */
typedef struct shares {
    double compute, transfer, bubble, wait;
} shares;
shares shares_of(const wf_timeline *timeline);
