/* Files of the disk, opened so that nothing else can be mistaken for one, and replaced as a whole.
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

/* Opens a regular file to be read. A pipe, a socket, a device and a folder are refused, and none
 * of them makes the call wait. `bytes_out` (NULL is allowed) becomes the file's length. Errors:
 * IO; the sentence begins with `path`. */
WF_API WF_NODISCARD wf_status wf_file_open(wf_context *ctx, const char *path, int *fd_out,
                                           uint64_t *bytes_out);

/* Makes `path` a file of these bytes, in one step: they go to a new file in the same folder, which
 * is renamed when it is complete and on the disk. A reader of `path` sees the old file or the new
 * one, also after a kill or a power cut. It has the permissions of the old one. A link is replaced,
 * not followed; a pipe, a device or a folder is refused. Errors: IO: what was there is untouched,
 * and nothing is left beside it. */
WF_API WF_NODISCARD wf_status wf_file_replace(wf_context *ctx, const char *path, const void *bytes,
                                              size_t n_bytes);

#ifdef __cplusplus
}
#endif
#endif
