/* A process that outlives the launcher by a moment. Private to src/launch.
 *
 * If the launcher is killed, the kernel kills its ranks (PR_SET_PDEATHSIG), but not what the
 * ranks have started. The guard waits at the end of a pipe whose other end dies with the
 * launcher, and then kills the ranks' process groups.
 */
#ifndef WFI_GUARD_H
#define WFI_GUARD_H

#include "base/base.h"

#include <sys/types.h>

typedef struct wfi_guard {
    pid_t pid; /* 0: there is none */
    int fd;
    int pidfd; /* readable when it has ended; -1: unknown */
} wfi_guard;

/* Errors: DEVICE. */
wf_status wfi_guard_start(wf_context *ctx, wfi_guard *guard_out);
void wfi_guard_watch(const wfi_guard *guard, pid_t group);
/* The group is gone; its number may become another's. */
void wfi_guard_forget(const wfi_guard *guard, pid_t group);
/* Whether it has ended before it was told to. */
bool wfi_guard_is_lost(const wfi_guard *guard);
void wfi_guard_end(wfi_guard *guard);

#endif
