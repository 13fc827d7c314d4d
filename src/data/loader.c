/* Batches in order, filled ahead by a thread.
 *
 * The batches lie in a ring. The thread fills them in turn, the caller borrows them in
 * turn; three counters under one lock say how far each is. The thread never waits for
 * anything but a free batch, so neither wait needs a deadline: the caller's ends because
 * filling cannot fail, the thread's ends with the next batch taken or with destroy. */
#include "base/base.h"
#include "base/random.h"
#include "data/source.h"
#include "plan/part.h"

#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>

#define MAX_PREFETCH 64
#define MAX_BATCH    (INT64_C(1) << 24)
#define MAX_EPOCH    (INT64_C(1) << 53) /* no run comes near, and counting on cannot overflow */
#define STACK_BYTES  (256 * 1024)       /* the thread calls nothing deep */

typedef struct slot {
    void *x, *y;
    int64_t *index;
    wf_batch batch; /* n_samples 0: the end of a pass over the test split */
} slot;

struct wf_loader {
    const wf_data *data;
    wf_loader_config config;
    int64_t n_samples; /* of the split */
    int n_slots;
    slot slots[MAX_PREFETCH + 1];

    /* Of the thread alone. */
    int64_t *order; /* [n_samples] of order_epoch; NULL: as in the files */
    int64_t order_epoch, epoch, place;

    pthread_t thread;
    bool has_thread;
    atomic_bool stop; /* set under the lock, read between samples without it */
    pthread_mutex_t lock;
    pthread_cond_t filled, freed;
    uint64_t n_filled, n_taken, n_freed; /* batches, ever; under the lock */
};

/* ---- what comes next: pure functions of the position ---- */

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

/* Fills the slot with the batch at the position and moves on; gives up at `stop`. */
static void fill(wf_loader *loader, slot *s) {
    wf_batch *batch = &s->batch;
    const wf_data_description *about = &loader->data->about;
    bool train = loader->config.split == WF_DATA_TRAIN;
    *batch = (wf_batch){.x = s->x, .y = s->y, .index = s->index};
    if (!goes_on(loader, loader->place)) {
        start_epoch(loader);
        if (!train) return;
    }
    make_order(loader);
    batch->epoch = loader->epoch;
    batch->first_sample = loader->place;
    batch->n_all = wfi_min_i64(loader->config.batch, loader->n_samples - loader->place);
    int64_t first;
    find_part(&loader->config, batch->n_all, &first, &batch->n_samples);
    batch->x_bytes = (size_t)batch->n_samples * about->x_bytes;
    batch->y_bytes = (size_t)batch->n_samples * about->y_bytes;
    wfi_sample sample = {.split = loader->config.split,
                         .epoch = loader->epoch,
                         .augment = loader->config.augment != 0};
    for (int64_t i = 0; i < batch->n_samples; i++) {
        if (atomic_load_explicit(&loader->stop, memory_order_relaxed)) return;
        int64_t place = loader->place + first + i;
        s->index[i] = sample.index = loader->order ? loader->order[place] : place;
        loader->data->source->fill(loader->data, &sample, (char *)s->x + (size_t)i * about->x_bytes,
                                   (char *)s->y + (size_t)i * about->y_bytes);
    }
    loader->place += batch->n_all;
    batch->last_of_epoch = !goes_on(loader, loader->place);
}

/* ---- the ring ---- */

/* The next slot to fill, or NULL when the loader is being destroyed. */
static slot *claim(wf_loader *loader) {
    pthread_mutex_lock(&loader->lock);
    while (!loader->stop && loader->n_filled - loader->n_freed == (uint64_t)loader->n_slots)
        pthread_cond_wait(&loader->freed, &loader->lock);
    slot *s = loader->stop ? NULL : &loader->slots[loader->n_filled % (uint64_t)loader->n_slots];
    pthread_mutex_unlock(&loader->lock);
    return s;
}

static void publish(wf_loader *loader) {
    pthread_mutex_lock(&loader->lock);
    loader->n_filled++;
    pthread_cond_signal(&loader->filled);
    pthread_mutex_unlock(&loader->lock);
}

static void *fill_ahead(void *self) {
    wf_loader *loader = self;
    for (slot *s = claim(loader); s; s = claim(loader)) {
        fill(loader, s);
        publish(loader);
    }
    return NULL;
}

