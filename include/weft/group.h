/* Groups of ranks and their collectives, as MPI's communicators.
 *
 *     wf_group *group;
 *     float *x;
 *     wf_group_create(job, NULL, &group);
 *     wf_group_alloc(group, n * sizeof *x, (void **)&x); // memory that the other ranks can see
 *     ... fill x ...
 *     wf_group_all_reduce(group, x, x, n, WF_F32, WF_SUM, NULL);
 *
 * Order: all ranks of a group call the same collectives in the same order, with the same counts,
 * types, operations and roots. The ranks compare each call before any byte of a buffer changes. If
 * they disagree, all ranks get REMOTE, and the sentence shows the call of each side. The sentence
 * includes the source line if the call gives it:
 *
 *     wf_group_all_reduce(WF_HERE(group), x, x, n, WF_F32, WF_SUM, NULL);
 *
 * Buffers: n_elem elements of `dtype`, aligned to their size. `in` and `out` must not overlap,
 * unless a function allows equal ones. Any memory works. If both lie in memory of wf_group_alloc,
 * ranks of one machine read it in place, without a second copy.
 *
 * Completion: with `work_out` NULL, a call returns when this rank's part is done; `out` then holds
 * the result, and `in` may be written again. Otherwise the call returns at once with a handle,
 * *work_out, for wf_work_wait; until the wait returns, the group owns the buffers. The works of a
 * group run one after another, in the order of the calls, on a stream of their own. A call without
 * a handle first waits for earlier works.
 *
 * Threads: one thread at a time calls a group's functions, but any thread may wait for a work.
 * Destroy the group, its memory and its works before leaving the job.
 *
 * Errors of all collectives: INVALID_ARG (this rank's arguments; the call has had no effect, and
 * other ranks are not notified), REMOTE (ranks disagree, or a rank has died; the sentence names
 * it), TIMEOUT (the sentence names the missing ranks and their last operations). After REMOTE or
 * TIMEOUT the group is broken on every rank: all later calls return the same status.
 */
#ifndef WEFT_GROUP_H
#define WEFT_GROUP_H

#include <weft/job.h>
#include <weft/types.h>

typedef struct wf_group wf_group;
typedef struct wf_work wf_work;

/* BF16 is summed in F32 and rounded once. Integers wrap; MEAN of integers is INVALID_ARG. */
typedef enum wf_reduction { WF_SUM, WF_MEAN, WF_MIN, WF_MAX } wf_reduction;

typedef struct wf_group_config {
    size_t struct_size;
    /* The summation algorithm of all-reduce, reduce and reduce-scatter, by a name of
     * wf_group_algorithm_name. "engine" is MPI's own all-reduce, for groups of all ranks of a job
     * over MPI. NULL or "auto": a table by collective, bytes, ranks and wire decides. */
    const char *algorithm;
    /* 0: sums use one fixed tree of the ranks, which alone determines the bits. 1: the order of
     * summation may rotate; ring and engine need this beyond two ranks. */
    int order_free;
    int n_roots;        /* "root": the number of ranks that sum one slice each; 0 = 1 */
    const char *wire;   /* "inproc", "shm" or "mpi"; NULL: the best one that reaches all ranks */
    int64_t timeout_ms; /* for every wait; 0 = the job's */
} wf_group_config;

#define WF_GROUP_CONFIG_INIT                                                                       \
    { sizeof(wf_group_config), 0, 0, 0, 0, 0 }

/* Bytes that this rank has written to and read from other ranks in collectives, without those of
 * "engine". */
typedef struct wf_traffic {
    uint64_t sent_bytes, received_bytes;
} wf_traffic;

