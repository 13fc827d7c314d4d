/* The watchdog of waits: whether the job makes progress, and if not for long, the rank that all
 * others wait for. Private.
 *
 * All waits of a job share one measure of progress: the completed tasks of any stream of any rank.
 * An awaited stream may be idle longer than the deadline while others progress towards it.
 */
#pragma once

#include "base/base.h"
#include "base/clock.h"

struct wfi_event;

typedef struct wfi_watch {
    wf_context *ctx;
    int64_t stall_ms; /* time before a warning; 0: none */
    /* A number that changes with every completed task of any rank. Any thread. */
    uint64_t (*progress)(const void *self);
    /* Describes the rank that makes no progress and is needed for the event, and its last call;
     * `how_long` is "" or " for 10 s". Called by the host, or by a thread of a waiting stream. */
    void (*explain)(const void *self, const struct wfi_event *event, bool is_host,
                    const char *how_long, char *text, size_t bytes);
    /* Describes the current task of the event's stream; "" if unknown. NULL: always unknown. Any
     * thread. */
    void (*name)(const void *self, const struct wfi_event *event, char *text, size_t bytes);
    const void *self;
    /* The host's: only its thread warns, so that a process warns once, not once per waiting stream.
     */
    uint64_t seen;
    wfi_wait_clock since;
    int64_t next_ms;
} wfi_watch;

/* Starts the watch: progress is expected from now on. NULL is allowed, as below. */
void wfi_watch_begin(wfi_watch *watch);
/* Called between two naps of a host's wait. */
void wfi_watch_look(wfi_watch *watch, const struct wfi_event *event);

void wfi_watch_name(const wfi_watch *watch, const struct wfi_event *event, char *text,
                    size_t bytes);

/* The waiter: its name for error messages, and its measure of progress. */
typedef struct wfi_waiter {
    const char *name;
    wfi_watch *watch; /* NULL: only the awaited counter is progress */
    bool is_host;     /* false: a stream */
} wfi_waiter;

/* For the message of a missed deadline: a colon and the rank without progress, or "". */
void wfi_waiter_explain(const wfi_waiter *waiter, const struct wfi_event *event, char *text,
                        size_t bytes);

/* The deadline of one wait; it restarts with every progress. */
typedef struct wfi_deadline {
    const wfi_watch *watch;
    int64_t timeout_ms;
    uint64_t seen;
    wfi_wait_clock since;
} wfi_deadline;

/* `count`: the awaited counter. */
wfi_deadline wfi_deadline_begin(const wfi_waiter *waiter, int64_t timeout_ms, uint64_t count);
bool wfi_deadline_is_over(wfi_deadline *deadline, uint64_t count);
/* How long to sleep until the next poll, at most `most_ms`. */
int64_t wfi_deadline_nap_ms(const wfi_deadline *deadline, const wfi_waiter *waiter,
                            int64_t most_ms);