wf_status wf_loader_next(wf_loader *loader, const wf_batch **batch_out) {
    pthread_mutex_lock(&loader->lock);
    if (loader->n_freed < loader->n_taken) {
        loader->n_freed++;
        pthread_cond_signal(&loader->freed);
    }
    while (loader->n_filled == loader->n_taken) pthread_cond_wait(&loader->filled, &loader->lock);
    const wf_batch *batch = &loader->slots[loader->n_taken++ % (uint64_t)loader->n_slots].batch;
    pthread_mutex_unlock(&loader->lock);
    *batch_out = batch->n_all ? batch : NULL;
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
    if (c->n_prefetch < 1 || c->n_prefetch > MAX_PREFETCH)
        return wfi_fail(ctx, WF_INVALID_ARG, "loader: n_prefetch is %d, but must be 1 to %d",
                        c->n_prefetch, MAX_PREFETCH);
    if (c->first_epoch < 0 || c->first_epoch > MAX_EPOCH || c->first_sample < 0 ||
        c->first_sample > n)
        return wfi_fail(ctx, WF_INVALID_ARG,
                        "loader: cannot start at sample %" PRId64 " of epoch %" PRId64
                        ": epochs are 0 to %" PRId64 ", and each has %" PRId64 " samples",
                        c->first_sample, c->first_epoch, MAX_EPOCH, n);
    return WF_OK;
}

static wf_status allocate(wf_loader *loader) {
    wf_context *ctx = loader->data->ctx;
    const wf_data_description *about = &loader->data->about;
    int64_t ignored, n_part;
    find_part(&loader->config, wfi_min_i64(loader->config.batch, loader->n_samples), &ignored,
              &n_part);
    size_t n_batch = (size_t)n_part;
    for (int i = 0; i < loader->n_slots; i++) {
        slot *s = &loader->slots[i];
        s->x = wfi_alloc(ctx, n_batch, about->x_bytes, "the inputs of a batch");
        if (!s->x) return WF_NO_MEMORY;
        s->y = wfi_alloc(ctx, n_batch, about->y_bytes, "the targets of a batch");
        if (!s->y) return WF_NO_MEMORY;
        s->index = wfi_alloc(ctx, n_batch, sizeof *s->index, "the numbers of a batch");
        if (!s->index) return WF_NO_MEMORY;
    }
    if (!loader->config.shuffle) return WF_OK;
    loader->order =
        wfi_alloc(ctx, (size_t)loader->n_samples, sizeof *loader->order, "the order of an epoch");
    return loader->order ? WF_OK : WF_NO_MEMORY;
}

/* Signals are the caller's business: the thread is started with all of them blocked. */
static wf_status start_thread(wf_loader *loader) {
    sigset_t all, before;
    pthread_attr_t attributes;
    sigfillset(&all);
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int code = pthread_create(&loader->thread, &attributes, fill_ahead, loader);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    if (code != 0)
        return wfi_fail(loader->data->ctx, WF_NO_MEMORY,
                        "loader: the thread that fills batches cannot start: %s", strerror(code));
    loader->has_thread = true;
    return WF_OK;
}

wf_status wf_loader_create(const wf_data *data, const wf_loader_config *config,
                           wf_loader **loader_out) {
    WF_TRY(check_config(data->ctx, data, config));
    wf_loader *loader = wfi_alloc(data->ctx, 1, sizeof *loader, "a loader");
    if (!loader) return WF_NO_MEMORY;
    bool train = config->split == WF_DATA_TRAIN;
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
    if (status == WF_OK) status = start_thread(loader);
    if (status != WF_OK) {
        wf_loader_destroy(loader);
        return status;
    }
    *loader_out = loader;
    return WF_OK;
}

void wf_loader_destroy(wf_loader *loader) {
    if (!loader) return;
    if (loader->has_thread) {
        pthread_mutex_lock(&loader->lock);
        loader->stop = true;
        pthread_cond_signal(&loader->freed);
        pthread_mutex_unlock(&loader->lock);
        pthread_join(loader->thread, NULL);
    }
    pthread_cond_destroy(&loader->freed);
    pthread_cond_destroy(&loader->filled);
    pthread_mutex_destroy(&loader->lock);
    wf_context *ctx = loader->data->ctx;
    for (int i = 0; i < loader->n_slots; i++) {
        wfi_free(ctx, loader->slots[i].x);
        wfi_free(ctx, loader->slots[i].y);
        wfi_free(ctx, loader->slots[i].index);
    }
    wfi_free(ctx, loader->order);
    wfi_free(ctx, loader);
}
