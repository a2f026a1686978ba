/* Makes the wall clock of one process wrong, by so many nanoseconds as the file WRONG_CLOCK says now; other clocks stay right. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *off;
static int (*real)(clockid_t, struct timespec *);

__attribute__((constructor)) static void begin(void) {
    real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int file = open(getenv("WRONG_CLOCK"), O_RDONLY);
    off = mmap(NULL, sizeof *off, PROT_READ, MAP_SHARED, file, 0);
    if (off == MAP_FAILED) abort();
    close(file);
}

int clock_gettime(clockid_t which, struct timespec *t) {
    int status = real ? real(which, t) : -1;
    if (status == 0 && off && (which == CLOCK_REALTIME || which == CLOCK_REALTIME_COARSE)) {
        int64_t now = (int64_t)t->tv_sec * 1000000000 + t->tv_nsec + *off;
        t->tv_sec = now / 1000000000;
        t->tv_nsec = now % 1000000000;
    }
    return status;
}

int gettimeofday(struct timeval *t, void *zone) {
    struct timespec now;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &now);
    t->tv_sec = now.tv_sec;
    t->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *t) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (t) *t = now.tv_sec;
    return now.tv_sec;
}
