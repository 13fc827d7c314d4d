/* The order of samples, the position, the ring, and what happens when memory runs out. */
#include "data_folder.h"

#include "data/source.h"

#define N     50 /* samples */
#define BATCH 12 /* four whole batches and one of two samples */

static wf_data *open_synthetic(wf_context *ctx, uint64_t seed) {
    wf_data_config config = WF_DATA_CONFIG_INIT;
    wf_data *data;
    config.name = "synthetic";
    config.channels = 2;
    config.height = config.width = 12;
    config.n_synthetic = N;
    config.seed = seed;
    assert_int_equal(wf_data_open(ctx, &config, &data), WF_OK);
    return data;
}

static wf_loader *start(wf_data *data, wf_loader_config config) {
    wf_loader *loader;
    config.batch = BATCH;
    assert_int_equal(wf_loader_create(data, &config, &loader), WF_OK);
    return loader;
}

static const wf_batch *next(wf_loader *loader) {
    const wf_batch *batch;
    assert_int_equal(wf_loader_next(loader, &batch), WF_OK);
    return batch;
}

/* The sample numbers of one epoch, each checked to occur once. */
static void epoch_order(wf_loader *loader, int64_t epoch, int64_t order[N]) {
    int seen[N] = {0}, n = 0;
    for (int last = 0; !last;) {
        const wf_batch *batch = next(loader);
        assert_int_equal(batch->epoch, epoch);
        assert_int_equal(batch->first_sample, n);
        assert_int_equal((uintptr_t)batch->x % 64, 0);
        assert_int_equal((uintptr_t)batch->y % 64, 0);
        for (int64_t i = 0; i < batch->n_samples; i++) {
            order[n++] = batch->index[i];
            assert_int_equal(seen[batch->index[i]]++, 0);
        }
        last = batch->last_of_epoch;
        assert_int_equal(batch->n_samples, last ? N % BATCH : BATCH);
    }
    assert_int_equal(n, N);
}

TEST_IN_FOLDER(orders) {
    scoped_data data = open_synthetic(f->ctx, 1);
    scoped_data other = open_synthetic(f->ctx, 2);
    wf_loader_config config = WF_LOADER_CONFIG_INIT;
    scoped_loader a = start(data, config);
    scoped_loader c = start(other, config);
    config.n_prefetch = 7;
    scoped_loader b = start(data, config);
    int64_t order_a[3][N], order_b[3][N], order_c[N];
    for (int e = 0; e < 3; e++) {
        epoch_order(a, e, order_a[e]);
        epoch_order(b, e, order_b[e]);
    }
    epoch_order(c, 0, order_c);
    assert_memory_equal(order_a, order_b, sizeof order_a);
    assert_memory_not_equal(order_a[0], order_a[1], sizeof order_a[0]);
    assert_memory_not_equal(order_a[0], order_c, sizeof order_c);
    config.shuffle = 0;
    scoped_loader d = start(data, config);
    epoch_order(d, 0, order_c);
    for (int i = 0; i < N; i++) assert_int_equal(order_c[i], i);
}

/* Every position that a batch can end at: a loader started there gives the same bytes. */
TEST_IN_FOLDER(resumes) {
    scoped_data data = open_synthetic(f->ctx, 3);
    wf_loader_config config = WF_LOADER_CONFIG_INIT;
    config.augment = 1;
    for (config.drop_last = 0; config.drop_last < 2; config.drop_last++) {
        config.first_epoch = config.first_sample = 0;
        scoped_loader whole = start(data, config);
        for (int i = 0; i < 12; i++) {
            scoped_loader resumed = start(data, config);
            const wf_batch *a = next(whole), *b = next(resumed);
            assert_int_equal(a->epoch, b->epoch);
            assert_int_equal(a->n_samples, b->n_samples);
            assert_int_equal(a->last_of_epoch, b->last_of_epoch);
            assert_memory_equal(a->x, b->x, a->x_bytes);
            assert_memory_equal(a->y, b->y, a->y_bytes);
            if (config.drop_last) assert_int_equal(a->n_samples, BATCH);
            config.first_epoch = a->epoch; /* also past the epoch's last batch */
            config.first_sample = a->first_sample + a->n_samples;
        }
    }
}

