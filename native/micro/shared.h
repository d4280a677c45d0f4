/* Memory that processes share and that lies in no file with a name (mmap(2) with MAP_SHARED and MAP_ANONYMOUS, shmat(2)). It can be written
 * through any mapping of any process, which the kernel does not tell; so all of it is copied in each pause, by the first tracker whose process
 * has it. */
#pragma once
#include "regions.h"

extern struct shared_copies {
	struct region *at; /* each: where in the memory, and as `categories` its inode */
	size_t count;
	unsigned char *pages;
	size_t size;
} shared;

void make_room_for_shared(void);

/* Notes which of it the process has mapped. False: refused. */
bool see_shared(void);

/* All have met since they looked, and all stand still: copies what no tracker before this one copies. False: refused. */
bool copy_shared(void);
