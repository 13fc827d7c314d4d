/* Rows of published runs: their file format (tests/published/). */
#pragma once

#include "common/cli.h"

#include <jansson.h>

#define PUBLISHED_MAX_ROWS  10000
#define PUBLISHED_MAX_BYTES (8 << 20)

/* The rows that come with weft (CMakeLists.txt makes it from tests/published/): a file each. */
extern const char *const published_texts[];

/* Appends the rows of a text, checked; `where` names it in sentences. */
exit_status published_parse(json_t *rows, const char *text, size_t n_bytes, const char *where);
exit_status published_read(const cli *c, json_t *rows, const char *path);
