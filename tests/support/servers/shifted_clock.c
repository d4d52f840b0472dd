/* Preloaded into a process: its clock is ahead by CLOCK_SHIFT_S seconds, or by the first long in the file
   CLOCK_SHIFT_FILE, which may grow meanwhile; files changed after the second, s since 1970, look as new as before. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static int (*real)(clockid_t, struct timespec *);
static long told_s[2];
static volatile long *shift_s = told_s;

__attribute__((constructor)) static void begin(void) {
    const char *told = getenv("CLOCK_SHIFT_S"), *name = getenv("CLOCK_SHIFT_FILE");
    int file = name ? open(name, O_RDONLY | O_CLOEXEC) : -1;
    real = dlsym(RTLD_NEXT, "clock_gettime");
    told_s[0] = told ? atol(told) : 0;
    if (file < 0)
        return;
    void *at = mmap(NULL, sizeof told_s, PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (at != MAP_FAILED)
        shift_s = at;
}

int clock_gettime(clockid_t clock, struct timespec *at) {
    if (!real)
        begin();
    int fault = real(clock, at);
    if (!fault && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        at->tv_sec += *shift_s;
    return fault;
}

time_t time(time_t *at) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (at)
        *at = now.tv_sec;
    return now.tv_sec;
}

int gettimeofday(struct timeval *restrict at, void *restrict zone) {
    (void)zone;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    at->tv_sec = now.tv_sec;
    at->tv_usec = now.tv_nsec / 1000;
    return 0;
}

/* The kernel waits by its own clock; a time since the machine's start is less than thirty years. */
static struct timespec kernels(const struct timespec *until) {
    struct timespec at = *until;
    if (at.tv_sec > 1000000000)
        at.tv_sec -= *shift_s;
    return at;
}

int pthread_cond_timedwait(pthread_cond_t *restrict changed, pthread_mutex_t *restrict mutex,
                           const struct timespec *restrict until) {
    static int (*wait)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
    if (!wait)
        wait = dlvsym(RTLD_NEXT, "pthread_cond_timedwait", "GLIBC_2.3.2");
    struct timespec at = kernels(until);
    return wait(changed, mutex, &at);
}

int sem_timedwait(sem_t *restrict free_, const struct timespec *restrict until) {
    static int (*wait)(sem_t *, const struct timespec *);
    if (!wait)
        wait = dlsym(RTLD_NEXT, "sem_timedwait");
    struct timespec at = kernels(until);
    return wait(free_, &at);
}

#define LOOK(name, arguments, given)                                                  \
    int name arguments {                                                              \
        static int (*look) arguments;                                                 \
        if (!look)                                                                    \
            look = dlsym(RTLD_NEXT, #name);                                           \
        int fault = look given;                                                       \
        if (!fault && shift_s[1] && of->st_mtim.tv_sec >= shift_s[1])                 \
            of->st_mtim.tv_sec += *shift_s;                                           \
        return fault;                                                                 \
    }

LOOK(stat64, (const char *restrict path, struct stat64 *restrict of), (path, of))
LOOK(lstat64, (const char *restrict path, struct stat64 *restrict of), (path, of))
LOOK(fstat64, (int file, struct stat64 *of), (file, of))
LOOK(fstatat64, (int folder, const char *restrict path, struct stat64 *restrict of, int how), (folder, path, of, how))
