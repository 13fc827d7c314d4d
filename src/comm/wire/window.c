/* A rank's window: other ranks read or write it in place of buffers that they cannot access. */
#include "comm/wire/memory.h"

static size_t part_at(wfi_window part) {
    size_t number = part == WFI_WINDOW_IN ? 0 : part == WFI_WINDOW_OUT ? 1 : 2;
    return number * WFI_WINDOW_BYTES;
}

wf_status wfi_memory_make_window(wfi_memory *m) {
    wf_group *g = m->group;
    void *window;
    size_t bytes = 4 * WFI_WINDOW_BYTES;
    if (m->window) return WF_OK;
    WF_TRY(g->wire->alloc(g, bytes, &window));
    m->window = window;
    __atomic_store_n(&m->segment->members[g->rank].window, m->find(m, window, bytes),
                     __ATOMIC_RELEASE);
    return WF_OK;
}

wf_status wfi_memory_window(wfi_memory *m, int32_t rank, wfi_window part, char **data_out) {
    wfi_handle handle = __atomic_load_n(&m->segment->members[rank].window, __ATOMIC_ACQUIRE);
    if (rank == m->group->rank)
        *data_out = m->window;
    else
        WF_TRY(m->resolve(m, rank, handle, data_out));
    if (*data_out) *data_out += part_at(part); /* NULL: no memory is shared */
    return WF_OK;
}
