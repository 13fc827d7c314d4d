/* A worker: one rank's device, its streams and its arenas. Private. */
#pragma once

#include "comm/job/control.h"
#include "comm/transport/remote.h"
#include "comm/wire/device_wire.h"
#include "device/list.h"
#include "program/program.h"

/* A rank's memory of one space: state first, at the same offsets in every program. */
typedef struct wfi_arena {
    char *base;
    size_t bytes;
    size_t peak_bytes; /* highest byte that kernels, copies and updates have reached; atomic */
} wfi_arena;

typedef struct wfi_worker {
    wfi_owner owner;
    wfi_control *job;           /* NULL: the only process */
    int trainer;                /* its place in the job */
    bool is_local;              /* its streams run here, not in another process of the job */
    wfi_device *device;         /* NULL: it is elsewhere, and its streams are ... */
    wfi_remote remote;          /* ... counted here */
    const wfi_backend *backend; /* the kernels of its kind of device */
    wfi_stream_queue *streams[WFI_N_STREAMS];
    /* In a job: other processes cannot see the memory of the rank's device, and map `host_copy`
     * as its arena: host memory of the arena's size, and mostly empty (gate.h). */
    bool has_host_copy;
    char *host_copy;
    /* The local rank's wire, whose tasks run on a stream of its own; NULL: the job has none. */
    wfi_device_wire *wire;
    wfi_stream_queue *wire_stream;
    wfi_arena arenas[WFI_N_SPACES];
    /* Least sizes of the arenas that all processes have agreed on, also for ranks of other
     * processes. */
    size_t room_bytes[WFI_N_SPACES];
    const char *folder;      /* of its files; borrowed; NULL: the device's default */
    wfi_device *copier;      /* device that copies from and to its arenas in this process */
    size_t shift_bytes;      /* of the device's arena */
    struct wfi_raise *raise; /* NULL: no signal is due (fault.h) */
    double slow_factor;      /* above 1: a slow rank (delay.h); set while its streams are idle */
    int64_t n_slowed;        /* slowed instructions */
    int64_t slow_debt_ns;    /* sleep that is due; negative: excess sleep */
    bool is_apart;           /* its rank's memory is not read here: a wire brings bytes of it */
    int n_threads;           /* that its kernels compute with, counted; 0: it has not run any */
    /* The rank's updates record non-finite values here (base/finite.h): in a job, a cell of the
     * segment; else own_not_finite. */
    int64_t *not_finite, own_not_finite;
} wfi_worker;

/* Reads owner, job, trainer and shift_bytes from `worker`. Errors: UNSUPPORTED for a device without
 * memory. */
wf_status wfi_worker_create(wfi_worker *worker, const wfi_device_class *kind, int place,
                            int n_places);
/* The hosts of all processes are going to wait for the tasks of this stream: its own process
 * requests now that their completion is sent to all. */
wf_status wfi_worker_announce(const wfi_worker *worker, int stream);
/* Ends the threads; of all workers before the first is destroyed. */
void wfi_worker_stop(wfi_worker *worker);
void wfi_worker_destroy(wfi_worker *worker);

/* Grows the arenas to the needed size of each space, keeping the state. The streams are idle. In a
 * job, the arenas of other processes are opened afterwards, when all have grown their own. */
wf_status wfi_worker_grow(wfi_worker *worker, const wfi_arena_plan needs[WFI_N_SPACES]);
wf_status wfi_worker_open(wfi_worker *worker);
