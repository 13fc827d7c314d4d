/* shm: the ranks are processes of one machine. They share memfds, which have no name and end with
 * the last process. Other processes open them through /proc/PID/fd at first use. */
#include "comm/wire/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* A handle has the block's slot and the offset in the block. */
#define OFFSET_BITS 48

/* One block in this process's address space. */
typedef struct mapping {
    char *base; /* NULL: not mapped */
    size_t bytes;
    uint32_t serial;
} mapping;

typedef struct shm {
    pthread_mutex_t lock; /* of the own blocks: works resolve them on their own thread */
    mapping own[WFI_GROUP_BLOCKS];
    mapping **others; /* [n] [WFI_GROUP_BLOCKS], NULL: not allocated yet */
    int32_t n_own;    /* all used slots are below this number */
    int fd;           /* the segment's, until the other ranks have opened it, or -1 */
} shm;

static bool reaches(const wf_group *g) {
    return !wfi_control_transport(g->job);
}

static wfi_shared_block *shared_block(const wfi_memory *m, int32_t rank, int32_t slot) {
    return &m->segment->members[rank].blocks[slot];
}

static int64_t pid_of(const wf_group *g, int32_t rank) {
    return wfi_control_rank_at(g->job, g->job_rank[rank])->pid;
}

/* ---- blocks ---- */

static wfi_handle find(wfi_memory *m, const void *data, size_t bytes) {
    shm *s = m->own;
    const char *at = data;
    wfi_handle found = WFI_HANDLE_NONE;
    pthread_mutex_lock(&s->lock);
    for (int32_t i = 0; i < s->n_own && found == WFI_HANDLE_NONE; i++) {
        const mapping *b = &s->own[i];
        if (!b->base || at < b->base || (size_t)(at - b->base) > b->bytes ||
            bytes > b->bytes - (size_t)(at - b->base))
            continue;
        found = (uint64_t)i << OFFSET_BITS | (uint64_t)(at - b->base);
    }
    pthread_mutex_unlock(&s->lock);
    return found;
}

static wf_status map_block(wfi_memory *m, int32_t rank, int32_t slot, mapping *out) {
    const wfi_shared_block *block = shared_block(m, rank, slot);
    if (out->base) munmap(out->base, out->bytes);
    out->base = NULL;
    void *base = wfi_shared_open(pid_of(m->group, rank), block->fd, block->bytes);
    if (base == MAP_FAILED && errno == ENOENT) {
        WF_TRY(wfi_memory_check(m)); /* as in arrive.c */
        return wfi_memory_lost(m, rank);
    }
    if (base == MAP_FAILED)
        return wfi_fail(m->group->ctx, WF_DEVICE, "rank %d cannot access rank %d's memory: %s",
                        m->group->rank, rank, strerror(errno));
    *out = (mapping){base, block->bytes, block->serial};
    return WF_OK;
}

static wf_status refuse_handle(const wfi_memory *m, int32_t rank) {
    return wfi_fail(m->group->ctx, WF_REMOTE,
                    "rank %d's description of its memory is damaged: there is no such block", rank);
}

/* Another rank's handle may be torn or invalid, so it is checked against its block. */
static wf_status resolve(wfi_memory *m, int32_t rank, wfi_handle handle, char **data_out) {
    shm *s = m->own;
    uint64_t slot = handle >> OFFSET_BITS;
    size_t offset = (size_t)(handle & ((UINT64_C(1) << OFFSET_BITS) - 1));
    if (slot >= WFI_GROUP_BLOCKS) return refuse_handle(m, rank);
    if (rank == m->group->rank) {
        pthread_mutex_lock(&s->lock);
        *data_out = s->own[slot].base + offset;
        pthread_mutex_unlock(&s->lock);
        return WF_OK;
    }
    if (!s->others[rank])
        s->others[rank] =
            wfi_alloc(m->group->ctx, WFI_GROUP_BLOCKS, sizeof(mapping), "a group's wire");
    if (!s->others[rank]) return WF_NO_MEMORY;
    mapping *b = &s->others[rank][slot];
    if (b->serial != shared_block(m, rank, (int32_t)slot)->serial)
        WF_TRY(map_block(m, rank, (int32_t)slot, b));
    if (!b->base || offset >= b->bytes) return refuse_handle(m, rank);
    *data_out = b->base + offset;
    return WF_OK;
}

/* Allocates a block in a free slot. Called with `lock`. */
static wf_status make_block(wf_group *g, int32_t slot, size_t bytes, void **block_out) {
    wfi_memory *m = g->state;
    shm *s = m->own;
    wfi_shared_block *block = shared_block(m, g->rank, slot);
    int fd;
    void *base = wfi_shared_create("weft-group", bytes, &fd);
    if (base == MAP_FAILED)
        return wfi_fail(g->ctx, WF_NO_MEMORY, "the system refused %zu shared bytes: %s", bytes,
                        strerror(errno));
    block->fd = fd;
    block->bytes = bytes;
    block->serial++;
    s->own[slot] = (mapping){base, bytes, block->serial};
    if (slot >= s->n_own) s->n_own = slot + 1;
    *block_out = base;
    return WF_OK;
}