#ifdef __cplusplus
extern "C" {
#endif

/* Creates a group of all ranks of the job. Collective. `config` NULL means WF_GROUP_CONFIG_INIT.
 * Errors: those of a collective; UNSUPPORTED (the wire or the algorithm does not support the group;
 * the sentence names those that do); NO_MEMORY. */
WF_API WF_NODISCARD wf_status wf_group_create(wf_job *job, const wf_group_config *config,
                                              wf_group **group_out);
/* Splits `parent` by color, as MPI_Comm_split: ranks with the same color form a group, ordered by
 * key, then by rank. Collective over `parent`. A rank with color < 0 joins no group and gets NULL.
 * Errors: those of wf_group_create. */
WF_API WF_NODISCARD wf_status wf_group_split(wf_group *parent, int color, int key,
                                             const wf_group_config *config, wf_group **group_out);
/* Waits for the group's works, then destroys the group. Free memory of wf_group_alloc first. Not
 * collective: other ranks may continue until they need this rank. NULL is allowed. */
WF_API void wf_group_destroy(wf_group *group);

/* This process's rank in the group, and the number of ranks. */
WF_API int wf_group_rank(const wf_group *group);
WF_API int wf_group_n_ranks(const wf_group *group);
/* The rank among the group's ranks on this machine, and their number. */
WF_API int wf_group_local_rank(const wf_group *group);
WF_API int wf_group_n_local_ranks(const wf_group *group);
/* The rank in the job of the group's `rank`; -1 if out of range. */
WF_API int wf_group_job_rank(const wf_group *group, int rank);
/* The name of the group's wire: "inproc", "shm" or "mpi". */
WF_API const char *wf_group_wire(const wf_group *group);
/* The algorithm that an all-reduce of so many bytes uses: the configured one, or the choice of
 * "auto". */
WF_API const char *wf_group_algorithm(const wf_group *group, size_t bytes);
/* Name i of all algorithms; NULL past the last; static. */
WF_API const char *wf_group_algorithm_name(int i);
/* 1 if the algorithm's order of summation differs from the fixed tree beyond two ranks, so that it
 * needs order_free; 0 also for an unknown name. */
WF_API int wf_group_algorithm_rotates(const char *name);
/* The traffic since the group was created. */
WF_API wf_traffic wf_group_traffic(const wf_group *group);

/* Allocates zeroed memory, 64-byte aligned, that the group's ranks on this machine can read and
 * write. Not collective. Errors: NO_MEMORY (also: too many blocks; allocate fewer, larger ones). */
WF_API WF_NODISCARD wf_status wf_group_alloc(wf_group *group, size_t bytes, void **block_out);
/* Frees a block. Wait for the works that use it first. NULL is allowed. */
WF_API void wf_group_free(wf_group *group, void *block);

/* ---- collectives ---- */

/* Sets the source position of this rank's next collective, for error sentences. `site` ("toy.c:31")
 * must stay valid while the group lives. Returns the group, so the call can replace the `group`
 * argument; NULL returns NULL. */
WF_API wf_group *wf_group_at(wf_group *group, const char *site);
#define WF_SITE_TEXT_(line) #line
#define WF_SITE_LINE_(line) WF_SITE_TEXT_(line)
#define WF_HERE(group)      wf_group_at((group), __FILE__ ":" WF_SITE_LINE_(__LINE__))

/* Returns when all ranks have called it. */
WF_API WF_NODISCARD wf_status wf_group_barrier(wf_group *group, wf_work **work_out);
/* out[n_elem] on every rank = in[n_elem] of root. Other ranks' `in` is not read. in == out is
 * allowed. */
WF_API WF_NODISCARD wf_status wf_group_broadcast(wf_group *group, const void *in, void *out,
                                                 int64_t n_elem, wf_dtype dtype, int root,
                                                 wf_work **work_out);
/* out[n_elem] on root = the reduction of all in[n_elem]. Other ranks' `out` is not written. in ==
 * out is allowed on root. */
WF_API WF_NODISCARD wf_status wf_group_reduce(wf_group *group, const void *in, void *out,
                                              int64_t n_elem, wf_dtype dtype, wf_reduction op,
                                              int root, wf_work **work_out);
/* out[n_elem] on every rank = the reduction of all in[n_elem]. in == out is allowed. */
WF_API WF_NODISCARD wf_status wf_group_all_reduce(wf_group *group, const void *in, void *out,
                                                  int64_t n_elem, wf_dtype dtype, wf_reduction op,
                                                  wf_work **work_out);
/* out[n_ranks * n_elem] = in[n_elem] of rank 0, rank 1, ...; in == out + rank * n_elem is
 * allowed. */
WF_API WF_NODISCARD wf_status wf_group_all_gather(wf_group *group, const void *in, void *out,
                                                  int64_t n_elem, wf_dtype dtype,
                                                  wf_work **work_out);
/* out[n_elem] on rank r = the reduction of in[r * n_elem ...] of all ranks, with
 * in[n_ranks * n_elem]. out == in + rank * n_elem is allowed. */
WF_API WF_NODISCARD wf_status wf_group_reduce_scatter(wf_group *group, const void *in, void *out,
                                                      int64_t n_elem, wf_dtype dtype,
                                                      wf_reduction op, wf_work **work_out);
/* out[n_ranks * n_elem] on root = in[n_elem] of rank 0, rank 1, ...; in == out + root * n_elem is
 * allowed on root. */
WF_API WF_NODISCARD wf_status wf_group_gather(wf_group *group, const void *in, void *out,
                                              int64_t n_elem, wf_dtype dtype, int root,
                                              wf_work **work_out);
/* out[n_elem] on rank r = in[r * n_elem ...] of root; out == in + root * n_elem is allowed on
 * root. */
WF_API WF_NODISCARD wf_status wf_group_scatter(wf_group *group, const void *in, void *out,
                                               int64_t n_elem, wf_dtype dtype, int root,
                                               wf_work **work_out);
/* out[r * n_elem ...] = in[own rank * n_elem ...] of rank r; both are [n_ranks * n_elem]. in == out
 * is allowed. */
WF_API WF_NODISCARD wf_status wf_group_all_to_all(wf_group *group, const void *in, void *out,
                                                  int64_t n_elem, wf_dtype dtype,
                                                  wf_work **work_out);
/* Sends to, or receives from, one other rank. Messages between two ranks arrive in the order of the
 * sends, and the count and type of a send and its receive must be equal. A send may block until
 * its receive, also as a work, and then blocks the works after it. If two ranks send to each other,
 * one must call wf_group_recv first. */
WF_API WF_NODISCARD wf_status wf_group_send(wf_group *group, const void *in, int64_t n_elem,
                                            wf_dtype dtype, int to, wf_work **work_out);
WF_API WF_NODISCARD wf_status wf_group_recv(wf_group *group, void *out, int64_t n_elem,
                                            wf_dtype dtype, int from, wf_work **work_out);

/* ---- works ---- */

/* Waits for the work, frees the handle and returns the collective's status. Any thread may call it,
 * once per handle, before the group is destroyed. Errors: those of the collective. */
WF_API WF_NODISCARD wf_status wf_work_wait(wf_work *work);
/* 1 if wf_work_wait would return at once. */
WF_API int wf_work_is_done(const wf_work *work);

#ifdef __cplusplus
}
#endif
#endif
