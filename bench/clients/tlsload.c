/*
 * tlsload: send the same HTTP/1.1 request over TLS, each on a new connection that resumes a session.
 *
 *     tlsload -p PORT -c CONNECTIONS -d SECONDS -f REQUEST -n BYTES -v 1.2|1.3
 *
 * REQUEST is a file with the whole request, which asks for Connection: close; BYTES is the size of
 * the body of a right answer. So many connections are open at once. Before the time runs, each of
 * them gets a session by a full handshake; every connection after that offers the newest session
 * of its predecessor. A right answer has status 200, a Content-Length and a body of BYTES, and
 * the server closes the connection after it.
 *
 * Prints one JSON object: calls, wrong ones, connections that did not resume, seconds, bytes of
 * bodies, and the latencies in milliseconds from the connect to the end of the connection.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

enum { HEAD = 8192, PIECE = 1 << 15, EVENTS = 256, STALL_SECONDS = 5 };
enum { HANDSHAKE, WRITE, READ };
enum { MORE, ENDED, BROKEN };

typedef struct {
    int fd, phase;
    uint32_t interest;
    SSL *ssl;
    SSL_SESSION *session;
    double began;
    size_t have; /* bytes of the head so far; its end is a zero byte */
    int inBody;
    uint64_t body;
    char head[HEAD + 1];
} Connection;

static int port, poller, inFlight;
static SSL_CTX *context;
static char *request;
static size_t requestSize;
static uint64_t wanted, calls, wrong, full, received;
static double deadline;
static float *latencies;
static size_t latencyCount, latencyRoom;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static void fail(const char *what) {
    perror(what);
    exit(2);
}

static void readRequest(const char *path) {
    FILE *file = fopen(path, "rb");
    if (!file) fail(path);
    if (!(request = malloc(HEAD))) fail("malloc");
    requestSize = fread(request, 1, HEAD, file);
    if (!requestSize || requestSize == HEAD) {
        fprintf(stderr, "%s: no request, or a larger one than %d bytes\n", path, HEAD - 1);
        exit(2);
    }
    fclose(file);
}

/* With TLS 1.3 the tickets come after the handshake. */
static int keepSession(SSL *ssl, SSL_SESSION *session) {
    Connection *c = SSL_get_app_data(ssl);
    SSL_SESSION_free(c->session);
    c->session = session;
    return 1;
}

static void dial(Connection *c) {
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(port) };
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int on = 1;
    c->began = now();
    c->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    if (c->fd < 0) fail("socket");
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (connect(c->fd, (void *)&address, sizeof address) && errno != EINPROGRESS) fail("connect");
    if (!(c->ssl = SSL_new(context)) || !SSL_set_fd(c->ssl, c->fd)) fail("SSL_new");
    SSL_set_app_data(c->ssl, c);
    if (c->session) SSL_set_session(c->ssl, c->session);
    SSL_set_connect_state(c->ssl);
    c->phase = HANDSHAKE;
    c->have = c->inBody = c->body = 0;
    c->interest = EPOLLOUT;
    struct epoll_event event = { .events = c->interest, .data.ptr = c };
    if (epoll_ctl(poller, EPOLL_CTL_ADD, c->fd, &event)) fail("epoll_ctl");
    inFlight++;
}

static void hangUp(Connection *c) {
    SSL_shutdown(c->ssl);
    /* Else a connection that ended uncleanly would take its session with it. */
    SSL_set_shutdown(c->ssl, SSL_SENT_SHUTDOWN | SSL_RECEIVED_SHUTDOWN);
    SSL_free(c->ssl);
    ERR_clear_error();
    close(c->fd);
    c->fd = -1;
    inFlight--;
}

/* Take bytes of the answer; the head ends at its empty line, the body at the end of the stream. */
static int take(Connection *c, const char *piece, size_t size) {
    if (c->inBody) {
        c->body += size;
        return 1;
    }
    size_t room = HEAD - c->have, taken = size < room ? size : room;
    memcpy(c->head + c->have, piece, taken);
    c->have += taken;
    char *end = memmem(c->head, c->have, "\r\n\r\n", 4);
    if (!end) return c->have < HEAD;
    c->body = c->have - (end + 4 - c->head) + (size - taken);
    c->inBody = 1;
    *end = 0;
    return 1;
}

static int isRight(const Connection *c) {
    if (!c->inBody || strncmp(c->head, "HTTP/1.1 200", 12) || c->body != wanted) return 0;
    const char *length = strcasestr(c->head, "\r\ncontent-length:");
    return length && strtoull(length + 17, 0, 10) == wanted;
}

