/* A store at a port: what becomes of strangers there, of slow visitors, and of two jobs at one
 * place. */
#include "base/bytes.h"
#include "stores.h"

#include <arpa/inet.h>
#include <sys/socket.h>

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

TEST_CASE(strangers_do_no_harm) {
    static log_lines log;
    wf_context_config about = WF_CONTEXT_CONFIG_INIT;
    scoped_context ctx;
    wf_store *two[2];
    uint8_t longest[4096];
    int64_t sum;
    pthread_mutex_init(&log.lock, NULL);
    about.log = keep_line;
    about.log_self = &log;
    assert_int_equal(wf_context_create(&about, &ctx), WF_OK);
    open_two(ctx, TCP, TEST_TIMEOUT_MS, two);
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
    wfi_put_number(longest, 4, (uint32_t)wfi_store_request_write(&r, longest + 4));
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
}

/* Who says nothing, or half of something, is cut off; who has said everything is not. */
static const char *be_slow(void *self, int timeout_ms) {
    static char wrong[400];
    wf_context *ctx = test_context();
    wf_store *two[2];
    int64_t n;
    wf_status status = try_two(ctx, TCP, timeout_ms, two);
    if (status == WF_OK) {
        int silent = connect_to(port_of(two[0])), slow = connect_to(port_of(two[0]));
        assert_int_equal(write(slow, "\x38", 1), 1);
        read_to_end(silent);
        read_to_end(slow);
        status = wf_store_n_keys(two[1], &n);
        close_two(two);
    }
    snprintf(wrong, sizeof wrong, "%s", wf_context_error(ctx));
    test_context_end(ctx);
    return status ? wrong : NULL;
}

TEST_CASE(who_is_slow_is_cut_off) {
    test_deadlines(be_slow, NULL);
}

/* Many connections that say nothing do not keep ranks out: neither while they are there, nor from a
 * server that turns a rank away in favour of others. */
TEST(idle_strangers_take_no_place) {
    enum { N_IDLE = 420 }; /* more than the server has room for, ranks and others */
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
}

/* Who has gone takes no place, whether it had shown the token or not. */
TEST(visits_make_room) {
    enum { N_VISITS = 400 };
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
TEST_CASE(who_is_turned_away_comes_again) {
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

TEST_CASE(tokens) {
    static log_lines log;
    wf_context_config about = WF_CONTEXT_CONFIG_INIT;
    scoped_context ctx;
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
}

TEST(ports) {
    wf_store *two[2], *other;
    char words[64];
    int64_t n;
    open_two(ctx, TCP, TEST_TIMEOUT_MS, two);
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
}

/* Only the asked address is bound: 127.0.0.2 is the same machine, and hears nothing. */
TEST(other_addresses_are_not_bound) {
    wf_store *two[2], *other;
    char url[64];
    open_two(ctx, TCP, TEST_TIMEOUT_MS, two);
    snprintf(url, sizeof url, "tcp://127.0.0.2:%d", port_of(two[0]));
    wf_store_config config = config_of(url, 1, 2);
    config.timeout_ms = 60;
    TEST_REFUSED(ctx, wf_store_open(ctx, &config, &other), WF_TIMEOUT, "it does not listen");
    close_two(two);
}

/* Another program has the port: it takes connections and says nothing, or something else. */
TEST(another_programs_port) {
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
    TEST_REFUSED(ctx, wf_store_open(ctx, &config, &store), WF_TIMEOUT,
                 "does another program use this port");
    close(fd);
}

TEST_FIXTURE(make_folder, remove_folder)
