/* Stores: what all kinds do alike, and what becomes of strangers at a port, of files that
 * somebody left, and of two jobs at one place. */
#include "comm/store/store.h"
#include "test.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

typedef enum store_kind { MEMORY, FILE_STORE, TCP, N_KINDS } store_kind;
static char folder[64];

static wf_store_config config_of(const char *url, int rank, int n_ranks) {
    wf_store_config config = WF_STORE_CONFIG_INIT;
    config.url = url;
    config.rank = rank;
    config.n_ranks = n_ranks;
    config.timeout_ms = 20000;
    return config;
}

static const char *file_url(const char *name) {
    static char url[128];
    snprintf(url, sizeof url, "file://%s/%s", folder, name);
    return url;
}

static void close_two(wf_store *two[2]) {
    if (two[1] != two[0]) wf_store_close(two[1]);
    wf_store_close(two[0]);
}

/* A store with two handles; those of memory are one. */
static wf_status try_two(wf_context *ctx, store_kind kind, int64_t timeout_ms, wf_store *two[2]) {
    const char *url = kind == MEMORY       ? "memory:"
                      : kind == FILE_STORE ? file_url("two")
                                           : "tcp://127.0.0.1:0";
    two[0] = two[1] = NULL;
    for (int rank = 0; rank < 2; rank++) {
        wf_store_config config = config_of(url, rank, 2);
        config.timeout_ms = timeout_ms;
        if (kind == TCP && rank) config.url = wf_store_url(two[0]);
        if (kind == MEMORY && rank) {
            two[1] = two[0];
            continue;
        }
        wf_status status = wf_store_open(ctx, &config, &two[rank]);
        if (status == WF_OK) continue;
        wf_store_close(two[0]);
        return status;
    }
    return WF_OK;
}

static void open_two(wf_context *ctx, store_kind kind, int64_t timeout_ms, wf_store *two[2]) {
    TEST_OK(ctx, try_two(ctx, kind, timeout_ms, two));
}

/* ---- alike ---- */

static void operations(void **state) {
    (void)state;
    wf_context *ctx = test_context();
    for (store_kind kind = MEMORY; kind < N_KINDS; kind++) {
        wf_store *two[2];
        char got[8] = "";
        size_t n = 9;
        int64_t sum = 0, n_keys = -1;
        int was = -1;
        open_two(ctx, kind, 20000, two);
        TEST_OK(ctx, wf_store_set(two[0], "a", "b\0c", 3));
        TEST_OK(ctx, wf_store_get(two[1], "a", got, sizeof got, &n));
        assert_int_equal(n, 3);
        assert_memory_equal(got, "b\0c", 3);
        TEST_OK(ctx, wf_store_set(two[1], "a", NULL, 0));
        TEST_OK(ctx, wf_store_get(two[0], "a", NULL, 0, &n));
        assert_int_equal(n, 0);
        TEST_OK(ctx, wf_store_add(two[0], "n", 40, &sum));
        TEST_OK(ctx, wf_store_add(two[1], "n", 2, &sum));
        assert_int_equal(sum, 42);
        TEST_OK(ctx, wf_store_get(two[0], "n", got, sizeof got, &n));
        assert_memory_equal(got, "42", 2);
        assert_int_equal(n, 2);
        TEST_OK(ctx, wf_store_compare_set(two[0], "c", NULL, 0, "x", 1, &was));
        assert_int_equal(was, 1);
        TEST_OK(ctx, wf_store_compare_set(two[1], "c", NULL, 0, "y", 1, &was));
        assert_int_equal(was, 0);
        TEST_OK(ctx, wf_store_compare_set(two[1], "c", "z", 1, "y", 1, &was));
        assert_int_equal(was, 0);
        TEST_OK(ctx, wf_store_compare_set(two[1], "c", "x", 1, "y", 1, &was));
        assert_int_equal(was, 1);
        TEST_OK(ctx, wf_store_get(two[0], "c", got, sizeof got, &n));
        assert_memory_equal(got, "y", 1);
        TEST_OK(ctx, wf_store_compare_set(two[1], "none", "x", 1, "y", 1, &was));
        assert_int_equal(was, 0);
        TEST_OK(ctx, wf_store_n_keys(two[1], &n_keys));
        assert_int_equal(n_keys, 3);
        TEST_OK(ctx, wf_store_delete(two[0], "a", &was));
        assert_int_equal(was, 1);
        TEST_OK(ctx, wf_store_delete(two[1], "a", &was));
        assert_int_equal(was, 0);
        TEST_OK(ctx, wf_store_n_keys(two[0], &n_keys));
        assert_int_equal(n_keys, 2);
        const char *keys[] = {"c", "n"};
        TEST_OK(ctx, wf_store_wait(two[1], keys, 2));
        close_two(two);
    }
    test_context_end(ctx);
}

