/* Processes that share no memory: each has its own segment, in which the transport updates the
 * other ranks' state. */
#include "base/hash.h"
#include "comm/job/control_kinds.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static void publish(wfi_control *c) {
    if (c->transport) wfi_transport_publish(c->transport);
}

/* MPI detects dead ranks and ends the job; the deadline detects silent ranks. A rank that has left
 * may have completed the awaited task before, so callers read its counter again before they fail.
 */
static bool is_lost(const wfi_control *c, int rank) {
    return wfi_control_pid_of(c, rank) < 0;
}

/* A number that identifies the machine: the hash of its boot id and its name (containers share the
 * boot id). */
static uint64_t find_host(void) {
    char text[256] = "";
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");
    size_t n = file ? fread(text, 1, 64, file) : 0;
    if (file) fclose(file);
    gethostname(text + n, sizeof text - n - 1);
    return wfi_hash_add(WFI_HASH_INIT, text, strlen(text));
}

/* ---- memory ---- */

static wf_status arena_create(wfi_control *c, int trainer, int number, size_t bytes,
                              void **base_out) {
    (void)trainer, (void)number;
    *base_out = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (*base_out == MAP_FAILED)
        return wfi_fail(c->ctx, WF_NO_MEMORY, "the system refused %zu bytes for rank %d: %s", bytes,
                        c->rank, strerror(errno));
    madvise(*base_out, bytes, MADV_HUGEPAGE);
    return WF_OK;
}

void wfi_control_arena_release(wfi_control *c, void *base, size_t bytes) {
    /* After a failure the network may still access this memory. */
    if (c->transport && wfi_failure_status(&c->shared->failure) != WF_OK) return;
    munmap(base, bytes);
}

/* ---- transfers ---- */

wfi_transport *wfi_control_transport(const wfi_control *c) {
    return c->transport;
}

wf_status wfi_control_reset(wfi_control *c, int trainer) {
    return c->transport ? wfi_transport_reset(c->transport, trainer) : WF_OK;
}

wf_status wfi_control_notify(const wfi_control *c, int trainer, int rank, int stream,
                             uint64_t epoch) {
    return wfi_transport_notify(c->transport, rank, trainer, stream, epoch);
}

wf_status wfi_control_move(wfi_control *c, int from_rank, int to_rank, const void *from, void *to,
                           size_t bytes) {
    if (!c->transport || from_rank == to_rank) return WF_OK;
    wfi_route route = {.peer = to_rank, .reads_in = WFI_TRANSPORT_HOST};
    if (from_rank == c->rank) return wfi_transport_put(c->transport, &route, from, bytes);
    route.peer = from_rank;
    if (to_rank == c->rank) return wfi_transport_receive(c->transport, &route, to, bytes);
    return WF_OK;
}

wf_status wfi_control_moved(wfi_control *c) {
    if (!c->transport) return WF_OK;
    WF_TRY(wfi_event_wait(wfi_transport_arrival(c->transport, WFI_TRANSPORT_HOST)));
    return wfi_event_wait(wfi_transport_departure(c->transport, WFI_TRANSPORT_HOST));
}

/* ---- joining and leaving ---- */

static void leave(wfi_control *c) {
    if (!c->transport || wfi_transport_destroy(c->transport)) free(c->shared);
}

const wfi_control_kind wfi_control_messages = {
    .publish = publish,
    .is_lost = is_lost,
    .arena_create = arena_create,
    .leave = leave,
};

wf_status wfi_control_join_network(wf_context *ctx, const wfi_network *network, int rank,
                                   int n_ranks, int64_t timeout_ms, wfi_control **control_out) {
    wfi_control *c = NULL;
    wf_status status =
        wfi_control_create(ctx, &wfi_control_messages, rank, n_ranks, timeout_ms, &c);
    wfi_job_segment *own =
        c ? calloc(1, wfi_control_bytes(n_ranks)) : NULL; /* it may outlive the context */
    if (!own) {
        wfi_control_destroy(c);
        network->finish(network->self, false);
        return status == WF_OK ? wfi_no_memory(ctx, wfi_control_bytes(n_ranks), "a job's control")
                               : status;
    }
    c->shared = own;
    own->n_ranks = n_ranks;
    own->ranks[rank].pid = (int64_t)getpid();
    own->ranks[rank].state.host = find_host();
    wfi_transport_config config = {.rank = rank,
                                   .n_ranks = n_ranks,
                                   .timeout_ms = timeout_ms,
                                   .failure = &own->failure,
                                   .ranks = own->ranks,
                                   .network = *network,
                                   .is_lost = wfi_control_is_lost,
                                   .job = c};
    status = wfi_transport_create(ctx, &config, &c->transport);
    if (status == WF_OK) status = wfi_control_barrier(c, "start");
    if (status != WF_OK) {
        wfi_control_leave(c);
        return status;
    }
    *control_out = c;
    return WF_OK;
}
