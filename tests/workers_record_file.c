/* Files of records: layout, size, damage.
 *
 * label: serial
 */
#include "record_image.h"

static void round_trip(folder *f, const image *m) {
    uint8_t bytes[MOST_BYTES], *packed;
    size_t n_bytes = encode(m, bytes), n_packed;
    wfi_record record, again;
    TEST_OK(f->ctx, record_image(f->ctx, m, &record));
    TEST_OK(f->ctx, wfi_record_pack(&record, &packed, &n_packed));
    assert_int_equal(n_packed, n_bytes);
    assert_memory_equal(packed, bytes, n_bytes);
    for (int k = 0; k < 2; k++) TEST_OK(f->ctx, wfi_record_write(&record, folder_file(f, "r")));
    assert_int_equal(folder_count(f, 0), 1);
    TEST_OK(f->ctx, wfi_record_read(f->ctx, folder_file(f, "r"), &again));
    TEST_OK(f->ctx, wfi_record_matches(&again, "r", identity, record.n_workers, record.staleness,
                                       record.backup));
    assert_int_equal(again.first_step, record.first_step);
    assert_int_equal(again.n_pushes, record.n_pushes);
    assert_int_equal(again.n_applied, record.n_applied);
    for (int w = 0; w < 3 * record.n_workers; w++) /* with next_batch and min_version */
        assert_int_equal(again.first_batch[w], record.first_batch[w]);
    for (size_t i = 0; i < record.n_pushes; i++) {
        assert_int_equal(again.pushes[i].worker, record.pushes[i].worker);
        assert_int_equal(again.pushes[i].is_dropped, record.pushes[i].is_dropped);
        assert_int_equal(again.pushes[i].batch, record.pushes[i].batch);
        assert_int_equal(again.pushes[i].version, record.pushes[i].version);
    }
    wfi_record_release(&again);
    wfi_record_release(&record);
    wfi_free(f->ctx, packed);
}

TEST_IN_FOLDER(comes_back) {
    image m = image_of(3, 0, 2, async_pushes);
    round_trip(f, &m);
    m.staleness = -1;
    m.first_step = WFI_RECORD_MAX_COUNT;
    m.first_batch[0] = WFI_RECORD_MAX_COUNT;
    m.first_batch[2] = 5;
    round_trip(f, &m);
    m = image_of(4, 1, 0, sync_pushes);
    m.first_step = 7;
    round_trip(f, &m);
    m = image_of(2, 0, 0, "");
    round_trip(f, &m);
}

/* Runs that a simple scheduler makes: any worker pushes next whose gradient is not too old, and
 * reads again. */
static void record_any_run(wf_context *ctx, int n_workers, int64_t staleness, int n_pushes,
                           wfi_record *record_out) {
    int64_t version[MOST_WORKERS] = {0}, batch[MOST_WORKERS] = {0};
    uint32_t random = 1;
    TEST_OK(ctx, wfi_record_init(ctx, n_workers, 0, staleness, 0, identity, record_out));
    for (int64_t i = 0; i < n_pushes;) {
        int oldest = 0;
        for (int k = 1; k < n_workers; k++)
            if (version[k] < version[oldest]) oldest = k;
        random = random * 1664525u + 1013904223u;
        int w = (int)(random >> 16) % n_workers;
        if (staleness > 0 && i - version[oldest] >= (staleness - 1) * n_workers) w = oldest;
        wfi_push push = {.worker = w, .batch = batch[w]++, .version = version[w]};
        TEST_OK(ctx, wfi_record_add(record_out, &push));
        version[w] = ++i;
    }
}

