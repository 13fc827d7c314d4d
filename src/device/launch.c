#include "device/launch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The name of the kernel that this line begins, as KERNEL(name), or with another macro in capitals;
 * NULL: none. */
static const char *name_in(const char *line, size_t *n_out) {
    const char *at = line;
    while (*at == '_' || (*at >= 'A' && *at <= 'Z')) at++;
    if (at == line || *at++ != '(') return NULL;
    *n_out = strcspn(at, ",)");
    return at;
}

/* A kernel ends before an empty line, or where the next one begins. */
char *wfi_launch_text(const wfi_launch_source *source, int entry, uint32_t narrow) {
    const char *wanted = source->entries[entry];
    size_t bytes = strlen(source->text) + 64;
    char *text = malloc(bytes);
    if (!text) return NULL;
    char *to = text + snprintf(text, bytes, "#define NARROW 0x%xu\n", narrow);
    bool is_kept = true;
    for (const char *line = source->text; *line;) {
        size_t n_name, n = strcspn(line, "\n");
        const char *name = name_in(line, &n_name);
        if (name) is_kept = strlen(wanted) == n_name && !memcmp(name, wanted, n_name);
        if (!n) is_kept = true;
        n += line[n] == '\n';
        if (is_kept) memcpy(to, line, n), to += n;
        line += n;
    }
    *to = '\0';
    return text;
}

void *wfi_built_find(const wfi_built_list *list, const wfi_kernel_launch *launch) {
    for (size_t i = list->n; i-- > 0;)
        if (list->all[i].entry == launch->entry && list->all[i].narrow == launch->narrow &&
            list->all[i].source == launch->source)
            return list->all[i].handle;
    return NULL;
}

wf_status wfi_built_add(wf_context *ctx, wfi_built_list *list, const wfi_kernel_launch *launch,
                        void *handle) {
    wfi_built *more = realloc(list->all, (list->n + 1) * sizeof *more);
    if (!more) return wfi_no_memory(ctx, sizeof *more, "a device's kernels");
    more[list->n++] = (wfi_built){launch->source, launch->entry, launch->narrow, handle};
    list->all = more;
    return WF_OK;
}
