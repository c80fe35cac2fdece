/*
 * echoload: send one message again and again over each of many connections, as fast as it is
 * answered.
 *
 *     echoload -m tcp|udp|ws -p PORT -c CONNECTIONS -f MESSAGE [-d SECONDS] [-u PATH]
 *
 * MESSAGE is a file with the bytes of one message as they go out: a frame of six bytes and a
 * payload, or a WebSocket's. In datagrams, ten digits 0 in a row become the number of the call,
 * which a server may need to tell a new one from a repetition. Each connection has one message in
 * flight. A message without an answer in a second is lost, and sent again over UDP.
 *
 * An answer is right when it is as long as the first one, and no frame of type 3, an error.
 * Prints one JSON object; latencies are milliseconds from the sending to the last byte received.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { TCP, UDP, WS };
enum { BUFFER = 1 << 16, EVENTS = 256, HEAD = 6, ERROR = 3, DIGITS = 10 };
static const double PATIENCE = 1.0;

typedef struct {
    int fd;
    double began; /* 0: nothing in flight */
    size_t have;
    unsigned char buffer[BUFFER];
} Connection;

static int mode = TCP, port, count = 1;
static double seconds = 1;
static const char *path = "/";
static unsigned char message[BUFFER];
static size_t size;
static unsigned char *number; /* where the call's number goes */
static unsigned long calls, wrong, lost, received, issued;
static size_t expected;
static float *latencies;
static size_t room;
static Connection *connections;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void fail(const char *what) {
    perror(what);
    exit(2);
}

static void readMessage(const char *name) {
    FILE *file = fopen(name, "rb");
    if (!file)
        fail(name);
    size = fread(message, 1, sizeof message, file);
    fclose(file);
    if (mode == UDP)
        number = memmem(message, size, "0000000000", DIGITS);
}

static void sendAll(int fd, const void *data, size_t length) {
    /* A message is far smaller than a socket's buffer. */
    ssize_t sent = send(fd, data, length, MSG_NOSIGNAL);
    if (sent != (ssize_t)length)
        fail("send");
}

static void ask(Connection *c) {
    issued++;
    if (number) {
        char digits[DIGITS + 1];
        snprintf(digits, sizeof digits, "%010lu", issued % 10000000000UL);
        memcpy(number, digits, DIGITS);
    }
    c->began = now();
    sendAll(c->fd, message, size);
}

static void shakeHands(int fd) {
    char text[1024];
    int length = snprintf(text, sizeof text,
                          "GET %s HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nUpgrade: websocket\r\n"
                          "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
                          "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n",
                          path, port);
    sendAll(fd, text, (size_t)length);
    size_t have = 0;
    do {
        ssize_t got = recv(fd, text + have, sizeof text - 1 - have, 0);
        if (got <= 0)
            fail("handshake");
        have += (size_t)got;
        text[have] = 0;
    } while (!strstr(text, "\r\n\r\n") && have < sizeof text - 1);
    if (!strstr(text, " 101 ")) {
        fprintf(stderr, "no WebSocket: %.200s\n", text);
        exit(2);
    }
}

static void open1(Connection *c) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    c->fd = socket(AF_INET, mode == UDP ? SOCK_DGRAM : SOCK_STREAM, 0);
    if (c->fd < 0 || connect(c->fd, (struct sockaddr *)&address, sizeof address))
        fail("connect");
    if (mode != UDP) {
        int one = 1;
        setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    }
    if (mode == WS)
        shakeHands(c->fd);
}

/* Give the length of the message at the beginning of the buffer; 0 where more has to come. */
static size_t complete(const Connection *c) {
    const unsigned char *b = c->buffer;
    size_t length;
    if (mode == UDP)
        return c->have;
    if (mode == TCP) {
        if (c->have < HEAD)
            return 0;
        length = HEAD + ((size_t)b[2] << 24 | (size_t)b[3] << 16 | (size_t)b[4] << 8 | b[5]);
    } else {
        if (c->have < 2 || (b[1] == 126 && c->have < 4))
            return 0;
        length = b[1] == 126 ? 4 + ((size_t)b[2] << 8 | b[3]) : (size_t)2 + b[1];
    }
    if (length > BUFFER) {
        fprintf(stderr, "an answer is too long\n");
        exit(2);
    }
    return c->have >= length ? length : 0;
}

