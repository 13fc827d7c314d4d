/* The fingerprint of a set of weights. Private. */
#ifndef WFI_STATE_HASH_H
#define WFI_STATE_HASH_H

#include <weft/checkpoint.h>

/* SHA-256 over, for every tensor in ascending byte order of its name: the name, one zero
 * byte, the little-endian bytes. 64 hex digits and a zero. Errors: NO_MEMORY. */
wf_status wfi_weights_sha256(wf_context *ctx, const wf_tensor_data *tensors, int n_tensors,
                             char hex_out[65]);

#endif