static int advance(Connection *c) {
    static char piece[PIECE];
    for (;;) {
        int n;
        if (c->phase == HANDSHAKE) n = SSL_connect(c->ssl);
        else if (c->phase == WRITE) n = SSL_write(c->ssl, request, requestSize);
        else n = SSL_read(c->ssl, piece, PIECE);
        if (n <= 0) {
            int error = SSL_get_error(c->ssl, n);
            uint32_t interest = error == SSL_ERROR_WANT_WRITE ? EPOLLOUT : EPOLLIN;
            if (error == SSL_ERROR_ZERO_RETURN && c->phase == READ) return ENDED;
            if (error != SSL_ERROR_WANT_WRITE && error != SSL_ERROR_WANT_READ) return BROKEN;
            if (interest != c->interest) {
                struct epoll_event event = { .events = interest, .data.ptr = c };
                epoll_ctl(poller, EPOLL_CTL_MOD, c->fd, &event);
                c->interest = interest;
            }
            return MORE;
        }
        if (c->phase == READ && !take(c, piece, n)) return BROKEN;
        if (c->phase != READ) c->phase++;
    }
}

static void note(double seconds) {
    if (latencyCount == latencyRoom) {
        latencyRoom = latencyRoom ? latencyRoom * 2 : 65536;
        if (!(latencies = realloc(latencies, latencyRoom * sizeof *latencies))) fail("realloc");
    }
    latencies[latencyCount++] = seconds * 1e3;
}

static void finish(Connection *c, int outcome) {
    int isWrong = outcome == BROKEN || !isRight(c);
    if (deadline) {
        calls++;
        received += c->body;
        wrong += isWrong;
        full += !SSL_session_reused(c->ssl);
        note(now() - c->began);
    } else if (isWrong) {
        fprintf(stderr, "a wrong answer: %.60s, %lu bytes\n", c->head, c->body);
        ERR_print_errors_fp(stderr);
        exit(2);
    }
    hangUp(c);
    if (deadline && now() < deadline) dial(c);
}

/* Run until no connection is open; those that never end are wrong. */
static void loop(void) {
    struct epoll_event events[EVENTS];
    double moved = now();
    while (inFlight) {
        int count = epoll_wait(poller, events, EVENTS, 200);
        for (int i = 0; i < count; i++) {
            Connection *c = events[i].data.ptr;
            int outcome = advance(c);
            if (outcome != MORE) finish(c, outcome);
        }
        if (count > 0) moved = now();
        else if (now() - moved > STALL_SECONDS) {
            wrong += inFlight;
            return;
        }
    }
}

static int compareFloats(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv) {
    int option, count = 1, version = TLS1_3_VERSION;
    double duration = 0;
    const char *path = 0;
    while ((option = getopt(argc, argv, "p:c:d:f:n:v:")) != -1) {
        if (option == 'p') port = atoi(optarg);
        else if (option == 'c') count = atoi(optarg);
        else if (option == 'd') duration = atof(optarg);
        else if (option == 'f') path = optarg;
        else if (option == 'n') wanted = strtoull(optarg, 0, 10);
        else if (option == 'v') version = strcmp(optarg, "1.2") ? TLS1_3_VERSION : TLS1_2_VERSION;
        else return 2;
    }
    if (!path || !port || count < 1 || duration <= 0) {
        fprintf(stderr, "usage: tlsload -p PORT -c CONNECTIONS -d SECONDS -f REQUEST -n BYTES -v 1.2|1.3\n");
        return 2;
    }
    signal(SIGPIPE, SIG_IGN);
    readRequest(path);
    /* The server's certificate is not checked: only the server is measured. */
    if (!(context = SSL_CTX_new(TLS_client_method()))) fail("SSL_CTX_new");
    SSL_CTX_set_min_proto_version(context, version);
    SSL_CTX_set_max_proto_version(context, version);
    SSL_CTX_set_options(context, SSL_OP_IGNORE_UNEXPECTED_EOF);
    SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_CLIENT | SSL_SESS_CACHE_NO_INTERNAL);
    SSL_CTX_sess_set_new_cb(context, keepSession);
    poller = epoll_create1(0);
    Connection *connections = calloc(count, sizeof *connections);
    if (!connections) fail("calloc");
    for (int i = 0; i < count; i++) dial(&connections[i]);
    loop();
    double began = now();
    deadline = began + duration;
    for (int i = 0; i < count; i++) dial(&connections[i]);
    loop();
    double seconds = now() - began;
    qsort(latencies, latencyCount, sizeof *latencies, compareFloats);
    printf("{\"calls\": %lu, \"wrong\": %lu, \"full\": %lu, \"seconds\": %.4f, \"received\": %lu, "
           "\"p50Ms\": %.3f, \"p99Ms\": %.3f}\n",
        calls, wrong, full, seconds, received, latencyCount ? latencies[latencyCount / 2] : 0,
        latencyCount ? latencies[latencyCount * 99 / 100] : 0);
    return 0;
}
