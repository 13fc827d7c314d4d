/* Joining a job: the configuration, the environment or a store leads to one segment for all ranks.
 */
#include "comm/job/control.h"
#include "comm/place/launcher.h"
#include "comm/transport/mpi_network.h"

#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <weft/launch.h>
#include <weft/store.h>

#define NAME_KEY   "weft/job"
#define NAME_BYTES 16 /* random: unique to the job */

typedef struct membership {
    int rank, n_ranks;
    int n_local_ranks; /* on this machine; 0: unknown */
    char name[96];
} membership;

static wf_status check_ranks(wf_context *ctx, int rank, int n_ranks) {
    if (n_ranks >= 1 && n_ranks <= WFI_CONTROL_RANKS && rank >= 0 && rank < n_ranks) return WF_OK;
    return wfi_fail(ctx, WF_INVALID_ARG, "rank %d of %d processes; there can be %d", rank, n_ranks,
                    WFI_CONTROL_RANKS);
}

static const char *variable(const char *name) {
    const char *text = getenv(name);
    return text ? text : "";
}

/* ---- env:// ---- */

/* The program sets the ranks itself; the environment has only the address of the job. */
static wf_status read_master(wf_context *ctx, const wf_job_config *config, membership *m) {
    const char *address = variable("MASTER_ADDR"), *port = variable("MASTER_PORT");
    if (config->name && *config->name) {
        snprintf(m->name, sizeof m->name, "%s", config->name);
    } else if (*address && *port) {
        snprintf(m->name, sizeof m->name, "master:%s:%s", port, address);
    } else {
        return wfi_fail(ctx, WF_INVALID_ARG,
                        "env://: rank %d of %d is given, but neither are RANK and WORLD_SIZE set "
                        "nor MASTER_ADDR and MASTER_PORT, so its job is unknown",
                        config->rank, config->n_ranks);
    }
    m->rank = config->rank;
    m->n_ranks = config->n_ranks;
    return WF_OK;
}

static wf_status read_environment(wf_context *ctx, const wf_job_config *config, membership *m) {
    wf_place place;
    WF_TRY(wf_launch_place(ctx, &place));
    if (!*place.source && config->n_ranks > 1) return read_master(ctx, config, m);
    if (config->n_ranks > 1 && (config->n_ranks != place.n_ranks || config->rank != place.rank))
        return wfi_fail(ctx, WF_INVALID_ARG,
                        "env://: rank %d of %d is given, but by %s this is rank %d of %d",
                        config->rank, config->n_ranks, place.source, place.rank, place.n_ranks);
    m->n_local_ranks = place.n_local_ranks;
    m->rank = place.rank;
    m->n_ranks = place.n_ranks;
    snprintf(m->name, sizeof m->name, "%s", place.job);
    return WF_OK;
}

/* ---- tcp:// and file:// ---- */

static wf_status read_place(wf_context *ctx, const wf_job_config *config, membership *m) {
    wf_place place = {.rank = 0, .n_ranks = 1};
    if (config->n_ranks == 1) WF_TRY(wf_launch_place(ctx, &place));
    m->rank = config->n_ranks == 1 ? place.rank : config->rank;
    m->n_ranks = config->n_ranks == 1 ? place.n_ranks : config->n_ranks;
    return WF_OK;
}

/* Rank 0 stores a random name in the store, and the other ranks read it. */
static wf_status exchange_name(wf_store *store, membership *m) {
    unsigned char random[NAME_BYTES];
    size_t n = 2 * NAME_BYTES;
    if (m->rank == 0) {
        randombytes_buf(random, sizeof random);
        sodium_bin2hex(m->name, sizeof m->name, random, sizeof random);
        return wf_store_set(store, NAME_KEY, m->name, n);
    }
    WF_TRY(wf_store_get(store, NAME_KEY, m->name, sizeof m->name - 1, &n));
    m->name[n] = 0;
    return WF_OK;
}

/* Rank 0 keeps the store open until all other ranks have the segment. */
static wf_status join_in_store(wf_context *ctx, const wf_job_config *config, int64_t timeout_ms,
                               membership *m, int *fd_out) {
    wf_store_config about = WF_STORE_CONFIG_INIT;
    wf_store *store;
    about.url = config->init;
    about.rank = m->rank;
    about.n_ranks = m->n_ranks;
    about.token = config->token;
    about.timeout_ms = timeout_ms;
    WF_TRY(wf_store_open(ctx, &about, &store));
    wf_status status = exchange_name(store, m);
    if (m->rank && status == WF_OK) {
        wf_store_close(store);
        store = NULL;
    }
    if (status == WF_OK)
        status = wfi_rendezvous(ctx, m->name, m->rank, m->n_ranks, timeout_ms, fd_out);
    if (status != WF_OK) status = wfi_fail_at(ctx, status, "the job at %.200s", config->init);
    wf_store_close(store);
    return status;
}