static void bounds(void **state) {
    (void)state;
    static char large[WF_STORE_MAX_VALUE + 1], back[WF_STORE_MAX_VALUE];
    wf_context *ctx = test_context();
    for (store_kind kind = MEMORY; kind < N_KINDS; kind++) {
        wf_store *two[2];
        char key[WF_STORE_MAX_KEY + 2] = "";
        size_t n;
        int64_t sum;
        open_two(ctx, kind, 20000, two);
        memset(key, 'k', WF_STORE_MAX_KEY);
        for (size_t i = 0; i < sizeof large; i++) large[i] = (char)(i * 7);
        TEST_OK(ctx, wf_store_set(two[1], key, large, WF_STORE_MAX_VALUE));
        TEST_OK(ctx, wf_store_get(two[0], key, back, sizeof back, &n));
        assert_int_equal(n, WF_STORE_MAX_VALUE);
        assert_memory_equal(back, large, n);
        TEST_OK(ctx, wf_store_get(two[1], key, back, sizeof back, &n));
        assert_memory_equal(back, large, n);
        TEST_REFUSED(ctx, wf_store_get(two[1], key, back, 5, &n), WF_INVALID_ARG,
                     "has 65536 bytes, there is room for 5");
        TEST_REFUSED(ctx, wf_store_set(two[1], "k", large, sizeof large), WF_INVALID_ARG,
                     "65537 bytes");
        key[WF_STORE_MAX_KEY] = 'k';
        TEST_REFUSED(ctx, wf_store_set(two[0], key, "", 0), WF_INVALID_ARG, "1 to 128 printable");
        TEST_REFUSED(ctx, wf_store_set(two[0], "", "", 0), WF_INVALID_ARG, "1 to 128 printable");
        TEST_REFUSED(ctx, wf_store_set(two[0], "a b", "", 0), WF_INVALID_ARG, "printable");
        TEST_REFUSED(ctx, wf_store_add(two[1], "\033[2J", 1, &sum), WF_INVALID_ARG, "printable");
        TEST_OK(ctx, wf_store_set(two[0], "n", "007", 3));
        TEST_REFUSED(ctx, wf_store_add(two[1], "n", 1, &sum), WF_INVALID_ARG, "no whole number");
        TEST_OK(ctx, wf_store_set(two[0], "n", "9223372036854775807", 19));
        TEST_REFUSED(ctx, wf_store_add(two[1], "n", 1, &sum), WF_INVALID_ARG, "too large");
        close_two(two);
    }
    test_context_end(ctx);
}

static void a_full_store_says_so(void **state) {
    (void)state;
    wf_context *ctx = test_context();
    wf_store *store;
    wf_store_config config = config_of("memory:", 0, 1);
    TEST_OK(ctx, wf_store_open(ctx, &config, &store));
    for (int i = 0; i < WFI_STORE_MAX_KEYS; i++) {
        char key[16];
        snprintf(key, sizeof key, "k%d", i);
        TEST_OK(ctx, wf_store_set(store, key, "", 0));
    }
    TEST_REFUSED(ctx, wf_store_set(store, "more", "", 0), WF_INVALID_ARG, "is full: it takes 4096");
    TEST_OK(ctx, wf_store_set(store, "k0", "x", 1));
    wf_store_close(store);
    test_context_end(ctx);
}

/* Each of 4 threads adds with a handle of its own; rank 0 waits for what the others set. */
typedef struct adder {
    wf_context *ctx;
    wf_store *store;
    int rank;
    wf_status status;
} adder;

