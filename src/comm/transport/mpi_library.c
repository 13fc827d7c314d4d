#include "comm/transport/mpi_library.h"

#include "base/env.h"

#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>

static const char *const symbol_names[WFI_MPI_N_SYMBOLS] = {
    "MPI_Comm_rank", "MPI_Comm_size", "MPI_Comm_dup", "MPI_Comm_free", "MPI_Comm_set_errhandler",
    "MPI_Isend",     "MPI_Irecv",     "MPI_Test",     "MPI_Cancel",    "MPI_Comm_idup",
    "MPI_Iallreduce"};

/* Open MPI's predefined handles are the addresses of its variables; MPICH's are numbers, fixed by
 * its ABI initiative. */
typedef struct constant {
    const char *open;
    int mpich;
} constant;

static const constant types[WF_N_DTYPES] = {
    [WF_F32] = {"ompi_mpi_float", 0x4c00040a},   [WF_F64] = {"ompi_mpi_double", 0x4c00080b},
    [WF_BF16] = {"ompi_mpi_float", 0x4c00040a},  [WF_I32] = {"ompi_mpi_int32_t", 0x4c000405},
    [WF_I64] = {"ompi_mpi_int64_t", 0x4c000809}, [WF_U8] = {"ompi_mpi_uint8_t", 0x4c00013b}};
static const constant ops[WF_MAX + 1] = {{"ompi_mpi_op_sum", 0x58000003},
                                         {"ompi_mpi_op_sum", 0x58000003},
                                         {"ompi_mpi_op_min", 0x58000002},
                                         {"ompi_mpi_op_max", 0x58000001}};

static bool find_constant(const wfi_mpi *m, constant c, wfi_mpi_handle *handle_out) {
    if (m->is_mpich)
        handle_out->number = c.mpich;
    else
        handle_out->pointer = dlsym(m->library, c.open);
    return m->is_mpich || handle_out->pointer;
}

static bool find_engine(wfi_mpi *m) {
    bool found = true;
    for (int i = 0; i < WF_N_DTYPES; i++) found &= find_constant(m, types[i], &m->types[i]);
    for (int i = 0; i <= WF_MAX; i++) found &= find_constant(m, ops[i], &m->ops[i]);
    return found;
}

static const struct {
    const char *family, *package;
    const char *files[4]; /* NULL ends them */
    void *no_status, *in_place;
} abis[] = {
    {"Open MPI", "openmpi-bin", {"libmpi.so.40"}, NULL, (void *)1},
    {"MPICH",
     "mpich",
     {"libmpich.so.12", "libmpi.so.12", "libmpi_cray.so.12"},
     (void *)1,
     (void *)(intptr_t)-1},
};

/* ---- loading ---- */

/* Whether MPICH's launcher started this process. */
static bool expects_mpich(void) {
    return !getenv("OMPI_COMM_WORLD_RANK") && (getenv("PMI_RANK") || getenv("PMI_FD"));
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
        m->is_mpich = !dlsym(m->library, "ompi_mpi_comm_world");
        return WF_OK;
    }
    m->is_mpich = expects_mpich();
    const char *const *files = abis[m->is_mpich].files;
    for (int i = 0; files[i] && !m->library; i++) m->library = load(files[i]);
    if (m->library) return WF_OK;
    return wfi_fail(ctx, WF_UNSUPPORTED,
                    "the wire mpi needs %s, but %s cannot be loaded (%s): install it (Debian: %s), "
                    "or set WEFT_MPI_LIBRARY to the library's path",
                    abis[m->is_mpich].family, files[0], dlerror(), abis[m->is_mpich].package);
}

static bool find(wfi_mpi *m, const char *name, void **symbol_out) {
    *symbol_out = dlsym(m->library, name);
    return *symbol_out != NULL;
}

static bool find_all(wfi_mpi *m) {
    wfi_mpi_common *c = &m->common;
    bool found =
        find_constant(m, (constant){"ompi_mpi_comm_world", 0x44000000}, &m->world) &&
        find_constant(m, (constant){"ompi_mpi_byte", 0x4c00010d}, &m->byte) &&
        find_constant(m, (constant){"ompi_mpi_errors_return", 0x54000001}, &m->errors_return) &&
        find(m, "MPI_Init_thread", (void **)&c->init_thread) &&
        find(m, "MPI_Initialized", (void **)&c->initialized) &&
        find(m, "MPI_Finalized", (void **)&c->finalized) &&
        find(m, "MPI_Query_thread", (void **)&c->query_thread) &&
        find(m, "MPI_Finalize", (void **)&c->finalize) &&
        find(m, "MPI_Error_string", (void **)&c->error_string);
    for (int i = 0; i < WFI_MPI_N_NEEDED && found; i++)
        found = find(m, symbol_names[i], &m->symbols[i]);
    if (!found) return false;
    m->has_engine = find_engine(m);
    for (int i = WFI_MPI_N_NEEDED; i < WFI_MPI_N_SYMBOLS && m->has_engine; i++)
        m->has_engine = find(m, symbol_names[i], &m->symbols[i]);
    return true;
}

wf_status wfi_mpi_load(wf_context *ctx, wfi_mpi *m) {
    *m = (wfi_mpi){.ctx = ctx};
    WF_TRY(open_library(ctx, m));
    m->family = abis[m->is_mpich].family;
    m->no_status = abis[m->is_mpich].no_status;
    m->in_place = abis[m->is_mpich].in_place;
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
