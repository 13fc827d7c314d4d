/* UTF-8 in bytes from anywhere. Private. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(default) /* for libweft-data, too (CMakeLists.txt) */

/* The bytes of the character that begins here, of at most n_left; 0: none does. */
size_t wfi_utf8_character(const uint8_t *at, size_t n_left);

#pragma GCC visibility pop
