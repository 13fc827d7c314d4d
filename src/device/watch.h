/* What the host does while it waits: if nothing moves for long, it says who keeps everybody
 * waiting. Private.
 *
 * Only the host's thread looks, so that a process says it once, however many of its streams wait.
 */
#ifndef WFI_WATCH_H
#define WFI_WATCH_H

#include "base/base.h"

struct wfi_event;

typedef struct wfi_watch {
    wf_context *ctx;
    int64_t stall_ms; /* until it says so; 0: it never does */
    /* A number that changes with whatever any rank gets done. */
    uint64_t (*progress)(const void *self);
    /* Who does not move, for whom the event is waited, and what it was doing; `how_long` is ""
     * or " for 10 s". The host, or a thread whose stream waits. */
    void (*explain)(const void *self, const struct wfi_event *event, bool is_host,
                    const char *how_long, char *text, size_t bytes);
    const void *self;
    /* the host's */
    uint64_t seen;
    int64_t since_ms, next_ms;
} wfi_watch;

/* From now on things should move. NULL is allowed, as below. */
void wfi_watch_begin(wfi_watch *watch);
/* At least every wfi_watch_nap_ms of a wait. */
void wfi_watch_look(wfi_watch *watch, const struct wfi_event *event);
int64_t wfi_watch_nap_ms(const wfi_watch *watch, int64_t timeout_ms);

#endif
