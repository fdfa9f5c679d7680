// Preloaded, it makes $NO_LOCKS_BELOW a folder of a file system without locks: `flock` fails with ENOSYS as on Lustre
// without `-o flock`, and, where $NO_RECORD_LOCKS is set, locks of records with ENOLCK.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int is_below(int fd) {
  char link[64], path[4096] = "";
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  const char *folder = getenv("NO_LOCKS_BELOW");
  return folder && readlink(link, path, sizeof path - 1) > 0 && !strncmp(path, folder, strlen(folder));
}

int flock(int fd, int operation) {
  if (is_below(fd)) { errno = ENOSYS; return -1; }
  return ((int (*)(int, int))dlsym(RTLD_NEXT, "flock"))(fd, operation);
}

static int control(const char *name, int fd, int command, void *argument) {
  if ((command == F_SETLK || command == F_SETLKW || command == F_OFD_SETLK || command == F_OFD_SETLKW) &&
      getenv("NO_RECORD_LOCKS") && is_below(fd)) { errno = ENOLCK; return -1; }
  return ((int (*)(int, int, ...))dlsym(RTLD_NEXT, name))(fd, command, argument);
}

#define CONTROL(name)                             \
  int name(int fd, int command, ...) {            \
    va_list rest;                                 \
    va_start(rest, command);                      \
    void *argument = va_arg(rest, void *);        \
    va_end(rest);                                 \
    return control(#name, fd, command, argument); \
  }
CONTROL(fcntl)
CONTROL(fcntl64)
