/* How gradients are summed over the replicas of a stage. Private.
 *
 * An algorithm is data, as a schedule is: for each replica and phase a short list of steps, made
 * by a pure function in a file of its own. In a step a replica reads a range of elements from
 * others and writes the same range of its own; nobody sends. Between two phases everybody waits
 * for everybody, so within one nobody may read what another replica writes.
 *
 * Lowering asks how much has to be staged, the executor runs the steps, the tracker of events
 * is told of them, and the bytes that each rank sends and receives are counted from them.
 */
#ifndef WFI_ALLREDUCE_H
#define WFI_ALLREDUCE_H

#include "base/base.h"

typedef enum wfi_reduce_kind {
    WFI_REDUCE_SUM,   /* own = everybody's, over the tree of base/tree.h */
    WFI_REDUCE_ADD,   /* own = left's + right's */
    WFI_REDUCE_COPY,  /* own = left's */
    WFI_REDUCE_STAGE, /* into the own staging: left's */
    WFI_REDUCE_STAGED /* own = own and what is staged, over the tree of base/tree.h */
} wfi_reduce_kind;

typedef struct wfi_reduce_step {
    wfi_reduce_kind kind;
    int32_t left, right; /* replicas, by kind */
    int64_t begin, end;  /* elements; never empty */
} wfi_reduce_step;

/* One replica's part in one phase. */
typedef struct wfi_reduce_part {
    int32_t n; /* replicas */
    int32_t own, phase;
    int64_t n_elem;
} wfi_reduce_part;

typedef struct wfi_allreduce {
    const char *name;
    const char *alias; /* the algorithm that it stands for, or NULL: it is one */
    bool rotates;      /* beyond two replicas it adds in another order than the tree's */
    int32_t (*n_phases)(int32_t n);
    /* Fills steps [at most n] and returns how many. */
    int32_t (*steps)(const wfi_reduce_part *part, wfi_reduce_step *steps);
    /* Elements that replica `own` has staged at once, NULL: none. Those of the others lie
     * side by side, in their order. */
    int64_t (*n_staged)(int32_t n, int32_t own, int64_t n_elem);
} wfi_allreduce;

/* All of them, NULL-terminated. */
extern const wfi_allreduce *const wfi_allreduces[];
/* Half of `root`: only the first replica has the sum. In no list. */
extern const wfi_allreduce wfi_reduce_to_root;
/* NULL if there is none of that name. */
const wfi_allreduce *wfi_allreduce_find(const char *name);

/* ---- shared by the algorithms ---- */

/* Slice k of n: cut at multiples of a cache line; it may be empty. */
void wfi_reduce_slice(int64_t n_elem, int32_t n, int32_t k, int64_t *begin_out, int64_t *end_out);
/* Writes step i unless it is empty. Returns how many there are then. */
int32_t wfi_reduce_push(wfi_reduce_step *steps, int32_t i, wfi_reduce_step step);
/* Every slice but the own from its owner: replica k has slice k. */
int32_t wfi_reduce_collect(const wfi_reduce_part *part, wfi_reduce_step *steps);

#endif