TEST(is_small) {
    for (int n_workers = 1; n_workers <= 16; n_workers *= 2) {
        static const int64_t bounds[] = {-1, 1, 2, 4};
        for (size_t k = 0; k < WFI_COUNT(bounds); k++)
            for (int n_pushes = 16; n_pushes <= 4096; n_pushes *= 16) {
                uint8_t *bytes;
                size_t n_bytes;
                wfi_record record, again;
                record_any_run(ctx, n_workers, bounds[k], n_pushes, &record);
                TEST_OK(ctx, wfi_record_pack(&record, &bytes, &n_bytes));
                assert_in_range(n_bytes, 1, 40 * (size_t)n_pushes);
                TEST_OK(ctx, wfi_record_unpack(ctx, "r", bytes, n_bytes, &again));
                assert_memory_equal(again.min_version, record.min_version,
                                    (size_t)n_workers * sizeof *record.min_version);
                wfi_record_release(&again);
                wfi_record_release(&record);
                wfi_free(ctx, bytes);
            }
    }
}

TEST(refuses_bad_headers) {
    const int64_t large = WFI_RECORD_MAX_COUNT + 1;
    image whole = image_of(2, 0, 0, "0:0:0 1:0:0"), m = whole;
    uint8_t bytes[MOST_BYTES];
    wfi_record r;
    m.n_workers = 0;
    m.n_pushes = 0;
    refuse_file(ctx, &m, "0 workers; 1 to 65535 are possible");
    m = whole;
    m.backup = 2;
    refuse_file(ctx, &m, "2 backup workers among 2; 0 to 1 are possible");
    m.backup = UINT32_MAX;
    refuse_file(ctx, &m, "2147483647 backup workers among 2");
    m.backup = 1;
    m.staleness = 1;
    refuse_file(ctx, &m, "backup workers need staleness 0, not 1");
    m = whole;
    m.staleness = -2;
    refuse_file(ctx, &m, "the staleness is -2; -1 to 70368744177664 are possible");
    m.staleness = large;
    refuse_file(ctx, &m, "the staleness is 70368744177665");
    m = whole;
    m.first_step = -1;
    refuse_file(ctx, &m, "the first step is -1; 0 to 70368744177664 are possible");
    m.first_step = large;
    refuse_file(ctx, &m, "the first step is 70368744177665");
    m = whole;
    m.first_batch[1] = -1;
    refuse_file(ctx, &m, "the first batch of worker 1 is -1");
    m.first_batch[1] = large;
    refuse_file(ctx, &m, "the first batch of worker 1 is 70368744177665");
    m = whole;
    m.push[1].flags = 2;
    refuse_file(ctx, &m, "push 1 has the flags 0x0002; only 1, dropped, has a meaning");
    m.push[1].flags = 0x8001;
    refuse_file(ctx, &m, "push 1 has the flags 0x8001");
    m = whole;
    m.format = 2;
    size_t n_bytes = encode(&m, bytes);
    TEST_REFUSED(ctx, wfi_record_unpack(ctx, "r", bytes, n_bytes, &r), WF_CORRUPT,
                 "r has version 2 of the format; this weft reads version 1");
    TEST_REFUSED(ctx, wfi_record_init(ctx, 65536, 0, 0, 0, identity, &r), WF_INVALID_ARG,
                 "65536 workers; 1 to 65535 are possible");
    TEST_REFUSED(ctx, wfi_record_init(ctx, 2, -1, 0, 0, identity, &r), WF_INVALID_ARG,
                 "-1 backup workers among 2");
}

TEST(refuses_damaged_bytes) {
    image m = image_of(2, 0, 1, "0:0:0 1:0:0 1:1:2 0:1:1");
    uint8_t bytes[MOST_BYTES];
    size_t n_bytes = encode(&m, bytes);
    wfi_record r;
    TEST_OK(ctx, wfi_record_unpack(ctx, "r", bytes, n_bytes, &r));
    wfi_record_release(&r);
    for (size_t at = 0; at < n_bytes; at++)
        for (int flip = 1; flip < 256; flip += TEST_SAMPLE) {
            bytes[at] ^= (uint8_t)flip;
            const char *words = at < 8                ? "r is not a record of an asynchronous run"
                                : at < 12             ? "of the format; this weft reads version 1"
                                : at < 16             ? "r is truncated or damaged: 168 bytes"
                                : at >= 20 && at < 24 ? "r is truncated or damaged: 168 bytes"
                                                      : "r is damaged: the SHA-256 of its bytes";
            TEST_REFUSED(ctx, wfi_record_unpack(ctx, "r", bytes, n_bytes, &r), WF_CORRUPT, words);
            bytes[at] ^= (uint8_t)flip;
        }
}