/* Parts of a batch, put together, are the batch: what each process reads is what one would. */
TEST_IN_FOLDER(divides) {
    scoped_data data = open_synthetic(f->ctx, 3);
    wf_loader_config config = WF_LOADER_CONFIG_INIT;
    for (int n_parts = 2; n_parts <= 4; n_parts++) {
        wf_loader *whole = start(data, config), *part[4];
        config.n_parts = n_parts;
        config.n_micro = n_parts == 2 ? 2 : 0;
        for (config.part = 0; config.part < n_parts; config.part++)
            part[config.part] = start(data, config);
        for (int i = 0; i < 9; i++) {
            const wf_batch *all = next(whole);
            if (all->n_samples < n_parts) all = next(whole); /* too few: left out */
            size_t at = 0;
            int64_t first = 0;
            for (int p = 0; p < n_parts; p++) {
                const wf_batch *own = next(part[p]);
                int64_t left = all->n_samples - first,
                        share = (left + n_parts - p - 1) / (n_parts - p);
                assert_int_equal(own->n_all, all->n_samples);
                assert_int_equal(own->n_samples, share);
                assert_int_equal(own->epoch, all->epoch);
                assert_int_equal(own->first_sample, all->first_sample);
                assert_memory_equal(own->index, all->index + first,
                                    (size_t)share * sizeof *own->index);
                assert_memory_equal(own->x, (const char *)all->x + at, own->x_bytes);
                first += own->n_samples;
                at += own->x_bytes;
            }
            assert_int_equal(at, all->x_bytes);
        }
        for (int p = 0; p < n_parts; p++) wf_loader_destroy(part[p]);
        wf_loader_destroy(whole);
        config = (wf_loader_config)WF_LOADER_CONFIG_INIT;
    }
    wf_loader *none;
    config.batch = BATCH;
    config.part = config.n_parts = 2;
    expect_failure(f->ctx, wf_loader_create(data, &config, &none), WF_INVALID_ARG, "part 2 of 2");
    config.part = 1;
    config.n_micro = 3;
    expect_failure(f->ctx, wf_loader_create(data, &config, &none), WF_INVALID_ARG, "not divided");
    config.n_parts = BATCH + 1;
    config.n_micro = 0;
    expect_failure(f->ctx, wf_loader_create(data, &config, &none), WF_INVALID_ARG, "more than");
}

/* ---- mixup ---- */

#define N_ELEMENTS 288 /* of a sample: more than are mixed at once, and no multiple */

/* That each sample of `mixed` is one of `plain` and its partner, by the shares that it says;
 * partners are a permutation of the batch. */
static void expect_mixed(const wf_batch *mixed, const wf_batch *plain) {
    int n_partners[BATCH] = {0};
    assert_int_equal(mixed->n_samples, plain->n_samples);
    assert_memory_equal(mixed->y, plain->y, plain->y_bytes);
    for (int64_t i = 0; i < mixed->n_samples; i++) {
        float share = mixed->share[i], other = mixed->partner_share[i], want[N_ELEMENTS];
        int64_t found = -1;
        assert_true(share >= 0 && share <= 1 && other == 1 - share && share == mixed->share[0]);
        for (int64_t j = 0; j < mixed->n_samples && found < 0; j++) {
            const float *own = (const float *)plain->x + i * N_ELEMENTS,
                        *partner = (const float *)plain->x + j * N_ELEMENTS;
            for (int k = 0; k < N_ELEMENTS; k++) want[k] = share * own[k] + other * partner[k];
            if (!memcmp(want, (const float *)mixed->x + i * N_ELEMENTS, sizeof want)) found = j;
        }
        assert_true(found >= 0);
        n_partners[found]++;
        assert_int_equal(((const int32_t *)mixed->y_partner)[i],
                         ((const int32_t *)plain->y)[found]);
    }
    if (mixed->share[0] < 1)
        for (int64_t j = 0; j < mixed->n_samples; j++) assert_int_equal(n_partners[j], 1);
}

static void expect_same(const wf_batch *a, const wf_batch *b) {
    size_t share_bytes = (size_t)a->n_samples * sizeof *a->share;
    assert_int_equal(a->n_samples, b->n_samples);
    assert_memory_equal(a->x, b->x, a->x_bytes);
    assert_memory_equal(a->y, b->y, a->y_bytes);
    assert_memory_equal(a->y_partner, b->y_partner, a->y_bytes);
    assert_memory_equal(a->share, b->share, share_bytes);
    assert_memory_equal(a->partner_share, b->partner_share, share_bytes);
}