static void *add_many(void *self) {
    adder *a = self;
    char key[16];
    for (int i = 0; i < 50 && !a->status; i++) {
        int64_t sum;
        a->status = wf_store_add(a->store, "sum", a->rank + 1, &sum);
    }
    snprintf(key, sizeof key, "done/%d", a->rank);
    if (!a->status) a->status = wf_store_set(a->store, key, "", 0);
    return NULL;
}

static void sums_of_threads(void **state) {
    (void)state;
    wf_context *ctx = test_context();
    const char *const done[] = {"done/0", "done/1", "done/2", "done/3"};
    for (store_kind kind = MEMORY; kind < N_KINDS; kind++) {
        adder adders[4];
        pthread_t threads[4];
        int64_t sum = 0;
        for (int r = 0; r < 4; r++) {
            wf_store_config config = config_of(kind == MEMORY       ? "memory:"
                                               : kind == FILE_STORE ? file_url("sum")
                                                                    : "tcp://127.0.0.1:0",
                                               r, 4);
            if (kind == TCP && r) config.url = wf_store_url(adders[0].store);
            adders[r] = (adder){.ctx = ctx, .rank = r};
            if (kind == MEMORY && r)
                adders[r].store = adders[0].store;
            else
                TEST_OK(ctx, wf_store_open(ctx, &config, &adders[r].store));
        }
        for (int r = 0; r < 4; r++) pthread_create(&threads[r], NULL, add_many, &adders[r]);
        TEST_OK(ctx, wf_store_wait(adders[0].store, done, 4));
        for (int r = 0; r < 4; r++) {
            pthread_join(threads[r], NULL);
            TEST_OK(ctx, adders[r].status);
        }
        TEST_OK(ctx, wf_store_add(adders[0].store, "sum", 0, &sum));
        assert_int_equal(sum, 500);
        for (int r = 3; r > 0 && kind != MEMORY; r--) wf_store_close(adders[r].store);
        wf_store_close(adders[0].store);
    }
    test_context_end(ctx);
}

static const char *try_missing(void *self, int timeout_ms) {
    static const char *const keys[] = {"here", "rank/1", "rank/2"};
    static char text[1000], words[100];
    wf_context *ctx = test_context();
    wf_store *two[2];
    size_t n;
    if (try_two(ctx, *(store_kind *)self, timeout_ms, two)) {
        test_context_end(ctx);
        return "the store is not opened in time";
    }
    snprintf(words, sizeof words, "waited %d ms for 3 keys, but nobody has set rank/1, rank/2 in",
             timeout_ms);
    wf_status set = wf_store_set(two[0], "here", "", 0);
    wf_status waited = set ? set : wf_store_wait(two[1], keys, 3);
    snprintf(text, sizeof text, "%s: %s", wf_status_name(waited), wf_context_error(ctx));
    const char *wrong = waited == WF_TIMEOUT && strstr(text, words) ? NULL : text;
    if (!wrong) {
        wf_status got = wf_store_get(two[1], "there", NULL, 0, &n);
        snprintf(text, sizeof text, "%s: %s", wf_status_name(got), wf_context_error(ctx));
        if (got != WF_TIMEOUT || !strstr(text, "for the key there, but nobody has set it"))
            wrong = text;
    }
    close_two(two);
    test_context_end(ctx);
    return wrong;
}

static void waits_end_and_name_what_is_missing(void **state) {
    (void)state;
    for (store_kind kind = MEMORY; kind < N_KINDS; kind++) test_deadlines(try_missing, &kind);
}

