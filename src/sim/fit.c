/* Whether a program fits into the memory given, and if not, what would. */
#include "nn/model.h"
#include "show/show.h"
#include "sim/larger.h"

#include <stdio.h>

#define SIZE_TEXT 40

static const char *size_text(char text[SIZE_TEXT], size_t bytes) {
    if (bytes >= 1 << 30)
        snprintf(text, SIZE_TEXT, "%.2f GiB", (double)bytes / (1 << 30));
    else if (bytes >= 1 << 20)
        snprintf(text, SIZE_TEXT, "%.1f MiB", (double)bytes / (1 << 20));
    else if (bytes >= 1 << 10)
        snprintf(text, SIZE_TEXT, "%.1f KiB", (double)bytes / (1 << 10));
    else
        snprintf(text, SIZE_TEXT, "%zu byte%s", bytes, bytes == 1 ? "" : "s");
    return text;
}

static wf_status refuse(const wfi_search *s) {
    const wf_program *p = s->p;
    char needs[SIZE_TEXT], missing[SIZE_TEXT], given[SIZE_TEXT];
    int32_t rank = wfi_search_largest(p, WFI_SPACE_DEVICE);
    size_t peak = wfi_search_peak_of(p, WFI_SPACE_DEVICE, rank);
    bool is_test = wfi_program_largest(p, WFI_SPACE_DEVICE, rank) != p;
    if (peak > s->device_bytes)
        return wfi_fail(p->ctx, WF_DOES_NOT_FIT,
                        "rank %d needs %s%s, %s more than the %s given; the peak is in unit %s",
                        rank, size_text(needs, peak), is_test ? " for tests" : "",
                        size_text(missing, peak - s->device_bytes),
                        size_text(given, s->device_bytes), wf_program_rank(p, rank).peak_unit);
    rank = wfi_search_largest(p, WFI_SPACE_HOST);
    peak = wfi_search_peak_of(p, WFI_SPACE_HOST, rank);
    return wfi_fail(p->ctx, WF_DOES_NOT_FIT,
                    "rank %d needs %s of the host's memory, %s more than the %s given; tensors "
                    "that offload= keeps there can be kept in a file with :disk",
                    rank, size_text(needs, peak), size_text(missing, peak - s->host_bytes),
                    size_text(given, s->host_bytes));
}

wf_status wf_program_fits(const wf_program *p, size_t device_bytes, size_t host_bytes,
                          wf_proposal **proposals_out, int *n_out) {
    const wfi_search s = wfi_search_for(p, device_bytes, host_bytes);
    wf_proposal *proposals = NULL;
    int n = 0;
    if (proposals_out) *proposals_out = NULL, *n_out = 0;
    if (wfi_search_fits(&s, p)) return WF_OK;
    if (!proposals_out) return refuse(&s);
    wf_status status = wf_program_propose(p, device_bytes, host_bytes, 0, &proposals, &n);
    if (status == WF_OK && n && wfi_model_n_layers(p->model))
        status = wfi_search_layers(&s, &proposals[0], &proposals[0].n_layers);
    if (status != WF_OK) {
        wf_proposals_destroy(p->ctx, proposals, n);
        return status;
    }
    *proposals_out = proposals;
    *n_out = n;
    return refuse(&s);
}
