/* Faults for tests (fault.h), read from the environment. */
#include "execute/fault.h"
#include "base/env.h"
#include "execute/worker.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

static wf_status refuse(wf_context *ctx, wfi_env_id id, const char *takes) {
    return wfi_fail(ctx, WF_INVALID_ARG, "environment: %s='%.64s'; it takes %s",
                    wfi_env_table[id].name, wfi_env_text(id), takes);
}

/* ---- a bit ---- */

wf_status wfi_flip_read(wf_context *ctx, wfi_flip *flip_out) {
    const char *text = wfi_env_text(WFI_WEFT_FLIP_BIT);
    char rest;
    wfi_flip f = {0};
    int64_t n_restarts;
    WF_TRY(wfi_env_count(ctx, WFI_WEFT_RESTART, &n_restarts));
    if (*text && (sscanf(text, "%d:%d:%" SCNd64 "%c", &f.step, &f.rank, &f.bit, &rest) != 3 ||
                  f.step < 1 || f.rank < 0 || f.bit < 0))
        return refuse(ctx, WFI_WEFT_FLIP_BIT, "STEP:RANK:BIT, such as 3:0:30");
    if (!n_restarts) *flip_out = f;
    return WF_OK;
}

static wf_status flip(const wfi_worker *w, wfi_space space, size_t at, int bit) {
    char byte, *base = w->arenas[space].base + at;
    WF_TRY(wfi_memory_copy(w->copier, NULL, &byte, WFI_SPACE_HOST, base, space, 1));
    byte = (char)(byte ^ (1 << bit));
    return wfi_memory_copy(w->copier, NULL, base, space, &byte, WFI_SPACE_HOST, 1);
}

/* Bits are counted over the state of all spaces: device, host, disk. */
wf_status wfi_flip_strike(const wfi_flip *f, const wfi_worker *workers, const wf_program *p,
                          int64_t step) {
    if (!f->step || step != f->step || f->rank >= p->n_ranks) return WF_OK;
    const wfi_worker *w = &workers[f->rank];
    size_t at = (size_t)f->bit / 8;
    for (int s = 0; s < WFI_N_SPACES && w->is_local; s++) {
        size_t bytes = p->ranks[f->rank].arenas[s].state_bytes;
        if (at < bytes) return flip(w, (wfi_space)s, at, (int)(f->bit % 8));
        at -= bytes;
    }
    return WF_OK;
}

/* ---- a signal ---- */

static bool is_instruction(const char *name) {
    for (int k = 0; k < WFI_N_INSTRUCTION_KINDS; k++)
        if (k != WFI_CHANGE && !strcmp(name, wfi_instruction_types[k].name)) return true;
    for (int k = 0; k < WFI_N_PLACEMENTS * WFI_N_PLACEMENTS; k++) {
        const char *change = wfi_change_name((wfi_placement)(k / WFI_N_PLACEMENTS),
                                             (wfi_placement)(k % WFI_N_PLACEMENTS));
        if (change && !strcmp(name, change)) return true;
    }
    return false;
}

wf_status wfi_raise_read(wf_context *ctx, wfi_raise *raise_out) {
    const char *text = wfi_env_text(WFI_WEFT_RAISE);
    char rest;
    wfi_raise r = {0};
    int64_t n_restarts;
    WF_TRY(wfi_env_count(ctx, WFI_WEFT_RESTART, &n_restarts));
    if (*text &&
        (sscanf(text, "%d:%23[a-z_+]:%d:%" SCNd64 "%c", &r.signal, r.name, &r.rank, &r.left,
                &rest) != 4 ||
         r.signal < 1 || r.signal > 64 || r.rank < 0 || r.left < 1 || !is_instruction(r.name)))
        return refuse(ctx, WFI_WEFT_RAISE, "SIGNAL:INSTRUCTION:RANK:N, such as 9:forward:0:12");
    if (!n_restarts) *raise_out = r;
    return WF_OK;
}

void wfi_raise_at(wfi_raise *r, const wfi_instruction *now) {
    if (r->left && !strcmp(r->name, wfi_instruction_name(now)) && !--r->left)
        (void)raise(r->signal);
}
