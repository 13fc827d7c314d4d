#include "device/separate.h"

#include "device/bounce.h"
#include "device/disk.h"
#include "device/thread_stream.h"

#include <stdio.h>
#include <stdlib.h>

static const wfi_separate_class *class_of(const wfi_device *device) {
    return device->kind->separate;
}

/* ---- finding units ---- */

wf_status wfi_machine_create(wf_context *ctx, const wfi_separate_class *kind, void **machine_out) {
    wfi_machine *m = calloc(1, kind->machine_bytes);
    if (!m) return wfi_no_memory(ctx, kind->machine_bytes, "devices");
    m->kind = kind;
    pthread_mutex_init(&m->lock, NULL);
    for (int i = 0; i < WFI_MOST_UNITS; i++) {
        void *unit = (char *)m + kind->units_at + (size_t)i * kind->unit_bytes;
        m->units[i] = unit;
        m->units[i]->machine = m;
        m->units[i]->number = i;
    }
    wf_status status = kind->find(ctx, m);
    if (status == WF_OK)
        *machine_out = m;
    else
        wfi_machine_destroy(m);
    return status;
}

void wfi_machine_destroy(void *machine) {
    wfi_machine *m = machine;
    for (int i = 0; i < m->n_units; i++) {
        m->kind->close(m->units[i]);
        free(m->units[i]->programs.all);
    }
    if (m->kind->end) m->kind->end(m);
    pthread_mutex_destroy(&m->lock);
    free(m);
}

static wf_status find_machine(wf_context *ctx, const wfi_separate_class *kind,
                              wfi_machine **machine_out) {
    void *shared;
    WF_TRY(wfi_context_share(ctx, &kind->shared, &shared));
    *machine_out = shared;
    return WF_OK;
}

wf_status wfi_separate_describe(wf_context *ctx, const wfi_device_class *kind, char *text,
                                size_t bytes) {
    wfi_machine *m;
    WF_TRY(find_machine(ctx, kind->separate, &m));
    int n = snprintf(text, bytes, "%d device%s:", m->n_units, m->n_units == 1 ? "" : "s");
    for (int i = 0; i < m->n_units && n >= 0 && (size_t)n < bytes; i++)
        n += snprintf(text + n, bytes - (size_t)n, "%s %d %s%s", i ? "," : "", i, m->units[i]->name,
                      m->units[i]->about);
    wf_status lacking = m->kind->check ? m->kind->check(ctx, m) : WF_OK;
    if (lacking != WF_OK && n >= 0 && (size_t)n < bytes)
        snprintf(text + n, bytes - (size_t)n, "; %s", wf_context_error(ctx));
    return WF_OK;
}

wf_status wfi_device_unit_find(wf_context *ctx, const wfi_separate_class *kind, int place,
                               wfi_device_unit **unit_out) {
    wfi_machine *m;
    WF_TRY(find_machine(ctx, kind, &m));
    wfi_device_unit *unit = m->units[place % m->n_units];
    pthread_mutex_lock(&m->lock);
    wf_status status = unit->is_open ? WF_OK : kind->open(ctx, unit);
    unit->is_open = status == WF_OK;
    pthread_mutex_unlock(&m->lock);
    *unit_out = unit;
    return status;
}

wf_status wfi_separate_create(wfi_device *device) {
    const wfi_owner *owner = &device->owner;
    wfi_device_unit *unit;
    WF_TRY(wfi_device_unit_find(owner->ctx, class_of(device), device->place, &unit));
    device->state = unit;
    wfi_log(owner->ctx, WF_LOG_INFO, "device", "rank %d: %s %d of %d, %s", owner->rank,
            class_of(device)->noun, unit->number, unit->machine->n_units, unit->name);
    return WF_OK;
}

/* ---- waiting ---- */

static wf_status enter(const wfi_device *device) {
    return class_of(device)->enter ? class_of(device)->enter(device) : WF_OK;
}

static void leave(const wfi_device *device) {
    if (class_of(device)->leave) class_of(device)->leave(device);
}

wf_status wfi_separate_enter_thread(wfi_device *device) {
    return enter(device);
}

wf_status wfi_separate_given_up(const wfi_device *device) {
    const wfi_device_unit *unit = wfi_device_unit_of(device);
    WF_TRY(wfi_owner_check(&device->owner));
    return wfi_fail(device->owner.ctx, WF_TIMEOUT,
                    "%s: %s %d, %s, hangs: it has not completed earlier work", device->kind->name,
                    class_of(device)->noun, unit->number, unit->name);
}

static wf_status give_up(const wfi_device *device, const wfi_stream_queue *stream,
                         const wfi_device_wait *wait) {
    wfi_device_unit *unit = wfi_device_unit_of(device);
    char what[sizeof unit->name + 32];
    __atomic_store_n(&unit->hangs, 1, __ATOMIC_RELAXED);
    snprintf(what, sizeof what, "%s %d, %s,", class_of(device)->noun, unit->number, unit->name);
    return wfi_device_hangs(device, stream, what, wait);
}

wf_status wfi_separate_give_up(wfi_stream_queue *stream, const wfi_device_wait *wait) {
    return give_up(stream->device, stream, wait);
}

/* Earlier tasks are counted as they complete, as others may wait for them. */
wf_status wfi_separate_finish(const wfi_device *device, wfi_stream_queue *stream) {
    void *marker = NULL;
    if (stream && stream->state) wfi_thread_stream_drain(stream);
    if (wfi_device_unit_hangs(wfi_device_unit_of(device))) return wfi_separate_given_up(device);
    wfi_device_wait wait = wfi_device_wait_begin(device);
    for (;;) {
        bool is_done = false;
        WF_TRY(
            class_of(device)->look(device, wfi_separate_queue(device, stream), &marker, &is_done));
        if (is_done) return WF_OK;
        if (!wfi_device_wait_on(&wait)) return give_up(device, stream, &wait);
    }
}

