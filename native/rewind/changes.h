/* Which pages of the process are not, or may not be, as in the reference.
 *
 * A page that counts as not written (tracker/userfault.h) and is there has the content of the reference. The kernel is asked once which pages
 * were written; only of those that the reference does not have is it asked what they are.
 *
 * It changes nothing, and may be done by another thread while the first one compares other things. */
#pragma once
#include "../micro/regions.h"

extern struct run_list differing; /* in the reference: written since, or not there any more */
extern struct run_list surplus;	  /* not in the reference, and there */
extern struct run_list passed;	  /* not in the reference, there, and of no account, but that the kernel tells of it: zero pages, pages of files */
extern bool has_untracked;	  /* of some mappings nothing is noted; all of them counts as written */

void make_room_for_changes(void);

/* To be called while all threads are held, with the mappings as in the reference, just read. `kept`: where that has memory, by address; no region
 * both in a file's mapping and elsewhere. Each list is by address; a region of `surplus` is in one mapping. False: refused. */
bool find_changes(const struct run_list *kept);
