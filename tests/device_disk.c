/* A file as memory: any bytes at any place, between files and memory, and not a byte beside; a
 * folder that has no room for it, or is none, is said so; nothing is left in the folder. */
#include "data_folder.h"
#include "device/disk.h"
#include "test.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>

#define N_BYTES ((size_t)9 << 20) /* more than twice what is moved at once */

static wfi_failure failure;

static wfi_device *make_device(const folder *f) {
    const wfi_owner owner = {.ctx = f->ctx, .timeout_ms = TEST_TIMEOUT_MS, .failure = &failure};
    wfi_device *device;
    TEST_OK(f->ctx, wfi_device_create(&owner, &wfi_device_cpu, 0, 1, &device));
    device->folder = f->path;
    return device;
}

static char *make_file(wfi_device *device, size_t bytes) {
    void *base;
    TEST_OK(device->owner.ctx, device->kind->memory_create(device, WFI_SPACE_DISK, bytes, &base));
    return base;
}

/* Into memory that begins in its page where the file does, and elsewhere; not a byte behind. */
static void expect_bytes(wfi_device *device, const char *file, const char *want, size_t bytes) {
    void *memory;
    const size_t places[] = {(uintptr_t)file % 4096, 8};
    assert_int_equal(posix_memalign(&memory, 4096, bytes + 3 * 4096), 0);
    for (size_t k = 0; k < WFI_COUNT(places); k++) {
        char *got = (char *)memory + places[k];
        memset(memory, 0x5a, bytes + 3 * 4096);
        TEST_OK(device->owner.ctx,
                wfi_memory_copy(device, NULL, got, WFI_SPACE_HOST, file, WFI_SPACE_DISK, bytes));
        assert_memory_equal(got, want, bytes);
        for (char *at = memory; at < (char *)memory + bytes + 3 * 4096; at++)
            if (at < got || at >= got + bytes) assert_int_equal(*at, 0x5a);
    }
    free(memory);
}

TEST_IN_FOLDER(any_bytes_anywhere) {
    static const size_t sizes[] = {1, 64, 4095, 4096, 4097, 3 * 4096, (4 << 20) - 1, (8 << 20) + 5};
    static const size_t places[] = {0, 1, 4095, 4096, 12345, 8192};
    wfi_device *device = make_device(f);
    char *a = make_file(device, N_BYTES), *b = make_file(device, N_BYTES);
    char *want = calloc(1, N_BYTES);
    void *all;
    assert_int_equal(posix_memalign(&all, 4096, N_BYTES), 0);
    char *given = all;
    assert_non_null(want);
    assert_int_equal(folder_count(f, 0), 0);
    for (size_t k = 0; k < N_BYTES; k++) given[k] = (char)(k * 7 + k / 4096);
    expect_bytes(device, a, want, N_BYTES);
    for (size_t s = 0; s < WFI_COUNT(sizes); s++)
        for (size_t k = 0; k < 2 * WFI_COUNT(places); k++) {
            size_t p = k / 2, at = places[p], n = sizes[s], far = 512 * s + at % 4096;
            size_t from = k % 2 ? far : (s + p) * 64; /* in step with the file's pages, or not */
            TEST_OK(f->ctx, wfi_memory_copy(device, NULL, a + at, WFI_SPACE_DISK, given + from,
                                            WFI_SPACE_DEVICE, n));
            memcpy(want + at, given + from, n);
            expect_bytes(device, a, want, at + n + 5000);
            expect_bytes(device, a + at, want + at, n);
        }
    TEST_OK(f->ctx, wfi_memory_fill(device, NULL, a + 4100, WFI_SPACE_DISK, 9, 5 << 20));
    memset(want + 4100, 9, 5 << 20);
    TEST_OK(f->ctx, wfi_memory_copy(device, NULL, b + 3, WFI_SPACE_DISK, a + 1, WFI_SPACE_DISK,
                                    N_BYTES - 3));
    expect_bytes(device, a, want, N_BYTES);
    expect_bytes(device, b + 3, want + 1, N_BYTES - 3);
    free(want);
    free(all);
    device->kind->memory_destroy(device, WFI_SPACE_DISK, a, N_BYTES);
    expect_bytes(device, b, "", 1);
    device->kind->memory_destroy(device, WFI_SPACE_DISK, b, N_BYTES);
    wfi_device_destroy(device);
}

/* Another process opens the descriptor; here the same one does. */
TEST_IN_FOLDER(opened_twice) {
    wfi_device *device = make_device(f);
    char *own = make_file(device, 10000), path[64];
    void *other;
    snprintf(path, sizeof path, "/proc/self/fd/%d", wfi_disk_descriptor(device, own));
    int fd = open(path, O_RDWR);
    assert_true(fd >= 0);
    TEST_OK(f->ctx, wfi_disk_open(device, fd, 10000, &other));
    for (int k = 0; k < 3; k++) {
        char text[] = "what the one writes, the other reads";
        text[0] = (char)('a' + k);
        TEST_OK(f->ctx, wfi_memory_copy(device, NULL, own + 77, WFI_SPACE_DISK, text,
                                        WFI_SPACE_DEVICE, sizeof text));
        expect_bytes(device, (char *)other + 77, text, sizeof text);
    }
    wfi_disk_destroy(device, other);
    wfi_disk_destroy(device, own);
    wfi_device_destroy(device);
}

TEST_IN_FOLDER(says_what_is_wrong) {
    wfi_device *device = make_device(f);
    struct rlimit limit, low;
    void *base;
    char file[400], nowhere[400];
    FILE *out = fopen(folder_file(f, "file"), "w");
    assert_non_null(out);
    fclose(out);
    snprintf(file, sizeof file, "%s/file", f->path);
    snprintf(nowhere, sizeof nowhere, "%s/nowhere", f->path);
    const struct {
        const char *folder, *words;
    } wrong[] = {{nowhere, "/nowhere cannot be made: No such file"},
                 {file, "/file cannot be made: Not a directory"},
                 {"/proc", "in the folder /proc cannot be made"}};
    for (size_t k = 0; k < WFI_COUNT(wrong); k++) {
        device->folder = wrong[k].folder;
        TEST_REFUSED(f->ctx, wfi_disk_create(device, 12345678, &base), WF_IO, wrong[k].words);
        assert_non_null(strstr(wf_context_error(f->ctx), "12345678 bytes"));
    }
    device->folder = f->path;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    low = limit;
    low.rlim_cur = 1 << 20;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &low), 0);
    wf_status status = wfi_disk_create(device, 2 << 20, &base);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    signal(SIGXFSZ, SIG_DFL);
    TEST_REFUSED(f->ctx, status, WF_IO, "2097152 bytes in the folder");
    assert_int_equal(folder_count(f, 1), 1);
    assert_null(device->disks);
    wfi_device_destroy(device);
}
