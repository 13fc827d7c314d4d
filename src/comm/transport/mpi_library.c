#include "comm/transport/mpi_library.h"

#include "base/env.h"

#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>

enum { RANK, SIZE, DUP, FREE, ERRHANDLER, ISEND, IRECV, TEST, CANCEL, IDUP, IALLREDUCE };
static const char *const symbol_names[WFI_MPI_N_SYMBOLS] = {
    "MPI_Comm_rank", "MPI_Comm_size", "MPI_Comm_dup", "MPI_Comm_free", "MPI_Comm_set_errhandler",
    "MPI_Isend",     "MPI_Irecv",     "MPI_Test",     "MPI_Cancel",    "MPI_Comm_idup",
    "MPI_Iallreduce"};

/* Functions with handles. `handle` is the handle's type, `field` its member of wfi_mpi_handle, and
 * `no_status` the constant MPI_STATUS_IGNORE. */
#define DEFINE_ABI(prefix, handle, field, no_status)                                               \
    static int prefix##_comm_rank(const wfi_mpi *m, wfi_mpi_handle comm, int *rank_out) {          \
        return ((int (*)(handle, int *))m->symbols[RANK])(comm.field, rank_out);                   \
    }                                                                                              \
    static int prefix##_comm_size(const wfi_mpi *m, wfi_mpi_handle comm, int *n_out) {             \
        return ((int (*)(handle, int *))m->symbols[SIZE])(comm.field, n_out);                      \
    }                                                                                              \
    static int prefix##_comm_dup(const wfi_mpi *m, wfi_mpi_handle comm, wfi_mpi_handle *out) {     \
        return ((int (*)(handle, handle *))m->symbols[DUP])(comm.field, &out->field);              \
    }                                                                                              \
    static int prefix##_comm_free(const wfi_mpi *m, wfi_mpi_handle *comm) {                        \
        return ((int (*)(handle *))m->symbols[FREE])(&comm->field);                                \
    }                                                                                              \
    static int prefix##_return_errors(const wfi_mpi *m, wfi_mpi_handle comm) {                     \
        return ((int (*)(handle, handle))m->symbols[ERRHANDLER])(comm.field,                       \
                                                                 m->errors_return.field);          \
    }                                                                                              \
    static int prefix##_isend(const wfi_mpi *m, const void *data, int n, int to, int tag,          \
                              wfi_mpi_handle comm, wfi_mpi_handle *out) {                          \
        return (                                                                                   \
            (int (*)(const void *, int, handle, int, int, handle, handle *))m->symbols[ISEND])(    \
            data, n, m->byte.field, to, tag, comm.field, &out->field);                             \
    }                                                                                              \
    static int prefix##_irecv(const wfi_mpi *m, void *data, int n, int from, int tag,              \
                              wfi_mpi_handle comm, wfi_mpi_handle *out) {                          \
        return ((int (*)(void *, int, handle, int, int, handle, handle *))m->symbols[IRECV])(      \
            data, n, m->byte.field, from, tag, comm.field, &out->field);                           \
    }                                                                                              \
    static int prefix##_test(const wfi_mpi *m, wfi_mpi_handle *request, int *done_out) {           \
        return ((int (*)(handle *, int *, void *))m->symbols[TEST])(&request->field, done_out,     \
                                                                    no_status);                    \
    }                                                                                              \
    static int prefix##_cancel(const wfi_mpi *m, wfi_mpi_handle *request) {                        \
        return ((int (*)(handle *))m->symbols[CANCEL])(&request->field);                           \
    }

#define DEFINE_ENGINE(prefix, handle, field, in_place)                                             \
    static int prefix##_comm_idup(const wfi_mpi *m, wfi_mpi_handle comm, wfi_mpi_handle *out,      \
                                  wfi_mpi_handle *request) {                                       \
        return ((int (*)(handle, handle *, handle *))m->symbols[IDUP])(comm.field, &out->field,    \
                                                                       &request->field);           \
    }                                                                                              \
    static int prefix##_iallreduce(const wfi_mpi *m, const void *in, void *out, int n,             \
                                   wf_dtype dtype, wf_reduction op, wfi_mpi_handle comm,           \
                                   wfi_mpi_handle *request) {                                      \
        return ((int (*)(const void *, void *, int, handle, handle, handle, handle *))             \
                    m->symbols[IALLREDUCE])(in ? in : (in_place), out, n, m->types[dtype].field,   \
                                            m->ops[op].field, comm.field, &request->field);        \
    }

