/* What the process has made since the reference, and how it is undone: threads end, descriptors are closed, mappings are given back, those
 * of memory without a file get the rights they had.
 *
 * `plan_undo` decides and changes nothing; `undo` has the process make the calls. Afterwards it has to be looked at and compared anew. */
#pragma once
#include <stdbool.h>

/* After a look that was compared. False: refused, since something cannot be undone: a mapping is gone, or another one. */
bool plan_undo(void);

/* Whether there is anything. */
bool is_to_undo(void);

/* False: refused, and the process is half of each. */
bool undo(void);
