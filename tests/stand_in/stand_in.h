/* The stand-in for CUDA's driver, for tests without a GPU: what the files of it, and stand-ins of
 * libraries above it, know of each other.
 *
 * Memory of a GPU is the host's. Its addresses cannot be touched: what stands in for the GPU
 * reaches it at STAND_IN_MEMORY of them. A stream is a thread that comes late now and then.
 *
 * Variables of the environment order what the driver is like, and what goes wrong:
 *   STAND_IN_DEVICES     how many GPUs there are; 2
 *   STAND_IN_CAPABILITY  what they are: 90
 *   STAND_IN_MEMORY      bytes that each has; 8 GiB
 *   STAND_IN_PEER        0: they do not reach each other's memory
 *   STAND_IN_VERSION     the driver's; 13000
 *   STAND_IN_INIT        what cuInit answers
 *   STAND_IN_LOST_AFTER  so many launches later the GPU is lost: everything fails from then on, and
 *   STAND_IN_LOST        with which error; 719
 *   STAND_IN_HANG_AFTER  so many launches later none ends, on no stream of its GPU, and the driver
 *                        waits for ever before it takes anything back
 *   STAND_IN_DELAY_US    the longest delay of a stream's; 100
 *   STAND_IN_SEED        of delays
 *   STAND_IN_COMPILE     0: kernels do not compile
 *   STAND_IN_SLOW        which algorithm of a library takes 50 ms more
 *   STAND_IN_CAPTURE     0: whatever is captured ends the capture
 *   STAND_IN_COUNT       1: it says when it ends how many events of a stream were queued and had
 *                        not happened, at most, and how many graphs were launched
 * What a process has not given back when it ends is said on its standard error, unless a GPU hangs.
 */
#pragma once

#include "device/cuda_library.h"

#include <stdlib.h>

#define STAND_IN_API __attribute__((visibility("default")))

/* ---- of the driver ---- */

/* Added to an address of a GPU's memory, for those that stand in for it. */
extern STAND_IN_API ptrdiff_t stand_in_shift;
#define STAND_IN_MEMORY(address) ((void *)((uintptr_t)(address) + (uintptr_t)stand_in_shift))
/* Runs on the stream behind what it has been asked for, with a copy of its argument of `bytes`. An
 * error loses the stream's GPU. */
STAND_IN_API wfi_cuda_enum stand_in_queue(CUstream stream, wfi_cuda_enum (*run)(void *argument),
                                          const void *argument, size_t bytes);
/* Whether [address, address + bytes) is memory that the GPU of the current context reaches. */
STAND_IN_API bool stand_in_reaches(CUdeviceptr address, size_t bytes);

/* Which GPU the current context is on; -1: there is none. */
STAND_IN_API int stand_in_device(void);

/* ---- of its kernels, weft's own source (kernels.c) ---- */

/* As kernel/gpu/source/device.cl has it. */
#define STAND_IN_GROUP 64
typedef struct stand_in_arguments {
    uint64_t at[16];
    int64_t n[16];
    double f[12];
} stand_in_arguments;

typedef struct stand_in_kernel {
    int n_memories;
    /* One thread of a group, see stand_in_place. */
    void (*run)(char *const memories[], int *words, const stand_in_arguments *arguments);
} stand_in_kernel;

/* Which thread of which group runs. It changes at a barrier, where the others come first. */
typedef struct stand_in_position {
    long group;
    int thread;
    unsigned narrow; /* of the launch: wfi_kernel_launch's */
} stand_in_position;
const stand_in_position *stand_in_place(void) __attribute__((const));
void stand_in_barrier(void);
/* All threads of groups [0, n), on the calling thread. */
void stand_in_run_groups(const stand_in_kernel *kernel, unsigned narrow, long n,
                         char *const memories[], int *words, const stand_in_arguments *arguments);
/* Before a thread that has run any ends. */
void stand_in_free_groups(void);

static inline long long stand_in_variable(const char *name, long long otherwise) {
    const char *text = getenv(name);
    return text && *text ? strtoll(text, NULL, 10) : otherwise;
}