static void urls_that_are_refused(void **state) {
    (void)state;
    wf_context *ctx = test_context();
    const struct {
        const char *url;
        wf_status status;
        const char *words;
    } wrong[] = {
        {"", WF_INVALID_ARG, "it takes memory:, file:///path or tcp://"},
        {"http://x", WF_INVALID_ARG, "it takes memory:, file:///path or tcp://"},
        {"file://", WF_INVALID_ARG, "write file:///path"},
        {"file://host/path", WF_INVALID_ARG, "write file:///path"},
        {"file:///", WF_INVALID_ARG, "write file:///path"},
        {"file:///no/such/folder/file", WF_IO, "cannot be opened: No such file"},
        {"tcp://127.0.0.1", WF_INVALID_ARG, "with a port from 1 to 65535"},
        {"tcp://127.0.0.1:", WF_INVALID_ARG, "with a port from 1 to 65535"},
        {"tcp://127.0.0.1:65536", WF_INVALID_ARG, "with a port from 1 to 65535"},
        {"tcp://127.0.0.1:1e3", WF_INVALID_ARG, "with a port from 1 to 65535"},
        {"tcp://0.0.0.0:29500", WF_UNSUPPORTED, "across machines start the ranks by mpirun"},
        {"tcp://10.1.2.3:29500", WF_UNSUPPORTED, "'10.1.2.3' is no address of this machine alone"},
        {"tcp://[::]:29500", WF_UNSUPPORTED, "mpirun"},
        {"tcp://node7.example.org:29500", WF_UNSUPPORTED, "mpirun"},
    };
    wf_store *store;
    for (size_t k = 0; k < sizeof wrong / sizeof *wrong; k++) {
        wf_store_config config = config_of(wrong[k].url, 0, 1);
        TEST_REFUSED(ctx, wf_store_open(ctx, &config, &store), wrong[k].status, wrong[k].words);
    }
    wf_store_config config = config_of("tcp://127.0.0.1:0", 1, 2);
    TEST_REFUSED(ctx, wf_store_open(ctx, &config, &store), WF_INVALID_ARG, "from 1 to 65535");
    config = config_of("memory:", 2, 2);
    TEST_REFUSED(ctx, wf_store_open(ctx, &config, &store), WF_INVALID_ARG, "rank 2 of 2");
    config.struct_size--;
    TEST_REFUSED(ctx, wf_store_open(ctx, &config, &store), WF_INVALID_ARG,
                 "begin it with its _INIT");
    test_context_end(ctx);
}

/* ---- a file ---- */

static void the_last_removes_the_file(void **state) {
    (void)state;
    wf_context *ctx = test_context();
    wf_store *two[2];
    const char *path = file_url("two") + strlen("file://");
    for (int round = 0; round < 3; round++) {
        int64_t n;
        open_two(ctx, FILE_STORE, 20000, two);
        TEST_OK(ctx, wf_store_n_keys(two[1], &n));
        assert_int_equal(n, 0);
        TEST_OK(ctx, wf_store_set(two[0], "a", "", 0));
        wf_store_close(two[0]);
        assert_int_equal(access(path, F_OK), 0);
        TEST_OK(ctx, wf_store_n_keys(two[1], &n));
        assert_int_equal(n, 1);
        wf_store_close(two[1]);
        assert_int_equal(access(path, F_OK), -1);
    }
    test_context_end(ctx);
}

static void write_file(const char *path, const void *bytes, size_t n) {
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, n, file), n);
    assert_int_equal(fchmod(fileno(file), 0600), 0); /* whatever the umask */
    fclose(file);
}

static int file_starts(const char *path, const char *words) {
    char text[64] = "";
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    size_t n = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    return n >= strlen(words) && !strncmp(text, words, strlen(words));
}

static void files_that_are_refused(void **state) {
    (void)state;
    wf_context *ctx = test_context();
    wf_store *store, *two[2];
    const char *url = file_url("two"), *path = url + strlen("file://");
    char copy[4096];
    wf_store_config config = config_of(url, 0, 2);
    /* An earlier run's: what a killed process leaves is a copy of what it had. */
    open_two(ctx, FILE_STORE, 20000, two);
    TEST_OK(ctx, wf_store_set(two[0], "a", "b", 1));
    FILE *file = fopen(path, "r");
    size_t n = fread(copy, 1, sizeof copy, file);
    fclose(file);
    TEST_REFUSED(ctx, wf_store_open(ctx, &config, &store), WF_INVALID_ARG,
                 "another process is rank 0 there");
    config.n_ranks = 3;
    TEST_REFUSED(ctx, wf_store_open(ctx, &config, &store), WF_INVALID_ARG,
                 "in use by a job of 2 ranks");
    config.n_ranks = 2;
    close_two(two);
    write_file(path, copy, n);
    TEST_REFUSED(ctx, wf_store_open(ctx, &config, &store), WF_INVALID_ARG,
                 "was left by an earlier run");
    assert_int_equal(access(path, F_OK), 0);
    /* Somebody's thesis. */
    write_file(path, "Chapter 1", 9);
    TEST_REFUSED(ctx, wf_store_open(ctx, &config, &store), WF_CORRUPT, "is no store of weft");
    assert_true(file_starts(path, "Chapter 1"));
    unlink(path);
    assert_int_equal(mkdir(path, 0700), 0);
    TEST_REFUSED(ctx, wf_store_open(ctx, &config, &store), WF_IO, "cannot be opened");
    rmdir(path);
    assert_int_equal(mkfifo(path, 0600), 0);
    TEST_REFUSED(ctx, wf_store_open(ctx, &config, &store), WF_INVALID_ARG, "no regular file");
    unlink(path);
    test_context_end(ctx);
}