/* Whoever goes on there, or reads a part of it, sees the same. */
TEST_IN_FOLDER(mixes) {
    scoped_data data = open_synthetic(f->ctx, 3);
    wf_loader_config config = WF_LOADER_CONFIG_INIT;
    wf_loader *plain = start(data, config);
    config.mixup = 0.4;
    wf_loader *mixed = start(data, config), *part[3];
    wf_loader_config half = config;
    half.n_workers = 3;
    half.n_parts = 3;
    half.drop_last = 1;
    for (half.part = 0; half.part < 3; half.part++) part[half.part] = start(data, half);
    float share = -1;
    for (int i = 0; i < 15; i++) {
        config.n_workers = 1 + i % 3;
        scoped_loader resumed = start(data, config);
        const wf_batch *whole = next(mixed);
        expect_mixed(whole, next(plain));
        expect_same(whole, next(resumed));
        assert_true(whole->share[0] != share);
        share = whole->share[0];
        for (int p = 0; p < 3 && whole->n_samples == BATCH; p++) {
            const wf_batch *own = next(part[p]);
            int64_t first = p * BATCH / 3;
            wf_batch of = *whole;
            of.n_samples = BATCH / 3;
            of.x = (const float *)whole->x + first * N_ELEMENTS;
            of.y = (const int32_t *)whole->y + first;
            of.y_partner = (const int32_t *)whole->y_partner + first;
            of.x_bytes /= 3;
            of.y_bytes /= 3;
            expect_same(&of, own);
        }
        config.first_epoch = whole->epoch;
        config.first_sample = whole->first_sample + whole->n_samples;
    }
    for (int p = 0; p < 3; p++) wf_loader_destroy(part[p]);
    wf_loader_destroy(mixed);
    wf_loader_destroy(plain);
    config.mixup = -0.5;
    expect_failure(f->ctx, wf_loader_create(data, &config, &mixed), WF_INVALID_ARG,
                   "mixup is -0.5");
}

/* How often a sample was made, by epoch. */
static int n_made[4][N];
static const wfi_source *counted;

static wf_status count(const wf_data *data, const wfi_sample *sample, void *x, void *y) {
    n_made[sample->epoch][sample->index]++;
    return counted->fill(data, sample, x, y);
}

/* A sample that is another's partner is made once all the same, if both are of one part. */
TEST_IN_FOLDER(mixes_what_is_there) {
    for (int n_parts = 1; n_parts <= 3; n_parts += 2) {
        scoped_data data = open_synthetic(f->ctx, 3);
        wf_loader_config config = WF_LOADER_CONFIG_INIT;
        counted = data->source;
        wfi_source counting = *counted;
        counting.fill = count;
        data->source = &counting;
        config.mixup = 0.4;
        config.n_parts = n_parts;
        memset(n_made, 0, sizeof n_made);
        wf_loader *loader = start(data, config);
        for (int i = 0; i < 5; i++) (void)next(loader); /* an epoch, and those filled ahead */
        wf_loader_destroy(loader);
        for (int64_t k = 0, n = 0; k < N; k++) {
            n += n_made[0][k];
            assert_in_range(n_made[0][k], n_parts == 1, 1);
            if (k == N - 1) assert_true(n == N || (n_parts > 1 && n >= N / n_parts));
        }
        data->source = counted;
    }
}

TEST_IN_FOLDER(ends_test_passes) {
    char text[400];
    scoped_data data;
    memset(text, 'x', sizeof text);
    wf_data_config set = WF_DATA_CONFIG_INIT;
    set.name = folder_write(f, "text", text, sizeof text);
    set.kind = WF_DATA_TOKENS;
    set.n_tokens = 2;
    assert_int_equal(wf_data_open(f->ctx, &set, &data), WF_OK);
    wf_loader_config config = WF_LOADER_CONFIG_INIT;
    config.split = WF_DATA_TEST;
    config.shuffle = 0;
    scoped_loader loader = start(data, config);
    for (int pass = 0; pass < 3; pass++) { /* 19 samples */
        assert_int_equal(next(loader)->n_samples, BATCH);
        const wf_batch *batch = next(loader);
        assert_int_equal(batch->n_samples, 7);
        assert_int_equal(batch->epoch, pass);
        assert_int_equal(batch->first_sample, BATCH);
        assert_true(batch->last_of_epoch);
        assert_null(next(loader));
    }
}

TEST_IN_FOLDER(stops_anywhere) {
    scoped_data data = open_synthetic(f->ctx, 4);
    for (int n_taken = 0; n_taken < 12; n_taken++)
        for (int n_prefetch = 1; n_prefetch < 4; n_prefetch++) {
            wf_loader_config config = WF_LOADER_CONFIG_INIT;
            config.n_prefetch = n_prefetch;
            scoped_loader loader = start(data, config);
            for (int i = 0; i < n_taken; i++) next(loader);
        }
    wf_loader_destroy(NULL);
}

TEST_IN_FOLDER(keeps_the_heap) {
    scoped_data data = open_synthetic(f->ctx, 5);
    scoped_loader loader = start(data, (wf_loader_config)WF_LOADER_CONFIG_INIT);
    uint64_t before = wf_context_memory(f->ctx).n_allocations;
    for (int i = 0; i < 30; i++) next(loader);
    assert_int_equal(wf_context_memory(f->ctx).n_allocations, before);
}

