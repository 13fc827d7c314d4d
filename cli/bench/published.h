/* Rows of published runs: their file format (tests/published/) and one prediction each. */
#ifndef BENCH_PUBLISHED_H
#define BENCH_PUBLISHED_H

#include "cli.h"

#define PUBLISHED_MAX_ROWS  10000
#define PUBLISHED_MAX_BYTES (8 << 20)

/* A run that was published. Texts belong to the file's JSON. */
typedef struct published_row {
    const char *name, *source, *cluster, *dtype, *plan, *family;
    int64_t n_gpus, batch, n_micro_samples; /* samples of a replica and microbatch */
    int64_t layers, hidden, heads, kv_heads, ffn, vocab, tokens;
    double seconds, gb; /* NAN: not published */
    int fits;           /* -1: not published */
    wf_prediction predicted;
} published_row;

typedef struct published {
    json_t *json;
    published_row *rows; /* [n_rows] */
    size_t n_rows;
} published;

/* The rows that come with weft (CMakeLists.txt makes it from tests/published/): a file each. */
extern const char *const published_texts[];

/* Adds the rows of a text; `where` names it in sentences. */
exit_status published_parse(published *p, const char *text, size_t n_bytes, const char *where);
exit_status published_read(const cli *c, published *p, const char *path);
void published_release(published *p);

/* The error of a prediction, as a fraction of the published value; NAN: not published. */
double published_error_s(const published_row *r);
double published_error_gb(const published_row *r);

#endif
