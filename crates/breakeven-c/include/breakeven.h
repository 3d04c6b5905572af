/*
 * breakeven.h: compressed streams for C programs.
 *
 * A stream is a row of standard Zstandard frames (with BREAKEVEN_MIXED also LZ4 and xz frames) and a
 * seek table: `zstd -d` reads it without this library. A writer compresses blocks on threads of its
 * own and writes them in order from another, so that computing, compressing and writing overlap:
 *
 *     breakeven_writer *writer;
 *     breakeven_writer_open("state.zst", NULL, &writer);
 *     breakeven_write_async(writer, state, sizeof state, 0);   returns at once
 *     compute(next, state);                                    may read `state`
 *     breakeven_wait(writer);                                  `state` may be changed again
 *     breakeven_writer_close(writer, NULL);
 *
 * Errors. A function gives BREAKEVEN_OK or one of the codes below, unless it returns text. After a failure
 * breakeven_message() describes the error, with places and numbers. After an error other than BREAKEVEN_INVALID a
 * writer takes nothing more; it must still be closed or abandoned.
 *
 * Threads. A writer or reader is used by one thread at a time. Different ones are independent. After
 * fork() the child leaves the parent's alone.
 *
 * Units. Lengths, offsets and sizes are bytes; times are seconds; speeds are bytes per second.
 *
 * Link with -lbreakeven_c; with the static library add -lpthread -ldl -lm.
 */
#ifndef BREAKEVEN_H
#define BREAKEVEN_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Codes. */
#define BREAKEVEN_OK 0          /* done */
#define BREAKEVEN_INVALID 1     /* a null pointer, an impossible option or range; nothing was done */
#define BREAKEVEN_IO 2          /* the operating system refused; the message says what and why */
#define BREAKEVEN_CORRUPT 3     /* the input is no whole stream; the message names the byte */
#define BREAKEVEN_LIMIT 4       /* reading would take more memory than is allowed */
#define BREAKEVEN_UNSUPPORTED 5 /* well formed, but not served by this version */
#define BREAKEVEN_POISONED 6    /* refused because of an error before */
#define BREAKEVEN_PANIC 7       /* a bug in the library; the message is worth a report */
#define BREAKEVEN_STOPPED 8     /* breakeven_stop_set() was called */

/* How the method of each block is found. */
#define BREAKEVEN_FIXED 0    /* one for all: `method` */
#define BREAKEVEN_FASTEST 1  /* picked so that the stream is over as soon as can be */
#define BREAKEVEN_WITHIN 2   /* as small as can be in `factor` times the time it takes uncompressed */
#define BREAKEVEN_SMALLEST 3 /* as small as can be */
#define BREAKEVEN_MONEY 4    /* picked so that it costs least, by the prices in `money` */

/* Flags of a writer. */
#define BREAKEVEN_MIXED 1u /* LZ4 and xz frames as well: wants a zstd linked with liblz4 and liblzma */
#define BREAKEVEN_SYNC 2u  /* closing waits until the file is on the medium */
/* The same bytes every time, for any workers, clock and link. Methods are picked by the library's own speeds,
 * for a link of `link` or, if that is 0, 117e6 bytes per second. Goes with all strategies but BREAKEVEN_WITHIN. */
#define BREAKEVEN_DETERMINISTIC 4u

/* Stops a program's writers, from another thread or a signal handler. */
typedef struct breakeven_stop breakeven_stop;

/* The prices of BREAKEVEN_MONEY. It weighs the cores' time for compressing once and decompressing at each read
 * against the bytes for the days they are kept. Prices are in any currency, the same for both. */
typedef struct breakeven_money {
    double price_per_core_hour; /* of a core busy for an hour, rent and energy; above 0, at most 1e18 */
    double price_per_tb_year;   /* of 10^12 bytes kept for 365 days; above 0, at most 1e18 */
    double days;                /* how long the stream is kept; above 0, at most 1e6 */
    double reads;               /* how often it is read, 0 to 1e9 */
} breakeven_money;