/* Half a record is what a killed writer leaves: it counts for nothing. Anything else is damage. */
/* Who else can write the file could take part in the job, or have it write elsewhere. */
static void files_of_others_are_refused(void **state) {
    (void)state;
    wf_context *ctx = test_context();
    wf_store *store;
    struct stat about;
    char path[128], other[128], url[160];
    snprintf(path, sizeof path, "%s/laid", folder);
    snprintf(other, sizeof other, "%s/other", folder);
    snprintf(url, sizeof url, "file://%s", path);
    wf_store_config config = config_of(url, 0, 2);
    write_file(other, "", 0);
    assert_int_equal(symlink(other, path), 0);
    TEST_REFUSED(ctx, wf_store_open(ctx, &config, &store), WF_INVALID_ARG,
                 "is refused: it is a link");
    assert_int_equal(unlink(path), 0);
    assert_int_equal(link(other, path), 0);
    TEST_REFUSED(ctx, wf_store_open(ctx, &config, &store), WF_INVALID_ARG, "a hard link");
    assert_int_equal(unlink(other), 0);
    assert_int_equal(chmod(path, 0666), 0);
    TEST_REFUSED(ctx, wf_store_open(ctx, &config, &store), WF_INVALID_ARG,
                 "other users may write to it");
    if (geteuid() == 0) { /* only root can give files away */
        assert_int_equal(chmod(path, 0600), 0);
        assert_int_equal(chown(path, 65534, 65534), 0);
        TEST_REFUSED(ctx, wf_store_open(ctx, &config, &store), WF_INVALID_ARG,
                     "belongs to another user");
        assert_int_equal(chown(path, 0, 0), 0);
    }
    assert_int_equal(stat(path, &about), 0); /* left as it was */
    assert_int_equal(about.st_size, 0);
    /* An empty one of one's own, as mktemp makes it, is taken, and nobody else reads it then. */
    assert_int_equal(chmod(path, 0644), 0);
    TEST_OK(ctx, wf_store_open(ctx, &config, &store));
    assert_int_equal(stat(path, &about), 0);
    assert_int_equal(about.st_mode & 0777, 0600);
    wf_store_close(store);
    assert_int_equal(access(path, F_OK), -1);
    test_context_end(ctx);
}

static void torn_and_damaged_logs(void **state) {
    (void)state;
    wf_context *ctx = test_context();
    wf_store *two[2];
    int64_t n;
    int fd;
    char got[4];
    size_t bytes;
    open_two(ctx, FILE_STORE, 20000, two);
    TEST_OK(ctx, wf_store_set(two[0], "a", "b", 1));
    fd = open(file_url("two") + strlen("file://"), O_WRONLY | O_APPEND | O_CLOEXEC);
    assert_int_equal(write(fd, "\x20\0\0\0\x02", 5), 5);
    TEST_OK(ctx, wf_store_n_keys(two[1], &n));
    assert_int_equal(n, 1);
    TEST_OK(ctx, wf_store_set(two[1], "c", "d", 1));
    TEST_OK(ctx, wf_store_get(two[0], "c", got, sizeof got, &bytes));
    assert_int_equal(write(fd, "\xff\xff\xff\xff\xff", 5), 5);
    TEST_REFUSED(ctx, wf_store_n_keys(two[1], &n), WF_CORRUPT, "is damaged");
    close(fd);
    close_two(two);
    test_context_end(ctx);
}

/* ---- a port ---- */

typedef struct log_lines {
    pthread_mutex_t lock;
    char text[4096];
} log_lines;

