/* What the processes of a job share beside their arenas: one segment of memory in which they
 * find each other, count the work of their streams, report failures and wait for each other.
 * Private.
 *
 * The segment is a memfd: no name, no port, gone with the last process. It is handed over by
 * wf_launch (descriptor in WEFT_CONTROL_FD), or, to processes started by something else, by
 * rank 0 through an abstract socket named after the job (rendezvous.c). Arenas are memfds as
 * well; a rank publishes its own, the others open it through /proc/PID/fd.
 *
 * Processes of several machines share no memory. Each has a segment of its own there, in which
 * the transport (transport.h) keeps what the others say of themselves; and in place of another
 * rank's arena a shadow copy: as large, and only what a task reads comes into it, just before
 * (run/reads.h).
 */
#ifndef WFI_CONTROL_H
#define WFI_CONTROL_H

#include "comm/transport/network.h"
#include "comm/transport/state.h"
#include "device/device.h"

#include <weft/job.h>

#define WFI_CONTROL_RANKS   1024  /* of a job */
#define WFI_CONTROL_RECORDS 65536 /* microbatches of a step */
#define WFI_CONTROL_TOLD    512

typedef wf_job wfi_control;

/* The size of the segment for so many ranks; it begins as zeros. */
size_t wfi_control_bytes(int n_ranks);
/* How many ranks it was made for; 0: it is no segment of this version's. */
int wfi_control_room(int segment_fd);

/* Joins the job as `rank` (checked before): by descriptor if WEFT_CONTROL_FD names one, else
 * through the socket of the job `name`. Returns when all have come. Errors: TIMEOUT: the sentence
 * names who did not come; INVALID_ARG; REMOTE; DEVICE. Whoever lets the others wait for
 * WEFT_STALL_MS is named in a line of the log, here as in all barriers. */
wf_status wfi_control_join(wf_context *ctx, const char *name, int rank, int n_ranks,
                           int64_t timeout_ms, wfi_control **control_out);
/* The same with the segment at hand; its descriptor stays the caller's. Ranks may also be threads
 * of one process, with a control each. */
wf_status wfi_control_attach(wf_context *ctx, int segment_fd, int rank, int n_ranks,
                             int64_t timeout_ms, wfi_control **control_out);
/* The same without shared memory: by messages of `network`, which is the control's from here on. */
wf_status wfi_control_join_network(wf_context *ctx, const wfi_network *network, int rank,
                                   int n_ranks, int64_t timeout_ms, wfi_control **control_out);
/* When all have left, the segment is as in the beginning. */
void wfi_control_leave(wfi_control *control); /* NULL is allowed */
/* Leaves without a word: the segment keeps what has happened. */
void wfi_control_abandon(wfi_control *control);

wf_context *wfi_control_context(const wfi_control *control);
int64_t wfi_control_timeout_ms(const wfi_control *control);
/* Whether what ranks read of each other's devices goes by a wire between these (wire nccl), and not
 * by way of the host. */
bool wfi_control_wires_devices(const wfi_control *control);
wfi_control_rank *wfi_control_rank_at(const wfi_control *control, int rank);
wfi_control_part *wfi_control_part_of(const wfi_control *control, int rank, int trainer);
/* That rank's process in this job: 0 if it has not come, < 0 if it has left. */
int64_t wfi_control_pid_of(const wfi_control *control, int rank);
/* The failure that all ranks share. */
wfi_failure *wfi_control_failure(const wfi_control *control);

/* A job's ranks all make a trainer at once, and it gets a place, the same on all ranks:
 * trainers that are alive at the same time share nothing. Returns when all have come. `serial` is
 * its number among all that the job has made, from 1 on. Errors: INVALID_ARG: too many are alive;
 * those of a barrier. */
wf_status wfi_control_enter_trainer(wfi_control *control, int *trainer_out, uint64_t *serial_out);
/* Not collective: the place is free when all have left it. */
void wfi_control_leave_trainer(wfi_control *control, int trainer);

/* Before each run of a program: tells the others that it begins, what it is (`run`: a number that
 * is the same on all ranks), and whether this rank has been asked to stop. Returns where
 * the run's microbatches report, [WFI_CONTROL_RECORDS][2]. */
