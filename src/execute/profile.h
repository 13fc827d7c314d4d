/* Time per kernel. Private. */
#pragma once

#include "base/base.h"
#include "base/clock.h"

#include <pthread.h>
#include <weft/trainer.h>

typedef struct wfi_profile {
    wf_context *ctx;
    bool is_on;
    pthread_mutex_t lock;
    wf_profile_row *rows;
    size_t n_rows, capacity;
} wfi_profile;

void wfi_profile_init(wfi_profile *profile, wf_context *ctx, bool is_on);
void wfi_profile_release(wfi_profile *profile);
/* `label` and `kernel` must outlive the profile's rows. */
wf_status wfi_profile_add(wfi_profile *profile, const char *label, const char *kernel,
                          int64_t time_ns, double flops);
