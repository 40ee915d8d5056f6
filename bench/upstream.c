/* Scripted HTTP/1.1 upstream: one thread, epoll, keep-alive. What it answers depends on the port that was called.
 *
 *   upstream --small PORT --burst PORT --paced PORT [--seconds S]
 *
 * small: 700 bytes of JSON. burst: 500 events of 200 bytes and [DONE], chunked, one write per event, as fast as the
 * peer takes them. paced: 10 events a second of 200 bytes, each carrying its send time, for S seconds; streams are
 * spread evenly over the 100 ms. Any method and path does; request bodies may have a length or be chunked.
 * GET /stats answers counts and the model that the last request named first; GET /health answers 200.
 * Prints "ready" when it listens. Loopback only.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "http1.h"

enum { SMALL_BYTES = 700, BURST_EVENTS = 500, HEAD_MAX = 16384, BODY_MAX = 10 * 1024 * 1024, SCRATCH = 256 * 1024 };
enum { SLOTS = 1000, TICK_NS = 100000, SLOT_STRIDE = 617 }; /* 1000 x 100 us: each stream once every 100 ms */
enum kind { KIND_SMALL, KIND_BURST, KIND_PACED, KIND_STATS };
enum state { READ_HEAD, READ_LENGTH, READ_CHUNKS, RESPOND };

struct conn {
    int fd;
    enum kind listener, answer;
    enum state state;
    bool dead, wants_out, body_started;
    size_t held;                 /* bytes of an incomplete head in `head` */
    uint64_t body_left, body_read;
    struct chunks chunks;
    const char *out;             /* what is left of a prebuilt answer */
    size_t out_left;
    int event;                   /* of a burst */
    int slot;                    /* of the wheel, -1 when none */
    uint64_t ends_ns;
    struct conn *next, *previous; /* in the slot; `next` also in the list of the dead */
    char head[HEAD_MAX];
};

static int epoll_fd, timer_fd;
static int stream_seconds = 60;
static unsigned streams_open, streams_started;
static uint64_t requests, connections, stalled;
static char last_model[64];
static struct conn *slots[SLOTS], *dead_list;
static uint64_t next_tick; /* absolute tick number */
static char scratch[SCRATCH + HEAD_MAX];

static char small_answer[1024], stats_answer[1024];
static size_t small_length;
static char burst_event[EVENT_BYTES + 8], last_event[EVENT_BYTES + 8], paced_event[EVENT_BYTES + 8];
enum { FRAMED = EVENT_BYTES + 6 }; /* "c8" CRLF event CRLF */
static const char stream_head[] =
    "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-cache\r\nTransfer-Encoding: chunked\r\n\r\n";
static const char stream_end[] = "e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n";

static void make_event(char *framed, const char *tail) {
    char event[EVENT_BYTES + 1];
    int used = snprintf(event, sizeof event, "data: {\"t\":\"%0*d\",\"object\":\"chat.completion.chunk\",\"pad\":\"", STAMP_DIGITS, 0);
    size_t tail_length = strlen(tail);
    memset(event + used, 'x', EVENT_BYTES - (size_t)used);
    memcpy(event + EVENT_BYTES - tail_length, tail, tail_length);
    memcpy(framed, "c8\r\n", 4);
    memcpy(framed + 4, event, EVENT_BYTES);
    memcpy(framed + 4 + EVENT_BYTES, "\r\n", 2);
}