double *wfi_control_begin_run(wfi_control *control, uint64_t run, const char *what);
/* After it: waits until all have begun it, also those who have nothing to do in it. So what they
 * had to say is known, and who is a run behind still finds what this one has reported. The
 * largest reason to stop of any rank is the same on all; 0: none. Errors: those of a barrier. */
wf_status wfi_control_end_run(wfi_control *control, int *stop_reason_out);
/* Where this rank says what is not finite in the run that it has begun; 0 in the beginning. */
int64_t *wfi_control_own_not_finite(wfi_control *control);
/* After the run, before the next: the largest of all ranks'. */
int64_t wfi_control_not_finite(const wfi_control *control);
/* The same of the gradient's norm: where a rank that updates writes it (0 in the beginning), and
 * what all ranks have after the run. */
double *wfi_control_own_norm(wfi_control *control);
double wfi_control_norm(const wfi_control *control);
/* How many saves this rank's threads are writing; atomic access. */
int *wfi_control_n_writing(wfi_control *control);
/* After a run, before the next: whether any rank was writing when it began; the same on all. */
bool wfi_control_was_writing(const wfi_control *control);
/* Whether that rank has begun the run that this one is in. */
bool wfi_control_has_begun(const wfi_control *control, int rank);
/* The same memory as the records', between barriers and without a run. */
double *wfi_control_board(const wfi_control *control);
/* From the next run on. Any thread, also a signal handler. */
void wfi_control_request_stop(wfi_control *control, int reason);

/* Waits until all ranks have come to as many barriers, and finds that they come to do the same
 * thing, `what`. Errors: TIMEOUT, REMOTE (a rank has died, or has come for another purpose), or the
 * failure of another; they become everybody's. The sentence names the rank and what it was last
 * doing. */
wf_status wfi_control_barrier(wfi_control *control, const char *what);
/* Makes this rank's failure everybody's, with its latest sentence, and returns it. */
wf_status wfi_control_fail_all(const wfi_control *control, wf_status status);
/* Whether that rank is a thread of this process. */
bool wfi_control_is_here(const wfi_control *control, int rank);
/* By the launcher: one of its ranks has ended, whoever may be waiting for it. The segment's
 * ranks fail as REMOTE, unless something has failed before. */
void wfi_control_tell(int segment_fd, const char *sentence);
/* By the launcher, observe.c: a number that changes with whatever any rank of the job does; whether
 * this process has joined it as that rank; and whether one that it has started takes part in its
 * place now, as where a rank is a script. */
uint64_t wfi_control_progress(int segment_fd);
bool wfi_control_has_joined(int segment_fd, int rank, int64_t pid);
bool wfi_control_has_started(int segment_fd, int rank, int64_t leader);
/* renew.c, by the launcher: ranks that die will be replaced, and the segment gets a successor under
 * the same descriptor; it has one now, or gets none any more; whether the rank awaits one. */
void wfi_control_promise(int segment_fd);
void wfi_control_replace(int segment_fd, bool has_successor);
bool wfi_control_awaits(int segment_fd, int rank);
/* Before a rank joins: if the segment has served or failed, and the launcher replaces ranks, waits
 * for a successor, which gets the segment's descriptor. Errors: REMOTE; INTERRUPTED: there is none.
 */
wf_status wfi_control_follow(wf_context *ctx, int segment_fd, int rank, int64_t timeout_ms);
/* By the launcher, when they have ended: the failure that they shared. */
void wfi_control_peek(int segment_fd, wfi_failure *failure_out);
/* Waits for all, and gives all what each rank tells: *all_out [n_ranks], the control's until the
 * next time. */
wf_status wfi_control_all_gather(wfi_control *control, const char *what,
                                 const wfi_control_numbers own,
                                 const wfi_control_numbers **all_out);
/* Whether that rank has left, or its process is gone. A wfi_remote's is_lost. */
bool wfi_control_is_lost(const void *control, int rank);

/* absent.c: "rank 2 (process 4711) has not come; it last came to step 12", and whether the
 * process is stopped. `how_long` is "" or " for 10 s". */
void wfi_control_say_absent(const wfi_control *control, int rank, const char *how_long, char *text,
                            size_t bytes);
