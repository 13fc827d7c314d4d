/* The control segment of a job: memory in which its processes find each other, count the tasks of
 * their streams, report failures and wait for each other. Private.
 *
 * The segment is a memfd: it has no name and no port and ends with the last process. wf_launch
 * hands it to its ranks (descriptor in WEFT_CONTROL_FD). Ranks of other launchers receive it from
 * rank 0 through an abstract socket named after the job (rendezvous.c). Arenas are memfds as well:
 * a rank publishes its own, and the others open it through /proc/PID/fd.
 *
 * Processes of several machines share no memory. Each has a segment of its own, in which the
 * transport (transport.h) updates the state of the other ranks. Other ranks' arenas are not mapped:
 * bytes that a task reads are received in the reader's own arena (execute/gate.h).
 */
#pragma once

#include "comm/transport/network.h"
#include "comm/transport/state.h"
#include "device/device.h"

#include <weft/job.h>

#define WFI_CONTROL_RANKS   1024  /* ranks of a job */
#define WFI_CONTROL_RECORDS 65536 /* microbatches of a step */
#define WFI_BROADCAST_BYTES 512

typedef wf_job wfi_control;

/* The size of the segment for so many ranks; a new segment is zeroed. */
size_t wfi_control_bytes(int n_ranks);
/* The number of ranks of the segment; 0: not a segment of this version. */
int wfi_control_room(int segment_fd);

/* Joins the job as `rank` (checked before): by descriptor if WEFT_CONTROL_FD names one, else
 * through the socket of the job `name`. Returns when all ranks have joined. Errors: TIMEOUT: the
 * message names the missing ranks; INVALID_ARG; REMOTE; DEVICE. Here, as in all barriers, a warning
 * names each rank that the others have awaited for WEFT_STALL_MS. */
wf_status wfi_control_join(wf_context *ctx, const char *name, int rank, int n_ranks,
                           int64_t timeout_ms, wfi_control **control_out);
/* The same with a given segment. Its descriptor stays the caller's. Ranks may also be threads of
 * one process, with a control each. */
wf_status wfi_control_attach(wf_context *ctx, int segment_fd, int rank, int n_ranks,
                             int64_t timeout_ms, wfi_control **control_out);
/* The same without shared memory, over `network`, which the control owns from here on. */
wf_status wfi_control_join_network(wf_context *ctx, const wfi_network *network, int rank,
                                   int n_ranks, int64_t timeout_ms, wfi_control **control_out);
/* Leaves the job. The last rank resets the segment. */
void wfi_control_leave(wfi_control *control); /* NULL is allowed */
/* Leaves without changing the segment's state. */
void wfi_control_abandon(wfi_control *control);

wf_context *wfi_control_context(const wfi_control *control);
int64_t wfi_control_timeout_ms(const wfi_control *control);
/* Whether ranks read each other's device memory through a wire between devices (wire nccl), not
 * through the host. */
bool wfi_control_wires_devices(const wfi_control *control);
wfi_control_rank *wfi_control_rank_at(const wfi_control *control, int rank);
wfi_control_part *wfi_control_part_of(const wfi_control *control, int rank, int trainer);
/* The process of that rank in this job: 0: not joined yet; < 0: left. */
int64_t wfi_control_pid_of(const wfi_control *control, int rank);
/* The failure that all ranks share. */
wfi_failure *wfi_control_failure(const wfi_control *control);

/* All ranks of a job create a trainer together. The trainer gets a slot, the same on all ranks;
 * trainers that are alive at the same time share nothing. Returns when all ranks have entered.
 * `serial` is the trainer's number in the job, from 1. Errors: INVALID_ARG: too many trainers are
 * alive; those of a barrier. */
wf_status wfi_control_enter_trainer(wfi_control *control, int *trainer_out, uint64_t *serial_out);
/* Not collective: the slot is free when all ranks have left it. */
void wfi_control_leave_trainer(wfi_control *control, int trainer);

/* Called before each run of a program. Publishes that the run begins, its identity (`run`: a number
 * that is equal on all ranks), and whether this rank has a request to stop. Returns the losses of
 * the run's microbatches, [WFI_CONTROL_RECORDS][2]. */
double *wfi_control_begin_run(wfi_control *control, uint64_t run, const char *what);
/* Called after the run: waits until all ranks have begun it, also those without a task. So their
 * requests to stop are known, and a rank that is one run behind can still read this rank's losses.
 * The largest reason to stop is the same on all ranks; 0: none. Errors: those of a barrier. */
