/* The CPU as a device: host memory, and streams with a thread each. A missing event is therefore a
 * race, which the thread sanitizer reports long before a GPU would return a wrong number. */
#include "device/disk.h"
#include "device/thread_stream.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>

/* The smallest page size of all supported machines. */
#define PAGE_BYTES 4096

static wf_status bind_thread(wfi_device *device) {
    cpu_set_t *cores = device->state;
    /* A refusal costs speed, not correctness: containers may forbid it. */
    if (cores && pthread_setaffinity_np(pthread_self(), sizeof *cores, cores))
        wfi_log(device->owner.ctx, WF_LOG_INFO, "device", "cores of rank %d could not be bound",
                device->owner.rank);
    return WF_OK;
}

/* The spaces of the device and of the host are both host memory. */
static wf_status cpu_memory_create(wfi_device *device, wfi_space space, size_t bytes,
                                   void **base_out) {
    if (space == WFI_SPACE_DISK) return wfi_disk_create(device, bytes, base_out);
    void *base =
        mmap(NULL, bytes ? bytes : 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED)
        return wfi_fail(device->owner.ctx, WF_NO_MEMORY,
                        "the system refused %zu bytes for rank %d's arena: %s", bytes,
                        device->owner.rank, strerror(errno));
    /* Uses large pages if the system allows them. Touches every page (zeroed by the system), so
     * that no step pays for page faults. */
    madvise(base, bytes, MADV_HUGEPAGE);
    for (size_t at = 0; at < bytes; at += PAGE_BYTES) ((volatile char *)base)[at] = 0;
    *base_out = base;
    return WF_OK;
}

static void cpu_memory_destroy(wfi_device *device, wfi_space space, void *base, size_t bytes) {
    if (space == WFI_SPACE_DISK)
        wfi_disk_destroy(device, base);
    else
        munmap(base, bytes ? bytes : 1);
}

/* Copies on the calling thread: the stream's or the host's. */
static wf_status cpu_copy(wfi_device *device, wfi_stream_queue *stream, void *to,
                          wfi_space to_space, const void *from, wfi_space from_space,
                          size_t bytes) {
    (void)stream;
    return wfi_disk_copy(device, to, to_space, from, from_space, bytes);
}

static wf_status cpu_fill(wfi_device *device, wfi_stream_queue *stream, void *to, wfi_space space,
                          int byte, size_t bytes) {
    (void)stream;
    return wfi_disk_fill(device, to, space, byte, bytes);
}

const wfi_device_class wfi_device_cpu = {
    .name = "cpu",
    .has_memory = true,
    .create = wfi_cpu_find_cores,
    .destroy = wfi_cpu_release_cores,
    .memory_create = cpu_memory_create,
    .memory_destroy = cpu_memory_destroy,
    .copy = cpu_copy,
    .fill = cpu_fill,
    .streams = &wfi_thread_streams,
    .stream_create = wfi_thread_stream_create,
    .enter_thread = bind_thread,
};
