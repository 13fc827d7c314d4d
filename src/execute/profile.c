#include "execute/profile.h"

#include <string.h>

void wfi_profile_init(wfi_profile *profile, wf_context *ctx, bool is_on) {
    *profile = (wfi_profile){.ctx = ctx, .is_on = is_on};
    pthread_mutex_init(&profile->lock, NULL);
}

void wfi_profile_release(wfi_profile *profile) {
    wfi_free(profile->ctx, profile->rows);
    pthread_mutex_destroy(&profile->lock);
}

wf_status wfi_profile_add(wfi_profile *profile, const char *label, const char *kernel,
                          int64_t time_ns, double flops) {
    pthread_mutex_lock(&profile->lock);
    size_t i = 0;
    while (i < profile->n_rows &&
           (strcmp(profile->rows[i].label, label) || strcmp(profile->rows[i].kernel, kernel)))
        i++;
    wf_status status = WF_OK;
    if (i == profile->n_rows) {
        status =
            WFI_GROW(profile->ctx, profile->rows, profile->n_rows, profile->capacity, "a profile");
        if (status == WF_OK)
            profile->rows[profile->n_rows++] = (wf_profile_row){.label = label, .kernel = kernel};
    }
    if (status == WF_OK) {
        wf_profile_row *row = &profile->rows[i];
        row->n_calls++;
        row->time_ns += time_ns;
        row->flops += flops;
    }
    pthread_mutex_unlock(&profile->lock);
    return status;
}