/* ---- all ---- */

static wf_status check_init(wf_context *ctx, const wf_job_config *config) {
    const char *init = config->init;
    bool is_tcp = init && !strncmp(init, "tcp://", 6);
    if (init && strcmp(init, "env://") && !is_tcp && strncmp(init, "file://", 7))
        return wfi_fail(ctx, WF_INVALID_ARG,
                        "a job is joined by env://, tcp://127.0.0.1:PORT or file:///path, not by "
                        "'%.200s'",
                        init);
    if (config->token && !is_tcp)
        return wfi_fail(ctx, WF_INVALID_ARG,
                        "a token is given, but only tcp:// takes one: the others are open to "
                        "processes of this user alone");
    return WF_OK;
}

static wf_status attach(wf_context *ctx, int fd, const membership *m, int64_t timeout_ms,
                        wfi_control **control_out) {
    wf_status status = wfi_control_attach(ctx, fd, m->rank, m->n_ranks, timeout_ms, control_out);
    close(fd);
    return status;
}

wf_status wfi_check_wire(wf_context *ctx, const char *wire) {
    static const char *const wires[] = {"auto", "shm", "mpi", "nccl"};
    for (size_t k = 0; k < WFI_COUNT(wires); k++)
        if (!strcmp(wire, wires[k])) return WF_OK;
    return wfi_fail(ctx, WF_INVALID_ARG,
                    "there is no wire '%.40s'; there are auto, shm, mpi and nccl", wire);
}

/* Decides whether ranks communicate over MPI. For host memory, nccl is the same as auto. */
static wf_status choose_wire(wf_context *ctx, const wf_job_config *config, bool uses_store,
                             const membership *m, bool *is_mpi_out) {
    const char *wire = config->wire ? config->wire : "auto";
    bool is_auto = !strcmp(wire, "auto") || !strcmp(wire, "nccl"), is_mpi = !strcmp(wire, "mpi");
    bool is_across = m->n_local_ranks && m->n_local_ranks < m->n_ranks;
    WF_TRY(wfi_check_wire(ctx, wire));
    if (is_mpi && uses_store)
        return wfi_fail(ctx, WF_INVALID_ARG,
                        "the wire mpi starts by mpirun, not by %.200s: init is NULL or env://",
                        config->init);
    if (is_across && !is_auto && !is_mpi)
        return wfi_fail(ctx, WF_INVALID_ARG,
                        "%d of %d ranks are on this machine, but the wire shm is shared memory; "
                        "ranks of several machines take mpi",
                        m->n_local_ranks, m->n_ranks);
    *is_mpi_out = m->n_ranks > 1 && (is_mpi || is_across);
    return WF_OK;
}

static wf_status join_mpi(wf_context *ctx, const membership *m, int64_t timeout_ms,
                          wfi_control **control_out) {
    wfi_network network;
    WF_TRY(wfi_mpi_network(ctx, &network));
    network.seen = wfi_rendezvous_by_mpi(m->name, m->rank);
    network.refused_by = wfi_rendezvous_refused_by;
    wf_status status =
        wfi_control_join_network(ctx, &network, m->rank, m->n_ranks, timeout_ms, control_out);
    if (network.seen >= 0) close(network.seen);
    return status;
}

wf_status wfi_control_join_job(wf_context *ctx, const wf_job_config *config, int64_t timeout_ms,
                               wfi_control **control_out) {
    const char *init = config->init;
    bool uses_store = init && strcmp(init, "env://") != 0;
    membership m = {.rank = config->rank, .n_ranks = config->n_ranks};
    int fd;
    WF_TRY(check_init(ctx, config));
    WF_TRY(check_ranks(ctx, config->rank, config->n_ranks));
    if (uses_store)
        WF_TRY(read_place(ctx, config, &m));
    else if (init)
        WF_TRY(read_environment(ctx, config, &m));
    else
        snprintf(m.name, sizeof m.name, "%s", config->name ? config->name : "");
    WF_TRY(check_ranks(ctx, m.rank, m.n_ranks));
    bool is_mpi = false;
    WF_TRY(choose_wire(ctx, config, uses_store, &m, &is_mpi));
    if (is_mpi && init) WF_TRY(wfi_launcher_check_mpi(ctx, m.n_ranks));
    if (is_mpi) return join_mpi(ctx, &m, timeout_ms, control_out);
    if (m.n_ranks == 1) {
        WF_TRY(wfi_control_segment(ctx, 1, &fd));
        return attach(ctx, fd, &m, timeout_ms, control_out);
    }
    if (!uses_store)
        return wfi_control_join(ctx, m.name, m.rank, m.n_ranks, timeout_ms, control_out);
    WF_TRY(join_in_store(ctx, config, timeout_ms, &m, &fd));
    return attach(ctx, fd, &m, timeout_ms, control_out);
}
