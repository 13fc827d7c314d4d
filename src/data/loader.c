/* Batches in order, filled ahead by threads.
 *
 * The batches form a ring. Batches are begun, filled and borrowed in turn; four counters under one
 * lock hold the progress. A thread takes the next sample of the batch that was begun last, or
 * begins another one, so several may be at work on one batch and the first on the next. A thread
 * never waits for anything but a free batch, so neither wait needs a deadline: the caller's ends
 * because filling ends, and a sample that cannot be filled is its batch's error; the threads' end
 * with the next batch taken or with destroy. */
#include "base/base.h"
#include "base/random.h"
#include "data/source.h"
#include "recipe/recipe.h"

#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#define MAX_PREFETCH 64
#define MAX_BATCH    (INT64_C(1) << 24)
#define MAX_EPOCH    (INT64_C(1) << 53) /* no run comes near, and counting on cannot overflow */
#define STACK_BYTES  (256 * 1024)       /* the threads call nothing deep */
#define MAX_WORKERS  256
#define STRIP        256 /* elements of each sample that are mixed at once */

typedef struct slot {
    void *x, *y;    /* [n_rows] */
    int64_t *index; /* [n_rows] which sample of the split */
    int64_t n_rows; /* the batch's samples, and behind them partners that are of other parts */
    /* With mixup, [samples of a batch]. */
    void *y_partner;
    int64_t *partner; /* its row */
    float *share, *partner_share;
    wf_batch batch;          /* n_samples 0: the end of a pass over the test split */
    int64_t n_begun, n_done; /* rows; under the lock */
    bool is_filled;          /* and mixed; under the lock */
    int64_t failed;          /* the first row that could not be filled, and why; under the lock */
    wf_status status;
    char why[WFI_SENTENCE_BYTES];
} slot;

struct wf_loader {
    wfi_pool pool; /* of the arrays */
    const wf_data *data;
    wf_loader_config config;
    int64_t n_samples; /* of the split */
    int n_slots;
    slot slots[MAX_PREFETCH + 1];

    /* Where the next batch begins; under the lock. */
    int64_t *order; /* [n_samples] of order_epoch; NULL: as in the files */
    int64_t order_epoch, epoch, place;
    int64_t *mixed; /* [batch] with mixup: places of partners in the batch */

    pthread_t threads[MAX_WORKERS];
    int n_threads, n_running;
    float *strip[MAX_WORKERS]; /* with mixup: [rows, STRIP], a thread's */
    bool stop;                 /* under the lock */
    pthread_mutex_t lock;
    pthread_cond_t filled, freed;
    uint64_t n_begun, n_filled, n_taken, n_freed; /* batches, ever; under the lock */
};

/* ---- the next batch: pure functions of the position ---- */

/* Whether another batch of the epoch begins at `place`. */
static bool goes_on(const wf_loader *loader, int64_t place) {
    const wf_loader_config *c = &loader->config;
    int64_t least = c->drop_last ? c->batch : c->n_parts > 1 ? c->n_micro : 1;
    return loader->n_samples - place >= least;
}

static void make_order(wf_loader *loader) {
    if (!loader->order || loader->order_epoch == loader->epoch) return;
    wfi_random_key key = {loader->data->seed, wfi_random_name("shuffle")};
    wfi_random_shuffle(key, (uint64_t)loader->epoch, loader->n_samples, loader->order);
    loader->order_epoch = loader->epoch;
}

static void start_epoch(wf_loader *loader) {
    loader->epoch++;
    loader->place = 0;
}

/* Which samples of a batch of n_all are this part. */
static void find_part(const wf_loader_config *c, int64_t n_all, int64_t *first_out,
                      int64_t *n_out) {
    int64_t mine = c->n_micro / c->n_parts;
    *first_out = wfi_first_sample(n_all, c->n_micro, c->part * mine);
    *n_out = wfi_first_sample(n_all, c->n_micro, (c->part + 1) * mine) - *first_out;
}

