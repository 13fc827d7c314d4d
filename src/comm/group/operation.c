#include "comm/group/operation.h"

#include <stdio.h>
#include <string.h>

#define SITE_WORDS 8
#define SITE_BYTES (SITE_WORDS * 8)

static const char *const op_names[] = {"sum", "mean", "min", "max"};

#define ENGINE 255

/* Calls are read from memory of other processes, so the number may be invalid. */
static const char *algorithm_name(uint64_t number) {
    uint64_t i = 1;
    if (number == ENGINE) return wfi_allreduce_engine.name;
    while (i < number && wfi_allreduces[i - 1]) i++;
    return number && wfi_allreduces[i - 1] ? wfi_allreduces[i - 1]->name : "?";
}

/* The algorithm's number, from 1. */
static uint64_t number_of(const wfi_allreduce *how) {
    uint64_t i = 0;
    if (how == &wfi_allreduce_engine) return ENGINE;
    while (how && wfi_allreduces[i] && wfi_allreduces[i] != how) i++;
    return how ? i + 1 : 0;
}

static uint64_t pack(const wfi_operation *o) {
    return (uint64_t)o->collective | (uint64_t)o->dtype << 8 | (uint64_t)o->op << 16 |
           number_of(o->how) << 24 | (uint64_t)(uint32_t)o->root << 32;
}

static uint64_t mix(uint64_t x) {
    x = (x ^ x >> 32) * UINT64_C(0xd6e8feb86659fd93);
    x = (x ^ x >> 32) * UINT64_C(0xd6e8feb86659fd93);
    return x ^ x >> 32;
}

uint64_t wfi_operation_fingerprint(const wfi_operation *o) {
    return mix(mix(mix(o->number) ^ pack(o)) ^ (uint64_t)o->n_elem);
}

void wfi_call_write(wfi_group_call *call, const wfi_operation *o) {
    uint64_t word[WFI_CALL_WORDS] = {pack(o), (uint64_t)o->n_elem, o->number};
    size_t n = o->site ? strlen(o->site) : 0, most = SITE_BYTES - 1;
    const char *end = n > most ? o->site + n - most : o->site; /* long paths lose their beginning */
    if (n) memcpy(&word[WFI_CALL_WORDS - SITE_WORDS], end, n > most ? most : n);
    for (int i = 0; i < WFI_CALL_WORDS; i++)
        __atomic_store_n(&call->word[i], word[i], __ATOMIC_RELAXED);
}

typedef struct reading {
    uint64_t word[WFI_CALL_WORDS];
    char site[SITE_BYTES + 1];
} reading;

static reading read_call(const wfi_group_call *call) {
    reading r = {0};
    for (int i = 0; i < WFI_CALL_WORDS; i++)
        r.word[i] = __atomic_load_n(&call->word[i], __ATOMIC_RELAXED);
    memcpy(r.site, &r.word[WFI_CALL_WORDS - SITE_WORDS], SITE_BYTES);
    return r;
}

static int add_site(const reading *r, char *text, size_t bytes) {
    return r->site[0] ? snprintf(text, bytes, " at %s", r->site) : 0;
}

const char *wfi_call_name(const wfi_group_call *call, char text[WFI_CALL_TEXT]) {
    reading r = read_call(call);
    if (!r.word[2]) return "nothing";
    int n = snprintf(text, WFI_CALL_TEXT, "wf_group_%s", wfi_collective_name(r.word[0] & 0xff));
    add_site(&r, text + n, (size_t)(WFI_CALL_TEXT - n));
    return text;
}

const char *wfi_call_describe(const wfi_group_call *call, char text[WFI_CALL_TEXT]) {
    reading r = read_call(call);
    if (!r.word[2]) return "nothing";
    wfi_collective collective = (wfi_collective)(r.word[0] & 0xff);
    int n = snprintf(text, WFI_CALL_TEXT, "wf_group_%s", wfi_collective_name(collective));
    if (collective != WFI_COLLECTIVE_BARRIER)
        n += snprintf(text + n, (size_t)(WFI_CALL_TEXT - n), " of %lld %s", (long long)r.word[1],
                      wf_dtype_name((wf_dtype)(r.word[0] >> 8 & 0xff)));
    if (wfi_collective_sums(collective))
        n += snprintf(text + n, (size_t)(WFI_CALL_TEXT - n), " (%s, %s)",
                      op_names[r.word[0] >> 16 & 3], algorithm_name(r.word[0] >> 24 & 0xff));
    if (wfi_collective_has_root(collective))
        n += snprintf(text + n, (size_t)(WFI_CALL_TEXT - n), " with root %d",
                      (int)(r.word[0] >> 32));
    add_site(&r, text + n, (size_t)(WFI_CALL_TEXT - n));
    return text;
}
