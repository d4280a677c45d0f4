/* The files of the branch, all of which are its own: that none has changed since the reference, and the few that are put back.
 *
 *  - What may be written in the branch's root (layers of overlays, file systems in memory) is looked at: each entry by number, rights, size
 *    and times, those in memory by content, too. A directory with the same times has the same names. A difference cannot be put back.
 *  - The few that Relive has made for it (what the service says, rings of its recorder) are kept with their content.
 *
 * A time of change tells every write since a look: the kernel gives each that follows one another time (Linux 6.13, multigrain timestamps);
 * before that, the reference is not complete until the clock of such times has moved on. */
#pragma once
#include <stdbool.h>

/* To be called while all threads stand still; `directory`: of the branch. Each false: refused. */
bool keep_files(const char *directory);
bool compare_files(void);

/* False: refused, and the files are half of each. */
bool put_files_back(void);
