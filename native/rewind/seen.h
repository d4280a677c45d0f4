/* What is seen of the process beside its memory and registers (micro/look.h), compared with what was seen at the reference.
 *
 * All lines have to be the same, word for word, but for those of threads and descriptors that have come since (`extra`), of mappings
 * (undo.h), and of positions in files, which are put back. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

enum { EXTRA_MOST = 1024 };

struct position {
	int number;
	long long at;
};

/* Of the last look, and of connections what they have carried: it is what all later ones are compared with. */
bool keep_seen(void);

/* Nothing is left in the other ends of connections, so that what these have carried is not compared. */
extern bool others_are_reset;

/* Compares the last look; fills the lists of what is extra. False: refused, nothing was done. */
bool compare_seen(void);

/* What only the process itself can tell, by a round trip: kept, compared. False: refused. */
bool keep_hidden(void);
bool compare_hidden(void);
unsigned long long kept_break(void); /* its brk(2) */

/* Puts the positions of its open files back. False: refused. */
bool put_positions_back(void);

/* The lines of its mappings at the reference and now. */
const char *kept_mappings(void);
const char *seen_mappings(void);

extern int extra_descriptors[EXTRA_MOST], extra_descriptor_count;
bool is_extra_thread(int tid);
