/* Safe opening and atomic replacement of regular files.
 *
 *     wf_file_open(ctx, "log.jsonl", &fd, &n_bytes);
 *     FILE *file = fdopen(fd, "r");
 *
 *     wf_file_replace(ctx, "report.json", text, strlen(text));
 */
#ifndef WEFT_FILE_H
#define WEFT_FILE_H

#include <stddef.h>
#include <stdint.h>
#include <weft/context.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Opens a regular file for reading. A pipe, a socket, a device and a folder are refused, and never
 * make the call wait. *bytes_out (NULL is allowed) is the file's length. Errors: IO; the sentence
 * begins with `path`. */
WF_API WF_NODISCARD wf_status wf_file_open(wf_context *ctx, const char *path, int *fd_out,
                                           uint64_t *bytes_out);

/* Replaces `path` with a file of these bytes in one step. The bytes go to a new file in the same
 * folder, which is renamed once it is complete and on disk. A reader of `path` sees the old file or
 * the new one, even after a kill or a power cut. The new file has the old one's permissions. A link
 * is replaced, not followed; a pipe, a device or a folder is refused. Errors: IO (the old file is
 * untouched, and no temporary file remains). */
WF_API WF_NODISCARD wf_status wf_file_replace(wf_context *ctx, const char *path, const void *bytes,
                                              size_t n_bytes);
/* Removes the temporary files that killed writers left in `folder`. Files that a writer has open
 * stay. */
WF_API void wf_file_remove_leftovers(const char *folder);

#ifdef __cplusplus
}
#endif
#endif
