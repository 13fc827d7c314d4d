/* An MPI library, found and loaded at run time. Private.
 *
 * weft is built without MPI. MPI libraries have no common binary interface, so each of the two
 * families is called in its own way: handles of Open MPI are addresses, those of MPICH (and Intel
 * MPI, Cray MPICH, MVAPICH) are integers.
 */
#pragma once

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

/* The functions with handles. The last two belong to the engine and may be missing. */
enum {
    WFI_MPI_RANK,
    WFI_MPI_SIZE,
    WFI_MPI_DUP,
    WFI_MPI_FREE,
    WFI_MPI_ERRHANDLER,
    WFI_MPI_ISEND,
    WFI_MPI_IRECV,
    WFI_MPI_TEST,
    WFI_MPI_CANCEL,
    WFI_MPI_IDUP,
    WFI_MPI_IALLREDUCE,
    WFI_MPI_N_SYMBOLS,
    WFI_MPI_N_NEEDED = WFI_MPI_IDUP
};

typedef struct wfi_mpi {
    wf_context *ctx;
    void *library;
    bool is_mpich;
    const char *family; /* for error messages */
    wfi_mpi_common common;
    void *symbols[WFI_MPI_N_SYMBOLS];
    void *no_status, *in_place; /* MPI_STATUS_IGNORE, MPI_IN_PLACE */
    wfi_mpi_handle world, byte, errors_return;
    wfi_mpi_handle types[WF_N_DTYPES], ops[WF_MAX + 1]; /* for the engine */
    bool has_engine;
} wfi_mpi;

/* Calls a function with handles; returns MPI's error code, 0 for success. TYPES(handle) are the
 * function's parameters if `handle` is the type of a handle, and VALUES(field) the arguments if
 * `field` is its member of wfi_mpi_handle. */
#define WFI_MPI_CALL(mpi, symbol, TYPES, VALUES)                                                   \
    ((mpi)->is_mpich ? ((int(*) TYPES(int))(mpi)->symbols[symbol])VALUES(number)                   \
                     : ((int(*) TYPES(void *))(mpi)->symbols[symbol])VALUES(pointer))

/* Loads the library that WEFT_MPI_LIBRARY names, or that of the launcher which started this
 * process. The library stays loaded. Errors: UNSUPPORTED; the message names the package to install
 * or the variable to set. */
wf_status wfi_mpi_load(wf_context *ctx, wfi_mpi *mpi_out);

/* Reports an MPI error code as a failure of the call `call`. */
wf_status wfi_mpi_fail(const wfi_mpi *m, const char *call, int error);
