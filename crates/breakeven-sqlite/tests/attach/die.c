/* Kills the process before one of the calls by which SQLite's own VFS changes files: the one of the number in DIE_AT,
 * counted from the removal of a file named `start`. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
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
    return NEXT(fdatasync)(file);
}

int fsync(int file) {
    step();
    return NEXT(fsync)(file);
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
