/* A rank 0 of another version of weft hands over a segment of another size: it is refused, and not
 * read past its end.
 *
 * label: serial
 */
#include "test.h"

#include <pthread.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

typedef struct stranger {
    int listener;
} stranger;

/* Welcomes one guest, and hands it a segment that is smaller than ours. */
static void *welcome(void *self) {
    const stranger *s = self;
    int guest = accept(s->listener, NULL, NULL), fd = memfd_create("old", MFD_CLOEXEC), who[2];
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof fd)];
    } control = {0};
    char byte = 'w';
    struct iovec data = {&byte, 1};
    struct msghdr message = {.msg_iov = &data,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof control.bytes};
    control.header = (struct cmsghdr){CMSG_LEN(sizeof fd), SOL_SOCKET, SCM_RIGHTS};
    memcpy(CMSG_DATA(&control.header), &fd, sizeof fd);
    if (ftruncate(fd, 4096) == 0 && recv(guest, who, sizeof who, MSG_WAITALL) == sizeof who)
        (void)sendmsg(guest, &message, MSG_NOSIGNAL);
    close(fd);
    close(guest);
    return NULL;
}

TEST(another_version_is_refused) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    char name[64];
    pthread_t thread;
    stranger s = {.listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    snprintf(name, sizeof name, "test-old-%d", (int)getpid());
    int n = snprintf(address.sun_path + 1, sizeof address.sun_path - 1, "weft-%u-%s",
                     (unsigned)getuid(), name);
    socklen_t bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
    assert_int_equal(bind(s.listener, (struct sockaddr *)&address, bytes), 0);
    assert_int_equal(listen(s.listener, 1), 0);
    assert_int_equal(pthread_create(&thread, NULL, welcome, &s), 0);
    wf_job_config config = WF_JOB_CONFIG_INIT;
    wf_job *job;
    config.rank = 1;
    config.n_ranks = 2;
    config.name = name;
    assert_int_equal(wf_job_join(ctx, &config, &job), WF_REMOTE);
    assert_non_null(strstr(wf_context_error(ctx), "uses another version of weft"));
    pthread_join(thread, NULL);
    close(s.listener);
}
