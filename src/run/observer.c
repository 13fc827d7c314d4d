#include "run/observer.h"

#if defined(__SANITIZE_THREAD__)
void __tsan_read_range(void *data, unsigned long bytes);
void __tsan_write_range(void *data, unsigned long bytes);
#define TELL_TSAN(data, bytes, writes)                                                             \
    ((writes) ? __tsan_write_range((void *)(uintptr_t)(data), (bytes))                             \
              : __tsan_read_range((void *)(uintptr_t)(data), (bytes)))
#else
#define TELL_TSAN(data, bytes, writes) ((void)(writes))
#endif

void wfi_observe(wfi_observer *observer, const void *data, size_t bytes, bool writes,
                 bool is_instrumented) {
    if (!data || !bytes) return;
    if (!is_instrumented) TELL_TSAN(data, bytes, writes);
    size_t end = (size_t)((const char *)data - observer->base) + bytes;
    size_t peak = __atomic_load_n(&observer->peak_bytes, __ATOMIC_RELAXED);
    while (end > peak && !__atomic_compare_exchange_n(&observer->peak_bytes, &peak, end, true,
                                                      __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
}
