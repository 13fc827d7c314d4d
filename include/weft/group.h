/* A group: ranks that call collectives together, each its own part at its own time.
 *
 *     wf_group *group;
 *     float *x;
 *     wf_group_create(job, NULL, &group);
 *     wf_group_alloc(group, n * sizeof *x, (void **)&x); // memory that the other ranks can see
 *     ... fill x ...
 *     wf_group_all_reduce(group, x, x, n, WF_F32, WF_SUM, NULL);
 *
 * All ranks of a group call the same collectives in the same order with the same counts, types,
 * operations and roots. Before any byte of a buffer changes, each call is compared with those of
 * the others: if they disagree, all ranks get REMOTE, and a sentence that says what each side
 * called. It says where, too, if the call gives its place:
 *
 *     wf_group_all_reduce(WF_HERE(group), x, x, n, WF_F32, WF_SUM, NULL);
 *
 * Buffers: n_elem elements of `dtype`, aligned to their size. `in` and `out` are either the same
 * as each function says, or do not overlap. Any memory will do; if both lie in memory of
 * wf_group_alloc, ranks of one machine read it where it is, and nothing is copied twice.
 *
 * The last argument: NULL = returns when this rank's part is done, `out` holds the result, and `in`
 * may be written again. Otherwise the call returns at once, and *work_out is to be waited for; the
 * buffers belong to the group until then. The works of a group run one after another, in the
 * order of the calls, on a stream of their own; a call without a handle first waits for those.
 *
 * One thread at a time calls a group's functions, but any thread may wait for a work. A group, its
 * memory and its works end before the job is left.
 *
 * Errors of all collectives: INVALID_ARG (this rank's arguments; nobody else is told, and nothing
 * has happened), REMOTE (ranks disagree, or one has died: the sentence names it), TIMEOUT (the
 * sentence names who did not come and what each was last doing). After REMOTE or TIMEOUT the group
 * is broken on every rank: all later calls return the same.
 */
#ifndef WEFT_GROUP_H
#define WEFT_GROUP_H

#include <weft/job.h>
#include <weft/types.h>

typedef struct wf_group wf_group;
typedef struct wf_work wf_work;

/* BF16 is summed as F32 and rounded once. Integers wrap; their MEAN is refused. */
typedef enum wf_reduction { WF_SUM, WF_MEAN, WF_MIN, WF_MAX } wf_reduction;

typedef struct wf_group_config {
    size_t struct_size;
    /* How all-reduce, reduce and reduce-scatter sum: a name of wf_group_algorithm_name. "engine" is
     * MPI's own all-reduce, for groups of all ranks of a job over MPI; NULL or "auto": by a table
     * of collective, bytes, ranks and wire. */
    const char *algorithm;
    /* 0: sums are made over one fixed tree of the ranks, so the bits depend on nothing else.
     * 1: the order may rotate; beyond two ranks ring and engine need it. */
    int order_free;
    int n_roots;        /* "root": the first so many ranks sum a slice each; 0 = 1 */
    const char *wire;   /* "inproc", "shm", "mpi"; NULL: the best that reaches all ranks */
    int64_t timeout_ms; /* of every wait; 0 = the job's */
} wf_group_config;

#define WF_GROUP_CONFIG_INIT                                                                       \
    { sizeof(wf_group_config), 0, 0, 0, 0, 0 }

/* Bytes of collectives that this rank has written to and read from others; not "engine"'s. */
typedef struct wf_traffic {
    uint64_t sent_bytes, received_bytes;
} wf_traffic;