static void make_answers(void) {
    char body[SMALL_BYTES + 1];
    int used = snprintf(body, sizeof body,
        "{\"id\":\"chatcmpl-1\",\"object\":\"chat.completion\",\"created\":1700000000,\"model\":\"bench-model\",\"choices\":[{\"index\":0,"
        "\"message\":{\"role\":\"assistant\",\"content\":\"");
    const char *tail = "\"},\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":256,\"completion_tokens\":96,\"total_tokens\":352}}";
    memset(body + used, 'y', SMALL_BYTES - (size_t)used);
    memcpy(body + SMALL_BYTES - strlen(tail), tail, strlen(tail));
    body[SMALL_BYTES] = 0;
    small_length = (size_t)snprintf(small_answer, sizeof small_answer,
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", SMALL_BYTES, body);
    make_event(burst_event, "\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\" token\"}}]}\n\n");
    make_event(paced_event, "\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\" token\"}}]}\n\n");
    make_event(last_event, "\",\"choices\":[],\"usage\":{\"prompt_tokens\":25,\"completion_tokens\":500,\"total_tokens\":525}}\n\n");
}

static void want(struct conn *c, bool out) {
    if (c->wants_out == out) return;
    struct epoll_event e = {.events = EPOLLIN | (out ? (unsigned)EPOLLOUT : 0u), .data.ptr = c};
    epoll_ctl(epoll_fd, EPOLL_CTL_MOD, c->fd, &e);
    c->wants_out = out;
}

static void arm_timer(bool on) {
    struct itimerspec spec = {0};
    if (on) spec.it_value.tv_nsec = spec.it_interval.tv_nsec = TICK_NS;
    timerfd_settime(timer_fd, 0, &spec, NULL);
    next_tick = now_ns() / TICK_NS + 1;
}

static void leave_wheel(struct conn *c) {
    if (c->slot < 0) return;
    if (c->previous != NULL) c->previous->next = c->next;
    else slots[c->slot] = c->next;
    if (c->next != NULL) c->next->previous = c->previous;
    c->slot = -1;
    if (--streams_open == 0) arm_timer(false);
}

static void drop(struct conn *c) {
    if (c->dead) return;
    leave_wheel(c);
    close(c->fd);
    c->dead = true; /* freed after this batch of events, which may still name it */
    c->next = dead_list;
    dead_list = c;
}

static void join_wheel(struct conn *c) {
    c->slot = (int)(streams_started++ * SLOT_STRIDE % SLOTS);
    c->previous = NULL;
    c->next = slots[c->slot];
    if (c->next != NULL) c->next->previous = c;
    slots[c->slot] = c;
    c->ends_ns = now_ns() + (uint64_t)stream_seconds * 1000000000u;
    if (streams_open++ == 0) arm_timer(true);
}

/* Writes what is pending. Returns whether all of it went. */
static bool flush_out(struct conn *c) {
    while (c->out_left > 0) {
        ssize_t n = send(c->fd, c->out, c->out_left, MSG_NOSIGNAL);
        if (n < 0) {
            if (errno == EAGAIN) want(c, true);
            else drop(c);
            return false;
        }
        c->out += n;
        c->out_left -= (size_t)n;
    }
    return true;
}

static void next_request(struct conn *c) {
    want(c, false);
    c->state = READ_HEAD;
}

static void continue_response(struct conn *c) {
    for (;;) {
        if (!flush_out(c)) return;
        if (c->answer != KIND_BURST || c->event > BURST_EVENTS) break;
        c->event++;
        c->out = c->event < BURST_EVENTS ? burst_event : c->event == BURST_EVENTS ? last_event : stream_end;
        c->out_left = c->event <= BURST_EVENTS ? FRAMED : sizeof stream_end - 1;
    }
    if (c->slot < 0) next_request(c);
    else want(c, false);
}

static void respond(struct conn *c) {
    c->state = RESPOND;
    if (c->answer == KIND_STATS) {
        char body[512];
        int length = snprintf(body, sizeof body,
            "{\"requests\":%llu,\"connections\":%llu,\"stalled\":%llu,\"streams\":%u,\"last_model\":\"%s\"}",
            (unsigned long long)requests, (unsigned long long)connections, (unsigned long long)stalled, streams_open, last_model);
        c->out = stats_answer;
        c->out_left = (size_t)snprintf(stats_answer, sizeof stats_answer,
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", length, body);
    } else if (c->answer == KIND_SMALL) {
        requests++;
        c->out = small_answer;
        c->out_left = small_length;
    } else {
        requests++;
        c->event = 0;
        c->out = stream_head;
        c->out_left = sizeof stream_head - 1;
        if (c->answer == KIND_PACED) join_wheel(c);
    }
    continue_response(c);
}

static void note_body(void *context, const char *data, size_t length) {
    static const char prefix[] = "{\"model\":\"";
    struct conn *c = context;
    c->body_read += length;
    if (c->body_started) return;
    c->body_started = true;
    if (length > sizeof last_model + sizeof prefix && memcmp(data, prefix, sizeof prefix - 1) == 0) {
        size_t n = 0;
        for (data += sizeof prefix - 1; n < sizeof last_model - 1 && data[n] != '"' && data[n] != '\\' && data[n] >= ' '; n++) last_model[n] = data[n];
        last_model[n] = 0;
    }
}

/* Reads a head. Returns its length, 0 when incomplete, -1 when it is no request that we serve. */
static long read_head(struct conn *c, const char *data, size_t length) {
    const char *end = memmem(data, length, "\r\n\r\n", 4);
    if (end == NULL) return length >= HEAD_MAX ? -1 : 0;
    size_t head = (size_t)(end - data) + 4;
    const char *coding = header_value(data, head, "transfer-encoding"), *size = header_value(data, head, "content-length");
    c->body_read = 0;
    c->body_started = false;
    c->answer = strncmp(data, "GET /stats", 10) == 0 || strncmp(data, "GET /health", 11) == 0 ? KIND_STATS
        : strncmp(data, "GET ", 4) == 0 ? KIND_SMALL : c->listener;
    if (coding != NULL) {
        c->state = READ_CHUNKS;
        c->chunks = (struct chunks){0};
    } else {
        c->state = READ_LENGTH;
        c->body_left = size != NULL ? strtoull(size, NULL, 10) : 0;
        if (c->body_left > BODY_MAX) return -1;
    }
    return (long)head;
}

static void receive(struct conn *c) {
    char *data = scratch;
    memcpy(data, c->head, c->held);
    ssize_t n = recv(c->fd, data + c->held, SCRATCH, 0);
    if (n <= 0) {
        if (n == 0 || errno != EAGAIN) drop(c);
        return;
    }
    size_t length = c->held + (size_t)n, at = 0;
    c->held = 0;
    while (!c->dead) {
        if (c->state == READ_HEAD) {
            if (at == length) return;
            long head = read_head(c, data + at, length - at);
            if (head < 0) return drop(c);
            if (head == 0) {
                c->held = length - at;
                memcpy(c->head, data + at, c->held);
                return;
            }
            at += (size_t)head;
        } else if (c->state == READ_LENGTH) {
            size_t take = length - at < c->body_left ? length - at : (size_t)c->body_left;
            if (take > 0) note_body(c, data + at, take);
            at += take;
            c->body_left -= take;
            if (c->body_left > 0) return;
            respond(c);
        } else if (c->state == READ_CHUNKS) {
            at += chunks_feed(&c->chunks, data + at, length - at, note_body, c);
            if (c->chunks.state == CHUNK_BROKEN || c->body_read > BODY_MAX) return drop(c);
            if (c->chunks.state != CHUNK_DONE) return;
            respond(c);
        } else { /* a request before the answer to the last one ended: no proxy of ours does that */
            if (at < length) drop(c);
            return;
        }
    }
}

static void send_event(struct conn *c, uint64_t now) {
    if (c->out_left > 0) { /* the head is not out yet, or the proxy has stalled for megabytes */
        stalled++;
        return;
    }
    if (now >= c->ends_ns) {
        leave_wheel(c);
        c->out = stream_end;
        c->out_left = sizeof stream_end - 1;
        continue_response(c);
        return;
    }
    char *digits = paced_event + 4 + STAMP_AT;
    uint64_t stamp = now_ns();
    for (int i = STAMP_DIGITS - 1; i >= 0; i--, stamp /= 10) digits[i] = (char)('0' + stamp % 10);
    ssize_t n = send(c->fd, paced_event, FRAMED, MSG_NOSIGNAL);
    if (n == FRAMED) return;
    stalled++;
    if (n >= 0 || errno != EAGAIN) drop(c); /* a part of an event cannot be kept: the buffer is shared */
}

static void turn_wheel(void) {
    uint64_t expired, now = now_ns();
    if (read(timer_fd, &expired, sizeof expired) < 0) return;
    for (; next_tick <= now / TICK_NS && streams_open > 0; next_tick++) {
        for (struct conn *c = slots[next_tick % SLOTS], *next; c != NULL; c = next) {
            next = c->next;
            send_event(c, now);
        }
    }
}

static int listen_on(int port) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), one = 1;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(fd, (struct sockaddr *)&address, sizeof address) < 0 || listen(fd, 2048) < 0) die("upstream: port %d: %s", port, strerror(errno));
    return fd;
}

