/* Files as memory of a device: the space WFI_SPACE_DISK. Private to src/device, except
 * wfi_disk_open.
 *
 * A file has no name: it ends with the process, however that ends. Its addresses are reserved and
 * cannot be accessed; copies find the file by an address. If the file system allows, bytes move
 * directly, without the system's cache, and without a bounce buffer where memory is aligned
 * (WFI_DIRECT_ALIGN). The file's bytes are reserved on the disk at its creation, so that a full
 * disk is reported before anything runs.
 */
#pragma once

#include "device/device.h"

typedef struct wfi_disk wfi_disk;

/* Creates a file in the device's folder. Errors: IO; the message names the folder and the bytes. */
wf_status wfi_disk_create(wfi_device *device, size_t bytes, void **base_out);
/* Adds another process's file. Takes over the descriptor, which was opened here. */
wf_status wfi_disk_open(wfi_device *device, int fd, size_t bytes, void **base_out);
/* The descriptor of the file that has the address. */
int wfi_disk_descriptor(const wfi_device *device, const void *base);
void wfi_disk_destroy(wfi_device *device, const void *base);

/* Copies between a file or host memory, and another. Errors: IO. */
wf_status wfi_disk_copy(wfi_device *device, void *to, wfi_space to_space, const void *from,
                        wfi_space from_space, size_t bytes);
wf_status wfi_disk_fill(wfi_device *device, void *to, wfi_space space, int byte, size_t bytes);
