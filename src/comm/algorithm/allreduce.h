/* How elements are summed over ranks, or over the replicas of a stage. Private.
 *
 * An algorithm is data, as a schedule is: for each rank and phase a short list of steps, made
 * by a pure function in a file of its own. In a step a rank reads a range of elements of others
 * and writes a range of its own (`direct` also writes others'); nobody sends. Between two phases
 * every rank waits for all, so within one no rank may read what another writes.
 *
 * What a step reads and writes is one list, its accesses. A step is run from it (runtime/step.h),
 * in place in gradients (run/reduce.c) or in buffers of a group's caller (wire/); the bytes that
 * each rank sends and receives are counted from it, the tracker of events is told of it, and a wire
 * without shared memory, which makes the lists of all ranks, sends by it.
 *
 * Windows: each rank has what it brought (IN), what it has summed so far (WORK) and the result
 * (OUT). The trainer's three are one. STAGING is the rank's own alone.
 */
#ifndef WFI_ALLREDUCE_H
#define WFI_ALLREDUCE_H

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
    WFI_REDUCE_SUM,    /* own = everybody's IN, over the tree of base/tree.h */
    WFI_REDUCE_ADD,    /* own = left's + right's */
    WFI_REDUCE_COPY,   /* own = left's */
    WFI_REDUCE_STAGE,  /* into the own staging: left's IN, at `slot` */
    WFI_REDUCE_STAGED, /* own = own IN and what is staged, over the tree of base/tree.h */
    WFI_REDUCE_JOIN    /* own = everybody's IN, which the wire adds */
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
    int64_t begin, end;           /* elements of what is read; never empty */
    wfi_window left_in, right_in; /* STAGING: the left one is in slot 0, the right one in 1 */
    int32_t slot;                 /* a place of as many elements in the staging */
    /* Where it is written: to whose window, from which element on. */
    wfi_reduce_target target;
    wfi_window to;
    int64_t at;
    bool ends; /* makes the result of a sum: here it is divided and rounded */
} wfi_reduce_step;

/* One rank's part in one phase. The trainer, which only all-reduces, leaves all else zero. */
typedef struct wfi_reduce_part {
    int32_t n; /* ranks */
    int32_t own, phase;
    int64_t n_elem; /* that are summed: of a reduce-scatter those of all ranks */
    wfi_collective collective;
    int32_t root;
    int32_t n_roots; /* root: how many ranks sum; 0 = 1 */
    int32_t n_line;  /* elements of a cache line; 0 = 16 */
    bool pushes;     /* a rank can write others' windows */
} wfi_reduce_part;

#define WFI_REDUCE_RANKS 1024 /* that take part at most */

/* What a step reads or writes. */
typedef struct wfi_access {
    int32_t rank;
    wfi_window window;
    int64_t begin, n; /* elements */
    bool writes;      /* else it reads */
} wfi_access;

/* Access i of a step: first what it reads, in the order of the operands, then what it writes.
 * False: it has no more. */
bool wfi_reduce_access(const wfi_reduce_part *part, const wfi_reduce_step *step, int32_t i,
                       wfi_access *access_out);

/* The same step by a rank which can only copy from others that are not `is_near` it: those operands
 * are staged first. Fills steps [at most n + 2] and returns how many; what is no sum, or of near
 * ones, stays one. */
int32_t wfi_reduce_stage(const wfi_reduce_part *part, const wfi_reduce_step *step,
                         bool (*is_near)(const void *self, int32_t rank), const void *self,
                         wfi_reduce_step *steps);

typedef struct wfi_allreduce {
    const char *name;
    const char *alias; /* the algorithm that it stands for, or NULL: it is one */
    bool rotates;      /* beyond two ranks it adds in another order than the tree's */
    /* Of an all-reduce without pushing; the first n_sums of them make the sums. */
    int32_t (*n_phases)(int32_t n);
    int32_t (*n_sums)(int32_t n);
    /* Fills steps [at most n] and returns how many. */
    int32_t (*steps)(const wfi_reduce_part *part, wfi_reduce_step *steps);
    /* Elements that rank `own` has staged at once, NULL: none. Those of the others lie
     * side by side, in their order. */
    int64_t (*n_staged)(int32_t n, int32_t own, int64_t n_elem);
    /* Which elements are summed at rank k in the end. */
    void (*owns)(const wfi_reduce_part *part, int32_t k, int64_t *begin_out, int64_t *end_out);
    bool is_partial; /* between phases there are sums of some ranks */
    bool pushes;     /* where it can, it writes sums to those who need them */
    /* Bit c: the sums of collective c are made where they belong; if not, a phase more brings them
     * there. */
    unsigned homes;
} wfi_allreduce;

extern const wfi_allreduce wfi_allreduce_root, wfi_allreduce_ring, wfi_allreduce_tree,
    wfi_allreduce_pairwise, wfi_allreduce_direct, wfi_allreduce_auto;
/* All of them, NULL-terminated. */
extern const wfi_allreduce *const wfi_allreduces[];
/* What the wire brings: each rank joins with its own, and no step says who reads what of whom. */
extern const wfi_allreduce wfi_allreduce_engine;
/* The same list with the engine behind it; NULL past that. */
const wfi_allreduce *wfi_allreduce_at(int i);
/* NULL if there is none of that name. */
const wfi_allreduce *wfi_allreduce_find(const char *name);

/* ---- shared by the algorithms ---- */

/* Slice k of count: cut at multiples of a cache line, in a reduce-scatter where ranks' elements
 * end; it may be empty. */
void wfi_reduce_slice(const wfi_reduce_part *part, int32_t count, int32_t k, int64_t *begin_out,
                      int64_t *end_out);
/* Writes step i unless it is empty. Returns how many there are then. */
int32_t wfi_reduce_push(wfi_reduce_step *steps, int32_t i, wfi_reduce_step step);
/* Whether ranks write sums to those who need them. */
bool wfi_reduce_pushes(const wfi_allreduce *how, const wfi_reduce_part *part);
/* Whether the sums of a reduce, or reduce-scatter, are made where they belong. */
bool wfi_reduce_is_home(const wfi_allreduce *how, const wfi_reduce_part *part);
/* Sets where a step that completes a sum writes it. */
void wfi_reduce_complete(const wfi_allreduce *how, const wfi_reduce_part *part,
                         wfi_reduce_step *step);
/* An all-reduce's second half: every other rank's sums from their place. */
int32_t wfi_reduce_collect(const wfi_allreduce *how, const wfi_reduce_part *part,
                           wfi_reduce_step *steps);
/* owns: rank k has slice k. */
void wfi_reduce_owns_slice(const wfi_reduce_part *part, int32_t k, int64_t *begin_out,
                           int64_t *end_out);
int32_t wfi_reduce_one_phase(int32_t n);
int32_t wfi_reduce_two_phases(int32_t n);

#endif
