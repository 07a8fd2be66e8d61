/* Stands before the C library of a broker (LD_PRELOAD): file calls that never return, late flushes, a wrong wall clock.
 *
 * What is wrong is said in a page of shared memory, a file named by KLOG_FAULTS_PAGE, that a test writes to:
 *
 *     int64     microseconds that each fsync, fdatasync and syncfs takes longer
 *     int64     microseconds that the wall clock is ahead (or behind, if negative); the monotonic clock is untouched
 *     char[16]  calls that wait for as long as they stand here, of files below KLOG_FAULTS_FOLDER:
 *               r  reads that the page cache does not answer; R  all reads
 *               w  writes and truncations                     s  syncs, of files, folders and the whole
 *               n  names: open, make, rename, remove, look at the room
 *
 * What a disk that answers no more does to a process: the call never returns, and no signal ends it. Nothing in the
 * broker knows of any of it.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

struct page {
    volatile int64_t flush_delay_us;
    volatile int64_t clock_ahead_us;
    volatile char hung[16];
};

static struct page *page;
static const char *folder;
static int (*real_clock_gettime)(clockid_t, struct timespec *);

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("KLOG_FAULTS_PAGE");
    int file = path ? (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0) : -1;
    void *mapped;
    real_clock_gettime = dlsym(RTLD_NEXT, "clock_gettime");
    folder = getenv("KLOG_FAULTS_FOLDER");
    if (file < 0) return;
    mapped = mmap(NULL, sizeof(struct page), PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (mapped != MAP_FAILED) page = mapped;
}

static int is_hung(char act) {
    size_t i;
    for (i = 0; page && i < sizeof page->hung; i++)
        if (page->hung[i] == act) return 1;
    return 0;
}

static void wait_at(char act, const char *path) {
    if (!is_hung(act) || !folder || strncmp(path, folder, strlen(folder))) return;
    while (is_hung(act)) usleep(10000);
}

static void wait_for(char act, int descriptor) {
    char link[64], path[PATH_MAX];
    long size;
    if (!is_hung(act)) return;
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    size = readlink(link, path, sizeof path - 1);
    if (size <= 0) return;
    path[size] = 0;
    wait_at(act, path);
}

static void be_late(void) {
    int64_t left = page ? page->flush_delay_us : 0;
    struct timespec pause = {left / 1000000, left % 1000000 * 1000};
    while (left > 0 && nanosleep(&pause, &pause) == -1 && errno == EINTR)
        ;
}

#define REAL(type, name, ...) ((type (*)(__VA_ARGS__))dlsym(RTLD_NEXT, name))

static void wait_to_read(int fd, const struct iovec *parts, int count, off64_t at) {
    wait_for('R', fd);
    if (!is_hung('r')) return;
    /* The page cache alone is asked first; what it says is thrown away, and read again. */
    if (syscall(SYS_preadv2, fd, parts, count, (long)at, 0L, RWF_NOWAIT) < 0 && errno == EAGAIN) wait_for('r', fd);
}

#define READS(name, offset) \
    ssize_t name(int fd, void *data, size_t size, offset at) { \
        struct iovec part = {data, size}; \
        wait_to_read(fd, &part, 1, at); \
        return REAL(ssize_t, #name, int, void *, size_t, offset)(fd, data, size, at); \
    }
READS(pread, off_t)
READS(pread64, off64_t)

#define READS_PARTS(name, offset) \
    ssize_t name(int fd, const struct iovec *parts, int count, offset at) { \
        wait_to_read(fd, parts, count, at); \
        return REAL(ssize_t, #name, int, const struct iovec *, int, offset)(fd, parts, count, at); \
    }
READS_PARTS(preadv, off_t)
READS_PARTS(preadv64, off64_t)

#define READS_UNLESS_TOLD(name, offset) \
    ssize_t name(int fd, const struct iovec *parts, int count, offset at, int flags) { \
        if (!flags) wait_to_read(fd, parts, count, at); \
        return REAL(ssize_t, #name, int, const struct iovec *, int, offset, int)(fd, parts, count, at, flags); \
    }
READS_UNLESS_TOLD(preadv2, off_t)
READS_UNLESS_TOLD(preadv64v2, off64_t)

#define WRITES(name, offset) \
    ssize_t name(int fd, const void *data, size_t size, offset at) { \
        wait_for('w', fd); \
        return REAL(ssize_t, #name, int, const void *, size_t, offset)(fd, data, size, at); \
    }
WRITES(pwrite, off_t)
WRITES(pwrite64, off64_t)

ssize_t write(int fd, const void *data, size_t size) {
    wait_for('w', fd);
    return syscall(SYS_write, fd, data, size);
}

#define CUTS(name, offset) \
    int name(int fd, offset size) { \
        wait_for('w', fd); \
        return REAL(int, #name, int, offset)(fd, size); \
    }
CUTS(ftruncate, off_t)
CUTS(ftruncate64, off64_t)

#define SYNCS(name) \
    int name(int fd) { \
        wait_for('s', fd); \
        be_late(); \
        return REAL(int, #name, int)(fd); \
    }
SYNCS(fsync)
SYNCS(fdatasync)
SYNCS(syncfs)

#define OPENS(name) \
    int name(const char *path, int flags, ...) { \
        va_list more; \
        mode_t mode; \
        va_start(more, flags); \
        mode = va_arg(more, mode_t); \
        va_end(more); \
        wait_at('n', path); \
        return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode); \
    }
OPENS(open)
OPENS(open64)

int rename(const char *source, const char *target) {
    wait_at('n', source);
    return REAL(int, "rename", const char *, const char *)(source, target);
}

int unlink(const char *path) {
    wait_at('n', path);
    return REAL(int, "unlink", const char *)(path);
}

int mkdir(const char *path, mode_t mode) {
    wait_at('n', path);
    return REAL(int, "mkdir", const char *, mode_t)(path, mode);
}

#define LOOKS(name, status) \
    int name(const char *path, struct status *found) { \
        wait_at('n', path); \
        return REAL(int, #name, const char *, struct status *)(path, found); \
    }
LOOKS(statvfs, statvfs)
LOOKS(statvfs64, statvfs64)

int clock_gettime(clockid_t clock, struct timespec *now) {
    int64_t ahead = page ? page->clock_ahead_us : 0, ns;
    int failed;
    if (!real_clock_gettime) real_clock_gettime = dlsym(RTLD_NEXT, "clock_gettime");
    failed = real_clock_gettime(clock, now);
    if (!failed && ahead && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        ns = now->tv_nsec + ahead % 1000000 * 1000;
        now->tv_sec += ahead / 1000000 + (ns >= 1000000000) - (ns < 0);
        now->tv_nsec = ns + (ns < 0 ? 1000000000 : ns >= 1000000000 ? -1000000000 : 0);
    }
    return failed;
}

int gettimeofday(struct timeval *now, void *zone) {
    struct timespec exact;
    int failed = clock_gettime(CLOCK_REALTIME, &exact);
    (void)zone;
    now->tv_sec = exact.tv_sec;
    now->tv_usec = exact.tv_nsec / 1000;
    return failed;
}

time_t time(time_t *out) {
    struct timespec exact;
    clock_gettime(CLOCK_REALTIME, &exact);
    if (out) *out = exact.tv_sec;
    return exact.tv_sec;
}