static void keep_line(void *self, wf_log_level level, const char *topic, const char *line) {
    log_lines *log = self;
    if (level > WF_LOG_WARN || strcmp(topic, "store")) return;
    pthread_mutex_lock(&log->lock);
    size_t n = strlen(log->text);
    snprintf(log->text + n, sizeof log->text - n, "%s\n", line);
    pthread_mutex_unlock(&log->lock);
}

static int port_of(const wf_store *store) {
    return atoi(strrchr(wf_store_url(store), ':') + 1);
}

static int connect_to(int port) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&at, sizeof at), 0);
    return fd;
}

/* Reads until the server closes. */
static void read_to_end(int fd) {
    char bytes[256];
    ssize_t n;
    while ((n = read(fd, bytes, sizeof bytes)) > 0) continue;
    close(fd);
}

static void strangers_do_no_harm(void **state) {
    (void)state;
    static log_lines log;
    wf_context_config about = WF_CONTEXT_CONFIG_INIT;
    wf_context *ctx;
    wf_store *two[2];
    uint8_t longest[4096];
    int64_t sum;
    pthread_mutex_init(&log.lock, NULL);
    about.log = keep_line;
    about.log_self = &log;
    assert_int_equal(wf_context_create(&about, &ctx), WF_OK);
    open_two(ctx, TCP, 20000, two);
    int port = port_of(two[0]), half_open = connect_to(port), slow = connect_to(port), fd;
    assert_int_equal(write(slow, "\x38", 1), 1);
    fd = connect_to(port);
    close(fd);
    fd = connect_to(port);
    assert_true(write(fd, "GET / HTTP/1.1\r\n\r\n", 18) == 18);
    read_to_end(fd);
    memset(longest, 0xff, sizeof longest);
    fd = connect_to(port);
    (void)!write(fd, longest, sizeof longest);
    read_to_end(fd);
    /* Of the right length, but not the first word of the conversation. */
    wfi_store_request r = {.verb = WFI_STORE_COUNT};
    wfi_store_put_u32(longest, (uint32_t)wfi_store_request_write(&r, longest + 4));
    fd = connect_to(port);
    assert_int_equal(write(fd, longest, 4 + WFI_STORE_HEAD), 4 + WFI_STORE_HEAD);
    read_to_end(fd);
    TEST_OK(ctx, wf_store_add(two[1], "still", 1, &sum));
    assert_int_equal(sum, 1);
    close(half_open);
    close(slow);
    close_two(two);
    if (!strstr(log.text, "127.0.0.1 port") || !strstr(log.text, "speaks another protocol"))
        fail_msg("log: '%s'", log.text);
    test_context_end(ctx);
}

/* Who says nothing, or half of something, is cut off; who has said everything is not. */
static void who_is_slow_is_cut_off(void **state) {
    (void)state;
    wf_context *ctx = test_context();
    wf_store *two[2];
    int64_t n;
    open_two(ctx, TCP, 100, two);
    int silent = connect_to(port_of(two[0])), slow = connect_to(port_of(two[0]));
    assert_int_equal(write(slow, "\x38", 1), 1);
    read_to_end(silent);
    read_to_end(slow);
    TEST_OK(ctx, wf_store_n_keys(two[1], &n));
    close_two(two);
    test_context_end(ctx);
}

/* Many connections that say nothing do not keep ranks out: neither while they are there, nor from a
 * server that turns a rank away in favour of others. */
static void idle_strangers_take_no_place(void **state) {
    (void)state;
    enum { N_IDLE = 420 }; /* more than the server has room for, ranks and others */
    wf_context *ctx = test_context();
    wf_store *root, *others[3];
    int idle[N_IDLE], n_open = 0;
    int64_t sum = 0;
    wf_store_config config = config_of("tcp://127.0.0.1:0", 0, 4);
    TEST_OK(ctx, wf_store_open(ctx, &config, &root));
    for (int rank = 1; rank < 4; rank++) {
        while (n_open < rank * N_IDLE / 3) idle[n_open++] = connect_to(port_of(root));
        config = config_of(wf_store_url(root), rank, 4);
        TEST_OK(ctx, wf_store_open(ctx, &config, &others[rank - 1]));
    }
    for (int rank = 1; rank < 4; rank++) TEST_OK(ctx, wf_store_add(others[rank - 1], "n", 1, &sum));
    assert_int_equal(sum, 3);
    while (n_open) close(idle[--n_open]);
    for (int rank = 1; rank < 4; rank++) wf_store_close(others[rank - 1]);
    wf_store_close(root);
    test_context_end(ctx);
}

