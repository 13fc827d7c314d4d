/* State as pieces: the rank and memory of each range of a tensor's elements. Private.
 *
 * To initialise, read, hash, save, load or copy state is a loop over this list. So other code does
 * not need a unit's rank, and a rank holds only the state with which it computes.
 */
#pragma once

#include "program/program.h"

/* Elements of one part of a tensor, all on one rank. */
typedef struct wfi_state_piece {
    int32_t part;
    int64_t first, n; /* of the part's elements, in their order */
    int32_t rank;
    wfi_space space;
    size_t at; /* bytes from the begin of the rank's arena of that space */
} wfi_state_piece;

/* A parameter, a buffer, one of the optimizer's numbers for each element of a parameter, or hidden
 * state of the whole batch. */
typedef struct wfi_state_tensor {
    const char *name; /* in files */
    int32_t value;    /* of the graph: dtype */
    wf_shape shape;
    int state; /* which of the optimizer's states; -1: none */
    /* Its elements, row-major, are runs of one part after the other, and from the first one again,
     * every run_begin[n_parts] elements: that of a part from its run_begin to the next one's. A
     * tensor that is whole is one run of one part; of one that slices have parts of, each has a
     * part. */
    int32_t n_parts;
    int64_t *run_begin; /* [n_parts + 1] */
    /* Ascending by part, `first`, then by rank. Ranks that hold the same elements have equal pieces
     * side by side; the first of them is the one to save. */
    wfi_state_piece *pieces;
    int32_t n_pieces;
} wfi_state_tensor;

typedef struct wfi_state_list {
    const wf_graph *graph;
    wfi_pool pool;             /* names and pieces */
    wfi_state_tensor *tensors; /* ascending byte order of their names */
    int32_t n_tensors;
} wfi_state_list;

typedef enum wfi_state_scope {
    WFI_STATE_WEIGHTS,  /* parameters and buffers */
    WFI_STATE_ALL,      /* the optimizer's, and hidden state, too */
    WFI_STATE_GRADIENTS /* gradients of the latest step, in a program that keeps them */
} wfi_state_scope;

/* Lists the state on the ranks of a program that will run. `list_out` is to be released, also after
 * an error. Errors: NO_MEMORY. */
wf_status wfi_state_list_create(const wf_program *p, wfi_state_scope scope,
                                wfi_state_list *list_out);
void wfi_state_list_release(wfi_state_list *list);

/* The tensor of that name; NULL: there is none. */
const wfi_state_tensor *wfi_state_find(const wfi_state_list *list, const char *name);
size_t wfi_state_element_bytes(const wfi_state_list *list, const wfi_state_tensor *tensor);
/* The first of the tensor's pieces that holds that element of a part. */
const wfi_state_piece *wfi_state_piece_of(const wfi_state_tensor *tensor, int32_t part,
                                          int64_t element);
/* How many of the tensor's pieces from `piece` on are the same elements. */
int32_t wfi_state_n_equal(const wfi_state_tensor *tensor, const wfi_state_piece *piece);

/* Draws the initial values of n elements of a parameter or buffer from `first` on. They are a
 * function of (seed, name, element), so parts get the values of the whole. */
void wfi_state_draw(const wfi_state_list *list, const wfi_state_tensor *tensor, uint64_t seed,
                    int64_t first, int64_t n, void *out);
