/* The libraries that compute, as text. */
#pragma once

#include "common/cli.h"

enum { LIBRARY_BYTES = 1200, MADE_BY_BYTES = LIBRARY_BYTES + 80 };

/* The libraries that compute, for each kind of device in the order of ranks, and other properties
 * that decide the bits. */
const char *made_by_library(const cli *c, char text[LIBRARY_BYTES]);
/* The text that resumed.made_by is. */
const char *made_by_text(const char *version, const char *library, char text[MADE_BY_BYTES]);
