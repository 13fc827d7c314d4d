/* CIFAR-10's binary layout: records of one label byte and 3 x 32 x 32 pixel bytes, the
 * channels one after the other. Private. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <weft/context.h>

#define WFI_CIFAR_CLASSES      10
#define WFI_CIFAR_RECORD_BYTES 3073

/* Counts the records of one file and checks their labels. Errors: CORRUPT. */
wf_status wfi_cifar_parse(wf_context *ctx, const char *path, const uint8_t *bytes, size_t n_bytes,
                          int64_t *n_records_out);
