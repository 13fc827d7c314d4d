/* The library of a context. */
#include "kernel/opencl/library.h"

#include "base/library.h"

#include <stdio.h>
#include <stdlib.h>

typedef struct shared {
    wfi_clblast library;
    char text[320];
} shared;

/* Contexts that use CLBlast. Its cache of compiled kernels belongs to the process and keeps
 * references to OpenCL's contexts. */
static int n_users;

static wf_status create_shared(wf_context *ctx, void **shared_out) {
#define SYMBOL(name, parameters) "CLBlast" #name,
    static const char *const files[] = {"libclblast.so.1", NULL};
    static const char *const symbols[] = {WFI_CLBLAST_LIST(SYMBOL) NULL};
    static const wfi_library library = {
        "CLBlast", files, symbols,
        "weft's own kernels compute products; install it (Debian's package libclblast1)",
        "it is older than 1.5"};
    shared *s = calloc(1, sizeof *s);
    if (!s) return wfi_no_memory(ctx, sizeof *s, "CLBlast");
    wfi_clblast *l = &s->library;
    wfi_library_try(ctx, &library, l, sizeof l->missing, l->missing);
    if (!*l->missing) __atomic_add_fetch(&n_users, 1, __ATOMIC_RELAXED);
    snprintf(s->text, sizeof s->text, "weft's kernels (OpenCL C); %s",
             *l->missing ? l->missing : "CLBlast");
    *shared_out = s;
    return WF_OK;
}

static void destroy_shared(void *shared_object) {
    shared *s = shared_object;
    if (!*s->library.missing && !__atomic_sub_fetch(&n_users, 1, __ATOMIC_ACQ_REL))
        s->library.ClearCache();
    free(s);
}

static const wfi_shared_kind shared_kind = {create_shared, destroy_shared};

wf_status wfi_clblast_find(wf_context *ctx, const wfi_clblast **library_out) {
    void *found;
    WF_TRY(wfi_context_share(ctx, &shared_kind, &found));
    *library_out = &((const shared *)found)->library;
    return WF_OK;
}

const char *wfi_clblast_text(wf_context *ctx) {
    void *found;
    if (wfi_context_share(ctx, &shared_kind, &found) != WF_OK) return "";
    return ((const shared *)found)->text;
}