wf_status wfi_control_end_run(wfi_control *control, int *stop_reason_out);
/* This rank's cell for non-finite values in its current run; initially 0. */
int64_t *wfi_control_own_not_finite(wfi_control *control);
/* After the run, before the next: the maximum of all ranks' cells. */
int64_t wfi_control_not_finite(const wfi_control *control);
/* The same for the gradient's norm: the cell of a rank that updates (initially 0), and the maximum
 * after the run. */
double *wfi_control_own_norm(wfi_control *control);
double wfi_control_norm(const wfi_control *control);
/* The number of saves that this rank's threads are writing; atomic access. */
int *wfi_control_n_writing(wfi_control *control);
/* After a run, before the next: whether any rank was writing when the run began; the same on all
 * ranks. */
bool wfi_control_was_writing(const wfi_control *control);
/* Whether that rank has begun this rank's current run. */
bool wfi_control_has_begun(const wfi_control *control, int rank);
/* Requests a stop from the next run on. Any thread may call it, also a signal handler. */
void wfi_control_request_stop(wfi_control *control, int reason);

/* Waits until all ranks have entered as many barriers, and checks that all entered this one with
 * the same `what`. Errors: TIMEOUT, REMOTE (a rank has died, or entered for another purpose), or
 * the failure of another rank. They become the failure of all ranks. The message names the rank and
 * its last call. */
wf_status wfi_control_barrier(wfi_control *control, const char *what);
/* Makes this rank's failure, with its latest message, the failure of all ranks, and returns it. */
wf_status wfi_control_fail_all(const wfi_control *control, wf_status status);
/* Whether that rank is a thread of this process. */
bool wfi_control_is_here(const wfi_control *control, int rank);
/* The words in which ranks report the death of another. The launcher recognizes them by this. */
#define WFI_CONTROL_DEAD 64
void wfi_control_say_dead(int rank, int64_t pid, char text_out[WFI_CONTROL_DEAD]);
/* Called by the launcher when one of its ranks has ended: all ranks of the segment fail with
 * REMOTE, unless they have failed before. */
void wfi_control_fail_segment(int segment_fd, const char *sentence);
/* observe.c, called by the launcher: a number that changes with every action of any rank of the
 * job; whether this process has joined the job as that rank; whether a process that it started has
 * joined in its place (a rank may be a script). */
uint64_t wfi_control_progress(int segment_fd);
bool wfi_control_has_joined(int segment_fd, int rank, int64_t pid);
bool wfi_control_has_started(int segment_fd, int rank, int64_t leader);
/* renew.c, called by the launcher: promises that it replaces ranks that die, and that the segment
 * gets a successor under the same descriptor; announces the successor, or that none follows;
 * whether the rank waits for one. */
void wfi_control_promise(int segment_fd);
void wfi_control_replace(int segment_fd, bool has_successor);
bool wfi_control_awaits(int segment_fd, int rank);
/* Called before a rank joins. If the segment has been used or has failed, and the launcher replaces
 * ranks, waits for a successor, which takes over the segment's descriptor. Errors: REMOTE;
 * INTERRUPTED: no successor follows. */
wf_status wfi_control_follow(wf_context *ctx, int segment_fd, int rank, int64_t timeout_ms);
/* Called by the launcher after its ranks have ended: the failure that they shared. */
void wfi_control_peek(int segment_fd, wfi_failure *failure_out);
/* All-gathers the numbers of each rank: *all_out [n_ranks] is borrowed until the next call. */
wf_status wfi_control_all_gather(wfi_control *control, const char *what,
                                 const wfi_control_numbers own,
                                 const wfi_control_numbers **all_out);
/* Whether that rank has left, or its process has ended. The is_lost of a wfi_remote. */
bool wfi_control_is_lost(const void *control, int rank);
/* Formats "rank 1 has left the job" or the words of wfi_control_say_dead. */
void wfi_control_describe_lost(const void *control, int rank, char text_out[WFI_CONTROL_DEAD]);

/* absent.c: "rank 2 (process 4711) has not arrived; its last call: step 12", and whether the
 * process is stopped. `how_long` is "" or " for 10 s". */
void wfi_control_describe_absent(const wfi_control *control, int rank, const char *how_long,
                                 char *text, size_t bytes);