#define ABI_FUNCTIONS(prefix)                                                                      \
    .find_constants = prefix##_find_constants, .comm_rank = prefix##_comm_rank,                    \
    .comm_size = prefix##_comm_size, .comm_dup = prefix##_comm_dup,                                \
    .comm_free = prefix##_comm_free, .return_errors = prefix##_return_errors,                      \
    .isend = prefix##_isend, .irecv = prefix##_irecv, .test = prefix##_test,                       \
    .cancel = prefix##_cancel, .find_engine = prefix##_find_engine,                                \
    .comm_idup = prefix##_comm_idup, .iallreduce = prefix##_iallreduce

/* ---- Open MPI: predefined handles are the addresses of its variables ---- */

DEFINE_ABI(open, void *, pointer, NULL)

static bool open_find_constants(wfi_mpi *m) {
    m->world.pointer = dlsym(m->library, "ompi_mpi_comm_world");
    m->byte.pointer = dlsym(m->library, "ompi_mpi_byte");
    m->errors_return.pointer = dlsym(m->library, "ompi_mpi_errors_return");
    return m->world.pointer && m->byte.pointer && m->errors_return.pointer;
}

DEFINE_ENGINE(open, void *, pointer, (void *)1)

static bool open_find_engine(wfi_mpi *m) {
    static const char *const types[WF_N_DTYPES] = {
        [WF_F32] = "ompi_mpi_float",   [WF_F64] = "ompi_mpi_double",  [WF_BF16] = "ompi_mpi_float",
        [WF_I32] = "ompi_mpi_int32_t", [WF_I64] = "ompi_mpi_int64_t", [WF_U8] = "ompi_mpi_uint8_t"};
    static const char *const ops[] = {"ompi_mpi_op_sum", "ompi_mpi_op_sum", "ompi_mpi_op_min",
                                      "ompi_mpi_op_max"};
    bool found = true;
    for (int i = 0; i < WF_N_DTYPES && found; i++)
        found = (m->types[i].pointer = dlsym(m->library, types[i])) != NULL;
    for (int i = 0; i <= WF_MAX && found; i++)
        found = (m->ops[i].pointer = dlsym(m->library, ops[i])) != NULL;
    return found;
}

/* ---- MPICH: predefined handles are numbers, fixed by its ABI initiative ---- */

DEFINE_ABI(mpich, int, number, (void *)(intptr_t)1)

static bool mpich_find_constants(wfi_mpi *m) {
    m->world.number = 0x44000000;
    m->byte.number = 0x4c00010d;
    m->errors_return.number = 0x54000001;
    return true;
}

DEFINE_ENGINE(mpich, int, number, (void *)(intptr_t)-1)

/* float, double, int, long long, uint8_t; sum, minimum, maximum. */
static bool mpich_find_engine(wfi_mpi *m) {
    static const int types[WF_N_DTYPES] = {
        [WF_F32] = 0x4c00040a, [WF_F64] = 0x4c00080b, [WF_BF16] = 0x4c00040a,
        [WF_I32] = 0x4c000405, [WF_I64] = 0x4c000809, [WF_U8] = 0x4c00013b};
    static const int ops[] = {0x58000003, 0x58000003, 0x58000002, 0x58000001};
    for (int i = 0; i < WF_N_DTYPES; i++) m->types[i].number = types[i];
    for (int i = 0; i <= WF_MAX; i++) m->ops[i].number = ops[i];
    return true;
}

static const char *const open_files[] = {"libmpi.so.40", NULL};
static const char *const mpich_files[] = {"libmpich.so.12", "libmpi.so.12", "libmpi_cray.so.12",
                                          NULL};
