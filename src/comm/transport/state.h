/* The state that a rank of a job publishes: in a segment that all ranks share, or in each process's
 * copy of it, which messages update. Private. */
#pragma once

#include "device/shared_epoch.h"

#define WFI_CONTROL_TRAINERS 16 /* alive at once */
#define WFI_CONTROL_STREAMS  8
#define WFI_CONTROL_ARENAS   3 /* of one rank's trainer: one per memory space */
#define WFI_CONTROL_DOING    64
#define WFI_CONTROL_NUMBERS  8

typedef int64_t wfi_control_numbers[WFI_CONTROL_NUMBERS];

/* The rank's part in one trainer. */
typedef struct wfi_control_part {
    struct {
        uint64_t peak_bytes; /* measured, after its last run */
        uint64_t bytes;      /* 0: no arena */
        int64_t fd;          /* in the rank's process */
    } arenas[WFI_CONTROL_ARENAS];
} wfi_control_part;

/* The part of the state that messages copy verbatim. Arrays of two alternate by run, by exchange or
 * by barrier. */
typedef struct wfi_control_state {
    uint64_t run[2];                    /* program and trainer of the run ... */
    int64_t stop[2];                    /* ... the reason to stop then, or 0 */
    int64_t n_writing[2];               /* ... saves of the trainer that were being written then */
    int64_t not_finite[2];              /* by run; api/not_finite.h */
    double gradient_norm[2];            /* by run: norm found in a step */
    wfi_control_numbers numbers[2];     /* by exchange: numbers for the other ranks */
    uint64_t host;                      /* equal for ranks of one machine */
    char doing[WFI_CONTROL_DOING];      /* the barrier or run that the rank entered last */
    char purpose[2][WFI_CONTROL_DOING]; /* by barrier */
    wfi_control_part parts[WFI_CONTROL_TRAINERS];
} wfi_control_state;

/* One rank's entry. Only its process writes it, with one exception: the last rank to leave a
 * segment resets all members after `left` to their initial values. */
typedef struct wfi_control_rank {
    int64_t pid;     /* atomic access; 0: not joined yet; < 0: left, or not rejoined yet */
    uint64_t awaits; /* atomic access: 1: waits for the launcher's next segment */
    uint64_t left;   /* if pid < 0: the round (wfi_job_segment) that the rank left */
    wfi_shared_epoch barriers; /* barriers that the rank has entered */
    wfi_shared_epoch runs;     /* programs that the rank has begun, of all trainers */
    wfi_control_state state;
    wfi_shared_epoch epochs[WFI_CONTROL_TRAINERS][WFI_CONTROL_STREAMS]; /* tasks done */
} wfi_control_rank;
