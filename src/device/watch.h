/* What is done while something is waited for: whether the job still moves, and, if it does not for
 * long, who keeps everybody waiting. Private.
 *
 * All waits of a job have one notion of progress: whatever any stream of any rank gets done. What a
 * stream waits for may idle longer than the deadline while others move towards it.
 */
#ifndef WFI_WATCH_H
#define WFI_WATCH_H

#include "base/base.h"
#include "base/clock.h"

struct wfi_event;

typedef struct wfi_watch {
    wf_context *ctx;
    int64_t stall_ms; /* until it says so; 0: it never does */
    /* A number that changes with whatever any rank gets done. Any thread. */
    uint64_t (*progress)(const void *self);
    /* Who does not move, for whom the event is waited, and what it was doing; `how_long` is ""
     * or " for 10 s". The host, or a thread whose stream waits. */
    void (*explain)(const void *self, const struct wfi_event *event, bool is_host,
                    const char *how_long, char *text, size_t bytes);
    /* What the event's stream is at; "" where nobody knows. NULL: nobody does. Any thread. */
    void (*name)(const void *self, const struct wfi_event *event, char *text, size_t bytes);
    const void *self;
    /* the host's: only its thread says something, so that a process says it once, however many of
     * its streams wait */
    uint64_t seen;
    wfi_wait_clock since;
    int64_t next_ms;
} wfi_watch;

/* From now on things should move. NULL is allowed, as below. */
void wfi_watch_begin(wfi_watch *watch);
/* Between two naps of a wait of the host's. */
void wfi_watch_look(wfi_watch *watch, const struct wfi_event *event);

void wfi_watch_name(const wfi_watch *watch, const struct wfi_event *event, char *text,
                    size_t bytes);

/* Who waits: for sentences, and for what counts as progress. */
typedef struct wfi_waiter {
    const char *who;
    wfi_watch *watch; /* NULL: only what is waited for counts as progress */
    bool is_host;     /* else a stream */
} wfi_waiter;

/* For the sentence of a missed deadline: a colon and who does not move, or "". */
void wfi_waiter_explain(const wfi_waiter *waiter, const struct wfi_event *event, char *text,
                        size_t bytes);

/* Of one wait: it begins anew whenever anything moves. */
typedef struct wfi_deadline {
    const wfi_watch *watch;
    int64_t timeout_ms;
    uint64_t seen;
    wfi_wait_clock since;
} wfi_deadline;

/* `count`: of what is waited for. */
wfi_deadline wfi_deadline_begin(const wfi_waiter *waiter, int64_t timeout_ms, uint64_t count);
bool wfi_deadline_is_over(wfi_deadline *deadline, uint64_t count);
/* How long to sleep until the next look, at most `most_ms`. */
int64_t wfi_deadline_nap_ms(const wfi_deadline *deadline, const wfi_waiter *waiter,
                            int64_t most_ms);

#endif
