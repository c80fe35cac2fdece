/*
 * blast: send requests that were encoded beforehand, as fast as they are answered.
 *
 *     blast -p PORT -c CONNECTIONS -f REQUESTS [-b BODY] [-d SECONDS] [-t SECONDS]
 *
 * REQUESTS is a run of records, little endian:
 *
 *     u32 tag    bits 0-2 choose the latency figures the reply counts for; bit 8: a HEAD request
 *     u32 size of the head
 *     u64 size of the body
 *     the head's bytes
 *
 * A body is the first bytes of the file BODY, so an upload of 64 MiB costs nothing to encode.
 * Each connection has one request in flight. With -d the records repeat until the time is up and
 * responses in flight are awaited; without it each record is sent once. When nothing moves
 * for -t seconds (30) the run ends and requests in flight are lost.
 *
 * Prints one JSON object; latencies are milliseconds from the first byte sent to the last received.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { TAGS = 8, TAG_MASK = 7, HEAD_FLAG = 256, BUFFER = 1 << 18, EVENTS = 256 };
enum { IN_HEAD, IN_BODY, IN_CHUNK_SIZE, IN_CHUNK, IN_TRAILERS };
enum { MORE, COMPLETE, BROKEN };

typedef struct {
    uint32_t tag, headSize;
    uint64_t bodySize;
    const char *head;
} Request;

typedef struct {
    int fd, wantsWrite;
    const Request *request; /* in flight, or none */
    uint64_t sent;
    double began;
    int state, status, closing;
    uint64_t left; /* bytes of the body or the chunk still to come */
    size_t have;
    char buffer[BUFFER];
} Connection;

typedef struct {
    float *items;
    size_t count, room;
} Latencies;

static int port, poller, lastBadStatus;
static double deadline, began;
static Request *requests;
static size_t requestCount, cursor;
static const char *body;
static size_t bodyAvailable;
static uint64_t issued, done, bad, lost, reconnects, received, sent, inFlight;
static Latencies latencies[TAGS];

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static void fail(const char *what) {
    perror(what);
    exit(2);
}

static const char *mapFile(const char *path, size_t *size) {
    struct stat status;
    int fd = open(path, O_RDONLY);
    if (fd < 0 || fstat(fd, &status)) fail(path);
    *size = status.st_size;
    void *start = mmap(0, *size ? *size : 1, PROT_READ, MAP_PRIVATE | MAP_POPULATE, fd, 0);
    if (start == MAP_FAILED) fail(path);
    close(fd);
    return start;
}

static void loadRequests(const char *path) {
    size_t size, at = 0, room = 0;
    const char *start = mapFile(path, &size);
    while (at + 16 <= size) {
        if (requestCount == room) {
            room = room ? room * 2 : 1024;
            if (!(requests = realloc(requests, room * sizeof *requests))) fail("realloc");
        }
        Request *one = &requests[requestCount++];
        memcpy(&one->tag, start + at, 4);
        memcpy(&one->headSize, start + at + 4, 4);
        memcpy(&one->bodySize, start + at + 8, 8);
        one->head = start + at + 16;
        at += 16 + one->headSize;
        if (at > size || one->bodySize > bodyAvailable) {
            fprintf(stderr, "%s: a record goes past the end of its file\n", path);
            exit(2);
        }
    }
    if (!requestCount) fprintf(stderr, "%s: no records\n", path), exit(2);
}

static int nothingLeft(void) {
    return deadline ? now() >= deadline : cursor == requestCount;
}

static const Request *nextRequest(void) {
    if (nothingLeft()) return 0;
    issued++;
    if (cursor == requestCount) cursor = 0;
    return &requests[cursor++];
}

static void note(Latencies *these, double seconds) {
    if (these->count == these->room) {
        these->room = these->room ? these->room * 2 : 65536;
        if (!(these->items = realloc(these->items, these->room * sizeof(float)))) fail("realloc");
    }
    these->items[these->count++] = seconds * 1e3;
}

static void finish(Connection *c, int ok) {
    note(&latencies[c->request->tag & TAG_MASK], now() - c->began);
    c->request = 0;
    inFlight--;
    done++;
    if (!ok) {
        bad++;
        lastBadStatus = c->status;
    }
}