/* Who has gone takes no place, whether it had shown the token or not. */
static void visits_make_room(void **state) {
    (void)state;
    enum { N_VISITS = 400 };
    wf_context *ctx = test_context();
    wf_store *root, *other;
    int64_t sum = 0;
    wf_store_config config = config_of("tcp://127.0.0.1:0", 0, 2);
    TEST_OK(ctx, wf_store_open(ctx, &config, &root));
    config = config_of(wf_store_url(root), 1, 2);
    for (int k = 0; k < N_VISITS; k++) {
        close(connect_to(port_of(root)));
        TEST_OK(ctx, wf_store_open(ctx, &config, &other));
        TEST_OK(ctx, wf_store_add(other, "n", 1, &sum));
        wf_store_close(other);
    }
    assert_int_equal(sum, N_VISITS);
    wf_store_close(root);
    test_context_end(ctx);
}

typedef struct fickle_root {
    wf_context *ctx;
    char url[64];
    int listener;
    wf_store *store;
    wf_status status;
} fickle_root;

static void *turn_away_at_first(void *self) {
    fickle_root *root = self;
    for (int n = 0; n < 3; n++) close(accept(root->listener, NULL, NULL));
    close(root->listener);
    wf_store_config config = config_of(root->url, 0, 2);
    root->status = wf_store_open(root->ctx, &config, &root->store);
    return NULL;
}

