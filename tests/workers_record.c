/* Records of asynchronous runs: the rules of the order, steps, and the run that may replay it.
 *
 * label: serial
 */
#include "record_image.h"

/* The last push breaks a rule. */
static void refuse_push(wf_context *ctx, const image *m, const char *words) {
    wfi_record record;
    refuse_file(ctx, m, words);
    TEST_REFUSED(ctx, record_image(ctx, m, &record), WF_INVALID_ARG, words);
    assert_int_equal(record.n_pushes, m->n_pushes - 1);
    wfi_record_release(&record);
}

TEST(refuses_broken_rules) {
    static const struct {
        uint32_t n_workers, backup;
        int64_t staleness;
        const char *pushes, *words;
    } cases[] = {
        {2, 0, -1, "0:0:0 2:0:0", "push 1 is of worker 2, but the workers are 0 to 1"},
        {2, 0, -1, "0:0:0 65535:0:0", "push 1 is of worker 65535"},
        {2, 0, -1, "0:1:0", "push 0 of worker 0 has batch 1, but the worker's next batch is 0"},
        {2, 0, -1, "0:0:0 1:0:0 0:0:1", "push 2 of worker 0 has batch 0, but the worker's next"},
        {2, 0, -1, "0:0:0 0:2:1",
         "push 1 of worker 0 has batch 2, but the worker's next batch is 1"},
        {2, 0, -1, "0:0:1", "push 0 of worker 0 has version 1, but the parameters had version 0"},
        {2, 0, -1, "0:0:0 1:0:2", "push 1 of worker 1 has version 2, but the parameters had"},
        {2, 0, -1, "0:0:0 0:1:0",
         "push 1 of worker 0 has version 0, but the worker could read "
         "version 1 or newer ones only"},
        {2, 0, -1, "1:0:0 0:0:0 1:1:1 0:1:1", "push 3 of worker 0 has version 1, but the worker"},
        {2, 0, 1, "0:0:0 0:1:1 0:2:2 1:0:0",
         "push 3 of worker 1 is 3 updates old; staleness 1 of 2 "
         "workers allows 2"},
        {2, 0, -1, "0:0:0-", "push 0 of worker 0 is marked as dropped, but came in time"},
        {2, 0, -1, "0:0:0 1:0:0-", "push 1 of worker 1 is marked as dropped"},
        {2, 0, 0, "0:0:0 0:1:0", "push 1 of worker 0 has version 0, but the worker could read"},
        {2, 0, 0, "0:0:0 0:1:1",
         "push 1 of worker 0 has version 1, but the parameters had version 0"},
        {2, 0, 0, "0:0:0 1:0:0 0:1:0", "push 2 of worker 0 has version 0, but the worker could"},
        {2, 0, 0, "0:0:0 1:0:0 0:1:1-", "push 2 of worker 0 is marked as dropped"},
        {3, 1, 0, "0:0:0 1:0:0 2:0:0",
         "push 2 of worker 2 is not marked as dropped, but came after "
         "the update of version 0"},
        {3, 1, 0, "0:0:0 1:0:0 2:0:1-", "push 2 of worker 2 is marked as dropped"},
        {3, 1, 0, "0:0:0 1:0:0 2:0:0- 2:1:0-", "push 3 of worker 2 has version 0, but the worker"},
        {3, 1, 0, "0:0:0 1:0:0 0:1:0-", "push 2 of worker 0 has version 0, but the worker could"},
    };
    for (size_t i = 0; i < WFI_COUNT(cases); i++) {
        image m =
            image_of(cases[i].n_workers, cases[i].backup, cases[i].staleness, cases[i].pushes);
        refuse_push(ctx, &m, cases[i].words);
    }
}

/* The same rules, counted from the beginning of a resumed run. */
TEST(counts_from_its_first_step) {
    image m = image_of(2, 0, -1, "0:0:1");
    m.first_step = 3;
    m.first_batch[0] = 9;
    refuse_push(ctx, &m, "push 0 of worker 0 has version 7, but the parameters had version 6");
    m.staleness = 0;
    refuse_push(ctx, &m, "push 0 of worker 0 has version 4, but the parameters had version 3");
    m.push[0].batch = 1;
    refuse_push(ctx, &m, "push 0 of worker 0 has batch 10, but the worker's next batch is 9");
    wfi_record record;
    TEST_OK(ctx, wfi_record_init(ctx, 2, 0, -1, 3, identity, &record));
    TEST_REFUSED(ctx, wfi_record_add(&record, &(wfi_push){.version = 5}), WF_INVALID_ARG,
                 "push 0 of worker 0 has version 5, but the worker could read version 6");
    TEST_REFUSED(ctx, wfi_record_add(&record, &(wfi_push){.worker = -1}), WF_INVALID_ARG,
                 "push 0 is of worker -1");
    wfi_record_release(&record);
}

