/* A library to be loaded before others, by which the time of the day is another one: `CLOCK=SECONDS` since 1970, and with
 * `CLOCK_JUMPS` an hour more or less at every other look. Clocks that only run are left alone.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long seconds(void) {
    static int looks;
    const char *set = getenv("CLOCK");
    long jump = getenv("CLOCK_JUMPS") && __atomic_fetch_add(&looks, 1, __ATOMIC_RELAXED) % 2 ? 3600 : 0;
    return (set ? atol(set) : 0) + jump;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    if (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE) {
        return syscall(SYS_clock_gettime, clock, now);
    }
    *now = (struct timespec){.tv_sec = seconds()};
    return 0;
}

int gettimeofday(struct timeval *now, void *zone) {
    (void)zone;
    *now = (struct timeval){.tv_sec = seconds()};
    return 0;
}

time_t time(time_t *now) {
    time_t told = seconds();
    if (now) {
        *now = told;
    }
    return told;
}