static int isRight(const Connection *c, size_t length) {
    if (!expected)
        expected = length;
    if (mode == WS)
        return length == expected && ((c->buffer[0] & 15) == 1 || (c->buffer[0] & 15) == 2);
    return length == expected && c->buffer[1] != ERROR;
}

static void answered(Connection *c, size_t length) {
    calls++;
    received += length;
    wrong += !isRight(c, length);
    if (calls > room) {
        room = room ? room * 2 : 1 << 16;
        latencies = realloc(latencies, room * sizeof *latencies);
        if (!latencies)
            fail("realloc");
    }
    latencies[calls - 1] = (float)((now() - c->began) * 1e3);
    c->began = 0;
    c->have = 0;
}

static void take(Connection *c, int again) {
    ssize_t got = recv(c->fd, c->buffer + c->have, BUFFER - c->have, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == ECONNREFUSED))
        return;
    if (got <= 0) {
        fprintf(stderr, "a connection was closed\n");
        exit(2);
    }
    c->have += (size_t)got;
    size_t length = complete(c);
    if (!length)
        return;
    if (!c->began) {
        /* The late answer to a datagram that was given up. */
        c->have = 0;
        return;
    }
    answered(c, length);
    if (again)
        ask(c);
}

static void giveUp(double time, int again) {
    for (int i = 0; i < count; i++) {
        Connection *c = &connections[i];
        if (!c->began || time - c->began < PATIENCE)
            continue;
        lost++;
        c->began = 0;
        if (mode == UDP && again)
            ask(c);
    }
}

static int inFlight(void) {
    for (int i = 0; i < count; i++)
        if (connections[i].began)
            return 1;
    return 0;
}

static int ascending(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static double run(void) {
    int poll = epoll_create1(0);
    for (int i = 0; i < count; i++) {
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = &connections[i]};
        if (epoll_ctl(poll, EPOLL_CTL_ADD, connections[i].fd, &event))
            fail("epoll_ctl");
    }
    double began = now(), end = began + seconds, looked = began, time = began;
    for (int i = 0; i < count; i++)
        ask(&connections[i]);
    while (time < end || inFlight()) {
        struct epoll_event events[EVENTS];
        int found = epoll_wait(poll, events, EVENTS, 100);
        time = now();
        for (int i = 0; i < found; i++)
            take(events[i].data.ptr, time < end);
        if (time - looked >= 0.1) {
            giveUp(time, time < end);
            looked = time;
        }
    }
    return now() - began;
}

int main(int argc, char **argv) {
    const char *file = NULL;
    for (int option; (option = getopt(argc, argv, "m:p:c:f:d:u:")) != -1;) {
        switch (option) {
        case 'm': mode = !strcmp(optarg, "udp") ? UDP : !strcmp(optarg, "ws") ? WS : TCP; break;
        case 'p': port = atoi(optarg); break;
        case 'c': count = atoi(optarg); break;
        case 'f': file = optarg; break;
        case 'd': seconds = atof(optarg); break;
        case 'u': path = optarg; break;
        default: return 2;
        }
    }
    if (!file || !port || count < 1)
        return 2;
    readMessage(file);
    connections = calloc((size_t)count, sizeof *connections);
    if (!connections)
        fail("calloc");
    for (int i = 0; i < count; i++)
        open1(&connections[i]);
    double took = run();
    qsort(latencies, calls, sizeof *latencies, ascending);
    printf("{\"calls\":%lu,\"wrong\":%lu,\"lost\":%lu,\"seconds\":%.6f,\"received\":%lu,"
           "\"p50Ms\":%.4f,\"p99Ms\":%.4f}\n",
           calls, wrong, lost, took, received, calls ? latencies[calls / 2] : 0.0,
           calls ? latencies[calls * 99 / 100] : 0.0);
    return 0;
}
