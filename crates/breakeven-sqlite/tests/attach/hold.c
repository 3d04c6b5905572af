/* Of the file whose name ends in HOLD each sync says "sync" to the standard output, and fails if the standard input answers
 * "f". */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

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

int fdatasync(int file) {
    return fails(file) ? -1 : NEXT(fdatasync)(file);
}

int fsync(int file) {
    return fails(file) ? -1 : NEXT(fsync)(file);
}