#ifdef __cplusplus
extern "C" {
#endif

/* All ranks of the job. Collective. `config` NULL means WF_GROUP_CONFIG_INIT. Errors: those of a
 * collective; UNSUPPORTED: the wire or the algorithm cannot, and which can. */
WF_API WF_NODISCARD wf_status wf_group_create(wf_job *job, const wf_group_config *config,
                                              wf_group **group_out);
/* The ranks of `parent` that give the same color, ordered by key, then by rank. Collective over
 * `parent`. color < 0: this rank is in none, *group_out is NULL. */
WF_API WF_NODISCARD wf_status wf_group_split(wf_group *parent, int color, int key,
                                             const wf_group_config *config, wf_group **group_out);
/* Waits for its works. Not collective: the others may go on until they need this rank. NULL is
 * allowed. Memory of wf_group_alloc has been freed. */
WF_API void wf_group_destroy(wf_group *group);

WF_API int wf_group_rank(const wf_group *group);
WF_API int wf_group_n_ranks(const wf_group *group);
/* Among the group's ranks on this machine. */
WF_API int wf_group_local_rank(const wf_group *group);
WF_API int wf_group_n_local_ranks(const wf_group *group);
/* Which rank of the job the group's `rank` is. */
WF_API int wf_group_job_rank(const wf_group *group, int rank);
WF_API const char *wf_group_wire(const wf_group *group);
/* What "auto" comes to for an all-reduce of so many bytes. */
WF_API const char *wf_group_algorithm(const wf_group *group, size_t bytes);
/* Name i of all algorithms, NULL past the last; static. */
WF_API const char *wf_group_algorithm_name(int i);
/* Whether it adds in another order than the tree's beyond two ranks, so that it needs order_free.
 */
WF_API int wf_group_algorithm_rotates(const char *name);
/* Since the group was made. */
WF_API wf_traffic wf_group_traffic(const wf_group *group);

/* Zeroed memory, 64-byte aligned, that the group's ranks on this machine can read and write.
 * Not collective. */
WF_API WF_NODISCARD wf_status wf_group_alloc(wf_group *group, size_t bytes, void **block_out);
/* After the works that use it. NULL is allowed. */
WF_API void wf_group_free(wf_group *group, void *block);

/* ---- collectives ---- */

/* Says where the group's next collective is called, for sentences; only this rank's next call has
 * the place. `site` ("toy.c:31") stays valid while the group lives. Returns the group, so that it
 * can stand in the call's place of a group; NULL gives NULL. */
WF_API wf_group *wf_group_at(wf_group *group, const char *site);
#define WF_SITE_TEXT_(line) #line
#define WF_SITE_LINE_(line) WF_SITE_TEXT_(line)
#define WF_HERE(group)      wf_group_at((group), __FILE__ ":" WF_SITE_LINE_(__LINE__))

/* Returns when all ranks have come. */
WF_API WF_NODISCARD wf_status wf_group_barrier(wf_group *group, wf_work **work_out);
/* out[n_elem] on every rank = root's in. Elsewhere `in` is not read. in == out is allowed. */
WF_API WF_NODISCARD wf_status wf_group_broadcast(wf_group *group, const void *in, void *out,
                                                 int64_t n_elem, wf_dtype dtype, int root,
                                                 wf_work **work_out);
/* out[n_elem] on root = the reduction of all in[n_elem]; there in == out is allowed. Elsewhere
 * `out` is not written. */
WF_API WF_NODISCARD wf_status wf_group_reduce(wf_group *group, const void *in, void *out,
                                              int64_t n_elem, wf_dtype dtype, wf_reduction op,
                                              int root, wf_work **work_out);
/* out[n_elem] on every rank = the reduction of all in[n_elem]. in == out is allowed. */
WF_API WF_NODISCARD wf_status wf_group_all_reduce(wf_group *group, const void *in, void *out,
                                                  int64_t n_elem, wf_dtype dtype, wf_reduction op,
                                                  wf_work **work_out);
/* out[n_ranks * n_elem] = in[n_elem] of rank 0, of rank 1, ...; in == out + rank * n_elem is
 * allowed. */
WF_API WF_NODISCARD wf_status wf_group_all_gather(wf_group *group, const void *in, void *out,
                                                  int64_t n_elem, wf_dtype dtype,
                                                  wf_work **work_out);
/* out[n_elem] on rank r = the reduction of in[r * n_elem ...] of all, in[n_ranks * n_elem];
 * out == in + rank * n_elem is allowed. */
WF_API WF_NODISCARD wf_status wf_group_reduce_scatter(wf_group *group, const void *in, void *out,
                                                      int64_t n_elem, wf_dtype dtype,
                                                      wf_reduction op, wf_work **work_out);
/* out[n_ranks * n_elem] on root = in[n_elem] of rank 0, 1, ...; on root in == out + root * n_elem
 * is allowed. */
WF_API WF_NODISCARD wf_status wf_group_gather(wf_group *group, const void *in, void *out,
                                              int64_t n_elem, wf_dtype dtype, int root,
                                              wf_work **work_out);
/* out[n_elem] on rank r = root's in[r * n_elem ...]; on root out == in + root * n_elem is
 * allowed. */
WF_API WF_NODISCARD wf_status wf_group_scatter(wf_group *group, const void *in, void *out,
                                               int64_t n_elem, wf_dtype dtype, int root,
                                               wf_work **work_out);
/* out[r * n_elem ...] = rank r's in[own rank * n_elem ...]; both [n_ranks * n_elem]. in == out is
 * allowed. */
WF_API WF_NODISCARD wf_status wf_group_all_to_all(wf_group *group, const void *in, void *out,
                                                  int64_t n_elem, wf_dtype dtype,
                                                  wf_work **work_out);
/* To or from one other rank. Between two ranks messages arrive in the order in which they were
 * sent, and each has the count and type of its receive. A send may wait for it, also as a work, and
 * the works behind it with it: of two ranks that send to each other, one calls wf_group_recv first.
 */
WF_API WF_NODISCARD wf_status wf_group_send(wf_group *group, const void *in, int64_t n_elem,
                                            wf_dtype dtype, int to, wf_work **work_out);
WF_API WF_NODISCARD wf_status wf_group_recv(wf_group *group, void *out, int64_t n_elem,
                                            wf_dtype dtype, int from, wf_work **work_out);

/* ---- works ---- */

/* Waits, frees the handle, and gives the collective's status. Any thread, once, before the group is
 * destroyed. */
WF_API WF_NODISCARD wf_status wf_work_wait(wf_work *work);
/* Whether waiting would return at once. */
WF_API int wf_work_is_done(const wf_work *work);

#ifdef __cplusplus
}
#endif
#endif
