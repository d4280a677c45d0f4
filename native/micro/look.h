/* What can be seen of the process from outside. */
#pragma once
#include <stdbool.h>

/* Fills `threads`. False: refused. */
bool find_threads(void);

/* Says all that may change from one commit to the next, into `text` from its beginning; also fills `caught`, each thread's `inside` and the
 * mappings. To be called while all threads stand still. False: refused. */
bool look(void);

/* Does some of it while the process runs, for nothing: all that the pause needs lies in the processor's caches then. */
void rehearse(void);

/* Of the last look: keeps what has to be the same in each commit, and tells whether it is. */
void keep_as_base(void);
bool is_as_base(void);

/* Of the last look, which became a commit: its connections are followed, and others like them will be. */
void keep_kinds(void);

/* What seldom changes, or takes long to be seen: to be called when the process runs again. It goes to `afterwards`. False: refused. */
bool look_afterwards(void);

extern struct text afterwards;
