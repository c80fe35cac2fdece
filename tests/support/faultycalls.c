/*
 * Makes C library calls on the files of a store fail, or end the process, on demand.
 *
 * Loaded by LD_PRELOAD. FAULTY_CALLS names a control file, which the test changes while the process
 * runs; FAULTY_IMAGE names a file with the content of a database after its sync has failed.
 */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

enum { WRITE = 1, SYNC = 2, TRUNCATE = 4, MAP = 8 };
enum { DATABASE = 1, LOG = 2, INDEX = 4, BLOB = 8, STAGING = 16 };
enum { NOTHING, KILL_BEFORE, KILL_AFTER, FAIL, FAIL_AND_LOSE };

struct control {
    volatile int pid, at, action, error, calls, files, sticky, count, hits;
};

static struct control *control;

__attribute__((constructor)) static void begin(void)
{
    const char *path = getenv("FAULTY_CALLS");
    int fd = path == NULL ? -1 : open(path, O_RDWR | O_CLOEXEC);
    if (fd >= 0) {
        void *found = mmap(NULL, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (found != MAP_FAILED)
            control = found;
        close(fd);
    }
}

static int endsWith(const char *text, size_t length, const char *end)
{
    size_t size = strlen(end);
    return length >= size && strcmp(text + length - size, end) == 0;
}

static int kindOf(int fd)
{
    char link[64], path[4096];
    ssize_t length;
    struct stat found;
    char *digit = link + sizeof link - 1;

    if (fd < 0)
        return 0;
    *digit = 0;
    do
        *--digit = '0' + fd % 10;
    while ((fd /= 10) != 0);
    digit -= strlen("/proc/self/fd/");
    memcpy(digit, "/proc/self/fd/", strlen("/proc/self/fd/"));
    length = readlink(digit, path, sizeof path - 1);
    if (length < 0)
        return 0;
    path[length] = 0;
    if (endsWith(path, length, "/catalog.sqlite"))
        return DATABASE;
    if (endsWith(path, length, "/catalog.sqlite-wal"))
        return LOG;
    if (endsWith(path, length, "/catalog.sqlite-shm"))
        return INDEX;
    if (strstr(path, "/staging") != NULL)
        return STAGING;
    if (strstr(path, "/blobs") != NULL && stat(path, &found) == 0)
        return BLOB;
    return 0;
}

static void end(void)
{
    kill(getpid(), SIGKILL);
    for (;;)
        pause();
}

/* Count a call; return its fault. */
static int due(int fd, int call)
{
    int saved = errno, number;
    if (control == NULL || control->pid == 0 || control->pid != getpid())
        return NOTHING;
    if (!(control->calls & call) || !(control->files & kindOf(fd))) {
        errno = saved;
        return NOTHING;
    }
    errno = saved;
    number = __sync_add_and_fetch(&control->count, 1);
    if (number != control->at && !(control->sticky && number > control->at))
        return NOTHING;
    __sync_add_and_fetch(&control->hits, 1);
    if (control->action == KILL_BEFORE)
        end();
    return control->action;
}

/* Restore a database to the image: pages that were written since are lost. */
static void lose(int fd)
{
    static ssize_t (*writeAt)(int, const void *, size_t, off_t);
    static int (*cut)(int, off_t);
    char bytes[65536];
    off_t offset = 0;
    ssize_t size;
    const char *path = getenv("FAULTY_IMAGE");
    int image = path == NULL ? -1 : open(path, O_RDONLY | O_CLOEXEC);

    if (image < 0)
        return;
    writeAt = dlsym(RTLD_NEXT, "pwrite");
    cut = dlsym(RTLD_NEXT, "ftruncate");
    while ((size = read(image, bytes, sizeof bytes)) > 0) {
        if (writeAt(fd, bytes, size, offset) != size)
            end();
        offset += size;
    }
    if (cut(fd, offset) != 0)
        end();
    close(image);
}

#define INTERCEPT(type, name, parameters, arguments, fd, call, failure)                            \
    type name parameters                                                                           \
    {                                                                                              \
        static type(*real) parameters;                                                             \
        int action = due(fd, call);                                                                \
        type result;                                                                               \
        if (real == NULL)                                                                          \
            real = dlsym(RTLD_NEXT, #name);                                                        \
        if (action == FAIL || action == FAIL_AND_LOSE) {                                           \
            if (action == FAIL_AND_LOSE)                                                           \
                lose(fd);                                                                          \
            errno = control->error;                                                                \
            return failure;                                                                        \
        }                                                                                          \
        result = real arguments;                                                                   \
        if (action == KILL_AFTER)                                                                  \
            end();                                                                                 \
        return result;                                                                             \
    }

INTERCEPT(ssize_t, write, (int fd, const void *b, size_t n), (fd, b, n), fd, WRITE, -1)
INTERCEPT(ssize_t, pwrite, (int fd, const void *b, size_t n, off_t o), (fd, b, n, o), fd, WRITE, -1)
INTERCEPT(ssize_t, pwrite64, (int fd, const void *b, size_t n, off64_t o), (fd, b, n, o), fd, WRITE, -1)
INTERCEPT(int, fsync, (int fd), (fd), fd, SYNC, -1)
INTERCEPT(int, fdatasync, (int fd), (fd), fd, SYNC, -1)
INTERCEPT(int, ftruncate, (int fd, off_t size), (fd, size), fd, TRUNCATE, -1)
INTERCEPT(int, ftruncate64, (int fd, off64_t size), (fd, size), fd, TRUNCATE, -1)
INTERCEPT(void *, mmap, (void *p, size_t n, int r, int f, int fd, off_t o), (p, n, r, f, fd, o), fd, MAP, MAP_FAILED)
INTERCEPT(void *, mmap64, (void *p, size_t n, int r, int f, int fd, off64_t o), (p, n, r, f, fd, o), fd, MAP, MAP_FAILED)