static const wfi_mpi_abi abis[] = {
    {"Open MPI", open_files, ABI_FUNCTIONS(open)},
    {"MPICH", mpich_files, ABI_FUNCTIONS(mpich)},
};

/* ---- loading ---- */

/* The ABI of the launcher that started this process. */
static const wfi_mpi_abi *expected(void) {
    if (getenv("OMPI_COMM_WORLD_RANK")) return &abis[0];
    return getenv("PMI_RANK") || getenv("PMI_FD") ? &abis[1] : &abis[0];
}

/* Open MPI's plugins look its symbols up in the global scope. */
static void *load(const char *file) {
    return dlopen(file, RTLD_NOW | RTLD_GLOBAL);
}

static wf_status open_library(wf_context *ctx, wfi_mpi *m) {
    const char *path = wfi_env_text(WFI_WEFT_MPI_LIBRARY);
    if (*path) {
        if (*path != '/')
            return wfi_fail(ctx, WF_INVALID_ARG,
                            "environment: WEFT_MPI_LIBRARY='%.200s'; it takes an absolute path",
                            path);
        m->library = load(path);
        if (!m->library)
            return wfi_fail(ctx, WF_UNSUPPORTED, "environment: WEFT_MPI_LIBRARY: %s", dlerror());
        m->abi = dlsym(m->library, "ompi_mpi_comm_world") ? &abis[0] : &abis[1];
        return WF_OK;
    }
    m->abi = expected();
    for (const char *const *file = m->abi->files; *file && !m->library; file++)
        m->library = load(*file);
    if (m->library) return WF_OK;
    return wfi_fail(ctx, WF_UNSUPPORTED,
                    "the wire mpi needs %s, but %s cannot be loaded (%s): install it (Debian: %s), "
                    "or set WEFT_MPI_LIBRARY to the library's path",
                    m->abi->family, m->abi->files[0], dlerror(),
                    m->abi == &abis[0] ? "openmpi-bin" : "mpich");
}

static bool find(wfi_mpi *m, const char *name, void **symbol_out) {
    *symbol_out = dlsym(m->library, name);
    return *symbol_out != NULL;
}

static bool find_all(wfi_mpi *m) {
    wfi_mpi_common *c = &m->common;
    bool found = m->abi->find_constants(m) &&
                 find(m, "MPI_Init_thread", (void **)&c->init_thread) &&
                 find(m, "MPI_Initialized", (void **)&c->initialized) &&
                 find(m, "MPI_Finalized", (void **)&c->finalized) &&
                 find(m, "MPI_Query_thread", (void **)&c->query_thread) &&
                 find(m, "MPI_Finalize", (void **)&c->finalize) &&
                 find(m, "MPI_Error_string", (void **)&c->error_string);
    for (int i = 0; i < WFI_MPI_N_NEEDED && found; i++)
        found = find(m, symbol_names[i], &m->symbols[i]);
    if (!found) return false;
    m->has_engine = find(m, symbol_names[IDUP], &m->symbols[IDUP]) &&
                    find(m, symbol_names[IALLREDUCE], &m->symbols[IALLREDUCE]) &&
                    m->abi->find_engine(m);
    return true;
}

wf_status wfi_mpi_load(wf_context *ctx, wfi_mpi *m) {
    *m = (wfi_mpi){.ctx = ctx};
    WF_TRY(open_library(ctx, m));
    m->family = m->abi->family;
    if (find_all(m)) return WF_OK;
    return wfi_fail(
        ctx, WF_UNSUPPORTED,
        "the library that was found is not %s: %s; set WEFT_MPI_LIBRARY to the path of libmpi",
        m->family, dlerror());
}

wf_status wfi_mpi_fail(const wfi_mpi *m, const char *call, int error) {
    char text[512] = ""; /* MPI_MAX_ERROR_STRING is 256 or 512 */
    int n = 0;
    m->common.error_string(error, text, &n);
    return wfi_fail(m->ctx, WF_REMOTE, "%s: %s failed: %.400s", m->family, call, text);
}
