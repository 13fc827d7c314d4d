/* Internals of a job: the common part, and the two kinds of publishing state, by shared memory or
 * by messages. Private. */
#pragma once

#include "comm/job/control.h"
#include "comm/transport/transport.h"

#define WFI_CONTROL_MAGIC UINT64_C(0x776566743100000A) /* changes with the layout */

typedef struct wfi_job_segment {
    uint64_t magic; /* atomic access; 0 until rank 0 has joined */
    int32_t n_ranks;
    int32_t n_left; /* atomic access */
    /* Number of jobs that the segment has served. A rank that has left one job has not joined the
     * next, so its number stays in its slot. Only this counter marks the end of a round. */
    wfi_shared_epoch rounds;
    int64_t launcher;         /* the process that replaces dead ranks; 0: none */
    wfi_shared_epoch renewal; /* renew.c */
    wfi_failure failure;
    char broadcast[WFI_BROADCAST_BYTES];
    double records[2][WFI_CONTROL_RECORDS][2];
    wfi_control_rank ranks[]; /* as many as the segment was created for */
} wfi_job_segment;

typedef struct wfi_control_kind {
    /* Publishes this rank's state. NULL: memory is shared. */
    void (*publish)(wfi_control *c);
    /* Watches the process of a rank that has joined. NULL: MPI does. */
    void (*find_process)(wfi_control *c, int rank);
    bool (*is_lost)(const wfi_control *c, int rank);
    wf_status (*arena_create)(wfi_control *c, int trainer, int number, size_t bytes,
                              void **base_out);
    /* NULL: memory is not shared. */
    wf_status (*arena_open)(wfi_control *c, int rank, int trainer, int number, size_t bytes,
                            void **base_out);
    /* NULL: nothing to release. */
    void (*arena_forget)(wfi_control *c, int trainer);
    void (*leave)(wfi_control *c);
} wfi_control_kind;

extern const wfi_control_kind wfi_control_shared;   /* control_shared.c: one segment for all */
extern const wfi_control_kind wfi_control_messages; /* control_messages.c: a copy each */

struct wf_job {
    wf_context *ctx;
    const wfi_control_kind *kind;
    int rank, n_ranks;
    int64_t timeout_ms, stall_ms;
    bool wires_devices;
    wfi_job_segment *shared;
    size_t shared_bytes;
    uint64_t round;                /* of the segment */
    uint64_t n_gathers;            /* all-gathers so far: two halves alternate */
    wfi_control_numbers *gathered; /* [n_ranks] of the last all-gather */
    uint64_t n_runs;               /* runs of programs begun; atomic access */
    uint64_t n_trainers;           /* created so far */
    uint32_t trainers;             /* slots that this rank uses: one bit each */
    int n_writing;                 /* atomic access: saves in the background */
    int stop;                      /* atomic access: this rank's reason to stop, or 0 */
    /* control_shared.c */
    bool has_slot; /* has joined the segment */
    /* Descriptors of the published arenas, or -1. */
    int arena_fd[WFI_CONTROL_TRAINERS][WFI_CONTROL_ARENAS];
    int *process_fd; /* [n_ranks] readable when that process has ended; or < 0 */
    /* control_messages.c */
    wfi_transport *transport; /* else NULL */
};

/* Maps the segment; NULL on failure. control_shared.c */
wfi_job_segment *wfi_control_map(int segment_fd, size_t *bytes_out);

/* Creates a control of that kind, without the members of the kind; wfi_control_leave destroys it.
 * control.c */
wf_status wfi_control_create(wf_context *ctx, const wfi_control_kind *kind, int rank, int n_ranks,
                             int64_t timeout_ms, wfi_control **control_out);
void wfi_control_destroy(wfi_control *c);

/* Waits until `count` of that rank is at least n; `what` is this rank's purpose in error messages.
 * Errors: those of a barrier. control.c */
wf_status wfi_control_wait_for(wfi_control *c, int rank, wfi_shared_epoch *count, uint64_t n,
                               const char *what, wfi_wait_clock *clock);
/* Whether that rank runs other programs than this one, or in another order. If so, sets the failure
 * of all ranks. control_runs.c */
bool wfi_control_goes_astray(const wfi_control *c, int rank);
