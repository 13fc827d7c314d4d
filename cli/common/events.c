/* TensorBoard's event files. */
#include "common/events.h"

#include <assert.h>
#include <string.h>

/* Room for a message with its scalars, and for the first message of a file. */
#define MOST_BYTES (40 + EVENTS_SCALARS * (EVENTS_TAG_BYTES + 16))

typedef struct message {
    unsigned char bytes[MOST_BYTES];
    size_t n;
} message;

/* ---- protocol buffers ---- */

enum { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 };

static void put_varint(message *m, uint64_t value) {
    for (; value > 127; value >>= 7) m->bytes[m->n++] = (unsigned char)(value | 128);
    m->bytes[m->n++] = (unsigned char)value;
}

static void put_little(message *m, uint64_t value, int n_bytes) {
    for (int k = 0; k < n_bytes; k++) m->bytes[m->n++] = (unsigned char)(value >> 8 * k);
}

static void put_field(message *m, int number, int kind) {
    put_varint(m, (uint64_t)(number << 3 | kind));
}

static void put_bytes(message *m, int number, const void *bytes, size_t n) {
    put_field(m, number, BYTES);
    put_varint(m, n);
    memcpy(m->bytes + m->n, bytes, n);
    m->n += n;
}

static void put_scalar(message *m, const event_scalar *scalar) {
    message value = {.n = 0};
    float single = (float)scalar->value;
    uint32_t bits;
    size_t n_tag = strlen(scalar->tag);
    assert(n_tag <= EVENTS_TAG_BYTES);
    memcpy(&bits, &single, sizeof bits);
    put_bytes(&value, 1, scalar->tag, n_tag);
    put_field(&value, 2, FIXED32); /* simple_value */
    put_little(&value, bits, 4);
    put_bytes(m, 1, value.bytes, value.n); /* Summary.value */
}

/* Begins an Event without its content: wall_time first, then step, where events_copy looks for
 * them. */
static message begin_event(double wall_time, int64_t step) {
    message m = {.n = 0};
    uint64_t bits;
    memcpy(&bits, &wall_time, sizeof bits);
    put_field(&m, 1, FIXED64);
    put_little(&m, bits, 8);
    if (!step) return m; /* a field that is zero is left out */
    put_field(&m, 2, VARINT);
    put_varint(&m, (uint64_t)step);
    return m;
}

static int64_t step_of(const message *m) {
    uint64_t step = 0;
    if (m->n < 10 || m->bytes[9] != (2 << 3 | VARINT)) return 0;
    for (size_t k = 10, shift = 0; k < m->n && shift < 64; k++, shift += 7) {
        step |= (uint64_t)(m->bytes[k] & 127) << shift;
        if (m->bytes[k] < 128) return (int64_t)step;
    }
    return -1;
}

/* ---- TFRecords ---- */

/* CRC-32C (Castagnoli), rotated and shifted as TFRecords have it. */
static uint32_t checksum(const void *data, size_t n) {
    const unsigned char *at = data;
    uint32_t crc = UINT32_MAX;
    for (size_t k = 0; k < n; k++) {
        crc ^= at[k];
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? UINT32_C(0x82F63B78) : 0);
    }
    crc = ~crc;
    return (crc >> 15 | crc << 17) + UINT32_C(0xA282EAD8);
}

static bool write_record(FILE *out, const message *m) {
    message length = {.n = 0}, end = {.n = 0};
    put_little(&length, m->n, 8);
    put_little(&length, checksum(length.bytes, 8), 4);
    put_little(&end, checksum(m->bytes, m->n), 4);
    return fwrite(length.bytes, length.n, 1, out) && fwrite(m->bytes, m->n, 1, out) &&
           fwrite(end.bytes, end.n, 1, out);
}

static uint64_t little(const unsigned char *bytes, int n) {
    uint64_t value = 0;
    for (int k = 0; k < n; k++) value |= (uint64_t)bytes[k] << 8 * k;
    return value;
}

/* Whether there is another that is whole, and no longer than ours are. */
static bool read_record(FILE *in, message *m) {
    unsigned char length[12], end[4];
    if (!fread(length, sizeof length, 1, in) || little(length + 8, 4) != checksum(length, 8))
        return false;
    m->n = little(length, 8);
    return m->n && m->n <= MOST_BYTES && fread(m->bytes, m->n, 1, in) &&
           fread(end, sizeof end, 1, in) && little(end, 4) == checksum(m->bytes, m->n);
}

/* ---- events ---- */

bool events_begin(FILE *out, double wall_time) {
    static const char version[] = "brain.Event:2";
    message m = begin_event(wall_time, 0);
    put_bytes(&m, 3, version, sizeof version - 1);
    return write_record(out, &m);
}

bool events_write(FILE *out, double wall_time, int64_t step, const event_scalar *scalars,
                  size_t n) {
    message m = begin_event(wall_time, step), summary = {.n = 0};
    assert(n <= EVENTS_SCALARS);
    for (size_t k = 0; k < n; k++) put_scalar(&summary, &scalars[k]);
    put_bytes(&m, 5, summary.bytes, summary.n);
    return write_record(out, &m);
}

bool events_copy(FILE *in, FILE *out, double wall_time, int64_t keep_steps) {
    message m;
    size_t n = 0;
    while (in && read_record(in, &m)) {
        if (step_of(&m) > keep_steps) continue;
        if (!write_record(out, &m)) return false;
        n++;
    }
    return n || events_begin(out, wall_time);
}