/* The sample of the split at a position of the epoch. */
static int64_t sample_at(const wf_loader *loader, int64_t place) {
    return loader->order ? loader->order[place] : place;
}

/* All parts find the same partners and shares: functions of how many samples were before. A partner
 * of another part is made here as well. */
static void find_partners(wf_loader *loader, slot *s, int64_t first) {
    const wf_loader_config *c = &loader->config;
    wf_batch *batch = &s->batch;
    uint64_t seed = loader->data->seed,
             at = (uint64_t)batch->epoch * (uint64_t)loader->n_samples + (uint64_t)loader->place;
    if (c->mixup == 0) return;
    wfi_random_shuffle((wfi_random_key){seed, wfi_random_name("mixup")}, at, batch->n_all,
                       loader->mixed);
    float share = (float)wfi_random_beta((wfi_random_key){seed, wfi_random_name("mixup.share")}, at,
                                         c->mixup);
    for (int64_t i = 0; i < batch->n_samples; i++) {
        int64_t row = loader->mixed[first + i] - first;
        if (row < 0 || row >= batch->n_samples) {
            row = s->n_rows++;
            s->index[row] = sample_at(loader, loader->place + loader->mixed[first + i]);
        }
        s->partner[i] = row;
        s->share[i] = share;
        s->partner_share[i] = 1 - share;
    }
    batch->y_partner = s->y_partner;
    batch->share = s->share;
    batch->partner_share = s->partner_share;
}

/* Makes the slot's batch the one at the position, and moves on. */
static void begin(wf_loader *loader, slot *s) {
    wf_batch *batch = &s->batch;
    const wf_data_description *about = &loader->data->about;
    *batch = (wf_batch){.x = s->x, .y = s->y, .index = s->index};
    s->n_begun = s->n_done = s->n_rows = 0;
    s->is_filled = true; /* if it has no samples */
    s->status = WF_OK;
    if (!goes_on(loader, loader->place)) {
        start_epoch(loader);
        if (loader->config.split != WF_DATA_TRAIN) return;
    }
    make_order(loader);
    batch->epoch = loader->epoch;
    batch->first_sample = loader->place;
    batch->n_all = wfi_min_i64(loader->config.batch, loader->n_samples - loader->place);
    int64_t first;
    find_part(&loader->config, batch->n_all, &first, &batch->n_samples);
    batch->x_bytes = (size_t)batch->n_samples * about->x_bytes;
    batch->y_bytes = (size_t)batch->n_samples * about->y_bytes;
    for (int64_t i = 0; i < batch->n_samples; i++)
        s->index[i] = sample_at(loader, loader->place + first + i);
    s->n_rows = batch->n_samples;
    s->is_filled = s->n_rows == 0;
    find_partners(loader, s, first);
    loader->place += batch->n_all;
    batch->last_of_epoch = !goes_on(loader, loader->place);
}

/* ---- the ring ---- */

static slot *slot_of(wf_loader *loader, uint64_t batch) {
    return &loader->slots[batch % (uint64_t)loader->n_slots];
}

/* Batches come in their order, so one may wait for an earlier one. */
static void publish(wf_loader *loader) {
    while (loader->n_filled < loader->n_begun && slot_of(loader, loader->n_filled)->is_filled) {
        loader->n_filled++;
        pthread_cond_signal(&loader->filled);
    }
}

/* The next row to fill, of *slot_out, with the lock; -1 when the loader is being destroyed. */
static int64_t take_row(wf_loader *loader, slot **slot_out) {
    while (!loader->stop) {
        slot *s = loader->n_begun ? slot_of(loader, loader->n_begun - 1) : NULL;
        *slot_out = s;
        if (s && s->n_begun < s->n_rows) return s->n_begun++;
        if (loader->n_begun - loader->n_freed < (uint64_t)loader->n_slots) {
            begin(loader, slot_of(loader, loader->n_begun++));
            publish(loader);
        } else {
            pthread_cond_wait(&loader->freed, &loader->lock);
        }
    }
    return -1;
}

