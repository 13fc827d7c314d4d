#include "comm/transport/mpi_network.h"

#include "comm/transport/mpi_library.h"

#include <stdlib.h>

typedef struct mpi_network {
    wfi_mpi mpi;
    wfi_mpi_handle comm;    /* a duplicate, so weft's messages never match the program's */
    bool has_comm, is_host; /* is_host: weft started MPI, so weft finalizes it */
    wfi_mpi_handle engines[WFI_NETWORK_ENGINES];
    bool has_engine[WFI_NETWORK_ENGINES];
} mpi_network;

static wf_status check(const mpi_network *m, const char *call, int error) {
    return error ? wfi_mpi_fail(&m->mpi, call, error) : WF_OK;
}

/* A program that uses MPI has started it already and continues to use it. */
static wf_status begin(mpi_network *m) {
    wfi_mpi_common *call = &m->mpi.common;
    int is_on = 0, is_off = 0, level = 0;
    WF_TRY(check(m, "MPI_Initialized", call->initialized(&is_on)));
    WF_TRY(check(m, "MPI_Finalized", call->finalized(&is_off)));
    if (is_off)
        return wfi_fail(m->mpi.ctx, WF_UNSUPPORTED,
                        "this process has ended MPI, which can be started once: to join several "
                        "jobs, call MPI_Init_thread with MPI_THREAD_MULTIPLE before the first");
    if (!is_on) {
        m->is_host = true;
        return check(m, "MPI_Init_thread", call->init_thread(NULL, NULL, WFI_MPI_FUNNELED, &level));
    }
    WF_TRY(check(m, "MPI_Query_thread", call->query_thread(&level)));
    if (level >= WFI_MPI_MULTIPLE) return WF_OK;
    return wfi_fail(m->mpi.ctx, WF_UNSUPPORTED,
                    "this process has started MPI without MPI_THREAD_MULTIPLE, but weft uses MPI "
                    "from a thread of its own");
}

static wf_status return_errors(const mpi_network *m, wfi_mpi_handle comm) {
#define TYPES(handle) (handle, handle)
#define VALUES(field) (comm.field, m->mpi.errors_return.field)
    return check(m, "MPI_Comm_set_errhandler",
                 WFI_MPI_CALL(&m->mpi, WFI_MPI_ERRHANDLER, TYPES, VALUES));
#undef TYPES
#undef VALUES
}

static wf_status mpi_start(void *self, wf_context *ctx, int *rank_out, int *n_ranks_out) {
    mpi_network *m = self;
    const wfi_mpi *mpi = &m->mpi;
    m->mpi.ctx = ctx;
    WF_TRY(begin(m));
    if (m->is_host) WF_TRY(return_errors(m, mpi->world));
#define DUP_TYPES(handle)  (handle, handle *)
#define DUP_VALUES(field)  (mpi->world.field, &m->comm.field)
#define INT_TYPES(handle)  (handle, int *)
#define RANK_VALUES(field) (m->comm.field, rank_out)
#define SIZE_VALUES(field) (m->comm.field, n_ranks_out)
    WF_TRY(check(m, "MPI_Comm_dup", WFI_MPI_CALL(mpi, WFI_MPI_DUP, DUP_TYPES, DUP_VALUES)));
    m->has_comm = true;
    WF_TRY(return_errors(m, m->comm));
    WF_TRY(check(m, "MPI_Comm_rank", WFI_MPI_CALL(mpi, WFI_MPI_RANK, INT_TYPES, RANK_VALUES)));
    return check(m, "MPI_Comm_size", WFI_MPI_CALL(mpi, WFI_MPI_SIZE, INT_TYPES, SIZE_VALUES));
}

/* Of sends and receives. */
#define MESSAGE_TYPES(handle) (const void *, int, handle, int, int, handle, handle *)
#define MESSAGE_VALUES(field)                                                                      \
    (data, (int)bytes, m->mpi.byte.field, peer, tag, m->comm.field, &handle_out->field)

static wf_status mpi_send(void *self, int peer, int tag, const void *data, size_t bytes,
                          wfi_network_handle *handle_out) {
    mpi_network *m = self;
    return check(m, "MPI_Isend",
                 WFI_MPI_CALL(&m->mpi, WFI_MPI_ISEND, MESSAGE_TYPES, MESSAGE_VALUES));
}

