/* What the load generator and the scripted upstream share: a chunk decoder, a clock, header look-up, fatal errors. */
#ifndef BENCH_HTTP1_H
#define BENCH_HTTP1_H

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

static inline uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

__attribute__((noreturn, format(printf, 1, 2))) static inline void die(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    exit(1);
}

/* A paced event is exactly this long, and its send time (CLOCK_MONOTONIC, ns, 20 digits) stands at a fixed place. */
enum { EVENT_BYTES = 200, STAMP_AT = 12, STAMP_DIGITS = 20 };

/* Value of a header field in a head that ends with CRLF CRLF; NULL when absent. Not NUL-terminated. */
static inline const char *header_value(const char *head, size_t length, const char *name) {
    size_t name_length = strlen(name);
    const char *end = head + length;
    const char *line = memchr(head, '\n', length);
    while (line != NULL && ++line + name_length + 1 < end) {
        if (line[name_length] == ':' && strncasecmp(line, name, name_length) == 0) {
            line += name_length + 1;
            while (line < end && *line == ' ') line++;
            return line;
        }
        line = memchr(line, '\n', (size_t)(end - line));
    }
    return NULL;
}

enum chunk_state { CHUNK_SIZE, CHUNK_EXTENSION, CHUNK_DATA, CHUNK_DATA_END, CHUNK_TRAILER, CHUNK_DONE, CHUNK_BROKEN };

struct chunks {
    enum chunk_state state;
    uint64_t left;      /* bytes of this chunk still to come */
    unsigned line_bytes; /* of the current trailer line, or digits of the size */
};

typedef void (*body_sink)(void *context, const char *data, size_t length);

/* Decodes until the input or the body ends; returns the number of bytes used. Body bytes go to the sink. */
static inline size_t chunks_feed(struct chunks *c, const char *data, size_t length, body_sink sink, void *context) {
    size_t i = 0;
    while (i < length && c->state != CHUNK_DONE && c->state != CHUNK_BROKEN) {
        char ch = data[i];
        switch (c->state) {
        case CHUNK_SIZE: {
            int digit = ch >= '0' && ch <= '9' ? ch - '0' : (ch | 32) >= 'a' && (ch | 32) <= 'f' ? (ch | 32) - 'a' + 10 : -1;
            if (digit >= 0 && c->line_bytes < 15) {
                c->left = c->left * 16 + (unsigned)digit;
                c->line_bytes++;
                i++;
            } else if (digit < 0 && c->line_bytes > 0) {
                c->state = CHUNK_EXTENSION;
            } else {
                c->state = CHUNK_BROKEN;
            }
            break;
        }
        case CHUNK_EXTENSION:
            i++;
            if (ch == '\n') {
                c->state = c->left ? CHUNK_DATA : CHUNK_TRAILER;
                c->line_bytes = 0;
            }
            break;
        case CHUNK_DATA: {
            size_t take = length - i < c->left ? length - i : (size_t)c->left;
            if (sink != NULL) sink(context, data + i, take);
            i += take;
            c->left -= take;
            if (c->left == 0) c->state = CHUNK_DATA_END;
            break;
        }
        case CHUNK_DATA_END:
            i++;
            if (ch == '\n') c->state = CHUNK_SIZE;
            else if (ch != '\r') c->state = CHUNK_BROKEN;
            break;
        case CHUNK_TRAILER:
            i++;
            if (ch == '\n') {
                if (c->line_bytes == 0) c->state = CHUNK_DONE;
                c->line_bytes = 0;
            } else if (ch != '\r') {
                c->line_bytes++;
            }
            break;
        case CHUNK_DONE:
        case CHUNK_BROKEN:
            break;
        }
    }
    return i;
}

#endif