static wf_status fill(const wf_loader *loader, const slot *s, int64_t row) {
    const wf_data *data = loader->data;
    const wfi_sample sample = {.split = loader->config.split,
                               .index = s->index[row],
                               .epoch = s->batch.epoch,
                               .augment = loader->config.augment != 0};
    return data->source->fill(data, &sample, (char *)s->x + (size_t)row * data->about.x_bytes,
                              (char *)s->y + (size_t)row * data->about.y_bytes);
}

/* Mixes in place, strip by strip, from a copy of all rows of the strip. A sample is augmented once,
 * also as a partner. */
static void mix(const wf_loader *loader, const slot *s, float *strip) {
    size_t n = loader->data->about.x_bytes / sizeof(float), y_bytes = loader->data->about.y_bytes;
    float *x = s->x;
    for (size_t begin = 0; begin < n; begin += STRIP) {
        size_t length = n - begin < STRIP ? n - begin : STRIP;
        for (int64_t i = 0; i < s->n_rows; i++)
            memcpy(strip + i * STRIP, x + (size_t)i * n + begin, length * sizeof *x);
        for (int64_t i = 0; i < s->batch.n_samples; i++) {
            const float *own = strip + i * STRIP, *other = strip + s->partner[i] * STRIP;
            float *to = x + (size_t)i * n + begin, share = s->share[i],
                  other_share = s->partner_share[i];
            for (size_t k = 0; k < length; k++) to[k] = share * own[k] + other_share * other[k];
        }
    }
    for (int64_t i = 0; i < s->batch.n_samples; i++)
        memcpy((char *)s->y_partner + (size_t)i * y_bytes,
               (const char *)s->y + (size_t)s->partner[i] * y_bytes, y_bytes);
}

static void *fill_ahead(void *self) {
    wf_loader *loader = self;
    slot *s;
    pthread_mutex_lock(&loader->lock);
    float *strip = loader->strip[loader->n_running++];
    for (int64_t i = take_row(loader, &s); i >= 0; i = take_row(loader, &s)) {
        pthread_mutex_unlock(&loader->lock);
        wf_status status = fill(loader, s, i);
        pthread_mutex_lock(&loader->lock);
        if (status != WF_OK && (s->status == WF_OK || i < s->failed)) {
            s->status = status;
            s->failed = i;
            snprintf(s->why, sizeof s->why, "%s", wf_context_error(loader->data->ctx));
        }
        if (++s->n_done < s->n_rows) continue;
        if (strip && s->status == WF_OK) {
            pthread_mutex_unlock(&loader->lock);
            mix(loader, s, strip);
            pthread_mutex_lock(&loader->lock);
        }
        s->is_filled = true;
        publish(loader);
    }
    pthread_mutex_unlock(&loader->lock);
    return NULL;
}

wf_status wf_loader_next(wf_loader *loader, const wf_batch **batch_out) {
    pthread_mutex_lock(&loader->lock);
    if (loader->n_freed < loader->n_taken) {
        loader->n_freed++;
        pthread_cond_broadcast(&loader->freed);
    }
    while (loader->n_filled == loader->n_taken) pthread_cond_wait(&loader->filled, &loader->lock);
    const slot *s = slot_of(loader, loader->n_taken++);
    pthread_mutex_unlock(&loader->lock);
    if (s->status != WF_OK) return wfi_fail(loader->data->ctx, s->status, "%s", s->why);
    *batch_out = s->batch.n_all ? &s->batch : NULL;
    return WF_OK;
}

/* ---- life ---- */

