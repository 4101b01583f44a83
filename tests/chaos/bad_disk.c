/* A disk that can be told to fail, to be slow and to remember: preloaded into a process, it stands between it and the
 * C library for the files under BAD_DISK_ROOT. What it does is read from a shared page, BAD_DISK_CONTROL, at each call.
 * With BAD_DISK_LOG it also writes down, in order, every change of a file's bytes, every file that got another name,
 * and every sync that returned. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

struct control {
    int32_t write_errno, sync_errno, write_delay_ms, sync_delay_ms;
    int64_t writes, syncs;
};

static struct control nothing, *control = &nothing;
static const char *root;
static int log_fd = -1;
static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;

static ssize_t (*real_write)(int, const void *, size_t);
static ssize_t (*real_pwrite)(int, const void *, size_t, off_t);
static int (*real_fsync)(int);
static int (*real_fdatasync)(int);
static int (*real_ftruncate)(int, off_t);
static int (*real_rename)(const char *, const char *);

__attribute__((constructor)) static void begin(void) {
    real_write = dlsym(RTLD_NEXT, "write");
    real_pwrite = dlsym(RTLD_NEXT, "pwrite");
    real_fsync = dlsym(RTLD_NEXT, "fsync");
    real_fdatasync = dlsym(RTLD_NEXT, "fdatasync");
    real_ftruncate = dlsym(RTLD_NEXT, "ftruncate");
    real_rename = dlsym(RTLD_NEXT, "rename");
    const char *page = getenv("BAD_DISK_CONTROL"), *log = getenv("BAD_DISK_LOG");
    int fd = page ? open(page, O_RDWR | O_CLOEXEC) : -1;
    if (fd >= 0) {
        void *seen = mmap(NULL, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (seen != MAP_FAILED) control = seen;
        close(fd);
    }
    if (log) log_fd = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    root = getenv("BAD_DISK_ROOT");
}

static int is_ours(int fd, char *path, size_t room) {
    if (!root) return 0;
    int was = errno;
    char link[40];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, room - 1);
    errno = was;
    if (length < 0) return 0;
    path[length] = 0;
    return strncmp(path, root, strlen(root)) == 0 && path[strlen(root)] == '/';
}

static void nap(int32_t ms) {
    struct timespec left = {ms / 1000, (ms % 1000) * 1000000L};
    if (ms > 0) while (nanosleep(&left, &left) && errno == EINTR) {}
}

static void note(char kind, const char *path, int64_t offset, int64_t length, const void *bytes) {
    if (log_fd < 0) return;
    struct { int64_t kind, path, offset, length; } head = {kind, (int64_t)strlen(path), offset, length};
    struct iovec parts[3] = {{&head, sizeof head}, {(void *)path, head.path},
                             {(void *)bytes, bytes ? (size_t)length : 0}};
    int was = errno;
    if (writev(log_fd, parts, 3) < 0) abort();
    errno = was;
}

static int refuses(int32_t error) {
    if (error) errno = error;
    return error != 0;
}

ssize_t pwrite(int fd, const void *bytes, size_t length, off_t offset) {
    char path[4096];
    if (!is_ours(fd, path, sizeof path)) return real_pwrite(fd, bytes, length, offset);
    __atomic_add_fetch(&control->writes, 1, __ATOMIC_RELAXED);
    nap(control->write_delay_ms);
    if (refuses(control->write_errno)) return -1;
    pthread_mutex_lock(&one_at_a_time);
    ssize_t done = real_pwrite(fd, bytes, length, offset);
    if (done > 0) note('w', path, offset, done, bytes);
    pthread_mutex_unlock(&one_at_a_time);
    return done;
}

ssize_t pwrite64(int fd, const void *bytes, size_t length, off_t offset) { return pwrite(fd, bytes, length, offset); }

ssize_t write(int fd, const void *bytes, size_t length) {
    char path[4096];
    if (!is_ours(fd, path, sizeof path)) return real_write(fd, bytes, length);
    __atomic_add_fetch(&control->writes, 1, __ATOMIC_RELAXED);
    nap(control->write_delay_ms);
    if (refuses(control->write_errno)) return -1;
    pthread_mutex_lock(&one_at_a_time);
    off_t offset = lseek(fd, 0, SEEK_CUR);
    ssize_t done = real_write(fd, bytes, length);
    if (done > 0) note('w', path, offset, done, bytes);
    pthread_mutex_unlock(&one_at_a_time);
    return done;
}

static int synced(int fd, int (*real)(int)) {
    char path[4096];
    if (!is_ours(fd, path, sizeof path)) return real(fd);
    __atomic_add_fetch(&control->syncs, 1, __ATOMIC_RELAXED);
    nap(control->sync_delay_ms);
    if (refuses(control->sync_errno)) return -1;
    int done = real(fd);
    pthread_mutex_lock(&one_at_a_time);
    if (!done) note('s', path, 0, 0, NULL);
    pthread_mutex_unlock(&one_at_a_time);
    return done;
}

int fsync(int fd) { return synced(fd, real_fsync); }

int fdatasync(int fd) { return synced(fd, real_fdatasync); }

int ftruncate(int fd, off_t length) {
    char path[4096];
    if (!is_ours(fd, path, sizeof path)) return real_ftruncate(fd, length);
    nap(control->write_delay_ms);
    if (refuses(control->write_errno)) return -1;
    pthread_mutex_lock(&one_at_a_time);
    int done = real_ftruncate(fd, length);
    if (!done) note('t', path, length, 0, NULL);
    pthread_mutex_unlock(&one_at_a_time);
    return done;
}

int ftruncate64(int fd, off_t length) { return ftruncate(fd, length); }

int rename(const char *from, const char *to) {
    char path[4096];
    if (!root || !realpath(from, path) || strncmp(path, root, strlen(root)) != 0) return real_rename(from, to);
    if (refuses(control->write_errno)) return -1;
    pthread_mutex_lock(&one_at_a_time);
    int done = real_rename(from, to);
    if (!done && realpath(to, path)) note('r', from, 0, strlen(path), path);
    pthread_mutex_unlock(&one_at_a_time);
    return done;
}
