/* Files of the disk, opened so that nothing else can be mistaken for one.
 *
 *     wf_file_open(ctx, "log.jsonl", &fd, &n_bytes);
 *     FILE *file = fdopen(fd, "r");
 */
#ifndef WEFT_FILE_H
#define WEFT_FILE_H

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

#ifdef __cplusplus
}
#endif
#endif
