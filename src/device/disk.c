#include "device/disk.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE_BYTES   4096
#define BOUNCE_BYTES ((size_t)4 << 20)

struct wfi_disk {
    wfi_disk *next;
    char *base; /* reserved addresses */
    size_t bytes;
    int fd;
    bool is_direct;
    char *bounce; /* [BOUNCE_BYTES] aligned as direct reads and writes need it */
};

/* ---- life ---- */

static const char *folder_of(const wfi_device *device) {
    const char *folder = device->folder ? device->folder : getenv("TMPDIR");
    return folder && *folder ? folder : "/tmp";
}

static wf_status fail(const wfi_device *device, const char *what, size_t bytes) {
    int error = errno;
    return wfi_fail(device->owner.ctx, WF_IO,
                    "offload to disk: rank %d's file of %zu bytes in the folder %s cannot be %s: "
                    "%s",
                    device->owner.rank, bytes, folder_of(device), what, strerror(error));
}

static void close_disk(wfi_device *device, wfi_disk *disk) {
    if (disk->base) munmap(disk->base, disk->bytes);
    if (disk->bounce) munmap(disk->bounce, BOUNCE_BYTES);
    if (disk->fd >= 0) close(disk->fd);
    wfi_free(device->owner.ctx, disk);
}

static char *reserve(size_t bytes, int protection) {
    char *base = mmap(NULL, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return base == MAP_FAILED ? NULL : base;
}

/* Takes over the descriptor, also on failure. */
static wf_status add_disk(wfi_device *device, int fd, size_t bytes, void **base_out) {
    wfi_disk *disk = wfi_alloc(device->owner.ctx, 1, sizeof *disk, "a file as memory");
    if (!disk) {
        close(fd);
        return WF_NO_MEMORY;
    }
    *disk = (wfi_disk){.fd = fd, .bytes = wfi_round_up(bytes, PAGE_BYTES), .next = device->disks};
    disk->is_direct = !fcntl(fd, F_SETFL, O_DIRECT);
    disk->base = reserve(disk->bytes, PROT_NONE);
    disk->bounce = reserve(BOUNCE_BYTES, PROT_READ | PROT_WRITE);
    if (!disk->base || !disk->bounce) {
        wf_status status = fail(device, "mapped", bytes);
        close_disk(device, disk);
        return status;
    }
    device->disks = disk;
    *base_out = disk->base;
    return WF_OK;
}

/* Some file systems have no unnamed files; there the file has a name for a moment. */
static int open_unnamed(const char *folder) {
    char path[4096];
    int fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL)) return fd;
    if ((size_t)snprintf(path, sizeof path, "%s/weft-XXXXXX", folder) >= sizeof path) {
        errno = ENAMETOOLONG;
        return -1;
    }
    fd = mkostemp(path, O_CLOEXEC);
    if (fd >= 0) unlink(path);
    return fd;
}

/* Some file systems cannot reserve bytes; there a full disk shows at the first write. */
static bool take_bytes(int fd, size_t bytes) {
    if (!fallocate(fd, 0, 0, (off_t)bytes)) return true;
    return (errno == EOPNOTSUPP || errno == ENOSYS) && !ftruncate(fd, (off_t)bytes);
}

wf_status wfi_disk_create(wfi_device *device, size_t bytes, void **base_out) {
    int fd = open_unnamed(folder_of(device));
    if (fd < 0) return fail(device, "made", bytes);
    if (!take_bytes(fd, wfi_round_up(bytes, PAGE_BYTES))) {
        wf_status status = fail(device, "made as large", bytes);
        close(fd);
        return status;
    }
    return add_disk(device, fd, bytes, base_out);
}

wf_status wfi_disk_open(wfi_device *device, int fd, size_t bytes, void **base_out) {
    return add_disk(device, fd, bytes, base_out);
}

/* Finds the file that has the address. */
static wfi_disk **find_disk(const wfi_device *device, const void *at) {
    wfi_disk **disk = (wfi_disk **)&device->disks;
    while ((const char *)at < (*disk)->base || (const char *)at >= (*disk)->base + (*disk)->bytes)
        disk = &(*disk)->next;
    return disk;
}

int wfi_disk_descriptor(const wfi_device *device, const void *base) {
    return (*find_disk(device, base))->fd;
}

void wfi_disk_destroy(wfi_device *device, const void *base) {
    wfi_disk **at = find_disk(device, base), *disk = *at;
    *at = disk->next;
    close_disk(device, disk);
}

/* ---- moving bytes ---- */

/* Moves bytes between memory and the file from `at` on. One call may move all of them, which keeps
 * the disk busy throughout. */
static wf_status move(wfi_device *device, wfi_disk *disk, char *memory, size_t n, size_t at,
                      bool writes) {
    for (size_t done = 0; done < n;) {
        ssize_t moved = writes ? pwrite(disk->fd, memory + done, n - done, (off_t)(at + done))
                               : pread(disk->fd, memory + done, n - done, (off_t)(at + done));
        if (moved > 0) {
            done += (size_t)moved;
        } else if (moved < 0 && errno == EINVAL && disk->is_direct) {
            disk->is_direct = false; /* larger pages than these */
            if (fcntl(disk->fd, F_SETFL, 0)) return fail(device, "opened again", disk->bytes);
        } else if (moved == 0 || errno != EINTR) {
            if (moved == 0) errno = EIO;
            return fail(device, writes ? "written" : "read", disk->bytes);
        }
    }
    return WF_OK;
}

