/* The set of paths that the service has touched, each with what is known of it. Not for several threads at once. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct waiting;

struct path {
	struct path *next;
	uint64_t serial;		/* of the record of its first touch in this life */
	struct waiting *waiting;	/* calls that go on when its base is kept */
	uint32_t hash;
	uint32_t epoch;			/* of its last record */
	bool is_noted;			/* touched in this life; else it is only known that no earlier commit needs a base of it */
	bool is_busy;			/* its base is being kept */
	bool was_absent;		/* before its first touch */
	bool is_listed;			/* among names that may have come and gone */
	char text[];
};

/* The entry of a path; made, with nothing set, where there is none and `make`. NULL: none, or no memory. */
struct path *find_path(const char *text, bool make);

/* Remove an entry that nobody waits for. */
void forget_path(struct path *path);
