/* Files as memory of a device: the space WFI_SPACE_DISK. Private to src/device, but for
 * wfi_disk_open.
 *
 * A file has no name: it goes with the process, however that ends. Its addresses are reserved and
 * cannot be touched; what copies from or to one of them finds the file by it. It is moved directly,
 * past the system's cache, if the file system allows, and without a copy where memory is aligned
 * (WFI_DIRECT_ALIGN). All its bytes are taken from the disk when it
 * is made, so that a disk which is full is known before anything runs.
 */
#ifndef WFI_DISK_H
#define WFI_DISK_H

#include "device/device.h"

typedef struct wfi_disk wfi_disk;

/* In the device's folder. Errors: IO; the sentence names the folder and the bytes. */
wf_status wfi_disk_create(wfi_device *device, size_t bytes, void **base_out);
/* Another process's, of so many bytes, whose descriptor was opened here; it is taken. */
wf_status wfi_disk_open(wfi_device *device, int fd, size_t bytes, void **base_out);
/* The descriptor behind an address. */
int wfi_disk_descriptor(const wfi_device *device, const void *base);
void wfi_disk_destroy(wfi_device *device, const void *base);

/* Between a file or memory of the host, and another. Errors: IO. */
wf_status wfi_disk_copy(wfi_device *device, void *to, wfi_space to_space, const void *from,
                        wfi_space from_space, size_t bytes);
wf_status wfi_disk_fill(wfi_device *device, void *to, wfi_space space, int byte, size_t bytes);

#endif
