#include "device/shared_epoch.h"

#include <limits.h>
#include <linux/futex.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* The half of the epoch that changes with every task. */
static uint32_t *low_half(wfi_shared_epoch *e) {
    return (uint32_t *)(void *)&e->epoch + (__BYTE_ORDER__ == __ORDER_BIG_ENDIAN__);
}

void wfi_shared_epoch_wake(wfi_shared_epoch *e) {
    if (__atomic_load_n(&e->n_sleeping, __ATOMIC_SEQ_CST))
        syscall(SYS_futex, low_half(e), FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void wfi_shared_epoch_sleep(wfi_shared_epoch *e, uint64_t seen, int64_t timeout_ms) {
    struct timespec timeout = {timeout_ms / 1000, timeout_ms % 1000 * 1000000};
    __atomic_fetch_add(&e->n_sleeping, 1, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&e->epoch, __ATOMIC_SEQ_CST) == seen)
        syscall(SYS_futex, low_half(e), FUTEX_WAIT, (uint32_t)seen, &timeout, NULL, 0);
    __atomic_fetch_sub(&e->n_sleeping, 1, __ATOMIC_SEQ_CST);
}
