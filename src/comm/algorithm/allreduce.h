/* Algorithms that sum elements over ranks, or over the replicas of a stage. Private.
 *
 * An algorithm is data, as a schedule is: for each rank and phase a short list of steps, made by a
 * pure function in a file of its own. In a step a rank reads a range of other ranks' elements and
 * writes a range of its own (`direct` also writes others'); no rank sends. Between two phases every
 * rank waits for all ranks. So within a phase no rank may read a range that another rank writes.
 *
 * The reads and writes of a step are one list, its accesses. The list drives the execution
 * (runtime/step.h), in place in gradients (execute/reduce.c) or in a caller's buffers (wire/). The
 * traffic of each rank and the dependences for the tracker of events come from the same list. A
 * wire without shared memory lists the steps of all ranks and derives its messages.
 *
 * Windows: each rank has its input (IN), its partial sums (WORK) and the result (OUT). The
 * trainer's three windows are one. STAGING is private to the rank.
 */
#pragma once

#include "base/base.h"

typedef enum wfi_collective {
    WFI_COLLECTIVE_ALL_REDUCE,
    WFI_COLLECTIVE_REDUCE,
    WFI_COLLECTIVE_REDUCE_SCATTER,
    WFI_COLLECTIVE_BROADCAST,
    WFI_COLLECTIVE_ALL_GATHER,
    WFI_COLLECTIVE_GATHER,
    WFI_COLLECTIVE_SCATTER,
    WFI_COLLECTIVE_ALL_TO_ALL,
    WFI_COLLECTIVE_BARRIER,
    WFI_COLLECTIVE_SEND,
    WFI_COLLECTIVE_RECV,
} wfi_collective;

typedef enum wfi_reduce_kind {
    WFI_REDUCE_SUM,    /* own = all ranks' IN, over the tree of base/tree.h */
    WFI_REDUCE_ADD,    /* own = left's + right's */
    WFI_REDUCE_COPY,   /* own = left's */
    WFI_REDUCE_STAGE,  /* into the own staging: left's IN, at `slot` */
    WFI_REDUCE_STAGED, /* own = own IN and the staged elements, over the tree of base/tree.h */
    WFI_REDUCE_JOIN    /* own = all ranks' IN, which the wire adds */
} wfi_reduce_kind;

typedef enum wfi_window {
    WFI_WINDOW_IN,
    WFI_WINDOW_WORK,
    WFI_WINDOW_OUT,
    WFI_WINDOW_STAGING
} wfi_window;
typedef enum wfi_reduce_target { WFI_TO_OWN, WFI_TO_ALL, WFI_TO_ROOT } wfi_reduce_target;

typedef struct wfi_reduce_step {
    wfi_reduce_kind kind;
    int32_t left, right;          /* ranks, by kind */
    int64_t begin, end;           /* elements that are read; never empty */
    wfi_window left_in, right_in; /* STAGING: left is in slot 0, right in slot 1 */
    int32_t slot;                 /* slot of as many elements in the staging */
    /* The destination: the ranks, their window, and its first element. */
    wfi_reduce_target target;
    wfi_window to;
    int64_t at;
    bool ends; /* completes a sum: the result is divided and rounded */
} wfi_reduce_step;

/* One rank's part in one phase. The trainer only all-reduces and leaves the other members zero. */
typedef struct wfi_reduce_part {
    int32_t n; /* ranks */
    int32_t own, phase;
    int64_t n_elem; /* to sum; reduce-scatter: those of all ranks */
    wfi_collective collective;
    int32_t root;
    int32_t n_roots; /* root: how many ranks sum; 0 = 1 */
    int32_t n_line;  /* elements of a cache line; 0 = 16 */
    bool pushes;     /* a rank can write others' windows */
} wfi_reduce_part;

#define WFI_REDUCE_RANKS 1024 /* limit of ranks in a sum */

/* One range that a step reads or writes. */
typedef struct wfi_access {
    int32_t rank;
    wfi_window window;
    int64_t begin, n; /* elements */
    bool writes;      /* false: reads */
} wfi_access;