static wf_status alloc_block(wf_group *g, size_t bytes, void **block_out) {
    shm *s = ((wfi_memory *)g->state)->own;
    int32_t slot = 0;
    pthread_mutex_lock(&s->lock);
    while (slot < WFI_GROUP_BLOCKS && s->own[slot].base) slot++;
    wf_status status =
        slot < WFI_GROUP_BLOCKS
            ? make_block(g, slot, bytes, block_out)
            : wfi_fail(g->ctx, WF_NO_MEMORY,
                       "a rank can have %d blocks of a group's memory; make larger ones and "
                       "divide them",
                       WFI_GROUP_BLOCKS);
    pthread_mutex_unlock(&s->lock);
    return status;
}

/* Other ranks may still map the block, so its memory is released through the descriptor. In a
 * broken group another rank may be reading it and would be killed by SIGBUS, so the memory stays.
 */
static void end_block(wfi_memory *m, int32_t slot) {
    mapping *b = &((shm *)m->own)->own[slot];
    int fd = shared_block(m, m->group->rank, slot)->fd;
    bool is_broken = wfi_failure_status(&m->segment->failure) != WF_OK ||
                     wfi_failure_status(wfi_control_failure(m->group->job)) != WF_OK;
    munmap(b->base, b->bytes);
    if (!is_broken && ftruncate(fd, 0))
        wfi_log(m->group->ctx, WF_LOG_WARN, "memory", "a block cannot be cut");
    close(fd);
    b->base = NULL;
}

static void free_block(wf_group *g, void *block) {
    wfi_memory *m = g->state;
    shm *s = m->own;
    pthread_mutex_lock(&s->lock);
    for (int32_t i = 0; i < s->n_own; i++)
        if (s->own[i].base == block) end_block(m, i);
    pthread_mutex_unlock(&s->lock);
}

/* ---- the group ---- */

typedef struct card {
    int64_t pid;
    int32_t fd;
} card;

/* Opens the segment, which rank 0 creates; *fd_out is its descriptor there. */
static wf_status open_segment(wf_group *g, wfi_bootstrap *bootstrap, int *fd_out, void **base_out) {
    size_t bytes = wfi_segment_bytes(g->n);
    int64_t own[WFI_CONTROL_NUMBERS] = {0};
    card c = {.pid = pid_of(g, g->rank), .fd = -1};
    if (g->rank == 0) *base_out = wfi_shared_create("weft-group", bytes, fd_out);
    c.fd = *fd_out;
    memcpy(own, &c, sizeof c);
    WF_TRY(bootstrap->all_gather(bootstrap->self, own, bootstrap->all));
    memcpy(&c, bootstrap->all[bootstrap->place[0]], sizeof c);
    if (g->rank && c.fd >= 0) *base_out = wfi_shared_open(c.pid, c.fd, bytes);
    if (*base_out != MAP_FAILED) return WF_OK;
    return wfi_fail(g->ctx, WF_NO_MEMORY, "the %zu bytes that a group shares cannot be mapped: %s",
                    bytes, strerror(errno));
}

static void close_group(wf_group *g) {
    wfi_memory *m = g->state;
    if (!m) return;
    shm *s = m->own;
    wfi_memory_leave(m);
    for (int32_t i = 0; s && i < s->n_own; i++)
        if (s->own[i].base) end_block(m, i);
    for (int32_t r = 0; s && r < g->n; r++) {
        for (int32_t i = 0; s->others[r] && i < WFI_GROUP_BLOCKS; i++)
            if (s->others[r][i].base) munmap(s->others[r][i].base, s->others[r][i].bytes);
        wfi_free(g->ctx, s->others[r]);
    }
    if (s) wfi_free(g->ctx, s->others);
    if (s && s->fd >= 0) close(s->fd);
    if (s) pthread_mutex_destroy(&s->lock);
    wfi_free(g->ctx, s);
    munmap(m->segment, m->segment_bytes);
    wfi_memory_destroy(m);
}

static wf_status open_group(wf_group *g, wfi_bootstrap *bootstrap) {
    wfi_memory *m = NULL;
    void *segment = MAP_FAILED;
    int fd = -1;
    wf_status status = open_segment(g, bootstrap, &fd, &segment);
    shm *s = wfi_alloc(g->ctx, 1, sizeof *s, "a group's wire");
    if (s) s->others = wfi_alloc(g->ctx, (size_t)g->n, sizeof *s->others, "a group's wire");
    if (status == WF_OK) status = s && s->others ? wfi_memory_create(g, segment, &m) : WF_NO_MEMORY;
    if (status != WF_OK) {
        if (s) wfi_free(g->ctx, s->others);
        if (segment != MAP_FAILED) munmap(segment, wfi_segment_bytes(g->n));
        wfi_free(g->ctx, s);
        if (fd >= 0) close(fd);
        return status;
    }
    s->fd = fd;
    pthread_mutex_init(&s->lock, NULL);
    m->own = s;
    m->find = find;
    m->resolve = resolve;
    g->state = m;
    return WF_OK;
}

/* All ranks have mapped the segment, so the descriptor can be closed. */
static void opened(wf_group *g, bool by_all) {
    (void)by_all;
    wfi_memory *m = g->state;
    shm *s = m ? m->own : NULL;
    if (!s || s->fd < 0) return;
    close(s->fd);
    s->fd = -1;
}

const wfi_wire wfi_wire_shm = {
    .name = "shm",
    .pushes = true,
    .reaches = reaches,
    .open = open_group,
    .opened = opened,
    .close = close_group,
    .alloc = alloc_block,
    .free = free_block,
    .run = wfi_memory_run,
    .pass = wfi_memory_pass,
};