/* Options of a writer. All zeros but `size` are the defaults. */
typedef struct breakeven_options {
    uint32_t size;     /* sizeof(breakeven_options); anything else is refused */
    uint32_t workers;  /* threads that compress, at most 1,024; 0: one for each processor */
    uint32_t block;    /* bytes of a block, 4 KiB to 64 MiB; 0: 1 MiB */
    uint32_t flags;    /* BREAKEVEN_MIXED | BREAKEVEN_SYNC | BREAKEVEN_DETERMINISTIC */
    uint32_t strategy; /* BREAKEVEN_FIXED and those below it; anything else is refused */
    uint32_t reserved; /* 0 */
    double factor;     /* of BREAKEVEN_WITHIN, from 1 on; otherwise 0 */
    double link;       /* speed of the target, bytes per second; 0: measured */
    /* Of BREAKEVEN_FIXED: "store", "zstd:-7" to "zstd:22", with BREAKEVEN_MIXED also "lz4:1",
     * "lz4hc:9", "xz:6" and others; NULL: "zstd:3". Otherwise NULL. */
    const char *method;
    const breakeven_stop *stop; /* NULL: the writer is not to be stopped */
    /* Bytes that are to be written in all, zeros of gaps included; 0: not known. With BREAKEVEN_WITHIN the
     * last blocks then take the rest of the time. It is a hint: more or fewer bytes are no error. With up to
     * 2 N + 4 blocks less, for N workers, the stream may be late by the time that those would have given back. */
    uint64_t pledged_source_size;
    /* Of BREAKEVEN_MONEY; otherwise NULL. Read by breakeven_writer_open() alone. */
    const breakeven_money *money;
} breakeven_options;

/* The totals of a closed stream. */
typedef struct breakeven_summary {
    uint64_t raw;              /* bytes that came in, zeros of gaps included */
    uint64_t stored;           /* bytes that went out */
    uint64_t blocks;           /* blocks written */
    uint64_t plain_blocks;     /* blocks that no method made smaller, or of one byte repeated */
    double compressed_seconds; /* from the first call until all was compressed */
    double drained_seconds;    /* from the first call until all was written */
} breakeven_summary;

/* The times, from its start, at which the bytes of the last call were done; negative while they are not. */
typedef struct breakeven_times {
    double compressed_seconds;
    double drained_seconds;
} breakeven_times;

/* Types of hints. Those that a version does not know are ignored. */
#define BREAKEVEN_NO_COMPRESSION 1 /* compressed or random already: stored as it is */
#define BREAKEVEN_WRITE_ONCE 2     /* kept and read, never written again */
#define BREAKEVEN_HOT 3            /* read often. Payload: double, reads for each write, up to 1e9 */
#define BREAKEVEN_KEEP 4           /* kept. Payload: double, days, up to 1e6 */
/* While the bytes are written the program computes on all processors. Payload: double, the share of
 * the time that writing them uncompressed takes, 0 to 1. */
#define BREAKEVEN_ASYNCHRONISM 5

/* A hint on bytes `start` up to, not including, `end` of a stream that are not written yet. A block
 * ends where a hint begins or ends; of one type, the last hint counts. With BREAKEVEN_FIXED only
 * BREAKEVEN_NO_COMPRESSION does anything. */
typedef struct breakeven_hint {
    uint64_t start;
    uint64_t end;
    uint16_t type;
    unsigned char payload[14]; /* a double in the machine's own order comes first; the rest zeros */
} breakeven_hint;

/* Makes a hint; `value` is its payload, or 0. */
static inline breakeven_hint breakeven_hint_of(uint16_t type, uint64_t start, uint64_t end,
                                               double value)
{
    breakeven_hint hint;
    memset(&hint, 0, sizeof hint);
    hint.start = start;
    hint.end = end;
    hint.type = type;
    memcpy(hint.payload, &value, sizeof value);
    return hint;
}

typedef struct breakeven_writer breakeven_writer;
typedef struct breakeven_reader breakeven_reader;

/* Returns the message of the last function that failed in this thread. It is text in UTF-8, valid until the next
 * one fails in this thread; "" before the first. */
const char *breakeven_message(void);

/* Returns the version of the library, as "0.1.0". */
const char *breakeven_version(void);

/* Makes a handle that stops writers; it must be freed. */
breakeven_stop *breakeven_stop_new(void);