static wf_status check_config(wf_context *ctx, const wf_data *data, const wf_loader_config *c) {
    WF_TRY(wfi_check_struct(ctx, c, sizeof *c, "wf_loader_config"));
    if (c->split != WF_DATA_TRAIN && c->split != WF_DATA_TEST)
        return wfi_fail(ctx, WF_INVALID_ARG, "loader: there is no split %d", (int)c->split);
    const char *split = c->split == WF_DATA_TRAIN ? "training" : "test";
    int64_t n = c->split == WF_DATA_TRAIN ? data->about.n_train : data->about.n_test;
    if (n == 0)
        return wfi_fail(ctx, WF_INVALID_ARG, "loader: the data set has no %s samples", split);
    if (c->batch < 1 || c->batch > MAX_BATCH)
        return wfi_fail(ctx, WF_INVALID_ARG,
                        "loader: batch is %" PRId64 ", but must be 1 to %" PRId64, c->batch,
                        MAX_BATCH);
    if (c->drop_last && c->batch > n)
        return wfi_fail(ctx, WF_INVALID_ARG,
                        "loader: a batch of %" PRId64 " is more than the %" PRId64
                        " %s samples, and smaller batches are dropped",
                        c->batch, n, split);
    if (c->n_parts < 1 || c->part < 0 || c->part >= c->n_parts)
        return wfi_fail(ctx, WF_INVALID_ARG, "loader: part %d of %d", c->part, c->n_parts);
    int64_t n_micro = c->n_micro ? c->n_micro : c->n_parts;
    if (n_micro < 0 || n_micro % c->n_parts || n_micro > c->batch)
        return wfi_fail(ctx, WF_INVALID_ARG,
                        "loader: %" PRId64 " microbatches are not divided by %d parts, or are more "
                        "than a batch of %" PRId64,
                        n_micro, c->n_parts, c->batch);
    if (c->n_parts > 1 && c->split == WF_DATA_TRAIN && n < n_micro)
        return wfi_fail(ctx, WF_INVALID_ARG,
                        "loader: %" PRId64 " training samples are too few for %" PRId64
                        " microbatches",
                        n, n_micro);
    bool has_labels = data->about.kind == WF_DATA_IMAGES && data->about.y_dtype == WF_I32;
    if (!(c->mixup >= 0 && c->mixup <= WF_MAX_MIXUP) || (c->mixup > 0 && !has_labels))
        return wfi_fail(
            ctx, WF_INVALID_ARG,
            "loader: mixup is %g, but must be 0 to %d, and 0 for data other than labelled images",
            c->mixup, WF_MAX_MIXUP);
    if (c->n_prefetch < 1 || c->n_prefetch > MAX_PREFETCH)
        return wfi_fail(ctx, WF_INVALID_ARG, "loader: n_prefetch is %d, but must be 1 to %d",
                        c->n_prefetch, MAX_PREFETCH);
    if (c->n_workers < 1 || c->n_workers > MAX_WORKERS)
        return wfi_fail(ctx, WF_INVALID_ARG, "loader: n_workers is %d, but must be 1 to %d",
                        c->n_workers, MAX_WORKERS);
    if (c->first_epoch < 0 || c->first_epoch > MAX_EPOCH || c->first_sample < 0 ||
        c->first_sample > n)
        return wfi_fail(ctx, WF_INVALID_ARG,
                        "loader: cannot start at sample %" PRId64 " of epoch %" PRId64
                        ": epochs are 0 to %" PRId64 ", and each has %" PRId64 " samples",
                        c->first_sample, c->first_epoch, MAX_EPOCH, n);
    return WF_OK;
}

static void allocate_mixup(wf_loader *loader, size_t n_batch, size_t n_rows) {
    const wf_data_description *about = &loader->data->about;
    for (int i = 0; i < loader->n_slots; i++) {
        slot *s = &loader->slots[i];
        s->y_partner =
            wfi_pool_array(&loader->pool, n_batch, about->y_bytes, "the targets of partners");
        s->partner =
            wfi_pool_array(&loader->pool, n_batch, sizeof *s->partner, "the numbers of partners");
        s->share = wfi_pool_array(&loader->pool, n_batch, sizeof *s->share, "shares");
        s->partner_share =
            wfi_pool_array(&loader->pool, n_batch, sizeof *s->partner_share, "shares");
    }
    for (int k = 0; k < loader->config.n_workers; k++)
        loader->strip[k] =
            wfi_pool_array(&loader->pool, n_rows, STRIP * sizeof(float), "mixed samples");
    loader->mixed = wfi_pool_array(&loader->pool, (size_t)loader->config.batch,
                                   sizeof *loader->mixed, "places of partners");
}

