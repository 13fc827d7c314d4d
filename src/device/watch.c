#include "device/watch.h"

#include <stdio.h>

#define AGAIN 6 /* times as long until the next line: 10 s, 60 s, 6 min */

void wfi_watch_begin(wfi_watch *w) {
    if (!w) return;
    w->seen = w->progress(w->self);
    w->since = wfi_wait_begin();
    w->next_ms = w->stall_ms;
}

void wfi_watch_look(wfi_watch *w, const struct wfi_event *event) {
    char text[512], how_long[48];
    if (!w) return;
    if (w->progress(w->self) != w->seen) wfi_watch_begin(w);
    int64_t waited_ms = wfi_wait_ms(&w->since);
    if (!w->stall_ms || waited_ms < w->next_ms) return;
    snprintf(how_long, sizeof how_long, " for %g s", (double)w->next_ms / 1000);
    w->explain(w->self, event, true, how_long, text, sizeof text);
    wfi_log(w->ctx, WF_LOG_WARN, "wait", "%s", text);
    w->next_ms *= AGAIN;
}

void wfi_watch_name(const wfi_watch *w, const struct wfi_event *event, char *text, size_t bytes) {
    *text = 0;
    if (w && w->name) w->name(w->self, event, text, bytes);
}

void wfi_waiter_explain(const wfi_waiter *waiter, const struct wfi_event *event, char *text,
                        size_t bytes) {
    const wfi_watch *watch = waiter->watch;
    snprintf(text, bytes, "%s", watch ? ": " : "");
    if (watch && bytes > 2)
        watch->explain(watch->self, event, waiter->is_host, "", text + 2, bytes - 2);
}

/* ---- deadlines ---- */

static uint64_t moved(const wfi_deadline *d, uint64_t count) {
    return count + (d->watch ? d->watch->progress(d->watch->self) : 0);
}

wfi_deadline wfi_deadline_begin(const wfi_waiter *waiter, int64_t timeout_ms, uint64_t count) {
    wfi_deadline d = {.watch = waiter->watch, .timeout_ms = timeout_ms, .since = wfi_wait_begin()};
    d.seen = moved(&d, count);
    return d;
}

bool wfi_deadline_is_over(wfi_deadline *d, uint64_t count) {
    uint64_t now = moved(d, count);
    if (now != d->seen) {
        d->seen = now;
        d->since = wfi_wait_begin();
    }
    return wfi_wait_ms(&d->since) >= d->timeout_ms;
}

int64_t wfi_deadline_nap_ms(const wfi_deadline *d, const wfi_waiter *waiter, int64_t most_ms) {
    int64_t ms = wfi_min_i64(wfi_min_i64(most_ms, WFI_WAIT_NAP_MS),
                             wfi_max_i64(1, d->timeout_ms - d->since.waited_ms));
    if (!waiter->is_host || !waiter->watch || !waiter->watch->stall_ms) return ms;
    return wfi_min_i64(ms, wfi_max_i64(1, waiter->watch->stall_ms / 8));
}