/* Stops every writer that was opened with `stop`, and all that will be. Calls that wait then return
 * BREAKEVEN_STOPPED within a second, even where the file system stands still. Where buffers of the program are
 * being compressed, they return when each worker has finished the block that it began. The stream must then be
 * closed or abandoned, which leaves no file. May be called by any thread at any time, and by a signal handler.
 * `stop` may be NULL. */
void breakeven_stop_set(const breakeven_stop *stop);

/* Frees it. Writers that were opened with it are not stopped by that, and need it no longer. It may be
 * NULL. */
void breakeven_stop_free(breakeven_stop *stop);

/* Begins a stream. It goes to a new file beside `path`, whose name begins with ".breakeven-" and ends with
 * ".partial", and gets its own name when it is closed. A file under its own name is whole, and after a power cut
 * too if it was synced (BREAKEVEN_SYNC, or it replaced another). The file of a killed program may be removed. A
 * symbolic link stays, and its target is replaced. A pipe or a device is written to as it is, and a folder is
 * BREAKEVEN_IO.
 *
 * `options` may be NULL. On success `*writer` must be closed or abandoned; otherwise it is NULL. Memory, with N
 * workers: 3 N + 6 blocks, N times the memory of the methods, and half a block for each worker where methods are
 * picked. */
int breakeven_writer_open(const char *path, const breakeven_options *options,
                          breakeven_writer **writer);

/* Takes hints, in their order. */
int breakeven_advise(breakeven_writer *writer, const breakeven_hint *hints, size_t count);

/* Writes `length` bytes to a place of the stream and returns when they are compressed: `buffer` may
 * then be changed. Offsets ascend: one before the end of the bytes written so far is
 * BREAKEVEN_INVALID, and a gap is zeros. A call begins and ends a block. */
int breakeven_write(breakeven_writer *writer, const void *buffer, size_t length, uint64_t offset);

/* Writes as breakeven_write() does, but returns at once. `buffer` is compressed where it lies: it
 * must stay, unchanged, until breakeven_wait(), breakeven_wait_for(), breakeven_writer_close() or
 * breakeven_writer_abandon() returns. It may be read. Several calls may be under way. */
int breakeven_write_async(breakeven_writer *writer, const void *buffer, size_t length,
                          uint64_t offset);

/* Waits until the bytes of all asynchronous calls are compressed. After any return their buffers are the program's
 * again. */
int breakeven_wait(breakeven_writer *writer);

/* Waits until the asynchronous calls with any of the `length` bytes at `buffer` have compressed them; returns at
 * once where there are none. After any return these bytes are the program's again; the buffers of other calls may
 * still be read. */
int breakeven_wait_for(breakeven_writer *writer, const void *buffer, size_t length);

/* Gives the times of the last breakeven_write() or breakeven_write_async(). BREAKEVEN_INVALID before
 * the first. */
int breakeven_call_times(breakeven_writer *writer, breakeven_times *times);

/* Ends the stream: waits for the work under way, writes the seek table and gives the file its name. `summary` may
 * be NULL. After any return `writer` is gone. Unless it returns BREAKEVEN_OK, there is no new file under the name,
 * and an old one is as it was. A pipe or a device has the bytes written so far. */
int breakeven_writer_close(breakeven_writer *writer, breakeven_summary *summary);

/* Gives a stream up: removes the file. Waits until no buffer of the program is read any more.
 * `writer` may be NULL. */
void breakeven_writer_abandon(breakeven_writer *writer);

/* Opens any row of standard frames to be read, from any writer. On success `*reader` must be closed; otherwise it is
 * NULL. */
int breakeven_reader_open(const char *path, breakeven_reader **reader);

/* Reads `length` bytes from a place of the decoded stream. `*done` is how many there were: less than
 * `length` only at the end. Any place may be read from if the stream has a seek table, as this
 * library's streams do. Otherwise places ascend, and one before the last end is BREAKEVEN_INVALID.
 *
 * After an error `*done` bytes are there. Of a frame longer than 4 MiB they may be wrong ones, as with every reader
 * that does not wait for a frame's end. A stream is right when its end came without an error. */
int breakeven_read(breakeven_reader *reader, void *buffer, size_t length, uint64_t offset,
                   size_t *done);

/* Closes a reader. It may be NULL. */
void breakeven_reader_close(breakeven_reader *reader);

#ifdef __cplusplus
}
#endif

#endif
