/* The mappings of the process (/proc/PID/maps), as they were read last. */
#pragma once
#include "base.h"

extern struct mapping mappings[MAPPINGS_MOST]; /* by address */
extern int mapping_count;

/* Reads them, and says each. False: refused. */
bool read_mappings(void);

/* That in which an address lies, or NULL. */
const struct mapping *mapping_of(uint64_t address);
