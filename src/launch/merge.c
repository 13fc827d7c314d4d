/* Lines in, lines out. */
#include "launch/merge.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#define ERASE       "\r\033[K" /* the terminal's line */
#define LINE_BYTES  65536      /* longer ones are cut */
#define DELAY_MS    60         /* a rank's failure is known by then */
#define TWIN_MS     2000       /* lines further apart are not the same news */
#define TWIN_BYTES  4096       /* longer ones are not remembered */
#define DELAY_BYTES (256 << 10)
#define FULL_BYTES  (1 << 20)

wf_status wfi_merge_init(wfi_merge *m, wf_context *ctx, int n_ranks, int out, int err) {
    memset(m, 0, sizeof *m);
    m->ctx = ctx;
    m->n_ranks = n_ranks;
    m->fds[WFI_STREAM_OUT] = out;
    m->fds[WFI_STREAM_ERR] = err;
    m->partial = wfi_alloc(ctx, (size_t)n_ranks, sizeof *m->partial, "ranks' lines");
    return m->partial ? WF_OK : WF_NO_MEMORY;
}

static void free_waiting(wfi_merge *m) {
    for (wfi_line *line = m->first, *next; line; line = next) {
        next = line->next;
        wfi_free(m->ctx, line);
    }
    m->first = m->last = NULL;
    m->n_bytes = 0;
}

void wfi_merge_release(wfi_merge *m) {
    for (int rank = 0; m->partial && rank < m->n_ranks; rank++)
        for (int stream = 0; stream < WFI_N_STREAMS; stream++)
            wfi_free(m->ctx, m->partial[rank][stream].text);
    wfi_free(m->ctx, m->partial);
    for (size_t i = 0; i < WFI_MERGE_SEEN; i++) wfi_free(m->ctx, m->seen[i]);
    free_waiting(m);
    for (int i = 0; i < m->n_known; i++) wfi_free(m->ctx, m->known[i]);
}

/* ---- drawing ---- */

static void erase(wfi_merge *m) {
    if (m->is_drawn) (void)!write(m->fds[WFI_STREAM_ERR], ERASE, sizeof ERASE - 1);
    m->is_drawn = false;
}

void wfi_merge_draw(wfi_merge *m) {
    const wfi_partial *partial = &m->partial[0][WFI_STREAM_ERR];
    struct pollfd to = {.fd = m->fds[WFI_STREAM_ERR], .events = POLLOUT};
    if (!m->draws || m->is_abandoned || poll(&to, 1, 0) <= 0) return;
    m->draws = false;
    if (!partial->n || *partial->text != '\r' || partial->n > PIPE_BUF) return;
    m->is_drawn = write(to.fd, partial->text, partial->n) > 0;
}

/* ---- in ---- */

static bool may_draw(const wfi_merge *m, int rank, int stream) {
    return m->is_terminal && rank == 0 && stream == WFI_STREAM_ERR;
}

/* Drops the part of a text before its last erase sequence; returns the length of the rest. */
static size_t without_erased(const char **text, size_t n) {
    const char *at;
    while ((at = memmem(*text, n, ERASE, sizeof ERASE - 1)) != NULL) {
        n -= (size_t)(at - *text) + sizeof ERASE - 1;
        *text = at + sizeof ERASE - 1;
    }
    return n;
}

static wf_status add_line(wfi_merge *m, int rank, int stream, const char *text, size_t n,
                          int64_t now_ms) {
    if (m->is_abandoned || m->errors[stream]) return WF_OK;
    if (may_draw(m, rank, stream)) n = without_erased(&text, n);
    size_t n_ranks = (size_t)m->n_ranks;
    wfi_line *line = wfi_alloc(m->ctx, 1, sizeof *line + n + 1 + n_ranks, "a rank's line");
    if (!line) return WF_NO_MEMORY;
    memcpy(line->text, text, n);
    line->text[n] = '\n';
    line->n = n + 1;
    line->at_ms = now_ms;
    line->rank = rank;
    line->stream = stream;
    line->printed = (unsigned char *)line->text + line->n;
    line->printed[rank] = 1;
    if (m->last)
        m->last->next = line;
    else
        m->first = line;
    m->last = line;
    m->n_bytes += line->n;
    return WF_OK;
}

static wf_status add_whole_lines(wfi_merge *m, int rank, int stream, int64_t now_ms) {
    wfi_partial *partial = &m->partial[rank][stream];
    char *at = partial->text, *end = partial->text + partial->n, *newline;
    while ((newline = memchr(at, '\n', (size_t)(end - at))) != NULL) {
        WF_TRY(add_line(m, rank, stream, at, (size_t)(newline - at), now_ms));
        at = newline + 1;
    }
    if (end - at == LINE_BYTES) {
        WF_TRY(add_line(m, rank, stream, at, LINE_BYTES, now_ms));
        at = end;
    }
    if (may_draw(m, rank, stream) && end - at > 1) {
        char *last = memrchr(at, '\r', (size_t)(end - at - 1)); /* the end's may be a line's */
        if (last) at = last;
        m->draws |= last != NULL;
    }
    partial->n = (size_t)(end - at);
    memmove(partial->text, at, partial->n);
    return WF_OK;
}

wf_status wfi_merge_read(wfi_merge *m, int rank, int stream, int fd, int64_t now_ms,
                         bool *is_open_out) {
    wfi_partial *partial = &m->partial[rank][stream];
    if (!partial->text) partial->text = wfi_alloc(m->ctx, LINE_BYTES, 1, "a rank's line");
    if (!partial->text) return WF_NO_MEMORY;
    ssize_t n = read(fd, partial->text + partial->n, LINE_BYTES - partial->n);
    *is_open_out = n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR));
    if (n <= 0) return WF_OK;
    partial->n += (size_t)n;
    return add_whole_lines(m, rank, stream, now_ms);
}

