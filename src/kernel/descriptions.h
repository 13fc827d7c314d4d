/* Kernels of equal nodes, described once: what a library keeps of a kernel is larger than all else
 * that a plan has of a node. For programs that are looked at and never run. Private.
 */
#ifndef WFI_DESCRIPTIONS_H
#define WFI_DESCRIPTIONS_H

#include "kernel/kernel.h"

typedef struct wfi_descriptions wfi_descriptions;

/* Of the graph's nodes, which outlives them. */
wf_status wfi_descriptions_create(const wf_graph *g, wfi_descriptions **descriptions_out);
/* Not before all kernels that were made from them. NULL is allowed. */
void wfi_descriptions_destroy(wfi_descriptions *descriptions);

/* wfi_kernel_create, or, if it `adds`, wfi_kernel_create_adding, for that node of the graph. The
 * kernel is neither prepared nor run. */
wf_status wfi_descriptions_kernel(wfi_descriptions *descriptions, const wfi_node *node,
                                  const wfi_kernel_options *options, bool adds,
                                  wfi_kernel **kernel_out);

#endif
