/* Preloaded into a broker: file calls below HUNG_FOLDER wait for as long as the file HUNG_SWITCH names them.
 *
 *   r  reads that the page cache does not answer; R  all reads
 *   w  writes and truncations                     s  syncs, of files, folders and the whole
 *   n  names: open, make, rename, remove, look at the room
 *
 * What a disk that answers no more does to a process: the call never returns, and no signal ends it.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static int is_hung(char act) {
    const char *path = getenv("HUNG_SWITCH");
    char acts[16];
    long descriptor, size, i;
    if (!path) return 0;
    descriptor = syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
    if (descriptor < 0) return 0;
    size = syscall(SYS_read, descriptor, acts, sizeof acts);
    syscall(SYS_close, descriptor);
    for (i = 0; i < size; i++)
        if (acts[i] == act) return 1;
    return 0;
}

static void wait_at(char act, const char *path) {
    const char *folder = getenv("HUNG_FOLDER");
    if (!folder || strncmp(path, folder, strlen(folder))) return;
    while (is_hung(act)) usleep(10000);
}

static void wait_for(char act, int descriptor) {
    char link[64], path[PATH_MAX];
    long size;
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    size = readlink(link, path, sizeof path - 1);
    if (size <= 0) return;
    path[size] = 0;
    wait_at(act, path);
}

#define REAL(type, name, ...) ((type (*)(__VA_ARGS__))dlsym(RTLD_NEXT, name))

static void wait_to_read(int fd, const struct iovec *parts, int count, off64_t at) {
    wait_for('R', fd);
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
