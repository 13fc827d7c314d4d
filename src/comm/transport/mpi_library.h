/* An MPI library, found and loaded at run time. Private.
 *
 * weft is built without MPI. MPI libraries have no common binary interface, so each of the two
 * families has a table: handles of Open MPI are addresses, those of MPICH (and Intel MPI, Cray
 * MPICH, MVAPICH) are integers.
 */
#ifndef WFI_MPI_LIBRARY_H
#define WFI_MPI_LIBRARY_H

#include "comm/transport/network.h"

/* Open MPI's `pointer`, MPICH's `number`. */
typedef wfi_network_handle wfi_mpi_handle;

enum { WFI_MPI_FUNNELED = 1, WFI_MPI_MULTIPLE = 3 }; /* thread levels of the MPI standard */

/* Functions without handles have the same binary interface in both families. */
typedef struct wfi_mpi_common {
    int (*init_thread)(int *argc, char ***argv, int wanted, int *level_out);
    int (*initialized)(int *is_on_out);
    int (*finalized)(int *is_off_out);
    int (*query_thread)(int *level_out);
    int (*finalize)(void);
    int (*error_string)(int error, char *text_out, int *n_out);
} wfi_mpi_common;

#define WFI_MPI_N_SYMBOLS 11 /* the last two belong to the engine and may be missing */
#define WFI_MPI_N_NEEDED  9

typedef struct wfi_mpi {
    wf_context *ctx;
    void *library;
    const char *family; /* for error messages */
    wfi_mpi_common common;
    void *symbols[WFI_MPI_N_SYMBOLS];
    wfi_mpi_handle world, byte, errors_return;
    wfi_mpi_handle types[WF_N_DTYPES], ops[WF_MAX + 1]; /* for the engine */
    bool has_engine;
    const struct wfi_mpi_abi *abi;
} wfi_mpi;

/* The calls with handles, for one family. Each returns MPI's error code; 0 is success. */
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

/* Loads the library that WEFT_MPI_LIBRARY names, or that of the launcher which started this
 * process. The library stays loaded. Errors: UNSUPPORTED; the message names the package to install
 * or the variable to set. */
wf_status wfi_mpi_load(wf_context *ctx, wfi_mpi *mpi_out);

/* Reports an MPI error code as a failure of the call `call`. */
wf_status wfi_mpi_fail(const wfi_mpi *m, const char *call, int error);

#endif
