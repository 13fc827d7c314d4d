/* An MPI library, found and loaded at run time. Private.
 *
 * weft is built without one. There is no binary interface that all share, so each of the two
 * families has its table: Open MPI's handles are addresses, MPICH's (and Intel's, Cray's,
 * MVAPICH's) are integers.
 */
#ifndef WFI_MPI_LIBRARY_H
#define WFI_MPI_LIBRARY_H

#include "comm/transport/network.h"

/* Open MPI's `pointer`, MPICH's `number`. */
typedef wfi_network_handle wfi_mpi_handle;

enum { WFI_MPI_FUNNELED = 1, WFI_MPI_MULTIPLE = 3 }; /* levels of threads, as the standard has */

/* Without handles the functions are the same everywhere. */
typedef struct wfi_mpi_common {
    int (*init_thread)(int *argc, char ***argv, int wanted, int *level_out);
    int (*initialized)(int *is_on_out);
    int (*finalized)(int *is_off_out);
    int (*query_thread)(int *level_out);
    int (*finalize)(void);
    int (*error_string)(int error, char *text_out, int *n_out);
} wfi_mpi_common;

#define WFI_MPI_N_SYMBOLS 11 /* the last two are the engine's, and may be missing */
#define WFI_MPI_N_NEEDED  9

typedef struct wfi_mpi {
    wf_context *ctx;
    void *library;
    const char *family; /* for sentences */
    wfi_mpi_common common;
    void *symbols[WFI_MPI_N_SYMBOLS];
    wfi_mpi_handle world, byte, errors_return;
    wfi_mpi_handle types[WF_N_DTYPES], ops[WF_MAX + 1]; /* of the engine */
    bool has_engine;
    const struct wfi_mpi_abi *abi;
} wfi_mpi;

/* The other calls, in one family's words. Each returns MPI's error code, 0 being none. */
typedef struct wfi_mpi_abi {
    const char *family;
    const char *const *files;
    bool (*find_constants)(wfi_mpi *m);
    int (*comm_rank)(const wfi_mpi *m, wfi_mpi_handle comm, int *rank_out);
    int (*comm_size)(const wfi_mpi *m, wfi_mpi_handle comm, int *n_out);
    int (*comm_dup)(const wfi_mpi *m, wfi_mpi_handle comm, wfi_mpi_handle *comm_out);
    int (*comm_free)(const wfi_mpi *m, wfi_mpi_handle *comm);
    int (*return_errors)(const wfi_mpi *m, wfi_mpi_handle comm);
    int (*isend)(const wfi_mpi *m, const void *data, int n, int to, int tag, wfi_mpi_handle comm,
                 wfi_mpi_handle *request_out);
    int (*irecv)(const wfi_mpi *m, void *data, int n, int from, int tag, wfi_mpi_handle comm,
                 wfi_mpi_handle *request_out);
    int (*test)(const wfi_mpi *m, wfi_mpi_handle *request, int *done_out);
    int (*cancel)(const wfi_mpi *m, wfi_mpi_handle *request);
    bool (*find_engine)(wfi_mpi *m);
    int (*comm_idup)(const wfi_mpi *m, wfi_mpi_handle comm, wfi_mpi_handle *comm_out,
                     wfi_mpi_handle *request_out);
    /* `in` NULL: in place. */
    int (*iallreduce)(const wfi_mpi *m, const void *in, void *out, int n, wf_dtype dtype,
                      wf_reduction op, wfi_mpi_handle comm, wfi_mpi_handle *request_out);
} wfi_mpi_abi;

/* The library that WEFT_MPI_LIBRARY names, or that of the launcher which started this process.
 * It stays loaded. Errors: UNSUPPORTED: what to install or to set. */
wf_status wfi_mpi_load(wf_context *ctx, wfi_mpi *mpi_out);

/* The sentence of an error. */
wf_status wfi_mpi_fail(const wfi_mpi *m, const char *call, int error);

#endif
