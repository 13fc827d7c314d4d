/* What a rank of a job shows of itself: in a segment that all see, or, kept by messages, in each
 * process's copy of one. Private. */
#ifndef WFI_STATE_H
#define WFI_STATE_H

#include "device/shared_epoch.h"

#define WFI_CONTROL_TRAINERS 16 /* alive at once */
#define WFI_CONTROL_STREAMS  8
#define WFI_CONTROL_ARENAS   3 /* of one rank's trainer: a space each */
#define WFI_CONTROL_DOING    64
#define WFI_CONTROL_NUMBERS  8

typedef int64_t wfi_control_numbers[WFI_CONTROL_NUMBERS];

/* Of its part in one trainer. */
typedef struct wfi_control_part {
    uint64_t shadow_bytes; /* of others' arenas that it has, at that time */
    struct {
        uint64_t peak_bytes; /* measured, after its last run */
        uint64_t bytes;      /* 0: there is none */
        int64_t fd;          /* in its process */
    } arenas[WFI_CONTROL_ARENAS];
} wfi_control_part;

/* What goes to the others as it is. */
typedef struct wfi_control_state {
    uint64_t run[2];                    /* which program of which trainer; runs take turns ... */
    int64_t stop[2];                    /* ... its reason to stop then, or 0 */
    int64_t n_writing[2];               /* ... how many saves of it were being written then */
    int64_t not_finite[2];              /* run/not_finite.h; runs take turns */
    double gradient_norm[2];            /* that it has found in a step; runs take turns */
    wfi_control_numbers numbers[2];     /* that it tells the others, every other time */
    uint64_t host;                      /* the same on one machine */
    char doing[WFI_CONTROL_DOING];      /* what it last came to do */
    char purpose[2][WFI_CONTROL_DOING]; /* of its barriers, every other one */
    wfi_control_part parts[WFI_CONTROL_TRAINERS];
} wfi_control_state;

/* One rank's own part. Only its process writes it, but for the last to leave a segment, who makes
 * all after `left` what it was in the beginning. */
typedef struct wfi_control_rank {
    int64_t pid;               /* atomic access; 0: not come yet; < 0: left, or not come again */
    uint64_t awaits;           /* atomic access: the launcher, for a successor of the segment */
    uint64_t left;             /* if pid < 0: the round (wfi_job_segment) that it has left */
    wfi_shared_epoch barriers; /* how many it has come to */
    wfi_shared_epoch runs;     /* of programs, by whichever trainer: how many it has begun */
    wfi_control_state state;
    wfi_shared_epoch epochs[WFI_CONTROL_TRAINERS][WFI_CONTROL_STREAMS]; /* tasks done */
} wfi_control_rank;

#endif
