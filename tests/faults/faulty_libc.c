/* Stands before the C library of a broker (LD_PRELOAD): makes flushes late and the wall clock wrong, on command.
 *
 * The command is a page of shared memory, a file named by KLOG_FAULTS_PAGE, that the runner writes to:
 *
 *     int64  microseconds that each fsync, fdatasync and syncfs takes longer
 *     int64  microseconds that the wall clock is ahead (or behind, if negative); the monotonic clock is untouched
 *
 * Nothing in the broker knows of it.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

struct page {
    volatile int64_t flush_delay_us;
    volatile int64_t clock_ahead_us;
};

static struct page *page;
static int (*real_clock_gettime)(clockid_t, struct timespec *);

__attribute__((constructor)) static void begin(void) {
    real_clock_gettime = dlsym(RTLD_NEXT, "clock_gettime");
    const char *path = getenv("KLOG_FAULTS_PAGE");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0)
        return;
    void *mapped = mmap(NULL, sizeof(struct page), PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (mapped != MAP_FAILED)
        page = mapped;
}

static void late(void) {
    int64_t left = page ? page->flush_delay_us : 0;
    if (left > 0) {
        struct timespec pause = {left / 1000000, left % 1000000 * 1000};
        while (nanosleep(&pause, &pause) == -1 && errno == EINTR)
            ;
    }
}

#define LATE(name)                                              \
    int name(int file) {                                        \
        static int (*real)(int);                                \
        if (!real)                                              \
            real = (int (*)(int))dlsym(RTLD_NEXT, #name);       \
        late();                                                 \
        return real(file);                                      \
    }

LATE(fsync)
LATE(fdatasync)
LATE(syncfs)

int clock_gettime(clockid_t clock, struct timespec *now) {
    if (!real_clock_gettime)
        real_clock_gettime = dlsym(RTLD_NEXT, "clock_gettime");
    int failed = real_clock_gettime(clock, now);
    int64_t ahead = page ? page->clock_ahead_us : 0;
    if (!failed && ahead && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        int64_t ns = now->tv_nsec + ahead % 1000000 * 1000;
        now->tv_sec += ahead / 1000000 + (ns >= 1000000000) - (ns < 0);
        now->tv_nsec = ns + (ns < 0 ? 1000000000 : ns >= 1000000000 ? -1000000000 : 0);
    }
    return failed;
}

int gettimeofday(struct timeval *now, void *zone) {
    (void)zone;
    struct timespec exact;
    int failed = clock_gettime(CLOCK_REALTIME, &exact);
    now->tv_sec = exact.tv_sec;
    now->tv_usec = exact.tv_nsec / 1000;
    return failed;
}

time_t time(time_t *out) {
    struct timespec exact;
    clock_gettime(CLOCK_REALTIME, &exact);
    if (out)
        *out = exact.tv_sec;
    return exact.tv_sec;
}
