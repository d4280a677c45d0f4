/* Branches that run over the host's files while the service goes on: before a path changes for the first time, each of them gets
 * what was there into its own upper layer.
 *
 * A branch is told of by a message on the socket `branches` (unix(7), SOCK_SEQPACKET) in the directory of the journal: one byte, the
 * number of its mount points, and behind it their paths, each ended by a zero byte; with it come two descriptors (SCM_RIGHTS) for each
 * point, in the same order: the root of its overlay, and the directory of its upper layer. Beside that lies a directory `between` if
 * layers lie between it and the host's files: relative links to them, by number from 0, the uppermost first. The answer is one byte.
 * The branch lives as long as the connection is open.
 */
#pragma once
#include <stdbool.h>
#include <sys/stat.h>

/* Returns 0 or an errno. */
int listen_for_branches(int directory);

bool has_branches(void);

/* A path is about to change; `facts`: of what is there, NULL where there is nothing. Returns when all branches have it. */
void tell_branches(const char *path, const struct stat *facts);
