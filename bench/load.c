/* HTTP/1.1 load generator: one thread, epoll, plain or TLS, optionally through CONNECT inference.local:443.
 *
 *   load --port P --request FILE --connections N [--seconds S | --requests R] [--warm S] [--expect-bytes B]
 *        [--tls --ca FILE] [--connect] [--streams]
 *
 * Closed loop (default): N keep-alive connections, one request each at a time. Warms up, prints "warm", waits for a
 * line on standard input, measures, prints one line of JSON. Whoever measures the proxy's CPU time reads it at these
 * two points, when nothing is in flight.
 * --streams: N connections, one request each, whose answer is a stream of paced events. Prints "open" when each has
 * had an event, counts from the line "go" to the line "stop", then prints JSON.
 * An answer that is not 200, ends early, has another size than --expect-bytes, or an event that is not whole, is an
 * error. Exit status 1 after errors, 75 when nothing was wrong but an answer did not come in time. FILE holds the request as it goes on the wire. TLS is verified against --ca for the name inference.local.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "histogram.h"
#include "http1.h"

enum { HEAD_MAX = 16384, READ_MAX = 256 * 1024, SETTING_UP_MAX = 32 };
enum phase { WARMING, WARM, MEASURING, FINISHING };
enum state { CLOSED, CONNECTING, TUNNELLING, HANDSHAKING, IDLE, HEAD, BODY_LENGTH, BODY_CHUNKS };
enum { AGAIN = -1, GONE = -2 };

struct conn {
    int fd;
    enum state state;
    SSL *ssl;
    bool wants_out, last;
    size_t sent;           /* of the request */
    uint64_t started_ns;
    uint64_t body_left, body_bytes;
    struct chunks chunks;
    bool had_event;
    unsigned event_at;     /* place in the current event */
    uint64_t stamp;
    size_t held;           /* bytes of an incomplete head in `head` */
    char head[HEAD_MAX];
};

static struct {
    int port, connections, warm_ms, measure_ms;
    uint64_t requests, expect_bytes;
    bool expects, tls, connect, streams;
    const char *request_file, *ca_file;
} opt = {.connections = 1, .warm_ms = 300, .measure_ms = 2000};

static int epoll_fd;
static SSL_CTX *tls;
static struct conn *conns;
static char *request, buffer[READ_MAX + HEAD_MAX];
static size_t request_length;
static enum phase phase = WARMING;
static uint64_t deadline_ns, stopped_ns, issued, done, errors, dials, body_bytes, events, read_ns;
static int setting_up, next_to_open, open_streams, busy;
static bool counting;
static struct histogram latency;
static char first_error[256];

static const char connect_request[] = "CONNECT inference.local:443 HTTP/1.1\r\nHost: inference.local:443\r\n\r\n";

static void obey(void);

/* Status 75: nothing was wrong, but it took too long. */
__attribute__((noreturn)) static void too_slow(const char *format, int count, int of) {
    fputs("load: ", stderr);
    fprintf(stderr, format, count, of);
    exit(75);
}

static void want(struct conn *c, bool out) {
    if (c->wants_out == out) return;
    struct epoll_event e = {.events = EPOLLIN | (out ? (unsigned)EPOLLOUT : 0u), .data.ptr = c};
    epoll_ctl(epoll_fd, EPOLL_CTL_MOD, c->fd, &e);
    c->wants_out = out;
}

static bool setting_up_state(enum state s) { return s == CONNECTING || s == TUNNELLING || s == HANDSHAKING; }

static void close_conn(struct conn *c) {
    if (setting_up_state(c->state)) setting_up--;
    else if (c->state > IDLE) busy--;
    if (c->ssl != NULL) SSL_free(c->ssl);
    if (c->state != CLOSED) close(c->fd);
    c->ssl = NULL;
    c->state = CLOSED;
}

static void fail(struct conn *c, const char *why) {
    errors++;
    if (first_error[0] == 0) snprintf(first_error, sizeof first_error, "%s", why);
    if (errors > 1000) die("load: more than 1,000 errors; the first: %s", first_error);
    close_conn(c);
}

