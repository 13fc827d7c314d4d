/* Event files: the bytes that TensorBoard's own writer makes of the same events, and what of a file
 * is kept by a run that goes on.
 *
 * label: serial
 */
#include "cli/common/events.h"
#include "test.h"

#include <math.h>

/* TensorBoard 2.21's RecordWriter: the version at 1.5 s; at 2.5 s, step 300, Loss/train .25 and
 * Learning rate 1e-3. */
static const char golden[] =
    "1800000000000000a37f4b2209000000000000f83f1a0d627261696e2e4576656e743a322a28646c"
    "3700000000000000e7e8ca5909000000000000044010ac022a290a110a0a4c6f73732f747261696e150000803e"
    "0a140a0d4c6561726e696e672072617465156f12833a7ded8487";
#define N_GOLDEN (sizeof golden / 2)

static const event_scalar scalars[] = {{"Loss/train", .25}, {"Learning rate", 1e-3}};

typedef struct text {
    char *bytes;
    size_t n;
} text;

/* A version, then a point of each step from `first` to `last`. */
static text write_steps(int64_t first, int64_t last) {
    text t;
    FILE *out = open_memstream(&t.bytes, &t.n);
    assert_true(events_begin(out, 1.5));
    for (int64_t step = first; step <= last; step++)
        assert_true(events_write(out, 2.5, step, scalars, 2));
    fclose(out);
    return t;
}

static text copy(const text *old, int64_t keep_steps) {
    text t;
    FILE *out = open_memstream(&t.bytes, &t.n),
         *in = old->n ? fmemopen(old->bytes, old->n, "r") : NULL;
    assert_true(events_copy(in, out, 1.5, keep_steps));
    if (in) fclose(in);
    fclose(out);
    return t;
}

static void is_same(text got, text want) {
    if (got.n != want.n || memcmp(got.bytes, want.bytes, want.n))
        fail_msg("%zu bytes, or others than the %zu that should be there", got.n, want.n);
    free(got.bytes);
    free(want.bytes);
}

TEST_CASE(as_tensorboard_writes) {
    text t = write_steps(300, 300);
    assert_int_equal(t.n, N_GOLDEN);
    for (size_t k = 0; k < t.n; k++) {
        char hex[3];
        snprintf(hex, sizeof hex, "%02x", (unsigned char)t.bytes[k]);
        if (memcmp(hex, golden + 2 * k, 2)) fail_msg("byte %zu is %s", k, hex);
    }
    free(t.bytes);
}

TEST_CASE(old_steps_are_kept) {
    text old = write_steps(1, 400);
    is_same(copy(&old, 1 << 20), write_steps(1, 400));
    is_same(copy(&old, 300), write_steps(1, 300));
    is_same(copy(&old, 0), write_steps(1, 0));
    free(old.bytes);
    is_same(copy(&(text){NULL, 0}, 7), write_steps(1, 0));
}

/* Whatever became of the last record, those before it stay. */
TEST_CASE(damage_ends_the_file) {
    text old = write_steps(1, 9), before = write_steps(1, 8);
    for (size_t n = before.n; n < old.n; n++) {
        is_same(copy(&(text){old.bytes, n}, 9), write_steps(1, 8));
        old.bytes[n] ^= 4;
        is_same(copy(&old, 9), write_steps(1, 8));
        old.bytes[n] ^= 4;
    }
    memset(old.bytes, 255, old.n);
    is_same(copy(&old, 9), write_steps(1, 0));
    free(old.bytes);
    free(before.bytes);
}

TEST_CASE(all_numbers_are_written) {
    text t, tag = {calloc(1, EVENTS_TAG_BYTES + 1), 0};
    event_scalar most[EVENTS_SCALARS];
    memset(tag.bytes, 'x', EVENTS_TAG_BYTES);
    for (int k = 0; k < EVENTS_SCALARS; k++)
        most[k] = (event_scalar){tag.bytes, k % 2 ? NAN : INFINITY};
    FILE *out = open_memstream(&t.bytes, &t.n);
    assert_true(events_begin(out, 0));
    assert_true(events_write(out, 1e300, INT64_MAX, most, EVENTS_SCALARS));
    fclose(out);
    is_same(copy(&t, INT64_MAX), t);
    free(tag.bytes);
}
