#include "device/ranges.h"

#include <stdlib.h>
#include <string.h>

void wfi_ranges_init(wfi_ranges *r) {
    *r = (wfi_ranges){.n = 0};
    pthread_mutex_init(&r->lock, NULL);
}

void wfi_ranges_release(wfi_ranges *r) {
    pthread_mutex_destroy(&r->lock);
    free(r->all);
}

/* The index of the range that has the address, or where it would be. */
static size_t place_of(const wfi_ranges *r, const char *address) {
    size_t low = 0, high = r->n;
    WFI_BISECT(low, high, middle, r->all[middle].base + r->all[middle].bytes <= address);
    return low;
}

wf_status wfi_ranges_add(wf_context *ctx, wfi_ranges *r, wfi_range range) {
    pthread_mutex_lock(&r->lock);
    wfi_range *more = realloc(r->all, (r->n + 1) * sizeof *more);
    if (more) {
        r->all = more;
        size_t i = place_of(r, range.base);
        memmove(more + i + 1, more + i, (r->n++ - i) * sizeof *more);
        more[i] = range;
    }
    pthread_mutex_unlock(&r->lock);
    return more ? WF_OK : wfi_no_memory(ctx, sizeof *more, "a device's memory");
}

bool wfi_ranges_find(wfi_ranges *r, const void *address, wfi_range *range_out) {
    const char *at = address;
    pthread_mutex_lock(&r->lock);
    size_t i = place_of(r, at);
    bool is_found = i < r->n && r->all[i].base <= at;
    if (is_found) *range_out = r->all[i];
    pthread_mutex_unlock(&r->lock);
    return is_found;
}

wfi_range wfi_ranges_take(wfi_ranges *r, const void *base) {
    pthread_mutex_lock(&r->lock);
    size_t i = place_of(r, base);
    wfi_range taken = r->all[i];
    memmove(r->all + i, r->all + i + 1, (--r->n - i) * sizeof *r->all);
    pthread_mutex_unlock(&r->lock);
    return taken;
}