static long io_result(struct conn *c, int n) {
    if (n > 0) return n;
    int error = SSL_get_error(c->ssl, n);
    return error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE ? AGAIN : error == SSL_ERROR_ZERO_RETURN ? 0 : GONE;
}

static long io_read(struct conn *c, char *data, size_t length) {
    if (c->ssl != NULL) return io_result(c, SSL_read(c->ssl, data, (int)length));
    ssize_t n = recv(c->fd, data, length, 0);
    return n >= 0 ? n : errno == EAGAIN ? AGAIN : GONE;
}

static long io_write(struct conn *c, const char *data, size_t length) {
    if (c->ssl != NULL) return io_result(c, SSL_write(c->ssl, data, (int)length));
    ssize_t n = send(c->fd, data, length, MSG_NOSIGNAL);
    return n >= 0 ? n : errno == EAGAIN ? AGAIN : GONE;
}

static void dial(struct conn *c) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)opt.port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int one = 1;
    c->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (c->fd < 0) die("load: socket: %s", strerror(errno));
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (connect(c->fd, (struct sockaddr *)&address, sizeof address) < 0 && errno != EINPROGRESS) die("load: port %d: %s", opt.port, strerror(errno));
    c->state = CONNECTING;
    c->wants_out = true;
    c->held = 0;
    setting_up++;
    dials++;
    struct epoll_event e = {.events = EPOLLIN | EPOLLOUT, .data.ptr = c};
    epoll_ctl(epoll_fd, EPOLL_CTL_ADD, c->fd, &e);
}

static void push_request(struct conn *c) {
    while (c->sent < request_length) {
        long n = io_write(c, request + c->sent, request_length - c->sent);
        if (n == AGAIN) return want(c, true);
        if (n < 0) return fail(c, "connection lost while sending");
        c->sent += (size_t)n;
    }
    want(c, false);
}

static bool may_issue(void) {
    if (phase == WARM || phase == FINISHING) return false;
    if (opt.streams) return true;
    if (phase == MEASURING && opt.requests > 0) return issued < opt.requests;
    return now_ns() < deadline_ns;
}

static void issue(struct conn *c) {
    if (!may_issue()) {
        c->state = IDLE;
        return;
    }
    c->state = HEAD;
    c->sent = 0;
    c->started_ns = now_ns();
    issued++;
    busy++;
    push_request(c);
}

static void ready(struct conn *c) {
    setting_up--;
    c->state = IDLE;
    want(c, false);
    issue(c);
}

static void handshake(struct conn *c) {
    int n = SSL_do_handshake(c->ssl);
    if (n == 1) return ready(c);
    int error = SSL_get_error(c->ssl, n);
    if (error == SSL_ERROR_WANT_READ) return want(c, false);
    if (error == SSL_ERROR_WANT_WRITE) return want(c, true);
    char text[200] = "TLS handshake: connection lost";
    if (ERR_peek_error() != 0) ERR_error_string_n(ERR_get_error(), text, sizeof text);
    fail(c, text);
}

static void start_tls(struct conn *c) {
    if (!opt.tls) return ready(c);
    c->ssl = SSL_new(tls);
    SSL_set_fd(c->ssl, c->fd);
    SSL_set_connect_state(c->ssl);
    SSL_set_tlsext_host_name(c->ssl, "inference.local");
    SSL_set1_host(c->ssl, "inference.local");
    c->state = HANDSHAKING;
    handshake(c);
}

static void connected(struct conn *c) {
    int error = 0;
    socklen_t size = sizeof error;
    getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &error, &size);
    if (error != 0) return fail(c, strerror(error));
    want(c, false);
    if (!opt.connect) return start_tls(c);
    c->state = TUNNELLING;
    if (send(c->fd, connect_request, sizeof connect_request - 1, MSG_NOSIGNAL) != sizeof connect_request - 1) fail(c, "CONNECT was not sent");
}

static void tunnelled(struct conn *c) {
    ssize_t n = recv(c->fd, c->head + c->held, HEAD_MAX - 1 - c->held, 0);
    if (n <= 0) {
        if (n == 0 || errno != EAGAIN) fail(c, "connection lost after CONNECT");
        return;
    }
    c->held += (size_t)n;
    c->head[c->held] = 0;
    if (strstr(c->head, "\r\n\r\n") == NULL) return;
    c->held = 0;
    if (strncmp(c->head, "HTTP/1.1 200", 12) != 0) return fail(c, "CONNECT was refused");
    start_tls(c);
}

