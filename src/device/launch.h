/* A launch of a kernel on a device that compiles it from text. Private.
 *
 * All kernels take the same arguments, so that launching is the same for all: operands by their
 * offset in memory, numbers, and the number of thread groups. So a name is enough to describe a
 * kernel.
 */
#pragma once

#include "base/base.h"

/* Threads of a group in every kernel. */
#define WFI_GROUP_SIZE 64

/* In kernels: `arguments` of kernel/gpu/source/device.cl, with the same members. */
#define WFI_LAUNCH_OPERANDS 16
typedef struct wfi_launch_arguments {
    uint64_t at[WFI_LAUNCH_OPERANDS]; /* offset in its memory, in bytes; WFI_LAUNCH_ABSENT */
    int64_t n[WFI_LAUNCH_OPERANDS];
    double f[12];
} wfi_launch_arguments;
#define WFI_LAUNCH_ABSENT UINT64_MAX

/* Words of a stream, initially 0, that its kernels write and its tasks read. */
#define WFI_LAUNCH_WORDS 4

/* The source text of all kernels. A kernel is identified by its index in the list. In the text a
 * kernel begins at the start of a line with a macro in capitals and its name, KERNEL(relu), and has
 * no empty line. */
typedef struct wfi_launch_source {
    const char *text;
    const char *const *entries;
    int n_entries;
} wfi_launch_source;
/* The source of a program with one kernel, for operands of these types (wfi_kernel_launch.narrow).
 * Allocated by malloc; NULL: no memory. */
char *wfi_launch_text(const wfi_launch_source *source, int entry, uint32_t narrow);

/* For kernels with operands of several ranks: operand i < WFI_LAUNCH_MEMORIES is in memory i. */
#define WFI_LAUNCH_MEMORIES 9

typedef struct wfi_kernel_launch {
    const wfi_launch_source *source; /* static */
    int entry;
    /* Bit i: operand i is BF16 where others are F32. Bit 16 + i: operand i is F32 and is rounded to
     * BF16 when read. Each value has a program of its own. */
    uint32_t narrow;
    bool has_memories;                         /* false: all operands are in one memory */
    int64_t n_groups;                          /* 0: nothing is launched */
    const void *operands[WFI_LAUNCH_OPERANDS]; /* NULL: absent */
    wfi_launch_arguments arguments;            /* the device fills `at` */
} wfi_kernel_launch;

/* Compiled programs of one kernel each, or kernels. */
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
/* The latest build; NULL: not built yet. */
void *wfi_built_find(const wfi_built_list *list, const wfi_kernel_launch *launch);
/* Errors: NO_MEMORY. */
wf_status wfi_built_add(wf_context *ctx, wfi_built_list *list, const wfi_kernel_launch *launch,
                        void *handle);