TEST_IN_FOLDER(makes_synthetic_samples) {
    wf_data_config config = WF_DATA_CONFIG_INIT;
    wf_data *data;
    config.name = "synthetic";
    config.height = config.width = 8;
    config.n_classes = 5;
    config.targets = WF_TARGETS_ONE_HOT;
    assert_int_equal(wf_data_open(f->ctx, &config, &data), WF_OK);
    assert_int_equal(wf_data_describe(data)->n_train, 3840);
    assert_int_equal(wf_data_describe(data)->n_test, 0);
    assert_int_equal(wf_data_describe(data)->y_bytes, 20);
    wf_loader *loader = start(data, (wf_loader_config)WF_LOADER_CONFIG_INIT);
    const wf_batch *batch = next(loader);
    double sum = 0, squares = 0;
    for (int i = 0; i < BATCH * 192; i++) {
        double value = ((const float *)batch->x)[i];
        sum += value;
        squares += value * value;
    }
    assert_true(sum * sum / (BATCH * 192) < 16); /* four standard deviations */
    assert_true(squares > 0.8 * BATCH * 192 && squares < 1.2 * BATCH * 192);
    for (int i = 0; i < BATCH; i++) {
        const float *row = (const float *)batch->y + 5 * i;
        assert_true(row[0] + row[1] + row[2] + row[3] + row[4] == 1);
    }
    wf_loader_destroy(loader);
    wf_data_close(data);

    config.kind = WF_DATA_TOKENS;
    config.n_tokens = 9;
    assert_int_equal(wf_data_open(f->ctx, &config, &data), WF_OK);
    assert_int_equal(wf_data_describe(data)->targets, WF_TARGETS_LABELS);
    loader = start(data, (wf_loader_config)WF_LOADER_CONFIG_INIT);
    batch = next(loader);
    const int32_t *x = batch->x, *y = batch->y;
    for (int i = 0; i < BATCH * 9; i++) {
        assert_in_range(x[i], 0, 4);
        if (i % 9 != 8) assert_int_equal(y[i], x[i + 1]);
    }
    wf_loader_destroy(loader);
    wf_data_close(data);
}

TEST_IN_FOLDER(refuses_bad_configurations) {
    scoped_data data = open_synthetic(f->ctx, 6);
    wf_loader *loader;
    wf_loader_config config = WF_LOADER_CONFIG_INIT;
    config.batch = 0;
    expect_failure(f->ctx, wf_loader_create(data, &config, &loader), WF_INVALID_ARG, "batch is 0");
    config.batch = N + 1;
    config.drop_last = 1;
    expect_failure(f->ctx, wf_loader_create(data, &config, &loader), WF_INVALID_ARG,
                   "a batch of 51 is more than the 50 training samples");
    config.batch = 5;
    config.first_sample = N + 1;
    expect_failure(f->ctx, wf_loader_create(data, &config, &loader), WF_INVALID_ARG,
                   "cannot start at sample 51 of epoch 0");
    config.first_sample = 0;
    config.first_epoch = INT64_MAX; /* counting on would overflow */
    expect_failure(f->ctx, wf_loader_create(data, &config, &loader), WF_INVALID_ARG,
                   "of epoch 9223372036854775807: epochs are 0 to 9007199254740992");
    config.first_epoch = 0;
    config.first_sample = 0;
    config.n_prefetch = 0;
    expect_failure(f->ctx, wf_loader_create(data, &config, &loader), WF_INVALID_ARG,
                   "n_prefetch is 0");
    config.struct_size = 1;
    expect_failure(f->ctx, wf_loader_create(data, &config, &loader), WF_INVALID_ARG,
                   "begin it with its _INIT");
}

/* ---- allocation faults ---- */

static wf_status open_and_load(wf_context *ctx, const char *path) {
    wf_data_config set = WF_DATA_CONFIG_INIT;
    scoped_data data = NULL;
    wf_loader *loader;
    set.name = path;
    set.kind = WF_DATA_TOKENS;
    set.text = WF_TEXT_WORDS;
    set.n_tokens = 2;
    wf_status status = wf_data_open(ctx, &set, &data);
    if (status != WF_OK) return status;
    wf_loader_config config = WF_LOADER_CONFIG_INIT;
    status = wf_loader_create(data, &config, &loader);
    if (status == WF_OK) wf_loader_destroy(loader);
    return status;
}

TEST_IN_FOLDER(survives_failed_allocations) {
    expect_failed_allocations(open_and_load, folder_write(f, "text", "a b c d e f g h i j k", 21));
}