/* "; the process is stopped ..." or "". */
const char *wfi_process_state(int64_t pid);
const char *wfi_control_process_state(const wfi_control *control, int rank);
/* The last call of that rank. */
void wfi_control_doing(const wfi_control *control, int rank, char doing_out[WFI_CONTROL_DOING]);
/* Whether that rank is on the same machine as this one. */
bool wfi_control_is_local(const wfi_control *control, int rank);
/* The number of ranks below `below` on this rank's machine. */
int wfi_control_n_local(const wfi_control *control, int below);

/* Publishes this rank's state (its wfi_control_rank); barriers do so, too. */
void wfi_control_publish(wfi_control *control);
/* Broadcasts rank 0's bytes, WFI_BROADCAST_BYTES at a time. `what` contains the size, unless it is
 * the same on all ranks anyway. Errors: those of a barrier. */
wf_status wfi_control_broadcast(wfi_control *control, const char *what, void *data, size_t bytes);

/* Memory that processes share: a memfd, which has no name and ends with the last process. Creates
 * one, or opens that of another process through /proc/PID/fd. MAP_FAILED: errno has the reason. */
void *wfi_shared_create(const char *name, size_t bytes, int *fd_out);
void *wfi_shared_open(int64_t pid, int foreign_fd, size_t bytes);

/* Creates an arena that other ranks can open, and publishes it as this rank's arena `number`. */
wf_status wfi_control_arena_create(wfi_control *control, int trainer, int number, size_t bytes,
                                   void **base_out);
/* Maps the arena that `rank` published; NULL if there is none, or no shared memory. */
wf_status wfi_control_arena_open(wfi_control *control, int rank, int trainer, int number,
                                 size_t *bytes_out, void **base_out);
/* The same for an arena in a file; the caller keeps the descriptor. Opening returns -1 in *fd_out
 * if the rank has none or processes cannot open each other's files. */
wf_status wfi_control_file_publish(wfi_control *control, int trainer, int number, int fd,
                                   size_t bytes);
wf_status wfi_control_file_open(wfi_control *control, int rank, int trainer, int number,
                                size_t *bytes_out, int *fd_out);
/* Unmaps an arena. */
void wfi_control_arena_release(wfi_control *control, void *base, size_t bytes);

/* ---- without shared memory; with shared memory these do nothing ---- */

/* Not NULL: processes share no memory, and this transport carries the bytes that they read from
 * each other. */
struct wfi_transport *wfi_control_transport(const wfi_control *control);
/* Resets the counters of the trainer's new streams. Called before the barrier after which they are
 * used. */
wf_status wfi_control_reset(wfi_control *control, int trainer);
/* Notifies `rank` (-1: all) when the trainer's local stream has completed so many tasks. */
wf_status wfi_control_notify(const wfi_control *control, int trainer, int rank, int stream,
                             uint64_t epoch);
/* Moves bytes at `from` in the process of rank `from_rank` to `to` in that of `to_rank`. All
 * processes make the same calls in the same order. The bytes have arrived when wfi_control_moved
 * returns. */
wf_status wfi_control_move(wfi_control *control, int from_rank, int to_rank, const void *from,
                           void *to, size_t bytes);
wf_status wfi_control_moved(wfi_control *control);
/* rendezvous.c: returns the segment's descriptor. Rank 0 creates it and hands it to the others.
 * Errors: TIMEOUT: the message names the missing ranks; INVALID_ARG: two processes have the same
 * rank, or another number of ranks, or the name is in use; DEVICE. */
wf_status wfi_rendezvous(wf_context *ctx, const char *name, int rank, int n_ranks,
                         int64_t timeout_ms, int *fd_out);
/* Returns a descriptor to close once MPI has started. Through it ranks that join by shared memory
 * find that this rank uses MPI, instead of waiting for it. -1: they cannot find it. */
int wfi_rendezvous_by_mpi(const char *name, int rank);
/* The first rank that found it, or -1. */
int wfi_rendezvous_refused_by(int seen);
/* join.c: joins according to the configuration, which it checks. */
wf_status wfi_control_join_job(wf_context *ctx, const wf_job_config *config, int64_t timeout_ms,
                               wfi_control **control_out);
/* Errors: INVALID_ARG for a wire that does not exist. */
wf_status wfi_check_wire(wf_context *ctx, const char *wire);
/* Creates an empty segment, sealed against resizing. Errors: NO_MEMORY. */
wf_status wfi_control_segment(wf_context *ctx, int n_ranks, int *fd_out);