wf_status wfi_merge_end(wfi_merge *m, int rank, int stream, int64_t now_ms) {
    wfi_partial *partial = &m->partial[rank][stream];
    size_t n = partial->n;
    partial->n = 0;
    if (may_draw(m, rank, stream)) erase(m);
    if (n == sizeof ERASE - 1 && !memcmp(partial->text, ERASE, n)) return WF_OK;
    return n ? add_line(m, rank, stream, partial->text, n, now_ms) : WF_OK;
}

bool wfi_merge_is_full(const wfi_merge *m) {
    return m->n_bytes >= FULL_BYTES;
}

/* ---- order ---- */

void wfi_merge_delay(wfi_merge *m) {
    m->is_delayed = true;
}

void wfi_merge_put_first(wfi_merge *m, int rank) {
    wfi_line *others = NULL, **end = &m->first, **others_end = &others;
    wfi_line *line = m->first;
    m->last = NULL;
    while (line) {
        wfi_line *next = line->next;
        bool goes_first = line->rank == rank || line->n_written;
        wfi_line ***to = goes_first ? &end : &others_end;
        if (goes_first) m->last = line;
        line->next = NULL;
        **to = line;
        *to = &line->next;
        line = next;
    }
    *end = others;
    for (line = others; line; line = line->next) m->last = line;
    m->is_delayed = false;
    m->is_flushing = true;
}

void wfi_merge_flush(wfi_merge *m) {
    m->is_flushing = true;
}

void wfi_merge_know(wfi_merge *m, const char *words) {
    if (m->n_known == WFI_MERGE_KNOWN) return;
    m->known[m->n_known] = wfi_strdup(m->ctx, words);
    m->n_known += m->known[m->n_known] != NULL;
}

void wfi_merge_abandon(wfi_merge *m) {
    free_waiting(m);
    m->is_abandoned = true;
}

int64_t wfi_merge_due_ms(const wfi_merge *m, int64_t now_ms) {
    if (!m->first || m->is_delayed) return -1;
    if (m->is_flushing || m->first->n_written || m->n_bytes > DELAY_BYTES) return 0;
    return wfi_max_i64(0, m->first->at_ms + DELAY_MS - now_ms);
}

int wfi_merge_fd(const wfi_merge *m) {
    return m->fds[m->first->stream];
}

/* ---- out ---- */

/* Whether another rank has just printed the same; a rank's own lines are all printed. */
static bool is_twin(wfi_merge *m, const wfi_line *line) {
    size_t oldest = m->n_seen > WFI_MERGE_SEEN ? m->n_seen - WFI_MERGE_SEEN : 0;
    for (size_t i = oldest; i < m->n_seen; i++) {
        wfi_line *seen = m->seen[i % WFI_MERGE_SEEN];
        if (seen->n != line->n || seen->stream != line->stream || seen->printed[line->rank] ||
            line->at_ms - seen->at_ms > TWIN_MS || memcmp(seen->text, line->text, line->n))
            continue;
        seen->printed[line->rank] = 1;
        return true;
    }
    return false;
}

static bool is_known(const wfi_merge *m, const wfi_line *line) {
    for (int i = 0; i < m->n_known; i++)
        if (memmem(line->text, line->n, m->known[i], strlen(m->known[i]))) return true;
    return false;
}

static void finish_first(wfi_merge *m, bool is_printed) {
    wfi_line *line = m->first;
    m->first = line->next;
    if (!m->first) m->last = NULL;
    m->n_bytes -= line->n;
    line->next = NULL;
    if (!is_printed || line->n > TWIN_BYTES) {
        wfi_free(m->ctx, line);
        return;
    }
    wfi_line **place = &m->seen[m->n_seen++ % WFI_MERGE_SEEN];
    wfi_free(m->ctx, *place);
    *place = line;
}

wf_status wfi_merge_check(const wfi_merge *m) {
    for (int stream = 0; stream < WFI_N_STREAMS; stream++)
        if (m->errors[stream])
            return wfi_fail(m->ctx, WF_IO, "the ranks' lines cannot be written to %s: %s",
                            stream == WFI_STREAM_ERR ? "standard error" : "standard output",
                            strerror(m->errors[stream]));
    return WF_OK;
}

wf_status wfi_merge_write(wfi_merge *m) {
    wfi_line *line = m->first;
    bool is_lost = m->errors[line->stream], is_new = !line->n_written && line->n <= TWIN_BYTES;
    if (is_lost || (is_new && (is_twin(m, line) || is_known(m, line)))) {
        finish_first(m, false);
        return WF_OK;
    }
    if (!line->n_written && m->is_drawn) {
        erase(m);
        m->draws = true; /* again, below the line */
    }
    /* poll() promised room for so much; more could block. */
    size_t n = line->n - line->n_written;
    ssize_t n_written =
        write(m->fds[line->stream], line->text + line->n_written, n < PIPE_BUF ? n : PIPE_BUF);
    if (n_written < 0 && (errno == EINTR || errno == EAGAIN)) return WF_OK;
    if (n_written < 0) {
        m->errors[line->stream] = errno;
        return wfi_merge_check(m);
    }
    line->n_written += (size_t)n_written;
    if (line->n_written == line->n) finish_first(m, true);
    return WF_OK;
}
