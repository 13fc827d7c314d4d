/* TensorBoard's event files, as a run that goes on reads its own: what is kept of one is kept whole
 * when it is read again. */
#include "cli/common/events.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes);

static char *copy(const void *bytes, size_t n_bytes, int64_t keep_steps, size_t *n_out) {
    char *kept = NULL;
    FILE *in = n_bytes ? fmemopen((void *)(uintptr_t)bytes, n_bytes, "r") : NULL;
    FILE *out = open_memstream(&kept, n_out);
    if (!out || !events_copy(in, out, 1.5, keep_steps)) abort();
    if (in) fclose(in);
    fclose(out);
    return kept;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes) {
    size_t n_kept, n_again;
    char *kept = copy(bytes, n_bytes, 1000, &n_kept), *again = copy(kept, n_kept, 1000, &n_again);
    if (n_kept != n_again || memcmp(kept, again, n_kept)) abort();
    free(kept);
    free(again);
    return 0;
}