/* Events have a fixed size and the stamp a fixed place, so that reading one needs no buffer. */
static void watch_events(struct conn *c, const char *data, size_t length) {
    for (size_t i = 0; i < length;) {
        unsigned at = c->event_at;
        if (at >= STAMP_AT && at < STAMP_AT + STAMP_DIGITS) {
            c->stamp = c->stamp * 10 + (unsigned)(data[i++] - '0');
            c->event_at++;
        } else if (at == EVENT_BYTES - 1) {
            if (data[i++] != '\n') return fail(c, "an event of another size");
            if (counting) {
                events++;
                histogram_add(&latency, read_ns > c->stamp ? read_ns - c->stamp : 0);
            }
            if (!c->had_event) {
                c->had_event = true;
                open_streams++;
            }
            c->event_at = 0;
            c->stamp = 0;
        } else {
            if (at == 0 && data[i] != 'd') return fail(c, "not an event");
            size_t until = at < STAMP_AT ? STAMP_AT : EVENT_BYTES - 1, take = until - at;
            if (take > length - i) take = length - i;
            c->event_at += (unsigned)take;
            i += take;
        }
    }
}

static void sink(void *context, const char *data, size_t length) {
    struct conn *c = context;
    c->body_bytes += length;
    if (opt.streams && c->state != CLOSED) watch_events(c, data, length);
}

static void complete(struct conn *c) {
    if (opt.streams) return fail(c, "a stream ended");
    if (opt.expects && c->body_bytes != opt.expect_bytes) return fail(c, "a body of another size");
    if (phase == MEASURING) {
        stopped_ns = now_ns();
        histogram_add(&latency, stopped_ns - c->started_ns);
        done++;
        body_bytes += c->body_bytes;
    }
    busy--;
    c->state = IDLE;
    if (c->last) {
        close_conn(c);
        if (may_issue()) dial(c);
        return;
    }
    issue(c);
}

/* Returns the length of the head, 0 when incomplete, -1 after a failure. */
static long take_head(struct conn *c, const char *data, size_t length) {
    const char *end = memmem(data, length, "\r\n\r\n", 4);
    if (end == NULL) {
        if (length < HEAD_MAX) return 0;
        fail(c, "a head without end");
        return -1;
    }
    size_t head = (size_t)(end - data) + 4;
    if (strncmp(data, "HTTP/1.1 200", 12) != 0) {
        char why[40] = {0};
        for (size_t i = 0; i < sizeof why - 1 && data[i] >= ' ' && data[i] != '"' && data[i] != '\\'; i++) why[i] = data[i];
        fail(c, why);
        return -1;
    }
    const char *size = header_value(data, head, "content-length"), *coding = header_value(data, head, "transfer-encoding");
    const char *connection = header_value(data, head, "connection");
    c->last = connection != NULL && strncasecmp(connection, "close", 5) == 0;
    c->body_bytes = 0;
    if (coding != NULL) {
        c->state = BODY_CHUNKS;
        c->chunks = (struct chunks){0};
    } else if (size != NULL) {
        c->state = BODY_LENGTH;
        c->body_left = strtoull(size, NULL, 10);
    } else {
        fail(c, "a body without length");
        return -1;
    }
    return (long)head;
}

static void take_bytes(struct conn *c, const char *data, size_t length) {
    size_t at = 0;
    if (c->state == IDLE) return fail(c, "bytes that nobody asked for");
    if (c->state == HEAD) {
        long head = take_head(c, data, length);
        if (head < 0) return;
        if (head == 0) {
            memcpy(c->head, data, length);
            c->held = length;
            return;
        }
        at = (size_t)head;
    }
    if (c->state == BODY_LENGTH) {
        size_t take = length - at < c->body_left ? length - at : (size_t)c->body_left;
        sink(c, data + at, take);
        at += take;
        c->body_left -= take;
        if (c->state == CLOSED || c->body_left > 0) return;
    } else {
        at += chunks_feed(&c->chunks, data + at, length - at, sink, c);
        if (c->state == CLOSED) return;
        if (c->chunks.state == CHUNK_BROKEN) return fail(c, "broken chunks");
        if (c->chunks.state != CHUNK_DONE) return;
    }
    if (at < length) return fail(c, "bytes after the end of a response");
    if (c->sent < request_length) return fail(c, "an answer before the request was sent");
    complete(c);
}

