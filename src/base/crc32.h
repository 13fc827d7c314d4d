/* The CRC-32 of gzip and PNG. Private. */
#pragma once

#include <stddef.h>
#include <stdint.h>

uint32_t wfi_crc32(const void *bytes, size_t n_bytes);
/* The contribution of bytes with this CRC to the CRC of all bytes, if n_after bytes follow them.
 * The CRC of all is the XOR of the contributions. */
uint32_t wfi_crc32_shift(uint32_t crc, uint64_t n_after);