/* "; the process is stopped ..." or "". */
const char *wfi_process_state(int64_t pid);
const char *wfi_control_process_state(const wfi_control *control, int rank);
/* What that rank last came to do. */
void wfi_control_doing(const wfi_control *control, int rank, char doing_out[WFI_CONTROL_DOING]);
/* Whether that rank is on this one's machine. */
bool wfi_control_is_local(const wfi_control *control, int rank);
/* Of the ranks below `below`, how many are on this one's machine. */
int wfi_control_n_local(const wfi_control *control, int below);

/* What this rank says of itself (its wfi_control_rank) has changed; barriers say it, too. */
void wfi_control_publish(wfi_control *control);
/* Rank 0's bytes, at most WFI_CONTROL_TOLD, to all. `what` says how many, unless that is the same
 * in all ranks by itself. Errors: as in a barrier. */
wf_status wfi_control_broadcast(wfi_control *control, const char *what, void *data, size_t bytes);

/* Memory that processes share: a memfd, which has no name and goes with the last of them. Makes it;
 * or opens another process's through /proc/PID/fd. MAP_FAILED: errno says why. */
void *wfi_shared_create(const char *name, size_t bytes, int *fd_out);
void *wfi_shared_open(int64_t pid, int foreign_fd, size_t bytes);

/* Makes an arena that others can open, and publishes it as this rank's of that number. */
wf_status wfi_control_arena_create(wfi_control *control, int trainer, int number, size_t bytes,
                                   void **base_out);
/* Maps the arena that `rank` published, or makes a shadow copy of its size. */
wf_status wfi_control_arena_open(wfi_control *control, int rank, int trainer, int number,
                                 size_t *bytes_out, void **base_out);
/* The same of an arena that is a file, which stays the caller's; and opens another rank's: < 0:
 * there is none, or processes do not see each other's. */
wf_status wfi_control_file_publish(wfi_control *control, int trainer, int number, int fd,
                                   size_t bytes);
wf_status wfi_control_file_open(wfi_control *control, int rank, int trainer, int number,
                                size_t *bytes_out, int *fd_out);
/* Ends an arena or a shadow copy. */
void wfi_control_arena_release(wfi_control *control, void *base, size_t bytes);

/* ---- without shared memory; with it, all these do nothing ---- */

/* Not NULL: processes share no memory, and this transports what they read of each other. */
struct wfi_transport *wfi_control_transport(const wfi_control *control);
/* The trainer's streams have been made, and count anew; before the barrier after which they are
 * used. */
wf_status wfi_control_reset(wfi_control *control, int trainer);
/* Without a shared segment: `rank` (-1: all) hears when the trainer's local stream has done so many
 * tasks. A wfi_remote's notify. */
wf_status wfi_control_notify(const void *control, int trainer, int rank, int stream,
                             uint64_t epoch);
/* Bytes at `from` in the process of rank `from_rank` to `to` in that of `to_rank`. All processes
 * call it in the same order; done when wfi_control_moved returns. */
wf_status wfi_control_move(wfi_control *control, int from_rank, int to_rank, const void *from,
                           void *to, size_t bytes);
wf_status wfi_control_moved(wfi_control *control);
/* How much of a shadow copy is there. */
size_t wfi_control_shadow_bytes(const void *base, size_t bytes);

/* rendezvous.c: the segment's descriptor. Rank 0 makes it and hands it to the others. Errors:
 * TIMEOUT: the sentence names who did not come; INVALID_ARG: two processes are one rank, or do
 * not agree on their number, or the name is in use; DEVICE. */
wf_status wfi_rendezvous(wf_context *ctx, const char *name, int rank, int n_ranks,
                         int64_t timeout_ms, int *fd_out);
/* A descriptor to close once MPI has started: until then ranks of the job that go by shared memory
 * find that this one does not, instead of waiting for it. -1: nobody can see it. */
int wfi_rendezvous_by_mpi(const char *name, int rank);
/* The rank that has found it, or -1. */
int wfi_rendezvous_refused_by(int seen);
/* join.c: joins as the configuration says, which is checked. */
wf_status wfi_control_join_job(wf_context *ctx, const wf_job_config *config, int64_t timeout_ms,
                               wfi_control **control_out);
/* An empty segment, which nobody can make smaller. Errors: NO_MEMORY. */
wf_status wfi_control_segment(wf_context *ctx, int n_ranks, int *fd_out);

#endif