static void accept_all(struct conn *listener) {
    for (;;) {
        int fd = accept4(listener->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC), one = 1;
        if (fd < 0) return;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        struct conn *c = calloc(1, sizeof *c);
        if (c == NULL) die("upstream: out of memory");
        c->fd = fd;
        c->slot = -1;
        c->listener = listener->listener;
        connections++;
        struct epoll_event e = {.events = EPOLLIN, .data.ptr = c};
        epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &e);
    }
}

static void serve(struct conn *listeners) {
    static struct epoll_event events[512];
    for (;;) {
        int n = epoll_wait(epoll_fd, events, 512, -1);
        for (int i = 0; i < n; i++) {
            struct conn *c = events[i].data.ptr;
            if (c == NULL) {
                turn_wheel();
            } else if (c >= listeners && c < listeners + 3) {
                accept_all(c);
            } else if (!c->dead) {
                if (events[i].events & EPOLLOUT) continue_response(c);
                if (!c->dead && events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) receive(c);
            }
        }
        for (struct conn *c; (c = dead_list) != NULL;) {
            dead_list = c->next;
            free(c);
        }
    }
}

int main(int argc, char **argv) {
    static const struct option options[] = {{"small", 1, 0, 's'}, {"burst", 1, 0, 'b'}, {"paced", 1, 0, 'p'}, {"seconds", 1, 0, 't'}, {0}};
    int ports[3] = {0}, option;
    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        switch (option) {
        case 's': ports[KIND_SMALL] = atoi(optarg); break;
        case 'b': ports[KIND_BURST] = atoi(optarg); break;
        case 'p': ports[KIND_PACED] = atoi(optarg); break;
        case 't': stream_seconds = atoi(optarg); break;
        default: return 2;
        }
    }
    signal(SIGPIPE, SIG_IGN);
    make_answers();
    epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    struct epoll_event e = {.events = EPOLLIN, .data.ptr = NULL};
    epoll_ctl(epoll_fd, EPOLL_CTL_ADD, timer_fd, &e);
    struct conn *listeners = calloc(3, sizeof *listeners);
    if (listeners == NULL) die("upstream: out of memory");
    for (int i = 0; i < 3; i++) {
        if (ports[i] == 0) die("upstream: --small, --burst and --paced each need a port");
        listeners[i].fd = listen_on(ports[i]);
        listeners[i].listener = (enum kind)i;
        e.data.ptr = &listeners[i];
        epoll_ctl(epoll_fd, EPOLL_CTL_ADD, listeners[i].fd, &e);
    }
    puts("ready");
    fflush(stdout);
    serve(listeners);
}
