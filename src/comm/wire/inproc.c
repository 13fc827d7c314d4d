/* inproc: the ranks are threads of one process, and any memory is shared. */
#include "comm/wire/memory.h"

#include <string.h>
#include <sys/mman.h>

/* A job without shared memory has processes for ranks, or tests that simulate them. */
static bool reaches(const wf_group *g) {
    if (wfi_control_transport(g->job) && g->n > 1) return false;
    for (int32_t r = 0; r < g->n; r++)
        if (!wfi_control_is_here(g->job, g->job_rank[r])) return false;
    return true;
}

static wfi_handle find(wfi_memory *m, const void *data, size_t bytes) {
    (void)m, (void)bytes;
    return (wfi_handle)(uintptr_t)data;
}

static wf_status resolve(wfi_memory *m, int32_t rank, wfi_handle handle, char **data_out) {
    (void)m, (void)rank;
    *data_out = (char *)(uintptr_t)handle;
    return WF_OK;
}

/* The segment is mapped once: sanitizers see happens-before relations only if all ranks use one
 * address. */
static wf_status open_group(wf_group *g, wfi_bootstrap *bootstrap) {
    size_t bytes = wfi_segment_bytes(g->n);
    int64_t card[WFI_CONTROL_NUMBERS] = {0};
    void *segment = MAP_FAILED;
    wfi_memory *m = NULL;
    if (g->rank == 0) {
        segment = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        memcpy(card, &segment, sizeof segment);
    }
    WF_TRY(bootstrap->all_gather(bootstrap->self, card, bootstrap->all));
    memcpy(&segment, bootstrap->all[bootstrap->place[0]], sizeof segment);
    if (segment == MAP_FAILED)
        return wfi_fail(g->ctx, WF_NO_MEMORY, "the system refused %zu bytes for a group", bytes);
    wf_status status = wfi_memory_create(g, segment, &m);
    if (status != WF_OK) {
        if (g->rank == 0) munmap(segment, bytes); /* as close_group does */
        return status;
    }
    m->find = find;
    m->resolve = resolve;
    m->is_open = true;
    g->state = m;
    return WF_OK;
}

static void opened(wf_group *g, bool by_all) {
    wfi_memory *m = g->state;
    if (!m) return;
    m->opened_by_all = by_all;
    m->is_refused = !by_all;
}

/* The last rank that leaves unmaps the segment. If one could not open it, no rank has used it, and
 * its creator unmaps it. If no rank knows, because the all-gather failed, it stays mapped. */
static void close_group(wf_group *g) {
    wfi_memory *m = g->state;
    if (!m) return;
    wfi_free(g->ctx, m->window);
    wfi_group_segment *segment = m->segment;
    size_t bytes = m->segment_bytes;
    bool is_last = m->opened_by_all ? wfi_memory_leave(m) : m->is_refused && g->rank == 0;
    wfi_memory_destroy(m);
    if (is_last) munmap(segment, bytes);
}

wf_status wfi_memory_alloc(wf_group *g, size_t bytes, void **block_out) {
    void *block = wfi_alloc(g->ctx, 1, bytes, "a group's memory");
    if (!block) return WF_NO_MEMORY;
    *block_out = block;
    return WF_OK;
}

void wfi_memory_free(wf_group *g, void *block) {
    wfi_free(g->ctx, block);
}

const wfi_wire wfi_wire_inproc = {
    .name = "inproc",
    .pushes = true,
    .reaches = reaches,
    .open = open_group,
    .opened = opened,
    .close = close_group,
    .alloc = wfi_memory_alloc,
    .free = wfi_memory_free,
    .run = wfi_memory_run,
    .pass = wfi_memory_pass,
};

const wfi_wire *const wfi_wires[] = {&wfi_wire_inproc, &wfi_wire_shm, &wfi_wire_mpi, NULL};