/* The next part of a file to move, from `at` on. If the memory is aligned for direct reads and
 * writes, whole pages move at once; the rest goes through the bounce buffer. */
typedef struct window {
    char *pages;           /* memory, or the bounce buffer */
    size_t begin, n_bytes; /* in the file */
    size_t skipped, n;     /* at the beginning, and bytes of the caller */
} window;

static bool is_aligned(const char *memory) {
    return (uintptr_t)memory % WFI_DIRECT_ALIGN == 0;
}

/* `memory` is NULL in a fill. */
static window next_window(const wfi_disk *disk, size_t at, char *memory, size_t bytes) {
    size_t skipped = at % PAGE_BYTES, most = BOUNCE_BYTES;
    if (memory && !disk->is_direct) return (window){memory, at, bytes, 0, bytes};
    if (memory && !skipped && bytes >= PAGE_BYTES && is_aligned(memory)) {
        size_t n = bytes / PAGE_BYTES * PAGE_BYTES;
        return (window){memory, at, n, 0, n};
    }
    if (memory && skipped && is_aligned(memory + PAGE_BYTES - skipped)) most = PAGE_BYTES;
    window w = {disk->bounce, at - skipped, 0, skipped, most - skipped};
    if (bytes < w.n) w.n = bytes;
    w.n_bytes = wfi_round_up(skipped + w.n, PAGE_BYTES);
    return w;
}

/* Reads the first and last page into the bounce buffer, so that their other bytes stay unchanged.
 */
static wf_status read_edges(wfi_device *device, wfi_disk *disk, const window *w) {
    size_t end = w->skipped + w->n, last = w->n_bytes - PAGE_BYTES;
    if (w->skipped) WF_TRY(move(device, disk, w->pages, PAGE_BYTES, w->begin, false));
    if (end == w->n_bytes || (w->skipped && !last)) return WF_OK;
    return move(device, disk, w->pages + last, PAGE_BYTES, w->begin + last, false);
}

/* Writes from memory, or the same byte everywhere if `from` is NULL. */
static wf_status write_bytes(wfi_device *device, char *to, char *from, int byte, size_t bytes) {
    wfi_disk *disk = *find_disk(device, to);
    for (size_t at = (size_t)(to - disk->base); bytes;) {
        window w = next_window(disk, at, from, bytes);
        if (w.pages == disk->bounce) {
            WF_TRY(read_edges(device, disk, &w));
            if (from)
                memcpy(w.pages + w.skipped, from, w.n);
            else
                memset(w.pages + w.skipped, byte, w.n);
        }
        WF_TRY(move(device, disk, w.pages, w.n_bytes, w.begin, true));
        if (from) from += w.n;
        at += w.n;
        bytes -= w.n;
    }
    return WF_OK;
}

static wf_status read_bytes(wfi_device *device, char *to, const char *from, size_t bytes) {
    wfi_disk *disk = *find_disk(device, from);
    for (size_t at = (size_t)(from - disk->base); bytes;) {
        window w = next_window(disk, at, to, bytes);
        WF_TRY(move(device, disk, w.pages, w.n_bytes, w.begin, false));
        if (w.pages == disk->bounce) memcpy(to, w.pages + w.skipped, w.n);
        to += w.n;
        at += w.n;
        bytes -= w.n;
    }
    return WF_OK;
}

/* Copies between two files through memory. */
static wf_status copy_file(wfi_device *device, char *to, const char *from, size_t bytes) {
    char *memory = wfi_alloc(device->owner.ctx, BOUNCE_BYTES, 1, "a part of a file");
    wf_status status = memory ? WF_OK : WF_NO_MEMORY;
    for (size_t at = 0, n; at < bytes && status == WF_OK; at += n) {
        n = bytes - at < BOUNCE_BYTES ? bytes - at : BOUNCE_BYTES;
        status = read_bytes(device, memory, from + at, n);
        if (status == WF_OK) status = write_bytes(device, to + at, memory, 0, n);
    }
    wfi_free(device->owner.ctx, memory);
    return status;
}

wf_status wfi_disk_copy(wfi_device *device, void *to, wfi_space to_space, const void *from,
                        wfi_space from_space, size_t bytes) {
    if (!bytes) return WF_OK;
    if (to_space != WFI_SPACE_DISK && from_space != WFI_SPACE_DISK)
        return memcpy(to, from, bytes), WF_OK;
    if (to_space != WFI_SPACE_DISK) return read_bytes(device, to, from, bytes);
    if (from_space != WFI_SPACE_DISK) return write_bytes(device, to, (char *)from, 0, bytes);
    return copy_file(device, to, from, bytes);
}

wf_status wfi_disk_fill(wfi_device *device, void *to, wfi_space space, int byte, size_t bytes) {
    if (space != WFI_SPACE_DISK) return memset(to, byte, bytes), WF_OK;
    return write_bytes(device, to, NULL, byte, bytes);
}
