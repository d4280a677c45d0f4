/* The mappings of the process (/proc/PID/maps), as they were read last. */
#pragma once
#include "base.h"
#include "memory_state.h"

extern struct mapping mappings[MAPPINGS_MOST]; /* by address */
extern int mapping_count;

/* Reads them. False: refused. */
bool read_mappings(void);

/* The same, but where nothing can have changed in them since they were read or last seen by name (`are_names_same`) they are known. */
bool know_mappings(void);

/* To be called while all threads stand still: reads them again, but for the names of those that are as they were read before. False:
 * refused. */
bool see_mappings(void);

/* Whether nothing can have changed in them from when they were read to a moment; false also where that cannot be told. */
bool are_mappings_as_of(struct memory_state state);

/* Asks as that does, for nothing. */
void rehearse_mappings(void);

#define NOT_SHARED UINT64_MAX

/* Of one of them: the inode of the memory that it shares and that is in no file with a name, of a System V segment the number of that, which may
 * be 0; NOT_SHARED: it does not. */
uint64_t inode_of_shared(int number);

/* Says each. */
void say_mappings(void);

/* That in which an address lies, or NULL. */
const struct mapping *mapping_of(uint64_t address);

/* The process runs again: whether all mappings of files are as they were said, name and all. False: refused. */
bool are_names_same(void);