static void dial(Connection *c) {
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(port) };
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int on = 1;
    c->fd = socket(AF_INET, SOCK_STREAM, 0);
    if (c->fd < 0 || connect(c->fd, (void *)&address, sizeof address)) fail("connect");
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    fcntl(c->fd, F_SETFL, O_NONBLOCK);
    c->have = c->wantsWrite = c->closing = 0;
    c->state = IN_HEAD;
    struct epoll_event event = { .events = EPOLLIN, .data.ptr = c };
    epoll_ctl(poller, EPOLL_CTL_ADD, c->fd, &event);
}

static void wantWrite(Connection *c, int wanted) {
    if (c->wantsWrite == wanted) return;
    struct epoll_event event = { .events = EPOLLIN | (wanted ? EPOLLOUT : 0), .data.ptr = c };
    epoll_ctl(poller, EPOLL_CTL_MOD, c->fd, &event);
    c->wantsWrite = wanted;
}

static void pump(Connection *c);

/* The connection is of no more use; a request that it carries has failed. */
static void redial(Connection *c) {
    if (c->request) {
        c->status = -1;
        finish(c, 0);
    }
    close(c->fd);
    c->fd = -1;
    reconnects++;
    if (nothingLeft()) return;
    dial(c);
    pump(c);
}

static void pump(Connection *c) {
    if (!c->request) {
        if (!(c->request = nextRequest())) {
            wantWrite(c, 0);
            return;
        }
        c->sent = 0;
        c->state = IN_HEAD;
        c->began = now();
        inFlight++;
    }
    uint64_t headSize = c->request->headSize, total = headSize + c->request->bodySize;
    while (c->sent < total) {
        struct iovec parts[2];
        int count = 0;
        if (c->sent < headSize)
            parts[count++] = (struct iovec){ (void *)(c->request->head + c->sent), headSize - c->sent };
        uint64_t from = c->sent > headSize ? c->sent - headSize : 0;
        if (from < c->request->bodySize)
            parts[count++] = (struct iovec){ (void *)(body + from), c->request->bodySize - from };
        ssize_t n = writev(c->fd, parts, count);
        if (n < 0 && errno == EAGAIN) {
            wantWrite(c, 1);
            return;
        }
        if (n < 0) {
            redial(c);
            return;
        }
        sent += n;
        c->sent += n;
    }
    wantWrite(c, 0);
}

/* Read the fields that say where the reply ends. The head is terminated by a zero byte. */
static int readHead(Connection *c, const char *head) {
    int framed = 0;
    c->status = strlen(head) > 12 ? atoi(head + 9) : 0;
    c->left = 0;
    c->state = IN_BODY;
    for (const char *line = strchr(head, '\n'); line; line = strchr(line, '\n')) {
        line++;
        if (!strncasecmp(line, "content-length:", 15)) {
            c->left = strtoull(line + 15, 0, 10);
            framed = 1;
        } else if (!strncasecmp(line, "transfer-encoding:", 18)) {
            c->state = IN_CHUNK_SIZE;
            framed = 1;
        } else if (!strncasecmp(line, "connection:", 11)) {
            const char *close = strcasestr(line, "close"), *end = strchr(line, '\r');
            c->closing = close && (!end || close < end);
        }
    }
    if (c->request->tag & HEAD_FLAG || c->status == 204 || c->status == 304) {
        c->left = 0;
        c->state = IN_BODY;
        framed = 1;
    }
    return framed;
}

/* Consume the buffer from *at on, up to the end of the reply. */
static int parse(Connection *c, size_t *at) {
    for (;;) {
        char *start = c->buffer + *at, *end;
        size_t available = c->have - *at;
        if (c->state == IN_HEAD) {
            if (!(end = memmem(start, available, "\r\n\r\n", 4))) return available == BUFFER ? BROKEN : MORE;
            *end = 0;
            *at += end + 4 - start;
            if (!strncmp(start + 8, " 100", 4)) continue;
            if (!readHead(c, start)) return BROKEN;
        } else if (c->state == IN_BODY || c->state == IN_CHUNK) {
            size_t taken = available < c->left ? available : c->left;
            c->left -= taken;
            *at += taken;
            if (c->left) return MORE;
            if (c->state == IN_BODY) return COMPLETE;
            c->state = IN_CHUNK_SIZE;
        } else {
            if (!(end = memmem(start, available, "\r\n", 2))) return available > 8192 ? BROKEN : MORE;
            *at += end + 2 - start;
            if (c->state == IN_TRAILERS) {
                if (end == start) return COMPLETE;
            } else if ((c->left = strtoull(start, 0, 16))) {
                c->left += 2; /* the line end behind the chunk */
                c->state = IN_CHUNK;
            } else {
                c->state = IN_TRAILERS;
            }
        }
    }
}

