/* Writing down what was at a path before its first change, and keeping it where a commit may need it: at once, or, where that takes
 * long, in threads of their own, while the call waits.
 */
#pragma once
#include "asked.h"
#include "resolve.h"

#include <stdbool.h>

/* A path whose call waits until it is settled. */
struct job {
	struct job *next;
	struct asked *asked;
	struct path *path;
	int fd;			/* O_PATH; -1: there is nothing */
	struct stat facts;
	bool is_first;		/* the path's first change in this life */
	bool needs_base;
	bool takes_children;	/* a directory that is moved: what lies below it loses its name */
	bool brings_directory;	/* a directory is about to be moved here */
	int brought;		/* O_PATH of it; -1: none */
};

/* Read which paths need no base, and start the threads; see `prepare_following` in agent/capsule/file_tracking.py for the two files. Returns 0 or an
 * errno. */
int start_keeping(int directory);

/* A commit may need what is at a path that was not touched in this life. */
bool is_needed(const struct path *path);

/* Some commit may need what lies below a directory. */
bool is_any_needed(void);

/* Keep what `fd` leads to, if it must be, and write the first record of a path. */
void keep(uint64_t serial, const char *path, int fd, const struct stat *facts, bool needs_base);

/* With the lock held: let a thread do it, which takes over the descriptor of `place`. False: no memory. */
bool hand_over(const struct job *wanted, struct place *place);
