/* Delays of instructions, for tests and measurements: random delays before each, and those of a
 * slow rank. They change times only, not numbers. */
#include "execute/delay.h"

#include "base/env.h"
#include "base/names.h"
#include "base/random.h"
#include "execute/executor.h"
#include "execute/fault.h"

#include <ctype.h>
#include <stdlib.h>
#include <time.h>

/* The longest sleep without a look at the job's failure. */
#define NAP_NS 10000000LL

/* Sleeps in pieces, so that a failure of another rank ends the sleep. */
static void sleep_ns(const wfi_worker *w, int64_t ns) {
    for (; ns > 0 && wfi_failure_status(w->owner.failure) == WF_OK; ns -= NAP_NS) {
        struct timespec time = {0, (long)wfi_min_i64(ns, NAP_NS)};
        nanosleep(&time, NULL);
    }
}

/* ---- random ---- */

/* A random delay exposes a missing dependency that lucky timing would hide. */
void wfi_executor_delay(const wfi_executor *e, int32_t i) {
    int32_t rank = e->p->instructions[i].rank;
    if (e->workers[rank].raise) wfi_raise_at(e->workers[rank].raise, &e->p->instructions[i]);
    if (e->delay_us <= 0) return;
    uint32_t words[4];
    wfi_random_key key = {(uint64_t)wfi_now_ns(), (uint64_t)rank};
    wfi_random_words(key, 0, (uint64_t)i, words);
    sleep_ns(&e->workers[rank], (int64_t)(words[0] % (uint64_t)(e->delay_us + 1)) * 1000);
}

/* ---- a slow rank ---- */

static wf_status fail_slow(wf_context *ctx, const char *text) {
    return wfi_fail(ctx, WF_INVALID_ARG,
                    "environment: WEFT_SLOW_RANK='%.64s'; it takes RANK:FACTOR, such as 0:3, with "
                    "a factor from 1 to %d",
                    text, WFI_SLOW_MAX);
}

wf_status wfi_slow_read(wf_context *ctx, wfi_slow *slow_out) {
    const char *text = wfi_env_text(WFI_WEFT_SLOW_RANK);
    wfi_slow slow = {.rank = -1, .factor = 1};
    if (*text) {
        char *colon = NULL;
        unsigned long rank = isdigit((unsigned char)*text) ? strtoul(text, &colon, 10) : 0;
        if (!colon || *colon != ':' || rank > INT32_MAX ||
            !wfi_parse_real(colon + 1, strlen(colon + 1), &slow.factor) || slow.factor < 1 ||
            slow.factor > WFI_SLOW_MAX)
            return fail_slow(ctx, text);
        slow.rank = (int32_t)rank;
    }
    *slow_out = slow;
    return WF_OK;
}

int64_t wfi_slow_ns(double factor, int64_t took_ns) {
    double ns = (factor - 1) * (double)took_ns;
    return ns < (double)WFI_SLOW_MOST_NS ? (int64_t)ns : WFI_SLOW_MOST_NS;
}

static wfi_worker *slow_worker(const wfi_executor *e, const wfi_instruction *now) {
    wfi_worker *w = &e->workers[now->rank];
    return w->slow_factor > 1 && now->stream == WFI_STREAM_COMPUTE ? w : NULL;
}

int64_t wfi_slow_begin(const wfi_executor *e, const wfi_instruction *now) {
    const wfi_worker *w = slow_worker(e, now);
    if (!w) return 0;
    wfi_stream_settle(w->streams[now->stream]);
    return wfi_now_ns();
}

void wfi_slow_end(const wfi_executor *e, const wfi_instruction *now, int64_t begin_ns) {
    wfi_worker *w = slow_worker(e, now);
    if (!w) return;
    wfi_stream_settle(w->streams[now->stream]);
    w->slow_debt_ns += wfi_slow_ns(w->slow_factor, wfi_now_ns() - begin_ns);
    w->n_slowed++;
    if (w->slow_debt_ns < WFI_SLOW_LEAST_NS) return;
    int64_t asleep_ns = wfi_now_ns();
    sleep_ns(w, w->slow_debt_ns);
    w->slow_debt_ns -= wfi_now_ns() - asleep_ns;
}