TEST(refuses_incomplete_steps) {
    static const struct {
        uint32_t backup;
        int64_t staleness;
        const char *pushes, *words;
    } cases[] = {
        {0, -1, "0:0:0 1:0:0 2:0:0 0:1:1",
         "the record ends inside step 6, after 1 of its 3 pushes"},
        {0, 0, "0:0:0 1:0:0", "the record ends inside step 5, after 2 of its 3 pushes"},
        {1, 0, "0:0:0 1:0:0 2:0:0- 2:1:1",
         "the record ends inside step 6, after 1 of its 2 pushes"},
    };
    for (size_t i = 0; i < WFI_COUNT(cases); i++) {
        uint8_t *bytes;
        size_t n_bytes;
        wfi_record record;
        image m = image_of(3, cases[i].backup, cases[i].staleness, cases[i].pushes);
        m.first_step = 5;
        refuse_file(ctx, &m, cases[i].words);
        TEST_OK(ctx, record_image(ctx, &m, &record));
        TEST_REFUSED(ctx, wfi_record_pack(&record, &bytes, &n_bytes), WF_INVALID_ARG,
                     cases[i].words);
        TEST_REFUSED(ctx, wfi_record_write(&record, "/nowhere/r"), WF_INVALID_ARG, cases[i].words);
        wfi_record_release(&record);
    }
}

/* Every cut of a record is a record; with the pushes that were cut off it is the first one again.
 */
static void check_cuts(wf_context *ctx, const image *m, const size_t *n_kept, size_t n_steps) {
    wfi_record record;
    TEST_OK(ctx, record_image(ctx, m, &record));
    assert_int_equal(wfi_record_n_steps(&record), n_steps);
    TEST_REFUSED(ctx, wfi_record_cut(&record, n_steps + 1), WF_INVALID_ARG,
                 "steps, fewer than the");
    assert_int_equal(record.n_pushes, m->n_pushes);
    wfi_record_release(&record);
    for (size_t k = 0; k <= n_steps; k++) {
        image part = *m;
        wfi_record kept;
        TEST_OK(ctx, record_image(ctx, m, &record));
        TEST_OK(ctx, wfi_record_cut(&record, k));
        TEST_OK(ctx, wfi_record_check_end(&record));
        assert_int_equal(wfi_record_n_steps(&record), k);
        assert_int_equal(record.n_pushes, n_kept[k]);
        part.n_pushes = (uint32_t)n_kept[k];
        TEST_OK(ctx, record_image(ctx, &part, &kept));
        for (int w = 0; w < 3 * record.n_workers; w++) /* with next_batch and min_version */
            assert_int_equal(record.first_batch[w], kept.first_batch[w]);
        wfi_record_release(&kept);
        for (size_t i = n_kept[k]; i < m->n_pushes; i++) {
            wfi_push again = record.pushes[i];
            TEST_OK(ctx, wfi_record_add(&record, &again));
        }
        assert_int_equal(wfi_record_n_steps(&record), n_steps);
        wfi_record_release(&record);
    }
}

TEST(is_cut) {
    image m = image_of(3, 0, 2, async_pushes);
    m.first_step = 4;
    m.first_batch[1] = 3;
    check_cuts(ctx, &m, (const size_t[]){0, 3, 6, 9}, 3);
    m = image_of(4, 1, 0, sync_pushes);
    check_cuts(ctx, &m, (const size_t[]){0, 4, 8}, 2);
}

TEST(matches_its_run) {
    wfi_record r;
    unsigned char other[WFI_IDENTITY_BYTES], again[WFI_IDENTITY_BYTES];
    char hex[65];
    wfi_record_identify("abc", other);
    wfi_record_identify("abd", again);
    assert_memory_not_equal(other, again, sizeof other);
    sodium_bin2hex(hex, sizeof hex, other, sizeof other);
    assert_string_equal(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    TEST_OK(ctx, wfi_record_init(ctx, 4, 1, 0, 0, other, &r));
    TEST_OK(ctx, wfi_record_matches(&r, "r", other, 4, 0, 1));
    TEST_REFUSED(ctx, wfi_record_matches(&r, "r", other, 3, 0, 1), WF_INVALID_ARG,
                 "r was recorded with 4 workers; this run has 3");
    TEST_REFUSED(ctx, wfi_record_matches(&r, "r", other, 4, -1, 1), WF_INVALID_ARG,
                 "r was recorded with staleness 0; this run has unbounded staleness");
    TEST_REFUSED(ctx, wfi_record_matches(&r, "r", other, 4, 2, 1), WF_INVALID_ARG,
                 "r was recorded with staleness 0; this run has staleness 2");
    TEST_REFUSED(ctx, wfi_record_matches(&r, "r", other, 4, 0, 0), WF_INVALID_ARG,
                 "r was recorded with 1 backup workers; this run has 0");
    TEST_REFUSED(ctx, wfi_record_matches(&r, "r", again, 4, 0, 1), WF_INVALID_ARG,
                 "r was recorded with another model, other data or another recipe");
    wfi_record_release(&r);
    wfi_record_release(&r); /* empty by now */
}
