/* The lines of many ranks become one stream. Private to src/launch.
 *
 * A line waits a moment before it is printed: if a rank fails in that time, its lines go first,
 * before other ranks' lines about its failure.
 */
#pragma once

#include "base/base.h"

#define WFI_MERGE_SEEN  512 /* lines that are remembered */
#define WFI_MERGE_KNOWN 2

enum { WFI_STREAM_OUT, WFI_STREAM_ERR, WFI_N_STREAMS };

typedef struct wfi_line {
    struct wfi_line *next;
    int64_t at_ms;
    int rank, stream;
    size_t n, n_written;
    unsigned char *printed; /* [n_ranks] whether the rank has printed it, too; after `text` */
    char text[];
} wfi_line;

/* Text of a rank since its last newline. */
typedef struct wfi_partial {
    char *text;
    size_t n;
} wfi_partial;

typedef struct wfi_merge {
    wf_context *ctx;
    int fds[WFI_N_STREAMS];
    int n_ranks;
    wfi_partial (*partial)[WFI_N_STREAMS]; /* [n_ranks] */
    wfi_line *first, *last;                /* waiting */
    size_t n_bytes;                        /* of those */
    bool is_flushing;                      /* nothing need wait any more */
    bool is_delayed;                       /* until it is known which rank's lines go first */
    bool is_abandoned;
    int errors[WFI_N_STREAMS];    /* errno, where nothing can be written any more */
    char *known[WFI_MERGE_KNOWN]; /* lines with any of these are not printed */
    int n_known;
    bool is_terminal; /* standard error is one: rank 0 may draw there */
    bool draws;       /* rank 0's unfinished line is to be drawn */
    bool is_drawn;    /* and stands there, where a line would go */
    wfi_line *seen[WFI_MERGE_SEEN];
    size_t n_seen; /* ever */
} wfi_merge;

wf_status wfi_merge_init(wfi_merge *m, wf_context *ctx, int n_ranks, int out, int err);
void wfi_merge_release(wfi_merge *m);

/* Reads once from a pipe that does not block. `is_open_out`: whether more may come. */
wf_status wfi_merge_read(wfi_merge *m, int rank, int stream, int fd, int64_t now_ms,
                         bool *is_open_out);
/* A rank will print no more: its last line need not end. */
wf_status wfi_merge_end(wfi_merge *m, int rank, int stream, int64_t now_ms);
/* So much waits that ranks should. */
bool wfi_merge_is_full(const wfi_merge *m);

/* Some rank has failed: nothing is due until one has been put first. */
void wfi_merge_delay(wfi_merge *m);
/* The lines of this rank go first, and no line waits any more. */
void wfi_merge_put_first(wfi_merge *m, int rank);
/* The launcher's last sentence says this, so lines of ranks that contain the words are dropped. At
 * most WFI_MERGE_KNOWN texts. */
void wfi_merge_know(wfi_merge *m, const char *words);
/* Nothing waits from here on. */
void wfi_merge_flush(wfi_merge *m);
/* Lines that wait, and all that come, are dropped. */
void wfi_merge_abandon(wfi_merge *m);

/* How long until a line is to be written: 0 now, -1 there is none. */
int64_t wfi_merge_due_ms(const wfi_merge *m, int64_t now_ms);
/* The descriptor that the next line goes to. */
int wfi_merge_fd(const wfi_merge *m);
/* Writes a piece of the line that is due. Errors: IO: from here on that stream's lines are lost. */
wf_status wfi_merge_write(wfi_merge *m);
/* Errors: IO: lines were lost. */
wf_status wfi_merge_check(const wfi_merge *m);
/* On a terminal: draws the line that rank 0 has begun with a carriage return, as far as there is
 * room. */
void wfi_merge_draw(wfi_merge *m);