/* A rank that was turned away asks again until its deadline. */
static void who_is_turned_away_comes_again(void **state) {
    (void)state;
    struct sockaddr_in at = {.sin_family = AF_INET};
    socklen_t bytes = sizeof at;
    pthread_t thread;
    wf_store *store;
    int yes = 1;
    fickle_root root = {.ctx = test_context()};
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    root.listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(setsockopt(root.listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes), 0);
    assert_int_equal(bind(root.listener, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(root.listener, 4), 0);
    assert_int_equal(getsockname(root.listener, (struct sockaddr *)&at, &bytes), 0);
    snprintf(root.url, sizeof root.url, "tcp://127.0.0.1:%d", ntohs(at.sin_port));
    assert_int_equal(pthread_create(&thread, NULL, turn_away_at_first, &root), 0);
    wf_store_config config = config_of(root.url, 1, 2);
    wf_status status = wf_store_open(root.ctx, &config, &store);
    if (status != WF_OK) shutdown(root.listener, SHUT_RDWR); /* or the thread waits for more */
    pthread_join(thread, NULL);
    TEST_OK(root.ctx, status);
    TEST_OK(root.ctx, root.status);
    wf_store_close(store);
    wf_store_close(root.store);
    test_context_end(root.ctx);
}

static void tokens(void **state) {
    (void)state;
    static log_lines log;
    wf_context_config about = WF_CONTEXT_CONFIG_INIT;
    wf_context *ctx;
    wf_store *store, *other;
    int64_t n;
    pthread_mutex_init(&log.lock, NULL);
    about.log = keep_line;
    about.log_self = &log;
    assert_int_equal(wf_context_create(&about, &ctx), WF_OK);
    wf_store_config config = config_of("tcp://127.0.0.1:0", 0, 2);
    config.token = "right";
    TEST_OK(ctx, wf_store_open(ctx, &config, &store));
    config.url = wf_store_url(store);
    config.rank = 1;
    config.token = "wrong";
    TEST_REFUSED(ctx, wf_store_open(ctx, &config, &other), WF_INVALID_ARG,
                 "refused rank 1's token");
    config.token = "";
    TEST_REFUSED(ctx, wf_store_open(ctx, &config, &other), WF_INVALID_ARG, "is not set here");
    config.token = NULL;
    setenv("WEFT_TOKEN", "rightly", 1);
    TEST_REFUSED(ctx, wf_store_open(ctx, &config, &other), WF_INVALID_ARG, "WEFT_TOKEN");
    setenv("WEFT_TOKEN", "right", 1);
    TEST_OK(ctx, wf_store_open(ctx, &config, &other));
    unsetenv("WEFT_TOKEN");
    TEST_OK(ctx, wf_store_n_keys(other, &n));
    wf_store_close(other);
    wf_store_close(store);
    if (!strstr(log.text, "does not know the token") || strstr(log.text, "right"))
        fail_msg("log: '%s'", log.text);
    test_context_end(ctx);
}

static void ports(void **state) {
    (void)state;
    wf_context *ctx = test_context();
    wf_store *two[2], *other;
    char words[64];
    int64_t n;
    open_two(ctx, TCP, 20000, two);
    wf_store_config config = config_of(wf_store_url(two[0]), 0, 2);
    snprintf(words, sizeof words, "port %d is taken", port_of(two[0]));
    TEST_REFUSED(ctx, wf_store_open(ctx, &config, &other), WF_INVALID_ARG, words);
    /* The port is free again at once, and whoever still asks learns that rank 0 has gone. */
    char url[64];
    snprintf(url, sizeof url, "%s", wf_store_url(two[0]));
    wf_store_close(two[0]);
    TEST_REFUSED(ctx, wf_store_n_keys(two[1], &n), WF_REMOTE, "rank 0 has closed it");
    TEST_REFUSED(ctx, wf_store_n_keys(two[1], &n), WF_REMOTE, "broke before");
    wf_store_close(two[1]);
    config.url = url;
    TEST_OK(ctx, wf_store_open(ctx, &config, &other));
    wf_store_close(other);
    config.rank = 1;
    config.timeout_ms = 60;
    TEST_REFUSED(ctx, wf_store_open(ctx, &config, &other), WF_TIMEOUT, "it does not listen at tcp");
    test_context_end(ctx);
}

/* Only the asked address is bound: 127.0.0.2 is the same machine, and hears nothing. */
static void other_addresses_are_not_bound(void **state) {
    (void)state;
    wf_context *ctx = test_context();
    wf_store *two[2], *other;
    char url[64];
    open_two(ctx, TCP, 20000, two);
    snprintf(url, sizeof url, "tcp://127.0.0.2:%d", port_of(two[0]));
    wf_store_config config = config_of(url, 1, 2);
    config.timeout_ms = 60;
    TEST_REFUSED(ctx, wf_store_open(ctx, &config, &other), WF_TIMEOUT, "it does not listen");
    close_two(two);
    test_context_end(ctx);
}

/* Another program has the port: it takes connections and says nothing, or something else. */
static void another_programs_port(void **state) {
    (void)state;
    wf_context *ctx = test_context();
    struct sockaddr_in at = {.sin_family = AF_INET};
    socklen_t bytes = sizeof at;
    wf_store *store;
    char url[64];
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(fd, 4), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &bytes), 0);
    snprintf(url, sizeof url, "tcp://127.0.0.1:%d", ntohs(at.sin_port));
    wf_store_config config = config_of(url, 1, 2);
    config.timeout_ms = 60;
    TEST_REFUSED(ctx, wf_store_open(ctx, &config, &store), WF_TIMEOUT, "is it another program");
    close(fd);
    test_context_end(ctx);
}

static int make_folder(void **state) {
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/weft-test-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

/* Fails if a store has left its file. */
static int remove_folder(void **state) {
    (void)state;
    return rmdir(folder);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(operations),
        cmocka_unit_test(bounds),
        cmocka_unit_test(a_full_store_says_so),
        cmocka_unit_test(sums_of_threads),
        cmocka_unit_test(waits_end_and_name_what_is_missing),
        cmocka_unit_test(urls_that_are_refused),
        cmocka_unit_test(the_last_removes_the_file),
        cmocka_unit_test(files_that_are_refused),
        cmocka_unit_test(files_of_others_are_refused),
        cmocka_unit_test(torn_and_damaged_logs),
        cmocka_unit_test(strangers_do_no_harm),
        cmocka_unit_test(who_is_slow_is_cut_off),
        cmocka_unit_test(idle_strangers_take_no_place),
        cmocka_unit_test(visits_make_room),
        cmocka_unit_test(who_is_turned_away_comes_again),
        cmocka_unit_test(tokens),
        cmocka_unit_test(ports),
        cmocka_unit_test(other_addresses_are_not_bound),
        cmocka_unit_test(another_programs_port),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