static wf_status mpi_receive(void *self, int peer, int tag, void *data, size_t bytes,
                             wfi_network_handle *handle_out) {
    mpi_network *m = self;
    return check(m, "MPI_Irecv",
                 WFI_MPI_CALL(&m->mpi, WFI_MPI_IRECV, MESSAGE_TYPES, MESSAGE_VALUES));
}

static wf_status mpi_test(void *self, wfi_network_handle *handle, bool *done_out) {
#define TEST_TYPES(type)   (type *, int *, void *)
#define TEST_VALUES(field) (&handle->field, &done, m->mpi.no_status)
    mpi_network *m = self;
    int done = 0, error = WFI_MPI_CALL(&m->mpi, WFI_MPI_TEST, TEST_TYPES, TEST_VALUES);
    *done_out = done;
    return check(m, "MPI_Test", error);
}

#define ONE_TYPES(type)   (type *)
#define ONE_VALUES(field) (&handle->field)

/* Only receives can be cancelled; MPI cannot revoke a send. */
static void mpi_cancel(void *self, wfi_network_handle *handle) {
    mpi_network *m = self;
    (void)WFI_MPI_CALL(&m->mpi, WFI_MPI_CANCEL, ONE_TYPES, ONE_VALUES);
}

static void free_comm(mpi_network *m, wfi_mpi_handle *handle) {
    (void)WFI_MPI_CALL(&m->mpi, WFI_MPI_FREE, ONE_TYPES, ONE_VALUES);
}

/* Sums of different engines may overtake each other, so each engine needs a communicator. */
static wf_status mpi_open_engine(void *self, int engine, wfi_network_handle *handle_out) {
#define IDUP_TYPES(handle) (handle, handle *, handle *)
#define IDUP_VALUES(field) (m->comm.field, &m->engines[engine].field, &handle_out->field)
    mpi_network *m = self;
    int error = WFI_MPI_CALL(&m->mpi, WFI_MPI_IDUP, IDUP_TYPES, IDUP_VALUES);
    m->has_engine[engine] = !error;
    return check(m, "MPI_Comm_idup", error);
}

static wf_status mpi_sum(void *self, int engine, const wfi_network_sum *s,
                         wfi_network_handle *handle_out) {
#define SUM_TYPES(handle) (const void *, void *, int, handle, handle, handle, handle *)
#define SUM_VALUES(field)                                                                          \
    (s->in ? s->in : mpi->in_place, s->out, s->n_elem, mpi->types[s->dtype].field,                 \
     mpi->ops[s->op].field, m->engines[engine].field, &handle_out->field)
    mpi_network *m = self;
    const wfi_mpi *mpi = &m->mpi;
    return check(m, "MPI_Iallreduce", WFI_MPI_CALL(mpi, WFI_MPI_IALLREDUCE, SUM_TYPES, SUM_VALUES));
}

/* MPI_Finalize waits for all ranks. If the others are missing, the process exits without it, and
 * mpirun then stops the remaining processes of the job. */
static void mpi_finish(void *self, bool is_clean) {
    mpi_network *m = self;
    for (int i = 0; i < WFI_NETWORK_ENGINES && is_clean; i++)
        if (m->has_engine[i]) free_comm(m, &m->engines[i]);
    if (is_clean && m->has_comm) free_comm(m, &m->comm);
    if (is_clean && m->is_host) m->mpi.common.finalize();
    free(m);
}

wf_status wfi_mpi_network(wf_context *ctx, wfi_network *network_out) {
    mpi_network *m = calloc(1, sizeof *m); /* without a context: it may outlive `ctx` */
    if (!m) return wfi_no_memory(ctx, sizeof *m, "MPI");
    wf_status status = wfi_mpi_load(ctx, &m->mpi);
    if (status != WF_OK) {
        free(m);
        return status;
    }
    *network_out = (wfi_network){.name = m->mpi.family,
                                 .self = m,
                                 .start = mpi_start,
                                 .send = mpi_send,
                                 .receive = mpi_receive,
                                 .test = mpi_test,
                                 .cancel = mpi_cancel,
                                 .finish = mpi_finish};
    if (m->mpi.has_engine) network_out->open_engine = mpi_open_engine, network_out->sum = mpi_sum;
    return WF_OK;
}
