/* Whether a call may succeed, as far as that is told by modes and owners: what a process may not change is none of its files. */
#pragma once
#include <stdbool.h>
#include <sys/stat.h>

/* Whether thread `tid` may change a file; with `name`, whether it may remove or move it, for which the directory counts; with no
 * `facts`, whether it may make it there. `path` is its canonical name. Says true where it cannot be told: access control lists;
 * directories above that cannot be searched are not looked at, since a process may have a descriptor of one below. */
bool may_change(int tid, const char *path, const struct stat *facts, bool name);
