/* A kernel on a device that compiles it from text: what is launched, and with which arguments.
 * Private.
 *
 * All kernels take the same arguments, so that launching is the same for all: operands by their
 * place in memory, numbers, and how many groups of threads there are. So a kernel is a name.
 */
#ifndef WFI_LAUNCH_H
#define WFI_LAUNCH_H

#include "base/base.h"

/* Threads of a group, of every kernel. */
#define WFI_GROUP_SIZE 64

/* In kernels: `arguments` of kernel/gpu/source/device.cl, which has the same members. */
#define WFI_LAUNCH_OPERANDS 16
typedef struct wfi_launch_arguments {
    uint64_t at[WFI_LAUNCH_OPERANDS]; /* bytes into its memory; WFI_LAUNCH_ABSENT */
    int64_t n[WFI_LAUNCH_OPERANDS];
    double f[12];
} wfi_launch_arguments;
#define WFI_LAUNCH_ABSENT UINT64_MAX

/* Words of a stream, 0 at first, that its kernels write and its tasks read. */
#define WFI_LAUNCH_WORDS 4

/* Text that has all kernels. A kernel is named by its place in the list. It begins at the start of
 * a line, with a macro in capitals and its name, KERNEL(relu), and has no empty line. */
typedef struct wfi_launch_source {
    const char *text;
    const char *const *entries;
    int n_entries;
} wfi_launch_source;
/* Program that has one kernel only, for operands of these types (wfi_kernel_launch.narrow). Of
 * malloc; NULL: no memory. */
char *wfi_launch_text(const wfi_launch_source *source, int entry, uint32_t narrow);

/* Kernels whose operands are of several ranks: operand i < WFI_LAUNCH_MEMORIES is in memory i. */
#define WFI_LAUNCH_MEMORIES 9

typedef struct wfi_kernel_launch {
    const wfi_launch_source *source; /* static */
    int entry;
    /* Bit i: operand i is BF16 where others are F32; bit 16 + i: it is F32, and rounded to BF16 as
     * it is read. Another value is another program. */
    uint32_t narrow;
    bool has_memories;                         /* else all operands are in one memory */
    int64_t n_groups;                          /* 0: nothing is launched */
    const void *operands[WFI_LAUNCH_OPERANDS]; /* NULL: absent */
    wfi_launch_arguments arguments;            /* `at` is the device's business */
} wfi_kernel_launch;

/* Programs of one kernel each, or kernels, as they are launched. */
typedef struct wfi_built {
    const wfi_launch_source *source;
    int entry;
    uint32_t narrow;
    void *handle;
} wfi_built;
typedef struct wfi_built_list {
    wfi_built *all; /* of malloc */
    size_t n;
} wfi_built_list;
/* The latest; NULL: it is not built yet. */
void *wfi_built_find(const wfi_built_list *list, const wfi_kernel_launch *launch);
/* Errors: NO_MEMORY. */
wf_status wfi_built_add(wf_context *ctx, wfi_built_list *list, const wfi_kernel_launch *launch,
                        void *handle);

#endif
