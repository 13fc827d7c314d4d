/* Saving and loading state: types and functions that all calls share. Each is a loop over the
 * pieces of the program's state (state/pieces.h), some bytes of one at a time. Private to
 * src/api. */
#pragma once

#include "api/state/background.h"
#include "api/trainer.h"
#include "state/header.h"
#include "state/pieces.h"

#include <sodium.h>

/* The most bytes of state in flight at a time. */
#define WFI_STATE_CHUNK_BYTES ((size_t)1 << 20)

/* Some bytes of pieces that hold the same. */
typedef struct wfi_state_part {
    const wfi_state_tensor *tensor;
    const wfi_state_piece *pieces; /* [n_equal] */
    int32_t n_equal;
    size_t at, bytes; /* in each piece */
    size_t offset;    /* in the tensor */
} wfi_state_part;

typedef struct wfi_state_call {
    wfi_pool pool;               /* of the arrays */
    wf_trainer *t, *to;          /* `to`: of a copy from trainer to trainer */
    struct wfi_state_call *from; /* of such a copy: the other trainer's call */
    wfi_state_list list;
    char *buffer;    /* [WFI_STATE_CHUNK_BYTES] */
    char *dst;       /* of a tensor that is read */
    const char *src; /* of a tensor that is written */
    const char *name;
    crypto_hash_sha256_state hash;
    size_t *at;   /* [n_tensors] places in an image; image.c */
    uint64_t sum; /* of the bytes of an image that this process copies */
    /* of a file */
    const char *path;
    const char *skip;   /* names of tensors not to load, or NULL */
    char **skipped_out; /* names of the skipped tensors, or NULL */
    const wf_metadata *metadata;
    int n_metadata;
    wf_safetensors_writer *writer;
    wf_safetensors *file;
    bool *sees;    /* [n_workers] whether the rank's process has opened rank 0's file */
    int *index;    /* [n_tensors] of the file's tensors; -1: it is missing, and may be */
    bool is_state; /* not weights alone */
    bool moves;    /* read bytes are put into the arenas, not only checked */
    /* [n_tensors] of the parts that this process has written or checked; once gathered, of all
     * parts. */
    uint32_t *digests;
    wfi_background *background; /* NULL: it is written at once */
    wf_status refused; /* the first number that no step can have left; the sentence is there */
} wfi_state_call;

typedef wf_status (*wfi_state_visit_fn)(wfi_state_call *x, const wfi_state_part *part);

/* ---- state.c ---- */

/* Whether this is rank 0's process, or the only one. */
static inline bool wfi_trainer_is_root(const wf_trainer *t) {
    return !t->job || wf_job_rank(t->job) == 0;
}
/* A failure in one process fails all. */
wf_status wfi_state_finish(const wf_trainer *t, const char *what, wf_status status);
void wfi_state_release(wfi_state_call *x);
/* All processes of the job come to do it, and leave when all have done it. */
wf_status wfi_state_perform(wfi_state_call *x, const char *what, wfi_state_scope scope,
                            wf_status (*act)(wfi_state_call *x));
wf_status wfi_state_visit_tensor(wfi_state_call *x, wfi_state_visit_fn visit,
                                 const wfi_state_tensor *tensor);
wf_status wfi_state_visit_all(wfi_state_call *x, wfi_state_visit_fn visit);

/* See wfi_trainer_fetch. */
wf_status wfi_state_fetch(const wfi_state_call *x, const wfi_state_part *now, int to, void *dst);
/* From the buffers of the processes that serve to all ranks that hold the part. */
wf_status wfi_state_put(const wfi_state_call *x, const wfi_state_part *now);
/* The rank of the process that reads and writes files for `rank`. */
int wfi_state_served_by(const wfi_state_call *x, int rank);
/* Whether this process has to fill the buffer for some rank. */
bool wfi_state_serves(const wfi_state_call *x, const wfi_state_part *now);

/* ---- state_file.c ---- */

/* The description of an open file that rank 0's process sends. */
typedef struct wfi_state_opened {
    int64_t identity[4]; /* of all */
    int64_t n_steps, n_files;
    wfi_plateau plateau;
    uint64_t data_start;
    char path[WFI_BROADCAST_BYTES - 7 * sizeof(int64_t) -
              sizeof(wfi_plateau)]; /* empty: no other process can open it */
} wfi_state_opened;

/* Writes this trainer's value of WFI_SUMS_KEY into `text`, and returns it. */
#define WFI_SUMS_BYTES 96
const char *wfi_state_sums(const wf_trainer *t, char text[WFI_SUMS_BYTES]);

/* By rank 0's process, of the k-th of the call's files. */
void wfi_state_describe(const wfi_state_call *x, int k, wfi_state_opened *o);
wf_status wfi_state_tell(const wfi_state_call *x, wfi_state_opened *o);
/* Fills x->sees. */
wf_status wfi_state_compare_files(const wfi_state_call *x, const wfi_state_opened *o);

/* Of tensors: this process's parts of them; then all parts. */
wf_status wfi_state_create_digests(wfi_state_call *x);
wf_status wfi_state_gather_digests(wfi_state_call *x);
