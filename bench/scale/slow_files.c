/* Counts what a program asks of the file system below SLOW_ROOT, and lets each question take SLOW_MS milliseconds,
 * as on a busy parallel file system: LD_PRELOAD=slow_files.so. At its end a process appends a line to SLOW_COUNTS:
 * the numbers of files opened, files looked at, folders listed, and changes of names.
 *
 * gcc -shared -fPIC -O2 -o slow_files.so slow_files.c -ldl
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { OPENED, LOOKED_AT, LISTED, CHANGED, KINDS };

static unsigned long counts[KINDS];
static int quiet; /* while this library itself opens a file */

static int is_below(const char *path)
{
    static char here[4096];
    const char *root = getenv("SLOW_ROOT");
    if (quiet || root == NULL || path == NULL)
        return 0;
    if (path[0] != '/')
        path = getcwd(here, sizeof here) ? here : "";
    return strncmp(path, root, strlen(root)) == 0;
}

static void asked(int kind, const char *path)
{
    const char *milliseconds = getenv("SLOW_MS");
    long wait = milliseconds ? atol(milliseconds) : 0;
    struct timespec pause = {wait / 1000, wait % 1000 * 1000000};
    if (!is_below(path))
        return;
    __atomic_add_fetch(&counts[kind], 1, __ATOMIC_RELAXED);
    if (wait)
        nanosleep(&pause, NULL);
}

__attribute__((destructor)) static void report(void)
{
    const char *file = getenv("SLOW_COUNTS");
    FILE *counted;
    if (quiet)
        return;
    quiet = 1;
    if (file == NULL || (counted = fopen(file, "a")) == NULL)
        return;
    fprintf(counted, "%lu %lu %lu %lu\n", counts[OPENED], counts[LOOKED_AT], counts[LISTED], counts[CHANGED]);
    fclose(counted);
}

#define NEXT(name) ((__typeof__(name) *)dlsym(RTLD_NEXT, #name))

void _exit(int code) /* castoff ends so */
{
    report();
    NEXT(_exit)(code);
    __builtin_unreachable();
}

#define OPENS(name)                                                \
    int name(const char *path, int flags, ...)                     \
    {                                                              \
        va_list more;                                              \
        mode_t mode;                                               \
        va_start(more, flags);                                     \
        mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(more, int) : 0; \
        va_end(more);                                              \
        asked(OPENED, path);                                       \
        return NEXT(name)(path, flags, mode);                      \
    }
#define OPENS_AT(name)                                             \
    int name(int folder, const char *path, int flags, ...)         \
    {                                                              \
        va_list more;                                              \
        mode_t mode;                                               \
        va_start(more, flags);                                     \
        mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(more, int) : 0; \
        va_end(more);                                              \
        asked(OPENED, path);                                       \
        return NEXT(name)(folder, path, flags, mode);              \
    }
#define ASKS(kind, name, parameters, arguments) \
    int name parameters                         \
    {                                           \
        asked(kind, path);                      \
        return NEXT(name) arguments;            \
    }

OPENS(open)
OPENS(open64)
OPENS_AT(openat)
OPENS_AT(openat64)
ASKS(LOOKED_AT, stat, (const char *path, struct stat *found), (path, found))
ASKS(LOOKED_AT, stat64, (const char *path, struct stat64 *found), (path, found))
ASKS(LOOKED_AT, lstat, (const char *path, struct stat *found), (path, found))
ASKS(LOOKED_AT, lstat64, (const char *path, struct stat64 *found), (path, found))
ASKS(LOOKED_AT, fstatat, (int folder, const char *path, struct stat *found, int flags), (folder, path, found, flags))
ASKS(LOOKED_AT, fstatat64, (int folder, const char *path, struct stat64 *found, int flags), (folder, path, found, flags))
ASKS(LOOKED_AT, statx, (int folder, const char *path, int flags, unsigned mask, struct statx *found),
     (folder, path, flags, mask, found))
ASKS(LOOKED_AT, access, (const char *path, int mode), (path, mode))
ASKS(CHANGED, mkdir, (const char *path, mode_t mode), (path, mode))
ASKS(CHANGED, rmdir, (const char *path), (path))
ASKS(CHANGED, unlink, (const char *path), (path))
ASKS(CHANGED, unlinkat, (int folder, const char *path, int flags), (folder, path, flags))
ASKS(CHANGED, rename, (const char *path, const char *to), (path, to))
ASKS(CHANGED, symlink, (const char *to, const char *path), (to, path))
ASKS(CHANGED, link, (const char *path, const char *to), (path, to))

DIR *opendir(const char *path)
{
    asked(LISTED, path);
    return NEXT(opendir)(path);
}

DIR *fdopendir(int folder)
{
    if (!quiet)
        __atomic_add_fetch(&counts[LISTED], 1, __ATOMIC_RELAXED);
    return NEXT(fdopendir)(folder);
}

ssize_t readlink(const char *path, char *target, size_t size)
{
    asked(LOOKED_AT, path);
    return NEXT(readlink)(path, target, size);
}

char *realpath(const char *path, char *resolved)
{
    asked(LOOKED_AT, path);
    return NEXT(realpath)(path, resolved);
}