static void read_from(struct conn *c) {
    do {
        size_t held = c->held;
        memcpy(buffer, c->head, held);
        long n = io_read(c, buffer + held, READ_MAX);
        if (n == AGAIN) return;
        if (n <= 0) {
            if (c->state == IDLE) close_conn(c);
            else fail(c, "connection closed in the middle of a response");
            return;
        }
        c->held = 0;
        read_ns = now_ns();
        take_bytes(c, buffer, held + (size_t)n);
        /* TLS may hold further records that epoll knows nothing of. */
    } while (c->ssl != NULL && c->state > IDLE && SSL_has_pending(c->ssl));
}

static void handle(struct conn *c, unsigned mask) {
    switch (c->state) {
    case CLOSED: return;
    case CONNECTING:
        if (mask & (EPOLLOUT | EPOLLERR | EPOLLHUP)) connected(c);
        return;
    case TUNNELLING: tunnelled(c); return;
    case HANDSHAKING: handshake(c); return;
    default:
        if (mask & EPOLLOUT) push_request(c);
        if (c->state != CLOSED && mask & (EPOLLIN | EPOLLHUP | EPOLLERR)) read_from(c);
    }
}

static void wait_once(int timeout_ms) {
    static struct epoll_event batch[512];
    int n = epoll_wait(epoll_fd, batch, 512, timeout_ms);
    for (int i = 0; i < n; i++) {
        if (batch[i].data.ptr != NULL) handle(batch[i].data.ptr, batch[i].events);
        else if (opt.streams) obey();
    }
}

static void await_line(void) {
    char line[64];
    if (fgets(line, sizeof line, stdin) == NULL) die("load: standard input ended before the measurement");
}

static void say(const char *line) {
    puts(line);
    fflush(stdout);
}

static void report(double seconds) {
    printf("{\"requests\":%llu,\"events\":%llu,\"errors\":%llu,\"redials\":%llu,\"body_bytes\":%llu,\"seconds\":%.6f,"
           "\"p50_us\":%.2f,\"p99_us\":%.2f,\"first_error\":\"%s\"}\n",
           (unsigned long long)done, (unsigned long long)events, (unsigned long long)errors,
           (unsigned long long)(dials - (uint64_t)opt.connections), (unsigned long long)body_bytes, seconds,
           histogram_quantile_us(&latency, 0.50), histogram_quantile_us(&latency, 0.99), first_error);
}

/* Runs one phase of the closed loop until nothing is in flight. */
static void run_phase(enum phase which, int milliseconds) {
    uint64_t begun = now_ns(), stuck;
    phase = which;
    issued = 0;
    deadline_ns = begun + (uint64_t)milliseconds * 1000000u;
    stuck = deadline_ns + 15000000000u;
    for (int i = 0; i < opt.connections; i++) {
        if (conns[i].state == CLOSED) dial(&conns[i]);
        else if (conns[i].state == IDLE) issue(&conns[i]);
    }
    while (busy > 0 || setting_up > 0 || may_issue()) {
        if (busy == 0 && setting_up == 0) die("load: every connection is lost; the first error: %s", first_error);
        if (now_ns() > stuck && (which == WARMING || opt.requests == 0)) too_slow("%d of %d connections had no answer for 15 s", busy + setting_up, opt.connections);
        wait_once(1000);
    }
}

static void closed_loop(void) {
    run_phase(WARMING, opt.warm_ms);
    phase = WARM;
    say("warm");
    await_line();
    uint64_t begun = now_ns();
    run_phase(MEASURING, opt.measure_ms);
    phase = FINISHING;
    report((double)(stopped_ns - begun) / 1e9);
}