static wf_status allocate(wf_loader *loader) {
    const wf_data_description *about = &loader->data->about;
    int64_t ignored, n_part;
    find_part(&loader->config, wfi_min_i64(loader->config.batch, loader->n_samples), &ignored,
              &n_part);
    size_t n_batch = (size_t)n_part, n_rows = n_batch;
    if (loader->config.mixup > 0 && loader->config.n_parts > 1) n_rows *= 2;
    for (int i = 0; i < loader->n_slots; i++) {
        slot *s = &loader->slots[i];
        s->x = wfi_pool_array(&loader->pool, n_rows, about->x_bytes, "the inputs of a batch");
        s->y = wfi_pool_array(&loader->pool, n_rows, about->y_bytes, "the targets of a batch");
        s->index =
            wfi_pool_array(&loader->pool, n_rows, sizeof *s->index, "the numbers of a batch");
    }
    if (loader->config.mixup > 0) allocate_mixup(loader, n_batch, n_rows);
    if (loader->config.shuffle)
        loader->order = wfi_pool_array(&loader->pool, (size_t)loader->n_samples,
                                       sizeof *loader->order, "the order of an epoch");
    return wfi_pool_status(&loader->pool);
}

/* Signals are the caller's business: the threads are started with all of them blocked. */
static wf_status start_threads(wf_loader *loader) {
    sigset_t all, before;
    pthread_attr_t attributes;
    sigfillset(&all);
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int code = 0;
    while (!code && loader->n_threads < loader->config.n_workers) {
        code = pthread_create(&loader->threads[loader->n_threads], &attributes, fill_ahead, loader);
        loader->n_threads += !code;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    if (code != 0)
        return wfi_fail(loader->data->ctx, WF_NO_MEMORY,
                        "loader: a thread that fills batches cannot start: %s", strerror(code));
    return WF_OK;
}

wf_status wf_loader_create(const wf_data *data, const wf_loader_config *config,
                           wf_loader **loader_out) {
    WF_TRY(check_config(data->ctx, data, config));
    wf_loader *loader = wfi_alloc(data->ctx, 1, sizeof *loader, "a loader");
    if (!loader) return WF_NO_MEMORY;
    bool train = config->split == WF_DATA_TRAIN;
    wfi_pool_init(&loader->pool, data->ctx);
    loader->data = data;
    loader->config = *config;
    if (!config->n_micro) loader->config.n_micro = config->n_parts;
    loader->n_samples = train ? data->about.n_train : data->about.n_test;
    loader->n_slots = config->n_prefetch + 1; /* and the one that the caller holds */
    loader->epoch = config->first_epoch;
    loader->place = config->first_sample;
    loader->order_epoch = -1;
    pthread_mutex_init(&loader->lock, NULL);
    pthread_cond_init(&loader->filled, NULL);
    pthread_cond_init(&loader->freed, NULL);
    wf_status status = allocate(loader);
    if (status == WF_OK) status = start_threads(loader);
    if (status != WF_OK) {
        wf_loader_destroy(loader);
        return status;
    }
    *loader_out = loader;
    return WF_OK;
}

void wf_loader_destroy(wf_loader *loader) {
    if (!loader) return;
    pthread_mutex_lock(&loader->lock);
    loader->stop = true;
    pthread_cond_broadcast(&loader->freed);
    pthread_mutex_unlock(&loader->lock);
    for (int k = 0; k < loader->n_threads; k++) pthread_join(loader->threads[k], NULL);
    pthread_cond_destroy(&loader->freed);
    pthread_cond_destroy(&loader->filled);
    pthread_mutex_destroy(&loader->lock);
    wfi_pool_release(&loader->pool);
    wfi_free(loader->data->ctx, loader);
}
