/*
 * A Jacobi solver that writes its state as it goes, in the role of `partdiff` in Hirsch's thesis
 * (2017, section 5.1): the heat in a square plate, one side of which is warm.
 *
 *     solver sync|async FILE [ROWS CHECKPOINTS STEPS]
 *
 * Each checkpoint is the whole plate, one behind the other in one stream. With `sync` the solver waits
 * until a checkpoint is compressed; with `async` it computes the next step meanwhile, and waits before
 * it overwrites what is being compressed. Then it reads all checkpoints back and compares them.
 *
 *     cc -std=c11 -Iinclude examples/solver.c -L../../target/debug -lbreakeven_c -lm -o solver
 */
#include <breakeven.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Ends the program where a function of the library failed. */
static void check(int code, const char *what)
{
    if (code != BREAKEVEN_OK) {
        fprintf(stderr, "solver: %s: %s (code %d)\n", what, breakeven_message(), code);
        exit(1);
    }
}

static void *allocate(size_t bytes)
{
    void *memory = calloc(bytes, 1);
    if (memory == NULL) {
        fprintf(stderr, "solver: no memory for %zu bytes\n", bytes);
        exit(1);
    }
    return memory;
}

/* One step: each point inside becomes the mean of its neighbours. */
static void step(const double *from, double *to, size_t rows)
{
    for (size_t row = 1; row + 1 < rows; row++) {
        for (size_t column = 1; column + 1 < rows; column++) {
            const double *at = from + row * rows + column;
            to[row * rows + column] = 0.25 * (at[-1] + at[1] + at[-(ptrdiff_t)rows] + at[rows]);
        }
    }
}

/* Sets a plate to its start: cold but for its first row. */
static void start(double *plate, size_t rows)
{
    memset(plate, 0, rows * rows * sizeof *plate);
    for (size_t column = 0; column < rows; column++)
        plate[column] = 1.0 + (double)column / (double)rows;
}

/* Computes `count` checkpoints, `steps` steps apart, and hands each to the stream. */
static void solve(breakeven_writer *writer, int is_async, size_t rows, size_t count, size_t steps)
{
    size_t bytes = rows * rows * sizeof(double);
    double *plates[2] = {allocate(bytes), allocate(bytes)};
    start(plates[0], rows);
    start(plates[1], rows);
    int now = 0;
    for (size_t checkpoint = 0; checkpoint < count; checkpoint++) {
        for (size_t at = 0; at < steps; at++) {
            if (at == 1) /* The first step only reads what is under way; the second overwrites it. */
                check(breakeven_wait(writer), "wait");
            step(plates[now], plates[!now], rows);
            now = !now;
        }
        if (is_async) {
            check(breakeven_wait(writer), "wait");
            check(breakeven_write_async(writer, plates[now], bytes, checkpoint * bytes), "write");
        } else {
            check(breakeven_write(writer, plates[now], bytes, checkpoint * bytes), "write");
            breakeven_times times;
            check(breakeven_call_times(writer, &times), "times");
            printf("checkpoint %zu: compressed after %.6f s\n", checkpoint,
                   times.compressed_seconds);
        }
    }
    check(breakeven_wait(writer), "wait");
    free(plates[0]);
    free(plates[1]);
}

/* Computes again and compares with what the stream holds; the last checkpoint first, where there is a
 * seek table any place may come first. */
static void verify(const char *path, size_t rows, size_t count, size_t steps)
{
    size_t bytes = rows * rows * sizeof(double);
    double *plates[2] = {allocate(bytes), allocate(bytes)};
    double *found = allocate(bytes), *last = allocate(bytes);
    breakeven_reader *reader;
    size_t done;
    check(breakeven_reader_open(path, &reader), "open");
    check(breakeven_read(reader, last, bytes, (count - 1) * bytes, &done), "read");
    start(plates[0], rows);
    start(plates[1], rows);
    int now = 0;
    for (size_t checkpoint = 0; checkpoint < count; checkpoint++) {
        for (size_t at = 0; at < steps; at++) {
            step(plates[now], plates[!now], rows);
            now = !now;
        }
        check(breakeven_read(reader, found, bytes, checkpoint * bytes, &done), "read");
        if (done != bytes || memcmp(found, plates[now], bytes) != 0) {
            fprintf(stderr, "solver: checkpoint %zu is not what was written\n", checkpoint);
            exit(1);
        }
    }
    if (memcmp(found, last, bytes) != 0) {
        fprintf(stderr, "solver: the last checkpoint differs when it is read first\n");
        exit(1);
    }
    check(breakeven_read(reader, found, 1, count * bytes, &done), "read");
    if (done != 0) {
        fprintf(stderr, "solver: there is more than was written\n");
        exit(1);
    }
    breakeven_reader_close(reader);
    free(plates[0]);
    free(plates[1]);
    free(found);
    free(last);
}

int main(int argc, char **argv)
{
    if ((argc != 3 && argc != 6) || (strcmp(argv[1], "sync") && strcmp(argv[1], "async"))) {
        fprintf(stderr, "usage: solver sync|async FILE [ROWS CHECKPOINTS STEPS]\n");
        return 2;
    }
    size_t rows = argc == 6 ? strtoul(argv[3], NULL, 10) : 300;
    size_t count = argc == 6 ? strtoul(argv[4], NULL, 10) : 8;
    size_t steps = argc == 6 ? strtoul(argv[5], NULL, 10) : 10;
    if (rows < 3 || count < 1 || steps < 1) {
        fprintf(stderr, "solver: at least 3 rows, 1 checkpoint and 1 step\n");
        return 2;
    }
    int is_async = strcmp(argv[1], "async") == 0;

    breakeven_options options = {0};
    options.size = sizeof options;
    options.strategy = BREAKEVEN_FASTEST;
    breakeven_writer *writer;
    check(breakeven_writer_open(argv[2], &options, &writer), "open");
    uint64_t end = (uint64_t)(count * rows * rows * sizeof(double));
    breakeven_hint hints[2] = {
        breakeven_hint_of(BREAKEVEN_KEEP, 0, end, 30.0),
        /* The solver has one processor; half of two is as much. */
        breakeven_hint_of(BREAKEVEN_ASYNCHRONISM, 0, end, is_async ? 0.5 : 0.0),
    };
    check(breakeven_advise(writer, hints, 2), "advise");
    solve(writer, is_async, rows, count, steps);
    breakeven_summary summary;
    check(breakeven_writer_close(writer, &summary), "close");
    verify(argv[2], rows, count, steps);
    printf("%s: %llu bytes in %llu, %zu checkpoints read back as they were written\n", argv[1],
           (unsigned long long)summary.raw, (unsigned long long)summary.stored, count);
    return 0;
}
