#include "device/watch.h"
#include "base/clock.h"

#include <stdio.h>

#define AGAIN 6 /* times as long until the next line: 10 s, 60 s, 6 min */

void wfi_watch_begin(wfi_watch *w) {
    if (!w) return;
    w->seen = w->progress(w->self);
    w->since_ms = wfi_now_ms();
    w->next_ms = w->stall_ms;
}

void wfi_watch_look(wfi_watch *w, const struct wfi_event *event) {
    char text[512], how_long[48];
    if (!w) return;
    if (w->progress(w->self) != w->seen) wfi_watch_begin(w);
    if (!w->stall_ms || wfi_now_ms() - w->since_ms < w->next_ms) return;
    snprintf(how_long, sizeof how_long, " for %g s", (double)w->next_ms / 1000);
    w->explain(w->self, event, true, how_long, text, sizeof text);
    wfi_log(w->ctx, WF_LOG_WARN, "wait", "%s", text);
    w->next_ms *= AGAIN;
}

int64_t wfi_watch_nap_ms(const wfi_watch *w, int64_t timeout_ms) {
    if (!w || !w->stall_ms) return timeout_ms;
    return wfi_min_i64(timeout_ms, wfi_max_i64(1, w->stall_ms / 8));
}