wf_status wfi_separate_finish_task(wfi_stream_queue *stream) {
    return wfi_separate_finish(stream->device, stream);
}

/* ---- streams ---- */

void wfi_separate_stream_destroy(wfi_stream_queue *stream) {
    wfi_device *device = stream->device;
    wfi_device_queue *queue = stream->queue;
    if (!wfi_device_unit_hangs(wfi_device_unit_of(device))) {
        wf_status entered = enter(device);
        class_of(device)->queue_destroy(stream);
        if (entered == WF_OK) leave(device);
    }
    if (queue->words)
        wfi_separate_memory_destroy(device, WFI_SPACE_DEVICE, queue->words,
                                    WFI_LAUNCH_WORDS * sizeof(int32_t));
    free(queue->kernels.all);
    wfi_free(stream->owner->ctx, queue);
}

static wf_status create_queue(wfi_device *device, wfi_stream_queue *stream) {
    wfi_device_queue *queue = stream->queue;
    WF_TRY(wfi_separate_memory_create(device, WFI_SPACE_DEVICE, WFI_LAUNCH_WORDS * sizeof(int32_t),
                                      &queue->words));
    WF_TRY(enter(device));
    wf_status status = class_of(device)->queue_create(stream);
    leave(device);
    return status;
}

wf_status wfi_separate_stream_create(wfi_device *device, wfi_stream_queue *stream,
                                     wfi_shared_epoch *counter) {
    stream->queue = wfi_alloc(device->owner.ctx, 1, class_of(device)->queue_bytes, "a queue");
    if (!stream->queue) return WF_NO_MEMORY;
    wf_status status = create_queue(device, stream);
    if (status == WF_OK) status = wfi_thread_stream_create(device, stream, counter);
    if (status != WF_OK) wfi_separate_stream_destroy(stream);
    return status;
}

wf_status wfi_separate_report_words(wfi_stream_queue *stream, wfi_words_listener listener,
                                    void *self, int32_t number) {
    int32_t seen[WFI_LAUNCH_WORDS];
    wfi_device *device = stream->device;
    void *words = ((const wfi_device_queue *)stream->queue)->words;
    WF_TRY(wfi_separate_copy(device, stream, seen, WFI_SPACE_HOST, words, WFI_SPACE_DEVICE,
                             sizeof seen));
    WF_TRY(wfi_separate_fill(device, stream, words, WFI_SPACE_DEVICE, 0, sizeof seen));
    WF_TRY(device->kind->finish_task(stream));
    listener(self, number, seen);
    return WF_OK;
}

/* ---- memory ---- */

wf_status wfi_separate_memory_create(wfi_device *device, wfi_space space, size_t bytes,
                                     void **base_out) {
    if (space == WFI_SPACE_DISK) return wfi_disk_create(device, bytes, base_out);
    WF_TRY(enter(device));
    wf_status status =
        class_of(device)->memory_create(device, space, bytes ? bytes : WFI_ALIGN_BYTES, base_out);
    leave(device);
    return status;
}

void wfi_separate_memory_destroy(wfi_device *device, wfi_space space, void *base, size_t bytes) {
    if (space == WFI_SPACE_DISK) {
        wfi_disk_destroy(device, base);
        return;
    }
    if (wfi_device_unit_hangs(wfi_device_unit_of(device))) return;
    wf_status entered = enter(device);
    class_of(device)->memory_destroy(device, space, base, bytes ? bytes : WFI_ALIGN_BYTES);
    if (entered == WF_OK) leave(device);
}

/* ---- copies ---- */

/* Ends an operation of the host, which is done on return. */
static wf_status end_entered(const wfi_device *device, wf_status status) {
    if (status == WF_OK) status = wfi_separate_finish(device, NULL);
    leave(device);
    return status;
}

/* A copy by the host itself comes after the stream's earlier work. */
wf_status wfi_separate_copy(wfi_device *device, wfi_stream_queue *stream, void *to,
                            wfi_space to_space, const void *from, wfi_space from_space,
                            size_t bytes) {
    bool to_device = to_space == WFI_SPACE_DEVICE, from_device = from_space == WFI_SPACE_DEVICE;
    if (!bytes) return WF_OK;
    if (!to_device && !from_device) {
        if (stream) WF_TRY(wfi_separate_finish(device, stream));
        return wfi_disk_copy(device, to, to_space, from, from_space, bytes);
    }
    if (to_space == WFI_SPACE_DISK || from_space == WFI_SPACE_DISK)
        return wfi_bounce_copy(stream, device, to, to_space, device, from, from_space, bytes);
    if (!stream) WF_TRY(enter(device));
    wf_status status =
        class_of(device)->copy(device, stream, to, to_device, from, from_device, bytes);
    return stream ? status : end_entered(device, status);
}

wf_status wfi_separate_fill(wfi_device *device, wfi_stream_queue *stream, void *to, wfi_space space,
                            int byte, size_t bytes) {
    if (!bytes) return WF_OK;
    if (space != WFI_SPACE_DEVICE) {
        if (stream) WF_TRY(wfi_separate_finish(device, stream));
        return wfi_disk_fill(device, to, space, byte, bytes);
    }
    if (!stream) WF_TRY(enter(device));
    wf_status status = class_of(device)->fill(device, stream, to, byte, bytes);
    return stream ? status : end_entered(device, status);
}
