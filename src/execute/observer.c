#include "execute/observer.h"

void wfi_observe(wfi_observer *observer, const void *data, size_t bytes) {
    if (!data || !bytes) return;
    size_t end = (size_t)((const char *)data - observer->base) + bytes;
    size_t peak = __atomic_load_n(&observer->peak_bytes, __ATOMIC_RELAXED);
    while (end > peak && !__atomic_compare_exchange_n(&observer->peak_bytes, &peak, end, true,
                                                      __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
}