static void obey(void) {
    char line[64];
    ssize_t n = read(STDIN_FILENO, line, sizeof line - 1);
    if (n <= 0) die("load: standard input ended during the measurement");
    line[n] = 0;
    if (strncmp(line, "go", 2) == 0) {
        counting = true;
        deadline_ns = now_ns();
    } else {
        report((double)(now_ns() - deadline_ns) / 1e9);
        fflush(stdout);
        exit(0);
    }
}

static void paced_streams(void) {
    bool told = false;
    uint64_t stuck = now_ns() + 30000000000u;
    fcntl(STDIN_FILENO, F_SETFL, O_NONBLOCK);
    struct epoll_event e = {.events = EPOLLIN, .data.ptr = NULL};
    epoll_ctl(epoll_fd, EPOLL_CTL_ADD, STDIN_FILENO, &e);
    for (;;) {
        while (next_to_open < opt.connections && setting_up < SETTING_UP_MAX) dial(&conns[next_to_open++]);
        wait_once(100);
        if (!told && open_streams == opt.connections) {
            told = true;
            say("open");
        }
        if (!told && errors > 0) die("load: %d of %d streams opened; the first error: %s", open_streams, opt.connections, first_error);
        if (!told && now_ns() > stuck) too_slow("%d of %d streams opened in 30 s", open_streams, opt.connections);
    }
}

static void read_request(void) {
    FILE *file = fopen(opt.request_file, "rb");
    if (file == NULL) die("load: %s: %s", opt.request_file, strerror(errno));
    fseek(file, 0, SEEK_END);
    request_length = (size_t)ftell(file);
    rewind(file);
    request = malloc(request_length + 1);
    if (request == NULL || fread(request, 1, request_length, file) != request_length) die("load: %s could not be read", opt.request_file);
    fclose(file);
}

static void make_tls(void) {
    tls = SSL_CTX_new(TLS_client_method());
    SSL_CTX_set_read_ahead(tls, 1);
    SSL_CTX_set_mode(tls, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    if (opt.ca_file == NULL || SSL_CTX_load_verify_locations(tls, opt.ca_file, NULL) != 1) die("load: --tls needs --ca FILE with a certificate");
    SSL_CTX_set_verify(tls, SSL_VERIFY_PEER, NULL);
}

static void read_options(int argc, char **argv) {
    static const struct option options[] = {
        {"port", 1, 0, 'p'}, {"request", 1, 0, 'f'}, {"connections", 1, 0, 'n'}, {"seconds", 1, 0, 's'}, {"requests", 1, 0, 'r'},
        {"warm", 1, 0, 'w'}, {"expect-bytes", 1, 0, 'e'}, {"tls", 0, 0, 't'}, {"ca", 1, 0, 'a'}, {"connect", 0, 0, 'c'},
        {"streams", 0, 0, 'S'}, {0}};
    int option;
    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        switch (option) {
        case 'p': opt.port = atoi(optarg); break;
        case 'f': opt.request_file = optarg; break;
        case 'n': opt.connections = atoi(optarg); break;
        case 's': opt.measure_ms = (int)(atof(optarg) * 1000); break;
        case 'r': opt.requests = strtoull(optarg, NULL, 10); break;
        case 'w': opt.warm_ms = (int)(atof(optarg) * 1000); break;
        case 'e': opt.expects = true; opt.expect_bytes = strtoull(optarg, NULL, 10); break;
        case 't': opt.tls = true; break;
        case 'a': opt.ca_file = optarg; break;
        case 'c': opt.connect = true; break;
        case 'S': opt.streams = true; break;
        default: exit(2);
        }
    }
    if (opt.port <= 0 || opt.request_file == NULL || opt.connections <= 0) die("load: --port, --request and --connections are needed");
}

int main(int argc, char **argv) {
    read_options(argc, argv);
    signal(SIGPIPE, SIG_IGN);
    read_request();
    if (opt.tls) make_tls();
    conns = calloc((size_t)opt.connections, sizeof *conns);
    if (conns == NULL) die("load: out of memory");
    epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (opt.streams) paced_streams();
    else closed_loop();
    return 0;
}