/* Access i of a step: first the operands in order, then the writes. False: the step has fewer
 * accesses. */
bool wfi_reduce_access(const wfi_reduce_part *part, const wfi_reduce_step *step, int32_t i,
                       wfi_access *access_out);

/* Rewrites a step for a rank that can only copy from ranks that are not `is_near`: their operands
 * are staged first. Fills steps [at most n + 2] and returns how many. A step that does not sum, or
 * has only near operands, stays one. */
int32_t wfi_reduce_stage(const wfi_reduce_part *part, const wfi_reduce_step *step,
                         bool (*is_near)(const void *self, int32_t rank), const void *self,
                         wfi_reduce_step *steps);

typedef struct wfi_allreduce {
    const char *name;
    const char *alias; /* the algorithm that it selects, or NULL */
    bool rotates;      /* with more than two ranks it does not add in the tree's order */
    /* The phases of an all-reduce without pushing; the first n_sums phases make the sums. */
    int32_t (*n_phases)(int32_t n);
    int32_t (*n_sums)(int32_t n);
    /* Fills steps [at most n] and returns how many. */
    int32_t (*steps)(const wfi_reduce_part *part, wfi_reduce_step *steps);
    /* Elements that rank `own` stages at once; NULL: none. Those of other ranks are contiguous, in
     * rank order. */
    int64_t (*n_staged)(int32_t n, int32_t own, int64_t n_elem);
    /* The elements whose sum rank k has in the end. */
    void (*owns)(const wfi_reduce_part *part, int32_t k, int64_t *begin_out, int64_t *end_out);
    bool is_partial; /* partial sums exist between phases */
    bool pushes;     /* if possible, it writes sums to the ranks that need them */
    /* Bit c: the sums of collective c are made at their destination. Otherwise one more phase
     * copies them there. */
    unsigned homes;
} wfi_allreduce;

extern const wfi_allreduce wfi_allreduce_root, wfi_allreduce_ring, wfi_allreduce_tree,
    wfi_allreduce_pairwise, wfi_allreduce_direct, wfi_allreduce_auto;
/* All algorithms, NULL-terminated. */
extern const wfi_allreduce *const wfi_allreduces[];
/* The wire's own all-reduce: each rank joins with its own elements; the steps do not describe reads
 * between ranks. */
extern const wfi_allreduce wfi_allreduce_engine;
/* The same list followed by the engine; then NULL. */
const wfi_allreduce *wfi_allreduce_at(int i);
/* NULL if no algorithm has that name. */
const wfi_allreduce *wfi_allreduce_find(const char *name);

/* ---- shared by the algorithms ---- */

/* Slice k of count. Slices end at multiples of a cache line, in a reduce-scatter where ranks'
 * elements end; a slice may be empty. */
void wfi_reduce_slice(const wfi_reduce_part *part, int32_t count, int32_t k, int64_t *begin_out,
                      int64_t *end_out);
/* Writes step i unless it is empty. Returns the new number of steps. */
int32_t wfi_reduce_push(wfi_reduce_step *steps, int32_t i, wfi_reduce_step step);
/* Whether ranks write sums to the ranks that need them. */
bool wfi_reduce_pushes(const wfi_allreduce *how, const wfi_reduce_part *part);
/* Whether the sums of a reduce, or reduce-scatter, are made at their destination. */
bool wfi_reduce_is_home(const wfi_allreduce *how, const wfi_reduce_part *part);
/* Sets the destination of a step that completes a sum. */
void wfi_reduce_complete(const wfi_allreduce *how, const wfi_reduce_part *part,
                         wfi_reduce_step *step);
/* The second half of an all-reduce: copies every other rank's sums from their owner. */
int32_t wfi_reduce_collect(const wfi_allreduce *how, const wfi_reduce_part *part,
                           wfi_reduce_step *steps);
/* owns: rank k has slice k. */
void wfi_reduce_owns_slice(const wfi_reduce_part *part, int32_t k, int64_t *begin_out,
                           int64_t *end_out);
int32_t wfi_reduce_one_phase(int32_t n);
int32_t wfi_reduce_two_phases(int32_t n);
