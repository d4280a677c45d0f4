/* Keeping what a file holds before it changes. */
#pragma once
#include <stdint.h>
#include <sys/stat.h>

/* Where bases lie (a directory), and how large a file may be of which the bytes have to be copied [bytes]. */
void prepare_bases(int directory, uint64_t limit);

/* Copy a regular file, which `fd` (O_PATH) leads to, to the base of that serial, with its extended attributes; blocks are shared where
 * the file system can. Returns NULL, or the reason why there is no base. */
const char *keep_base(uint64_t serial, int fd, const struct stat *facts);

/* Keep the extended attributes of a directory, if it has some: those of the base of that serial, an empty directory. */
void keep_attributes(uint64_t serial, int fd);
