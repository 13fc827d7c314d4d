/* A process that outlives the launcher by a moment. Private to src/launch.
 *
 * If the launcher is killed, the kernel kills its ranks (PR_SET_PDEATHSIG), but not their children.
 * The watchdog reads a pipe; the other end closes when the launcher dies. Then the watchdog kills
 * the ranks' process groups.
 */
#pragma once

#include "base/base.h"

#include <sys/types.h>

typedef struct wfi_watchdog {
    pid_t pid; /* 0: there is none */
    int fd;
    int pidfd; /* readable when it has ended; -1: unknown */
} wfi_watchdog;

/* Errors: DEVICE. */
wf_status wfi_watchdog_start(wf_context *ctx, wfi_watchdog *watchdog_out);
void wfi_watchdog_watch(const wfi_watchdog *watchdog, pid_t pgid);
/* The group is gone; its number may become another's. */
void wfi_watchdog_forget(const wfi_watchdog *watchdog, pid_t pgid);
/* Whether it has ended before it was told to. */
bool wfi_watchdog_is_lost(const wfi_watchdog *watchdog);
void wfi_watchdog_end(wfi_watchdog *watchdog);