static void readable(Connection *c) {
    for (;;) {
        ssize_t n = read(c->fd, c->buffer + c->have, BUFFER - c->have);
        if (n < 0 && errno == EAGAIN) return;
        if (n <= 0 || !c->request) {
            redial(c);
            return;
        }
        received += n;
        c->have += n;
        size_t at = 0;
        int outcome = parse(c, &at);
        c->have -= at;
        if (outcome == MORE) {
            memmove(c->buffer, c->buffer + at, c->have);
            if (n < BUFFER / 2) return; /* most likely drained: the poller will tell */
            continue;
        }
        int whole = c->sent == c->request->headSize + c->request->bodySize;
        if (outcome == BROKEN || c->have || !whole) {
            redial(c); /* not HTTP, more than was asked for, or an answer before the request's end */
            return;
        }
        finish(c, c->status >= 200 && c->status < 300);
        if (c->closing) redial(c);
        else pump(c);
        return;
    }
}

static void loop(double stallSeconds) {
    struct epoll_event events[EVENTS];
    double moved = now();
    while (inFlight) {
        int count = epoll_wait(poller, events, EVENTS, 200);
        for (int i = 0; i < count; i++) {
            Connection *c = events[i].data.ptr;
            if (c->fd >= 0 && events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) readable(c);
            if (c->fd >= 0 && c->request && events[i].events & EPOLLOUT) pump(c);
        }
        if (count > 0) moved = now();
        else if (now() - moved > stallSeconds) {
            lost = inFlight;
            return;
        }
    }
}

static int compareFloats(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static void report(void) {
    double seconds = now() - began, cpu;
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    cpu = usage.ru_utime.tv_sec + usage.ru_stime.tv_sec
        + (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
    printf("{\"issued\": %lu, \"done\": %lu, \"bad\": %lu, \"lost\": %lu, \"reconnects\": %lu, \"laps\": %lu, "
           "\"seconds\": %.4f, \"received\": %lu, \"sent\": %lu, \"clientCpu\": %.3f, \"lastBadStatus\": %d, "
           "\"tags\": {",
        issued, done, bad, lost, reconnects, (issued - 1) / requestCount, seconds, received, sent,
        cpu / seconds, lastBadStatus);
    const char *comma = "";
    for (int tag = 0; tag < TAGS; tag++) {
        Latencies *these = &latencies[tag];
        if (!these->count) continue;
        qsort(these->items, these->count, sizeof(float), compareFloats);
        printf("%s\"%d\": {\"n\": %lu, \"p50\": %.3f, \"p99\": %.3f, \"max\": %.3f}", comma, tag,
            these->count, these->items[these->count / 2], these->items[these->count * 99 / 100],
            these->items[these->count - 1]);
        comma = ", ";
    }
    printf("}}\n");
}

int main(int argc, char **argv) {
    int option, count = 1;
    double duration = 0, stallSeconds = 30;
    const char *requestPath = 0, *bodyPath = 0;
    while ((option = getopt(argc, argv, "p:c:f:b:d:t:")) != -1) {
        if (option == 'p') port = atoi(optarg);
        else if (option == 'c') count = atoi(optarg);
        else if (option == 'f') requestPath = optarg;
        else if (option == 'b') bodyPath = optarg;
        else if (option == 'd') duration = atof(optarg);
        else if (option == 't') stallSeconds = atof(optarg);
        else return 2;
    }
    if (!requestPath || !port || count < 1) {
        fprintf(stderr, "usage: blast -p PORT -c CONNECTIONS -f REQUESTS [-b BODY] [-d SECONDS] [-t SECONDS]\n");
        return 2;
    }
    if (bodyPath) body = mapFile(bodyPath, &bodyAvailable);
    loadRequests(requestPath);
    poller = epoll_create1(0);
    Connection *connections = calloc(count, sizeof *connections);
    if (!connections) fail("calloc");
    for (int i = 0; i < count; i++) dial(&connections[i]);
    began = now();
    if (duration) deadline = began + duration;
    for (int i = 0; i < count; i++) pump(&connections[i]);
    loop(stallSeconds);
    report();
    return 0;
}
