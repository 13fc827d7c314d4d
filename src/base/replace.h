/* Replacing a file in one step: the new bytes go to a temporary file in the same folder,
 * which is renamed over the old one when it is complete and on the disk. Private. */
#pragma once

#include <dirent.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <weft/context.h>

typedef struct wfi_replacement {
    wf_context *ctx;
    char *path, *temporary; /* in the folder; temporary NULL: there is none, or no more */
    int folder;             /* opened, so that it may be moved while the file is written */
    int fd;
    int locked; /* the descriptor with the lock, if not fd; or -1 */
} wfi_replacement;

/* Arguments: the process id and the number of the file. */
#define WFI_TEMPORARY_NAME ".weft-%ld-%d.tmp"

/* The entries of an opened folder, to be closed with closedir; NULL: it cannot be read. */
DIR *wfi_folder_open(int folder);
/* Removes stale temporary files of killed processes from the opened folder. Files that cannot be
 * removed stay and do no harm. */
void wfi_leftovers_remove(int folder);
/* Marks a temporary file, until it is closed, as one that is being written. False: another process
 * removed it as stale; make another. */
bool wfi_leftovers_spare(int fd);

/* Makes the temporary file, with mode 0644 less the umask, and removes stale temporary files of its
 * folder. Errors: IO, NO_MEMORY; after them there is nothing to end. */
wf_status wfi_replacement_begin(wf_context *ctx, const char *path, wfi_replacement *r_out);

/* For another process that writes parts of it: opens the file `temporary`, a path, that
 * wfi_replacement_begin has made. The process that made the file commits or removes it. Errors: IO,
 * NO_MEMORY; after them there is nothing to end. */
wf_status wfi_replacement_join(wf_context *ctx, const char *path, const char *temporary,
                               wfi_replacement *r_out);

/* From here on a write returns when the bytes are on the disk. All processes that write one file
 * from several machines need this: fsync covers only the caller's own writes. An NFS client may
 * otherwise write whole pages, and overwrite adjacent bytes of another machine. Errors: IO. */
wf_status wfi_replacement_write_through(wfi_replacement *r);

/* Errors: IO; the sentence names `path`, and the file there is as it was. */
wf_status wfi_replacement_write(const wfi_replacement *r, const void *src, size_t n_bytes,
                                uint64_t offset);

/* Flushes all writes to the disk. Errors: IO. */
wf_status wfi_replacement_sync(const wfi_replacement *r);
/* The same, rename, fsync of the folder. Errors: IO. */
wf_status wfi_replacement_commit(wfi_replacement *r);

/* Frees everything, and removes the temporary file unless it was committed. */
void wfi_replacement_end(wfi_replacement *r);