TEST_IN_FOLDER(refuses_other_lengths) {
    image m = image_of(2, 0, 1, "0:0:0 1:0:0 1:1:2 0:1:1");
    uint8_t bytes[MOST_BYTES] = {0};
    size_t n_bytes = encode(&m, bytes);
    wfi_record r;
    for (size_t n = 0; n <= n_bytes + 12; n++) {
        const char *path = folder_write(f, "r", bytes, n), *words = "bytes, fewer than the 72 of";
        if (n >= HEAD) words = "header announces 2 workers and 4 pushes, which take 168";
        if (n == n_bytes) continue;
        TEST_REFUSED(f->ctx, wfi_record_read(f->ctx, path, &r), WF_CORRUPT, words);
        TEST_REFUSED(f->ctx, wfi_record_unpack(f->ctx, "r", bytes, n, &r), WF_CORRUPT, words);
    }
    /* Also if the shorter file has a hash of its own. */
    seal(bytes, n_bytes - 12);
    TEST_REFUSED(f->ctx, wfi_record_unpack(f->ctx, "r", bytes, n_bytes - 12, &r), WF_CORRUPT,
                 "r is truncated or damaged: 156 bytes");
}

/* Neither a large number in a header nor a large foreign file takes memory. */
TEST_IN_FOLDER(allocates_little) {
    uint8_t bytes[MOST_BYTES];
    wfi_record r;
    image m = image_of(2, 0, 1, "0:0:0 1:0:0");
    m.n_workers = UINT32_MAX;
    m.n_pushes = UINT32_MAX;
    size_t n_bytes = encode(&m, bytes), before = wf_context_memory(f->ctx).peak_bytes;
    const char *path = folder_write(f, "r", bytes, n_bytes);
    TEST_REFUSED(f->ctx, wfi_record_read(f->ctx, path, &r), WF_CORRUPT, "which take 85899346004");
    path = folder_write(f, "r", "weftpull", 8);
    assert_int_equal(truncate(path, (off_t)1 << 40), 0);
    TEST_REFUSED(f->ctx, wfi_record_read(f->ctx, path, &r), WF_CORRUPT, "/r is not a record of an");
    assert_in_range(wf_context_memory(f->ctx).peak_bytes, before, before + 4096);
    TEST_REFUSED(f->ctx, wfi_record_read(f->ctx, f->path, &r), WF_IO, "is not a regular file");
    TEST_REFUSED(f->ctx, wfi_record_read(f->ctx, folder_file(f, "none"), &r), WF_IO,
                 "/none cannot be opened");
    m = image_of(2, 0, 1, "0:0:0 1:0:0");
    TEST_OK(f->ctx, record_image(f->ctx, &m, &r));
    TEST_REFUSED(f->ctx, wfi_record_write(&r, "/nowhere/r"), WF_IO, "/nowhere/r cannot be written");
    r.n_pushes = UINT32_MAX; /* as if so many were there */
    TEST_REFUSED(f->ctx, wfi_record_add(&r, &(wfi_push){.batch = 1, .version = 1}), WF_INVALID_ARG,
                 "a record holds at most 4294967295 pushes");
    wfi_record_release(&r);
}

static wf_status write_and_read(wf_context *ctx, const char *path) {
    image m = image_of(3, 0, 2, async_pushes);
    wfi_record record = {0};
    wf_status status = record_image(ctx, &m, &record);
    if (status == WF_OK) status = wfi_record_write(&record, path);
    wfi_record_release(&record);
    if (status == WF_OK) status = wfi_record_read(ctx, path, &record);
    wfi_record_release(&record);
    return status;
}

TEST_IN_FOLDER(survives_failed_allocations) {
    expect_failed_allocations(write_and_read, folder_file(f, "r"));
}
