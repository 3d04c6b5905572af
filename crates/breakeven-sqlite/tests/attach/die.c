/* Kills the process before one of the calls by which SQLite's own VFS changes files: the one of the number in DIE_AT,
 * counted from the removal of a file named `start`. Of the file whose name ends in HOLD each sync says "sync" to the standard
 * output, and fails if the standard input answers "f". */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static long number = -1;

static void step(void) {
    const char *at = getenv("DIE_AT");
    if (number >= 0 && at && ++number == atol(at))
        kill(getpid(), SIGKILL);
}

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static int fails(int file) {
    const char *name = getenv("HOLD");
    char link[64], path[4096], answer = 0;
    if (!name)
        return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < (ssize_t)strlen(name))
        return 0;
    path[length] = 0;
    if (strcmp(path + length - strlen(name), name) != 0 || NEXT(write)(1, "sync\n", 5) != 5)
        return 0;
    if (read(0, &answer, 1) != 1 || answer != 'f')
        return 0;
    errno = EIO;
    return 1;
}

ssize_t pwrite(int file, const void *bytes, size_t count, off_t offset) {
    step();
    return NEXT(pwrite)(file, bytes, count, offset);
}

ssize_t pwrite64(int file, const void *bytes, size_t count, off64_t offset) {
    step();
    return NEXT(pwrite64)(file, bytes, count, offset);
}

ssize_t write(int file, const void *bytes, size_t count) {
    step();
    return NEXT(write)(file, bytes, count);
}

int fdatasync(int file) {
    step();
    return fails(file) ? -1 : NEXT(fdatasync)(file);
}

int fsync(int file) {
    step();
    return fails(file) ? -1 : NEXT(fsync)(file);
}

int ftruncate(int file, off_t length) {
    step();
    return NEXT(ftruncate)(file, length);
}

int ftruncate64(int file, off64_t length) {
    step();
    return NEXT(ftruncate64)(file, length);
}

int unlink(const char *path) {
    size_t length = strlen(path);
    if (length >= 5 && strcmp(path + length - 5, "start") == 0)
        number = 0;
    else
        step();
    return NEXT(unlink)(path);
}
